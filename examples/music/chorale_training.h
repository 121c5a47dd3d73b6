// One training of a Music Transformer on chorales: its settings, its model, its losses, and the
// checkpoint that continues it bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/common/model_training.h"
#include "examples/music/chorale_options.h"
#include "examples/music/chorale_tokens.h"
#include "nn/checkpoint.h"
#include "nn/music_transformer.h"
#include "nn/optim.h"

namespace stretto::examples {

/// What fixes a run: with the same settings and data every step has the same bits, whatever the
/// number of threads. All of it is kept in the checkpoint.
struct ChoraleSettings {
  std::string attention = "relative";  // or "absolute": sinusoids added to the input
  int64_t layers = 4;
  int64_t d_model = 128;
  int64_t heads = 4;
  int64_t d_hidden = 512;
  double dropout = 0.1;
  double attention_dropout = 0;

  int64_t length = 512;
  int64_t batch = 8;
  int64_t transpose = 5;
  double learning_rate = 2e-3;
  int64_t warmup = 100;
  double weight_decay = 0.01;
  double clip = 1;
  int64_t steps = 0;  // 0: no number of steps was given; the schedule follows the clock
  uint64_t seed = 1;

  bool operator==(const ChoraleSettings&) const = default;

  /// check_training, and a length of whole sixteenths.
  void check() const;
  /// A training takes more bytes than this: parameters with their gradients and moments, and of
  /// the activations those that surely stay until the backward pass.
  double least_memory() const;
  nn::MusicTransformer::Options model() const;

  template <class S, class F>
  static void each(S& s, F&& f) {
    f("attention", s.attention);
    each_training(s, f);
  }
  /// Names and values as texts, for a checkpoint's notes and for messages.
  nn::Metadata to_notes() const;
  /// Throws UsageError, naming `path`, when notes are missing or malformed.
  static ChoraleSettings from_notes(const nn::Metadata& notes, const std::string& path);
};

/// Mean negative log-likelihood in nats per token over all of `pieces` (scoring_batches). Throws
/// Interrupted when the user stops the program.
double validation_loss(nn::MusicTransformer& model, const std::vector<Chorale>& pieces,
                       int64_t length, int64_t stride, int64_t batch);

/// A name for the data of a run.
std::string fingerprint(const std::vector<Chorale>& pieces);
/// What load_run says of other data.
inline constexpr const char* other_chorales =
    "chorales than those of --data (or of --seed without it)";

/// A Music Transformer with the pieces it learns from.
class ChoraleTraining : public ModelTraining<nn::MusicTransformer, nn::AdamW, ChoraleSettings> {
 public:
  ChoraleTraining(const ChoraleSettings& settings, std::vector<Chorale> pieces, Device device);

  /// One update on batch `step()` of the data. `progress` in [0, 1] sets the learning rate where
  /// settings.steps is 0. Throws as update() does.
  StepResult train_step(double progress);

 private:
  const std::vector<Chorale> pieces_;
};

/// A continuation of `opening` (may be empty) of up to `steps` further sixteenths, or fewer when
/// the model ends the piece. Returns opening and continuation. Throws Interrupted as above.
Chorale continue_chorale(nn::MusicTransformer& model, const Chorale& opening, int64_t steps,
                         int64_t context, double temperature, double top_p, uint64_t seed);

}  // namespace stretto::examples
