// What counting alone achieves on sequences of tokens.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace stretto::examples {

/// Negative log-likelihoods in nats per token.
struct CountingLoss {
  double unigram, bigram;
};

/// Counts tokens 0 … n − 1 and their pairs: unigrams smoothed by one, and bigrams that share with
/// them by how many different tokens have followed (Witten & Bell 1991),
/// p(b | a) = (c(ab) + t(a) p(b)) / (c(a) + t(a)).
class TokenCounts {
 public:
  explicit TokenCounts(int64_t n_tokens)
      : count_(static_cast<std::size_t>(n_tokens)), before_(count_), followers_(count_) {}

  template <class Token>
  void add(const std::vector<Token>& sequence) {
    total_ += static_cast<double>(sequence.size());
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      ++count_[static_cast<std::size_t>(sequence[i])];
      if (i == 0) continue;
      const auto a = static_cast<std::size_t>(sequence[i - 1]);
      ++before_[a];
      followers_[a] += pairs_[pair(sequence[i - 1], sequence[i])]++ == 0;
    }
  }

  /// Of every token but the first of each sequence; NaN where there are none.
  template <class Token>
  CountingLoss loss(const std::vector<std::vector<Token>>& sequences) const {
    CountingLoss sum{};
    double n = 0;
    for (const std::vector<Token>& sequence : sequences)
      for (std::size_t i = 1; i < sequence.size(); ++i, ++n) {
        const auto a = static_cast<std::size_t>(sequence[i - 1]);
        const auto b = static_cast<std::size_t>(sequence[i]);
        const double alone = (count_[b] + 1) / (total_ + static_cast<double>(count_.size()));
        const auto found = pairs_.find(pair(sequence[i - 1], sequence[i]));
        const double together = found == pairs_.end() ? 0 : static_cast<double>(found->second);
        const double t = followers_[a];
        sum.unigram -= std::log(alone);
        sum.bigram -= std::log(t > 0 ? (together + t * alone) / (before_[a] + t) : alone);
      }
    return {sum.unigram / n, sum.bigram / n};
  }

 private:
  static uint64_t pair(int64_t a, int64_t b) {
    return uint64_t{static_cast<uint32_t>(a)} << 32 | static_cast<uint32_t>(b);
  }

  std::vector<double> count_, before_, followers_;
  std::unordered_map<uint64_t, int64_t> pairs_;
  double total_ = 0;
};

}  // namespace stretto::examples
