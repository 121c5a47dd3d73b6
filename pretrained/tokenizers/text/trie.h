// A trie over bytes that finds all keys which are prefixes of a text.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace stretto::nn::tokenizers {

/// A key and its value; the text must live while the trie is built.
struct TrieKey {
  std::string_view text;
  int32_t value;
};

/// A double-array trie (Aoe 1989): the child of state s for byte b is base[s] + b, if check agrees.
class Trie {
 public:
  Trie() = default;
  /// Of keys that occur twice, the last one counts.
  explicit Trie(std::vector<TrieKey> keys);

  /// Calls `each(size, value)` for every key that is a prefix of `text`, the shortest first.
  template <class F>
  void each_prefix(std::string_view text, F&& each) const {
    if (states_.empty()) return;
    uint32_t state = 0;
    if (states_[0].value >= 0) each(size_t(0), states_[0].value);
    for (size_t i = 0; i < text.size(); ++i) {
      const uint32_t child = states_[state].base + uint8_t(text[i]);
      if (child >= states_.size() || states_[child].parent != state) return;
      state = child;
      if (states_[state].value >= 0) each(i + 1, states_[state].value);
    }
  }

 private:
  static constexpr uint32_t none = UINT32_MAX;
  struct State {
    uint32_t base = none - 256, parent = none;
    int32_t value = -1;
  };
  uint32_t find_base(const std::vector<uint8_t>& bytes);

  std::vector<State> states_;
  std::vector<uint8_t> used_;
  size_t first_free_ = 1;
};

}  // namespace stretto::nn::tokenizers
