// N-gram baselines: unigram and bigram models of token sequences, fitted by counting.
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

/// Counts the tokens 0 … n − 1 and their pairs. The unigram model adds one to every count (add-one
/// smoothing). The bigram model is interpolated with it by Witten-Bell smoothing (Witten & Bell
/// 1991), p(b | a) = (c(ab) + t(a) p(b)) / (c(a) + t(a)), where t(a) is the number of different
/// tokens seen after a.
class TokenCounts {
 public:
  explicit TokenCounts(int64_t n_tokens)
      : n_(n_tokens), count_(size_t(n_tokens)), before_(count_), followers_(count_) {
    if (n_ <= 512) table_.resize(size_t(n_ * n_));  // all pairs, for speed
  }

  static constexpr int64_t none = -1;  // before the first token

  void add(int64_t before, int64_t token) {
    ++total_;
    ++count_[size_t(token)];
    if (before == none) return;
    const auto a = size_t(before);
    ++before_[a];
    int64_t& count =
        table_.empty() ? pairs_[pair(before, token)] : table_[size_t(before * n_ + token)];
    followers_[a] += count++ == 0;
  }
  void add(const std::vector<int64_t>& sequence) {
    for (size_t i = 0; i < sequence.size(); ++i) add(i == 0 ? none : sequence[i - 1], sequence[i]);
  }

  /// Adds the loss of `token` after `before`; nothing for the first token of a sequence.
  void score(int64_t before, int64_t token, CountingLoss& sum) const {
    if (before == none) return;
    const auto a = size_t(before);
    const double unigram = (count_[size_t(token)] + 1) / (total_ + double(count_.size()));
    const auto count = double(times(before, token));
    const double t = followers_[a];
    sum.unigram -= std::log(unigram);
    sum.bigram -= std::log(t > 0 ? (count + t * unigram) / (before_[a] + t) : unigram);
  }
  /// Mean loss of all tokens except the first of each sequence; NaN if there are none.
  CountingLoss loss(const std::vector<std::vector<int64_t>>& sequences) const {
    CountingLoss sum{};
    double n = 0;
    for (const std::vector<int64_t>& sequence : sequences)
      for (size_t i = 1; i < sequence.size(); ++i, ++n) score(sequence[i - 1], sequence[i], sum);
    return {sum.unigram / n, sum.bigram / n};
  }

 private:
  static uint64_t pair(int64_t a, int64_t b) { return uint64_t{uint32_t(a)} << 32 | uint32_t(b); }
  int64_t times(int64_t before, int64_t token) const {
    if (!table_.empty()) return table_[size_t(before * n_ + token)];
    const auto found = pairs_.find(pair(before, token));
    return found == pairs_.end() ? 0 : found->second;
  }

  int64_t n_;
  std::vector<double> count_, before_, followers_;
  std::vector<int64_t> table_;
  std::unordered_map<uint64_t, int64_t> pairs_;  // used without a table
  double total_ = 0;
};

}  // namespace stretto::examples
