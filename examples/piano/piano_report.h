// Charts and pictures of train_music: loss by position, music, and attention maps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/report/report.h"
#include "music/midi_writer.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// The mean loss of the positions first … last − 1.
struct PositionBucket {
  int64_t first, last;
  double loss;
};

/// Returns buckets of `width` positions. The last bucket may be smaller, and a bucket ends at
/// `trained`.
std::vector<PositionBucket> position_buckets(const std::vector<double>& losses, int64_t trained,
                                             int64_t width);

/// Returns two curves: the buckets within the trained length, and those past it (extrapolation).
std::vector<Series> position_curves(const std::vector<PositionBucket>& buckets, int64_t trained);

/// Draws the notes of `song` over time.
std::string song_roll(const music::Song& song, const std::string& title);

struct AttentionPictureOptions {
  std::vector<int64_t> layers;  ///< counted from 1; empty: the first and the last
  int64_t heads = 4;            ///< number of heads per layer
};

/// Returns the attention weights of the model over `tokens` [1, L]: queries downwards,
/// keys to the right.
ReportMaps attention_maps(nn::LanguageModel& model, const Tensor& tokens,
                          const AttentionPictureOptions& options);

/// Returns the templates P_d (ops/spe/spe.h) of a model with stochastic positional encodings at
/// distances 0 … n − 1: distance to the right, feature downwards, a map for each of the first
/// `heads` heads of each layer in `layers` (as above). Layers that share a code (SpeCode) differ by
/// their gates. Returns nothing for other models.
std::optional<ReportMaps> template_maps(const nn::LanguageModel& model, int64_t n,
                                        const AttentionPictureOptions& options);

}  // namespace stretto::examples
