// What train_music shows: the loss against the position, the music, and what the model looks at.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/midi/midi.h"
#include "examples/report/report.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// The mean loss of the positions first … last − 1.
struct PositionBucket {
  int64_t first, last;
  double loss;
};

/// Buckets of `width` positions, the last one of what is left; one ends at `trained`.
std::vector<PositionBucket> position_buckets(const std::vector<double>& losses, int64_t trained,
                                             int64_t width);

/// The buckets up to the length that was trained, and those beyond, as two curves.
std::vector<Series> position_curves(const std::vector<PositionBucket>& buckets, int64_t trained);

/// The notes of `song` over time; of a piece too long to draw (2000 beats), its beginning.
Picture song_roll(const Song& song, const std::string& title);

struct AttentionPictureOptions {
  std::vector<int64_t> layers;  // counted from 1; none: the first and the last
  int64_t heads = 4;            // the first ones of each
};

/// Attention weights of the model over `tokens` [1, L]: query downwards, key to the right.
ReportMaps attention_maps(nn::LanguageModel& model, const Tensor& tokens,
                          const AttentionPictureOptions& options);

/// The templates P_d (ops/spe/spe.h) of a model with stochastic positions, at lags 0 … n − 1: lag
/// to the right, dimension downwards, a map for each of the first `heads` heads of each layer in
/// `layers` (as above); layers that share a code differ by their gates. Nothing for other models.
std::optional<ReportMaps> template_maps(const nn::LanguageModel& model, int64_t n,
                                        const AttentionPictureOptions& options);

}  // namespace stretto::examples
