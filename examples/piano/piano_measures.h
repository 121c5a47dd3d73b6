// What attention of a model of piano music makes of positions alone: Table 7 of Liutkus et al.
// (2021), with examples/piano/position_measures.h.
#pragma once

#include <vector>

#include "nn/models/language_model.h"

namespace stretto::examples {

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
