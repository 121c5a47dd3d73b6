// One training of a Music Transformer on chorales: its settings, its model, its losses, and the
// checkpoint that continues it bit for bit.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "examples/chorales/chorale_options.h"
#include "examples/chorales/chorale_tokens.h"
#include "examples/training/model_training.h"
#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/training/checkpoint.h"

namespace stretto::examples {

/// What fixes a run: with the same settings and data every step has the same bits, whatever the
/// number of threads. All of it is kept in the checkpoint.
struct ChoraleSettings : ChoraleModelSettings {
  ChoraleSettings() : ChoraleModelSettings(4, 512) {}

  bool operator==(const ChoraleSettings&) const = default;

  /// check_chorales(), and a length of whole sixteenths.
  void check() const;
  /// A training takes more bytes than this.
  double least_memory() const;
  /// Positions that a sequence may have, where tables end: twice the length.
  nn::PositionSettings positions() const;
  nn::LanguageModel::Options model() const;

  template <class S, class F>
  static void each(S& s, F&& f) {
    ChoraleModelSettings::each_of_chorales(s, f);
  }
};

/// Mean negative log-likelihood in nats per token over all of `pieces` (scoring_batches). Throws
/// Interrupted when the user stops the program.
double validation_loss(nn::LanguageModel& model, const std::vector<Chorale>& pieces, int64_t length,
                       int64_t stride, int64_t batch);

/// A name for the data of a run.
std::string fingerprint(const std::vector<Chorale>& pieces);
/// What ModelTraining::load says of other data.
inline constexpr const char* other_chorales =
    "chorales than those of --data (or of --seed without it)";

/// A Music Transformer with the pieces it learns from.
class ChoraleTraining final : public ModelTraining<nn::LanguageModel, nn::AdamW, ChoraleSettings> {
 public:
  ChoraleTraining(const ChoraleSettings& settings, std::vector<Chorale> pieces, Device device);

  Tensor loss(int64_t step) override;

 private:
  const std::vector<Chorale> pieces_;
};

/// A continuation of `opening` (may be empty) of up to `steps` further sixteenths, or fewer when
/// the model ends the piece, with a cache of this limit. Returns opening and continuation. Throws
/// Interrupted as above.
Chorale continue_chorale(nn::LanguageModel& model, const Chorale& opening, int64_t steps,
                         int64_t limit, double temperature, double top_p, uint64_t seed);

}  // namespace stretto::examples
