// Infilling: a model that continues sequences learns to write the bars between given ones, because
// the missing tokens are moved to the end (Ens & Pasquier 2020, "MMM"; Bavarian et al. 2022, "Fill
// in the middle"):
//
//     bars 1–4, hole, bars 9–12, fill, bars 5–8, end
#pragma once

#include <cstdint>
#include <vector>

namespace stretto::music {

/// The ids of the three tokens of infilling, which follow a tokenizer's vocabulary.
struct InfillTokens {
  /// The ids vocabulary, vocabulary + 1 and vocabulary + 2.
  explicit InfillTokens(int64_t vocabulary)
      : hole(vocabulary), fill(vocabulary + 1), end(vocabulary + 2) {}

  int64_t hole;  ///< stands for the missing tokens
  int64_t fill;  ///< precedes the missing tokens
  int64_t end;   ///< follows the missing tokens

  static constexpr int64_t count = 3;  ///< the number of ids
};

/// Returns `tokens` with the tokens first … last − 1 moved to the end; three tokens longer. Throws
/// Error unless 0 ≤ first ≤ last ≤ size.
std::vector<int64_t> infill_sequence(const std::vector<int64_t>& tokens, int64_t first,
                                     int64_t last, const InfillTokens& ids);

/// Returns `before`, hole, `after`, fill: the prompt for generation. The model then writes the
/// tokens between `before` and `after`, and `end`.
std::vector<int64_t> infill_prompt(const std::vector<int64_t>& before,
                                   const std::vector<int64_t>& after, const InfillTokens& ids);

/// Moves the missing tokens back to their place and removes the three ids: the inverse of
/// infill_sequence(). A sequence without `end` (an unfinished one) is accepted; without `fill`,
/// nothing is moved.
std::vector<int64_t> infilled(const std::vector<int64_t>& sequence, const InfillTokens& ids);

/// Returns the indices at which `bar` occurs in `tokens`, in ascending order.
std::vector<int64_t> bar_starts(const std::vector<int64_t>& tokens, int64_t bar);

}  // namespace stretto::music
