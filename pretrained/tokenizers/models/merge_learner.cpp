#include "pretrained/tokenizers/models/merge_learner.h"

#include <algorithm>

namespace stretto::nn::tokenizers {
namespace {

uint64_t key_of(int32_t left, int32_t right) {
  return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
}

}  // namespace

void MergeLearner::add(const std::vector<int32_t>& symbols, int64_t count) {
  words_.push_back({uint32_t(symbols.size()), symbols_.size(), count});
  symbols_.insert(symbols_.end(), symbols.begin(), symbols.end());
}

void MergeLearner::push(uint64_t pair, int64_t count, std::vector<uint32_t> words) {
  if (count <= 0) return;
  heap_.push_back({count, pair, std::move(words)});
  std::push_heap(heap_.begin(), heap_.end(), is_worse);
}

// Adds to the count of a pair; a word in which it is new is noted once.
void MergeLearner::change(uint64_t pair, uint32_t word, int64_t by) {
  counts_[pair] += by;
  if (by < 0) return;
  std::vector<uint32_t>& words = new_pairs_[pair];
  if (words.empty() || words.back() != word) words.push_back(word);
}

void MergeLearner::count_pairs() {
  for (uint32_t w = 0; w < words_.size(); ++w) {
    const Range& word = words_[w];
    const int32_t* symbols = symbols_.data() + word.begin;
    for (uint32_t i = 0; i + 1 < word.size; ++i)
      change(key_of(symbols[i], symbols[i + 1]), w, word.count);
  }
  for (auto& [pair, words] : new_pairs_) push(pair, counts_[pair], std::move(words));
  new_pairs_.clear();
}

void MergeLearner::merge_in_word(uint32_t w, int32_t left, int32_t right, int32_t symbol) {
  Range& word = words_[w];
  int32_t* s = symbols_.data() + word.begin;
  uint32_t to = 0;  // symbols before it are final
  for (uint32_t from = 0; from < word.size; ++from) {
    if (s[from] != left || from + 1 == word.size || s[from + 1] != right) {
      s[to++] = s[from];
      continue;
    }
    if (to > 0) {
      change(key_of(s[to - 1], left), w, -word.count);
      change(key_of(s[to - 1], symbol), w, word.count);
    }
    s[to++] = symbol;
    ++from;
    if (from + 1 < word.size) {
      change(key_of(right, s[from + 1]), w, -word.count);
      change(key_of(symbol, s[from + 1]), w, word.count);
    }
  }
  word.size = to;
}

std::vector<LearnedMerge> MergeLearner::learn(const Options& options) {
  count_pairs();
  std::vector<LearnedMerge> merges;
  while (!heap_.empty() && int64_t(merges.size()) < options.most && !options.is_full()) {
    std::pop_heap(heap_.begin(), heap_.end(), is_worse);
    Candidate top = std::move(heap_.back());
    heap_.pop_back();
    const int64_t count = counts_[top.pair];
    if (top.count != count) {  // other merges took some
      push(top.pair, count, std::move(top.words));
      continue;
    }
    if (count < options.min_count) break;
    const auto left = int32_t(top.pair >> 32), right = int32_t(uint32_t(top.pair));
    const int32_t symbol = options.symbol(left, right);
    merges.push_back({left, right, symbol});
    for (const uint32_t word : top.words) merge_in_word(word, left, right, symbol);
    for (auto& [pair, words] : new_pairs_) push(pair, counts_[pair], std::move(words));
    new_pairs_.clear();
    if (options.progress) options.progress(int64_t(merges.size()));
  }
  return merges;
}

}  // namespace stretto::nn::tokenizers
