// Measures the extent to which attention depends only on the relative position, and how it falls
// with the distance: Liutkus et al. (ICML 2021), appendix D.3 and Table 7, for attention matrices
// before or after the softmax normalization.
//
// Reference: none (the tests count by loops)
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// Returns the attention matrix of D.3, the effect of positions alone: the mean of exp(scores) over
/// sequences of one repeated token, one for each token of the vocabulary. `scores` gets tokens [1,
/// length] (i64) and returns [1, H, length, length], floating, with −∞ for masked keys: the scores
/// of the first layer, such as LanguageModel::attention_scores. Result: f64 [H, length, length], on
/// the CPU, each head up to a factor (exp can overflow), which does not affect the measures below.
/// Stochastic positional encodings draw new noise for each token, so that it is averaged, too.
Tensor identical_token_attention(const std::function<Tensor(const Tensor& tokens)>& scores,
                                 int64_t vocabulary, int64_t length);

/// The entries of an attention matrix that are measured: query rows first … last − 1, and keys at
/// distances (query − key position) of 0 … max_distance, if they exist.
struct AttentionRange {
  int64_t first = 0;
  int64_t last = 0;           ///< 0: L
  int64_t max_distance = -1;  ///< −1: all
};

/// attention [L, L] or [H, L, L], floating, row = query, on the CPU → f64, 0-d or [H]: the variance
/// within each distance over the variance of all entries,
///
///   Σ_d n_d var(distance) / (Σ_d n_d · var(all))
///
/// where n_d is the number of entries at a distance, and variances are divided by their numbers
/// of entries. 0: every diagonal is constant (also for a single entry); near 1: the entries do not
/// depend on the distance.
Tensor translation_invariance(const Tensor& attention, AttentionRange range = {});

/// Same arguments. Returns the fraction of pairs of keys in a row, over all rows, whose
/// farther key has the strictly larger entry. 0: attention never grows with the distance; 1:
/// it always does. Rows with one key have no pairs; NaN if there are no pairs at all. O(n log
/// n) for a row of n keys.
Tensor monotonicity(const Tensor& attention, AttentionRange range = {});

/// The lowest value of each measure among the first layer's heads, for queries first … last − 1 and
/// keys less than `distances` positions before them.
struct PositionMeasure {
  int64_t first, last, distances;
  double invariance, monotonicity;
};

/// Returns both measures for three ranges of queries: the first half of the `trained` length, its
/// second half, and the positions from `trained` up to `length`. For each range, distances are
/// limited to less than 1/16, 1/4 and 1/2 of the trained length (in the paper, with a trained
/// length of 2,048: 128, 512 and 1,024). Empty ranges are left out.
///
/// Stochastic positional encodings draw new noise for each token of the vocabulary, from `seed`;
/// the random state is restored afterwards. Throws Interrupted when the user stops the program.
std::vector<PositionMeasure> position_measures(nn::LanguageModel& model, int64_t trained,
                                               int64_t length, uint64_t seed);

}  // namespace stretto::examples
