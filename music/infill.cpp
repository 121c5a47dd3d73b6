#include "music/infill.h"

#include <algorithm>

#include "core/error.h"

namespace stretto::music {

std::vector<int64_t> infill_sequence(const std::vector<int64_t>& tokens, int64_t first,
                                     int64_t last, const InfillTokens& ids) {
  const int64_t n = int64_t(tokens.size());
  check(0 <= first && first <= last && last <= n, "infill_sequence", "tokens ", first, " to ", last,
        " of ", n, "; expected a range of the tokens");
  std::vector<int64_t> sequence = infill_prompt({tokens.begin(), tokens.begin() + first},
                                                {tokens.begin() + last, tokens.end()}, ids);
  sequence.insert(sequence.end(), tokens.begin() + first, tokens.begin() + last);
  sequence.push_back(ids.end);
  return sequence;
}

std::vector<int64_t> infill_prompt(const std::vector<int64_t>& before,
                                   const std::vector<int64_t>& after, const InfillTokens& ids) {
  std::vector<int64_t> prompt = before;
  prompt.push_back(ids.hole);
  prompt.insert(prompt.end(), after.begin(), after.end());
  prompt.push_back(ids.fill);
  return prompt;
}

std::vector<int64_t> infilled(const std::vector<int64_t>& sequence, const InfillTokens& ids) {
  const auto fill = std::find(sequence.begin(), sequence.end(), ids.fill);
  const auto hole = std::find(sequence.begin(), fill, ids.hole);
  std::vector<int64_t> tokens(sequence.begin(), hole);
  if (fill != sequence.end())
    tokens.insert(tokens.end(), fill + 1, std::find(fill + 1, sequence.end(), ids.end));
  if (hole != fill) tokens.insert(tokens.end(), hole + 1, fill);
  std::erase_if(tokens, [&](int64_t token) {
    return token == ids.hole || token == ids.fill || token == ids.end;
  });
  return tokens;
}

std::vector<int64_t> bar_starts(const std::vector<int64_t>& tokens, int64_t bar) {
  std::vector<int64_t> starts;
  for (size_t i = 0; i < tokens.size(); ++i)
    if (tokens[i] == bar) starts.push_back(int64_t(i));
  return starts;
}

}  // namespace stretto::music
