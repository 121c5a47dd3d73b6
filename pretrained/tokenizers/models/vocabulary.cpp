#include "pretrained/tokenizers/models/vocabulary.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <utility>

#include "core/error.h"
#include "core/one_line.h"

namespace stretto::nn::tokenizers {

uint64_t hash_bytes(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

size_t StringTable::slot_of(std::string_view key, uint32_t hash) const {
  const size_t mask = slots_.size() - 1;
  size_t at = hash & mask;
  for (; slots_[at].id >= 0; at = (at + 1) & mask) {
    const Slot& slot = slots_[at];
    if (slot.hash == hash && std::string_view(bytes_).substr(slot.begin, slot.size) == key) break;
  }
  return at;
}

void StringTable::grow() {
  const std::vector<Slot> old =
      std::exchange(slots_, std::vector<Slot>(slots_.empty() ? 16 : 2 * slots_.size()));
  const size_t mask = slots_.size() - 1;
  for (const Slot& slot : old) {
    if (slot.id < 0) continue;
    size_t at = slot.hash & mask;
    while (slots_[at].id >= 0) at = (at + 1) & mask;
    slots_[at] = slot;
  }
}

bool StringTable::insert(std::string_view key, int32_t id) {
  if (2 * count_ >= slots_.size()) grow();
  const auto hash = uint32_t(hash_bytes(key));
  Slot& slot = slots_[slot_of(key, hash)];
  if (slot.id >= 0) return false;
  slot = {hash, uint32_t(bytes_.size()), uint32_t(key.size()), id};
  bytes_ += key;
  ++count_;
  return true;
}

int32_t StringTable::find(std::string_view key) const {
  return slots_.empty() ? -1 : slots_[slot_of(key, uint32_t(hash_bytes(key)))].id;
}

Vocabulary::Vocabulary(const std::vector<Token>& tokens, const std::string& name) {
  size_t bytes = 0;
  for (const Token& token : tokens) bytes += token.text.size();
  check(bytes < absent, op, name, ": the vocabulary has ", bytes,
        " bytes; at most 4 GB are supported");
  bytes_.reserve(bytes);
  for (const Token& token : tokens) {
    check(token.id >= 0 && size_t(token.id) < 65536 + 16 * tokens.size(), op, name, ": the id ",
          token.id, " is too large for a vocabulary of ", tokens.size(), " tokens");
    if (token.id >= size()) spans_.resize(size_t(token.id) + 1);
    check(!has(token.id), op, name, ": the id ", token.id, " occurs twice in the vocabulary");
    if (!ids_.insert(token.text, token.id))
      fail(op, name, ": the token ", in_quotes(token.text), " occurs twice in the vocabulary");
    spans_[size_t(token.id)] = {uint32_t(bytes_.size()), uint32_t(token.text.size())};
    bytes_ += token.text;
  }
}

}  // namespace stretto::nn::tokenizers
