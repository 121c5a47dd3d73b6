// Harmonising a melody: an encoder reads the soprano of a chorale, a decoder writes alto, tenor and
// bass, sixteenth by sixteenth. Settings, data, training and the search for the likeliest harmony.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/chorales/chorale_options.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/training/model_training.h"
#include "nn/models/sequence_to_sequence.h"

namespace stretto::examples {

/// What fixes a run, as ChoraleSettings do for the other program.
struct HarmonySettings : ChoraleModelSettings {
  HarmonySettings() : ChoraleModelSettings(2, 64) { position = "sinusoid+music"; }

  double label_smoothing = 0;

  bool operator==(const HarmonySettings&) const = default;

  /// Throws UsageError, naming option and value, for what cannot be trained.
  void check() const;
  /// A training takes more bytes than this.
  double least_memory() const;
  nn::SequenceToSequence::Options model() const;
  /// Of the encoder, which sees `length` sixteenths, or of the decoder, which writes three voices.
  nn::PositionSettings positions(bool encoder) const;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("label_smoothing", s.label_smoothing);
    ChoraleModelSettings::each_of_chorales(s, f);
  }
};

/// What the model sees and has to say of N sixteenths; all [B, ..].
struct HarmonyBatch {
  Tensor soprano;  // i64 [B, N]
  Tensor padding;  // bool [B, N], true beyond the end of the piece
  Tensor inputs;   // i64 [B, 3N], what was written before each target
  Tensor targets;  // i64 [B, 3N]: A T B of the first sixteenth, of the second, …
};

/// The same crops of chorales, seen as a task for harmonisation. Input and target are those of the
/// four voices in turn, of whole sixteenths.
HarmonyBatch harmony_batch(const nn::Batch& four_voices);

/// Mean negative log-likelihood in nats per token of alto, tenor and bass over all of `pieces`, in
/// windows of `length` sixteenths (scoring_batches). Throws Interrupted when the user stops the
/// program.
double harmony_loss(nn::SequenceToSequence& model, const std::vector<Chorale>& pieces,
                    int64_t length, int64_t stride, int64_t batch);

/// An encoder and decoder with the pieces they learn from; see ChoraleTraining.
class HarmonyTraining final
    : public ModelTraining<nn::SequenceToSequence, nn::AdamW, HarmonySettings> {
 public:
  HarmonyTraining(const HarmonySettings& settings, std::vector<Chorale> pieces, Device device);
  Tensor loss(int64_t step) override;

 private:
  const std::vector<Chorale> pieces_;
};

/// The soprano of `melody` (its other voices are not looked at) with the likeliest lower voices
/// that a beam finds. A piece longer than `length` sixteenths is done in windows of that length,
/// each of which continues the second half of the one before. Throws Interrupted as above.
Chorale harmonise(nn::SequenceToSequence& model, const Chorale& melody, int64_t length,
                  int64_t beam);

/// The share of alto, tenor and bass that are the same in both; 0 to 1.
double agreement(const Chorale& a, const Chorale& b);

}  // namespace stretto::examples
