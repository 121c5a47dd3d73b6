// How far attention depends on distance alone, and how far it falls with distance: the measures of
// Liutkus et al. (ICML 2021), appendix D.3 and Table 7, for attention matrices before softmax's
// division or after it.
//
// Reference: none (its tests count by loops)
#pragma once

#include <functional>
#include <vector>

#include "core/tensor.h"
#include "nn/models/language_model.h"

namespace stretto::examples {

/// The attention matrix of D.3, for positions alone: the mean of exp(scores) over sequences of one
/// repeated token, one for each token of the vocabulary. `scores` is given tokens [1, length] (i64)
/// and returns [1, H, length, length], floating, −∞ where nothing is seen: the first layer's, such
/// as LanguageModel::attention_scores. Result: f64 [H, length, length], on the CPU, of each head
/// up to a factor (exp can overflow), which the measures below do not see. Stochastic positions
/// draw anew for each token, so their noise is averaged too.
Tensor identical_token_attention(const std::function<Tensor(const Tensor& tokens)>& scores,
                                 int64_t vocabulary, int64_t length);

/// Which entries of an attention matrix are looked at: query rows first … last − 1, keys at a lag
/// (query minus key position) of 0 … max_lag that exist.
struct AttentionRange {
  int64_t first = 0;
  int64_t last = 0;      // 0: L
  int64_t max_lag = -1;  // −1: all
};

/// attention [L, L] or [H, L, L], floating, row = query, on the CPU → f64, 0-d or [H]: the variance
/// within lags over the variance of all entries,
///
///   Σ_lag n_lag var(lag) / (Σ_lag n_lag · var(all))
///
/// with n_lag entries a lag and variances divided by their numbers of entries. 0: every diagonal is
/// constant (a matrix of one number too); near 1: the lag says nothing.
Tensor translation_invariance(const Tensor& attention, AttentionRange range = {});

/// The same arguments: the share of pairs of keys in a row, of all rows together, of which the
/// farther one is strictly larger. 0: attention never grows with the distance; 1: it always does.
/// Rows with one key have no pair; without any pair it is NaN. O(n log n) for a row of n keys.
Tensor monotonicity(const Tensor& attention, AttentionRange range = {});

/// Of the first layer's heads the lowest value of each measure, for queries first … last − 1 and
/// keys less than `lags` positions before them.
struct PositionMeasure {
  int64_t first, last, lags;
  double invariance, monotonicity;
};

/// Both measures over the queries in the first half of the `trained` length, in its second half,
/// and from there up to `length`; in each with lags below 1/16, 1/4 and 1/2 of the trained length
/// (in the paper that is 2,048, and the lags 128, 512 and 1,024). What is empty is left out.
///
/// Stochastic positions draw anew for each token of the vocabulary, from `seed`; the random state
/// is afterwards as before. Throws Interrupted when the user stops the program.
std::vector<PositionMeasure> position_measures(nn::LanguageModel& model, int64_t trained,
                                               int64_t length, uint64_t seed);

}  // namespace stretto::examples
