// A program that trains a Transformer to harmonise a melody: its encoder reads the soprano of a
// chorale, its decoder writes alto, tenor and bass, sixteenth by sixteenth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/chorales/chorale_settings.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/training/training_program.h"
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
    each_of_run(s, f);
    f("label_smoothing", s.label_smoothing,
      "Share of the training target that is spread over all tokens", require_share);
    each_of_chorales(s, f, "Sixteenths that the model sees at once", 2);
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

/// The soprano of `melody` (its other voices are not looked at) with the likeliest lower voices
/// that a beam finds. A piece longer than `length` sixteenths is done in windows of that length,
/// each of which continues the second half of the one before. Throws Interrupted as above.
Chorale harmonise(nn::SequenceToSequence& model, const Chorale& melody, int64_t length,
                  int64_t beam);

/// The share of alto, tenor and bass that are the same in both; 0 to 1.
double agreement(const Chorale& a, const Chorale& b);

class HarmonyProgram : public TrainingProgram {
 public:
  HarmonyProgram() : TrainingProgram({.out = "out/harmony"}) {}

  void declare(OptionList& options);

  /// Makes the model and its trainer with the pieces to learn from.
  void start(std::vector<Chorale> pieces);

  HarmonySettings settings;
  nn::SequenceToSequence* model = nullptr;

 private:
  void resolve() override;
  int64_t count_parameters() override;
  void prepare() override;
  void begin() override;
  Tensor loss(int64_t step) override;
  double validate() override { return validate(settings.length); }
  double validate(int64_t stride);
  void report() override;
  void write_music(int64_t number);

  std::string data_;
  int64_t beam_ = 4;
  int64_t n_written_ = 2;

  ChoraleSet pieces_;
  double unigram_ = 0, bigram_ = 0;  // the losses of counting
};

}  // namespace stretto::examples
