// Learns byte-pair merges from counted words of symbols.
#pragma once

#include <cstdint>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace stretto::nn::tokenizers {

/// A merge of two symbols into one.
struct LearnedMerge {
  int32_t left, right, symbol;
};

/// The algorithm of the package tokenizers, with its order of ties.
class MergeLearner {
 public:
  /// Adds a word of symbols that occurs `count` times.
  void add(const std::vector<int32_t>& symbols, int64_t count);

  /// Options of learn().
  struct Options {
    int64_t most;                                     ///< The largest number of new symbols.
    int64_t min_count;                                ///< Of a pair.
    std::function<int32_t(int32_t, int32_t)> symbol;  ///< Returns the symbol of a merged pair.
    std::function<bool()> is_full;                    ///< True if no further merge is wanted.
    std::function<void(int64_t)> progress;            ///< Called with the number of merges.
  };
  /// Returns the merges in their order.
  std::vector<LearnedMerge> learn(const Options& options);

 private:
  struct Candidate {
    int64_t count;
    uint64_t pair;
    std::vector<uint32_t> words;
  };
  static bool is_worse(const Candidate& a, const Candidate& b) {
    return a.count != b.count ? a.count < b.count : a.pair > b.pair;
  }
  void count_pairs();
  void push(uint64_t pair, int64_t count, std::vector<uint32_t> words);
  void change(uint64_t pair, uint32_t word, int64_t by);
  void merge_in_word(uint32_t word, int32_t left, int32_t right, int32_t symbol);

  struct Range {
    uint32_t size;
    size_t begin;
    int64_t count;
  };
  std::vector<int32_t> symbols_;  // of all words
  std::vector<Range> words_;
  std::unordered_map<uint64_t, int64_t> counts_;
  std::unordered_map<uint64_t, std::vector<uint32_t>> new_pairs_;  // of one merge: their words
  std::vector<Candidate> heap_;
};

}  // namespace stretto::nn::tokenizers
