// Byte-pair merges: the table of pairs, and the algorithm.
#pragma once

#include <cstdint>
#include <vector>

#include "model.h"

namespace stretto::nn::tokenizers {

/// A map from pairs of symbols to the rank of their merge and its symbol.
class MergeTable {
 public:
  static constexpr uint32_t no_rank = UINT32_MAX;
  struct Merge {
    uint32_t rank;
    int32_t symbol;
  };

  /// Makes room for `n` pairs.
  explicit MergeTable(size_t n = 0);
  /// Adds a pair, or replaces it.
  void set(int32_t left, int32_t right, Merge merge);
  /// Returns the merge of a pair; its rank is no_rank if there is none.
  Merge find(int32_t left, int32_t right) const {
    const uint64_t key = key_of(left, right);
    for (size_t at = hash(key);; at = (at + 1) & mask_) {
      const Slot& slot = slots_[at];
      if (slot.key == key) return slot.merge;
      if (slot.key == empty) return {no_rank, -1};
    }
  }
  /// Merges scratch.symbols: always the pair with the smallest rank, the leftmost if several have
  /// it.
  void apply(ModelScratch& scratch) const;

 private:
  static constexpr uint64_t empty = UINT64_MAX;
  struct Slot {
    uint64_t key = empty;
    Merge merge{no_rank, -1};
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t(uint32_t(left)) << 32 | uint32_t(right);
  }
  size_t hash(uint64_t key) const { return size_t(key * 0x9E3779B97F4A7C15U >> shift_); }
  void apply_to_short(ModelScratch& scratch) const;
  void apply_to_long(ModelScratch& scratch) const;
  void push(ModelScratch& scratch, size_t left, size_t right) const;

  std::vector<Slot> slots_;
  size_t mask_;
  int shift_;
};

}  // namespace stretto::nn::tokenizers
