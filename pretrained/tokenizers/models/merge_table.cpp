#include "pretrained/tokenizers/models/merge_table.h"

#include <algorithm>

namespace stretto::nn::tokenizers {
namespace {

bool is_later(const ModelScratch::Candidate& a, const ModelScratch::Candidate& b) {
  return a.order > b.order;
}

}  // namespace

MergeTable::MergeTable(size_t n) {
  int bits = 4;
  while ((size_t(1) << bits) < 2 * n) ++bits;
  slots_.resize(size_t(1) << bits);
  mask_ = slots_.size() - 1;
  shift_ = 64 - bits;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t key = key_of(left, right);
  size_t at = hash(key);
  while (slots_[at].key != empty && slots_[at].key != key) at = (at + 1) & mask_;
  slots_[at] = {key, merge};
}

void MergeTable::apply(ModelScratch& s) const {
  constexpr size_t short_word = 40;  // up to it, a search of the whole row is faster than a heap
  if (s.symbols.size() <= short_word) {
    apply_to_short(s);
  } else {
    apply_to_long(s);
  }
}

void MergeTable::apply_to_short(ModelScratch& s) const {
  size_t n = s.symbols.size();
  s.ranks.resize(n);
  s.merged.resize(n);
  const auto look_up = [&](size_t i) {
    const Merge merge = find(s.symbols[i], s.symbols[i + 1]);
    s.ranks[i] = merge.rank;
    s.merged[i] = merge.symbol;
  };
  for (size_t i = 0; i + 1 < n; ++i) look_up(i);
  while (n > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < n; ++i)
      if (s.ranks[i] < s.ranks[best]) best = i;
    if (s.ranks[best] == no_rank) break;
    s.symbols[best] = s.merged[best];
    for (size_t i = best + 1; i + 1 < n; ++i) {
      s.symbols[i] = s.symbols[i + 1];
      s.ranks[i] = s.ranks[i + 1];
      s.merged[i] = s.merged[i + 1];
    }
    --n;
    if (best > 0) look_up(best - 1);
    if (best + 1 < n) look_up(best);
  }
  s.symbols.resize(n);
}

void MergeTable::push(ModelScratch& s, size_t left, size_t right) const {
  const uint32_t rank = find(s.symbols[left], s.symbols[right]).rank;
  if (rank == no_rank) return;
  s.heap.push_back({uint64_t(rank) << 32 | left, s.symbols[left], s.symbols[right]});
}

void MergeTable::apply_to_long(ModelScratch& s) const {
  const size_t n = s.symbols.size();
  s.next.resize(n);
  s.previous.resize(n);
  s.heap.clear();
  for (size_t i = 0; i < n; ++i) {
    s.next[i] = i + 1 < n ? int32_t(i + 1) : -1;
    s.previous[i] = int32_t(i) - 1;
    if (i + 1 < n) push(s, i, i + 1);
  }
  std::make_heap(s.heap.begin(), s.heap.end(), is_later);
  while (!s.heap.empty()) {
    std::pop_heap(s.heap.begin(), s.heap.end(), is_later);
    const ModelScratch::Candidate top = s.heap.back();
    s.heap.pop_back();
    const size_t left = size_t(uint32_t(top.order));
    if (s.symbols[left] != top.left || s.next[left] < 0) continue;
    const auto right = size_t(s.next[left]);
    if (s.symbols[right] != top.right) continue;
    s.symbols[left] = find(top.left, top.right).symbol;
    s.symbols[right] = -1;
    s.next[left] = s.next[right];
    if (s.next[left] >= 0) s.previous[size_t(s.next[left])] = int32_t(left);
    const auto add = [&](size_t a, size_t b) {
      const size_t before = s.heap.size();
      push(s, a, b);
      if (s.heap.size() > before) std::push_heap(s.heap.begin(), s.heap.end(), is_later);
    };
    if (s.previous[left] >= 0) add(size_t(s.previous[left]), left);
    if (s.next[left] >= 0) add(left, size_t(s.next[left]));
  }
  size_t kept = 0;
  for (int32_t i = 0; i >= 0; i = s.next[size_t(i)]) s.symbols[kept++] = s.symbols[size_t(i)];
  s.symbols.resize(kept);
}

}  // namespace stretto::nn::tokenizers
