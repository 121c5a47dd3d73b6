// The program train_chorales: trains a Music Transformer on four-voice chorales and generates some.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/chorales/chorale_settings.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/training/model_program.h"

namespace stretto::examples {

/// All settings are stored in the checkpoint. With the same settings and data every step is
/// bit-identical, whatever the number of threads.
struct ChoraleSettings : ChoraleModelSettings {
  ChoraleSettings() : ChoraleModelSettings(4, 512) {}

  bool operator==(const ChoraleSettings&) const = default;

  /// Throws UsageError, naming option and value, for settings that cannot be trained.
  void check() const;
  /// Returns a lower bound of the bytes that training takes.
  double least_memory() const;
  /// Returns the position settings; tables of limited size have twice `length` positions.
  nn::PositionSettings positions() const;
  nn::LanguageModel::Options model() const;

  template <class S, class F>
  static void each(S& s, F&& f) {
    each_of_run(s, f);
    each_of_chorales(s, f, "Sequence length in tokens (4 per sixteenth)", 4);
  }
};

/// Returns the mean negative log-likelihood in nats per token over all of `pieces`
/// (scoring_batches). Throws Interrupted when the user stops the program.
double validation_loss(nn::LanguageModel& model, const std::vector<Chorale>& pieces, int64_t length,
                       int64_t stride, int64_t batch);

/// Returns a digest that identifies the data of a run.
std::string fingerprint(const std::vector<Chorale>& pieces);
/// The end of the error of TrainingProgram::load for other data.
inline constexpr const char* other_chorales =
    "chorales than those of --data (or of --seed without it)";

/// Continues `opening` (may be empty) by up to `steps` sixteenths, fewer if the model ends the
/// piece, with a cache of at most `limit` positions. Returns opening and continuation. Throws
/// Interrupted as validation_loss() does.
Chorale continue_chorale(nn::LanguageModel& model, const Chorale& opening, int64_t steps,
                         int64_t limit, const nn::SamplingOptions& sampling, uint64_t seed);

class ChoraleProgram : public TokenProgram<ChoraleSettings> {
 public:
  ChoraleProgram() : TokenProgram({.out = "out/chorales"}) {}

  void declare(OptionList& options);

  /// Creates the model and its trainer for the training pieces.
  void start(std::vector<Chorale> pieces);

 private:
  void resolve() override;
  void fit_generation();
  void prepare() override;
  void begin() override;
  nn::Batch training(int64_t i) override;
  double validate() override { return validate(settings.length); }
  double validate(int64_t stride);
  void report() override;
  void draw_attention();
  void write_music();

  std::string data_;
  int64_t final_stride_ = 16;
  int64_t generate_ = 128;
  int64_t prime_ = 32;
  nn::SamplingOptions sampling_{.top_p = 0.95};

  ChoraleSet pieces_;
  double unigram_ = 0, bigram_ = 0;  // the baselines' losses
};

}  // namespace stretto::examples
