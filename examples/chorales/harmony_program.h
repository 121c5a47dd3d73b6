// The program harmonize: trains a Transformer to harmonize a melody. Its encoder reads the soprano
// of a chorale, its decoder generates alto, tenor and bass, sixteenth by sixteenth.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/chorales/chorale_settings.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/training/model_program.h"
#include "nn/models/sequence_to_sequence.h"

namespace stretto::examples {

/// The settings of a run, as ChoraleSettings.
struct HarmonySettings : ChoraleModelSettings {
  HarmonySettings() : ChoraleModelSettings(2, 64) { position = "sinusoid+music"; }

  double label_smoothing = 0;

  bool operator==(const HarmonySettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  /// Returns a lower bound of the bytes that training takes.
  double least_memory() const;
  nn::SequenceToSequence::Options model() const;
  /// Returns the position settings of the encoder, which reads `length` sixteenths, or of the
  /// decoder, which generates three tokens per sixteenth.
  nn::PositionSettings positions(bool encoder) const;

  template <class S, class F>
  static void each(S& s, F&& f) {
    each_of_run(s, f);
    f("label_smoothing", s.label_smoothing,
      "Label smoothing: fraction of the target distribution that is uniform over all tokens",
      require_share);
    each_of_chorales(s, f, "Sequence length in sixteenths", 2);
  }
};

/// Inputs and targets for N sixteenths, batch dimension first.
struct HarmonyBatch {
  Tensor soprano;  ///< i64 [B, N]
  Tensor padding;  ///< bool [B, N], true past the end of the piece
  Tensor inputs;   ///< i64 [B, 3N], the token before each target
  Tensor targets;  ///< i64 [B, 3N]: A T B of the first sixteenth, of the second, …
};

/// Converts crops of all four voices, which must consist of whole sixteenths, to
/// the harmonization task.
HarmonyBatch harmony_batch(const nn::Batch& four_voices);

/// Returns the mean negative log-likelihood in nats per token of alto, tenor and bass over all of
/// `pieces`, in windows of `length` sixteenths (scoring_batches). Throws Interrupted when the user
/// stops the program.
double harmony_loss(nn::SequenceToSequence& model, const std::vector<Chorale>& pieces,
                    int64_t length, int64_t stride, int64_t batch);

/// Returns the soprano of `melody` (its other voices are ignored) with the most likely lower
/// voices found by beam search. A piece longer than `length` sixteenths is processed in windows
/// of that length, each of which continues the second half of the previous one. Throws
/// Interrupted as harmony_loss() does.
Chorale harmonize(nn::SequenceToSequence& model, const Chorale& melody, int64_t length,
                  int64_t beam);

/// Returns the fraction (0 to 1) of notes of alto, tenor and bass that are equal in both pieces.
double agreement(const Chorale& a, const Chorale& b);

class HarmonyProgram : public ModelProgram<HarmonySettings, nn::SequenceToSequence> {
 public:
  HarmonyProgram() : ModelProgram({.out = "out/harmony"}) {}

  void declare(OptionList& options);

  /// Creates the model and its trainer for the training pieces.
  void start(std::vector<Chorale> pieces);

 private:
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
  double unigram_ = 0, bigram_ = 0;  // the baselines' losses
};

}  // namespace stretto::examples
