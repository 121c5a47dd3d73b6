// A cache of the ids of words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "vocabulary.h"

namespace stretto::nn::tokenizers {

/// Words of at most 64 bytes and their ids. It is emptied when it is full, at about 8 MB.
class WordCache {
 public:
  static constexpr size_t longest_word = 64;

  /// Appends the ids of a word; false if it is not cached.
  bool find(std::string_view word, uint64_t hash, std::vector<int64_t>& ids) const {
    if (slots_.empty()) return false;
    const size_t mask = slots_.size() - 1;
    for (size_t at = hash & mask; slots_[at].size > 0; at = (at + 1) & mask) {
      const Slot& slot = slots_[at];
      if (slot.hash != uint32_t(hash >> 32) || slot.size != word.size()) continue;
      if (word.compare(0, word.size(), bytes_.data() + slot.bytes, slot.size) != 0) continue;
      ids.insert(ids.end(), ids_.begin() + slot.ids, ids_.begin() + slot.ids + slot.count);
      return true;
    }
    return false;
  }

  /// Adds a word that is not cached, and its ids.
  void add(std::string_view word, uint64_t hash, const int64_t* ids, size_t count) {
    if (2 * used_ >= slots_.size()) grow();
    Slot& slot = free_slot(hash);
    slot = {uint32_t(hash >> 32), uint32_t(bytes_.size()), uint32_t(ids_.size()),
            uint16_t(word.size()), uint16_t(count)};
    bytes_ += word;
    ids_.insert(ids_.end(), ids, ids + count);
    ++used_;
  }

 private:
  static constexpr size_t most_slots = size_t(1) << 18;
  struct Slot {
    uint32_t hash, bytes, ids;
    uint16_t size = 0, count = 0;
  };

  Slot& free_slot(uint64_t hash) {
    const size_t mask = slots_.size() - 1;
    size_t at = hash & mask;
    while (slots_[at].size > 0) at = (at + 1) & mask;
    return slots_[at];
  }

  void grow() {
    std::vector<Slot> old;
    old.swap(slots_);
    if (old.size() == most_slots) {
      slots_.assign(most_slots, {});
      bytes_.clear();
      ids_.clear();
      used_ = 0;
      return;
    }
    slots_.resize(old.empty() ? 1024 : 2 * old.size());
    for (const Slot& slot : old)
      if (slot.size > 0)
        free_slot(hash_bytes(std::string_view(bytes_).substr(slot.bytes, slot.size))) = slot;
  }

  std::vector<Slot> slots_;
  std::string bytes_;
  std::vector<int64_t> ids_;
  size_t used_ = 0;
};

}  // namespace stretto::nn::tokenizers
