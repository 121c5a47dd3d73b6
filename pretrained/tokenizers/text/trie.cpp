#include "pretrained/tokenizers/text/trie.h"

#include <algorithm>

namespace stretto::nn::tokenizers {

// Returns a base with free states for all bytes. The search begins behind ranges in which earlier
// searches took long, so that the time is linear.
uint32_t Trie::find_base(const std::vector<uint8_t>& bytes) {
  while (first_free_ < used_.size() && used_[first_free_]) ++first_free_;
  size_t tried = 0, at = std::max<size_t>(first_free_, size_t(bytes[0]) + 1);
  for (;; ++at) {
    if (at + 256 >= used_.size()) used_.resize(2 * at + 1024);
    if (++tried == 128) first_free_ = at;
    if (used_[at]) continue;
    const size_t base = at - bytes[0];
    if (std::none_of(bytes.begin(), bytes.end(), [&](uint8_t b) { return used_[base + b] != 0; }))
      break;
  }
  return uint32_t(at - bytes[0]);
}

Trie::Trie(std::vector<TrieKey> keys) {
  if (keys.empty()) return;
  std::stable_sort(keys.begin(), keys.end(),
                   [](const TrieKey& a, const TrieKey& b) { return a.text < b.text; });
  struct Part {
    size_t begin, end, depth;
    uint32_t state;
  };
  used_.assign(1024, 0);
  used_[0] = 1;
  states_.resize(1);
  std::vector<Part> parts{{0, keys.size(), 0, 0}};
  std::vector<uint8_t> bytes;
  std::vector<Part> children;
  while (!parts.empty()) {
    Part part = parts.back();
    parts.pop_back();
    for (; part.begin < part.end && keys[part.begin].text.size() == part.depth; ++part.begin)
      states_[part.state].value = keys[part.begin].value;
    if (part.begin == part.end) continue;
    bytes.clear();
    children.clear();
    for (size_t i = part.begin; i < part.end; ++i) {
      const auto byte = uint8_t(keys[i].text[part.depth]);
      if (bytes.empty() || bytes.back() != byte) {
        if (!children.empty()) children.back().end = i;
        bytes.push_back(byte);
        children.push_back({i, part.end, part.depth + 1, 0});
      }
    }
    const uint32_t base = find_base(bytes);
    states_[part.state].base = base;
    for (size_t i = 0; i < bytes.size(); ++i) {
      const uint32_t child = base + bytes[i];
      if (child >= states_.size()) states_.resize(child + 1);
      used_[child] = 1;
      states_[child].parent = part.state;
      children[i].state = child;
      parts.push_back(children[i]);
    }
  }
  used_ = {};
}

}  // namespace stretto::nn::tokenizers
