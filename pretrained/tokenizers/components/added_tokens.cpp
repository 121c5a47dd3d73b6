#include "pretrained/tokenizers/components/added_tokens.h"

#include <algorithm>

#include "core/utf8.h"
#include "pretrained/tokenizers/text/unicode.h"

namespace stretto::nn::tokenizers {
namespace {

bool is_word_before(std::string_view text, size_t end) {
  size_t at = previous_start(text, end);
  return has(next_code_point(text, at), Property::word);
}

bool is_word_at(std::string_view text, size_t at) {
  return has(next_code_point(text, at), Property::word);
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)) {
  std::vector<TrieKey> keys;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    if (contents[i].empty()) continue;  // a control piece without a text
    keys.push_back({contents[i], int32_t(i)});
    begins_[uint8_t(contents[i][0])] = true;
  }
  trie_ = Trie(std::move(keys));
}

bool AddedTokens::is_single_word(std::string_view text, size_t begin, size_t end) const {
  return (begin == 0 || !is_word_before(text, begin)) &&
         (end == text.size() || !is_word_at(text, end));
}

void AddedTokens::mark_all(std::string_view text, std::vector<bool>& found) const {
  for (size_t at = 0; at < text.size(); ++at)
    if (begins_[uint8_t(text[at])])
      trie_.each_prefix(text.substr(at), [&](size_t, int32_t i) { found[size_t(i)] = true; });
}

size_t AddedTokens::size_at(std::string_view text, size_t at,
                            const std::vector<bool>& chosen) const {
  size_t shortest = 0;
  if (begins_[uint8_t(text[at])])
    trie_.each_prefix(text.substr(at), [&](size_t n, int32_t i) {
      if (shortest == 0 && chosen[size_t(i)]) shortest = n;
    });
  return shortest;
}

std::vector<Part> AddedTokens::find(std::string_view text, bool allow_special) const {
  std::vector<Part> parts;
  size_t done = 0, space_end = 0;  // the end of the white space behind the last token with rstrip
  for (size_t at = 0; at < text.size();) {
    if (!begins_[uint8_t(text[at])]) {
      ++at;
      continue;
    }
    size_t size = 0;
    int32_t found = -1;
    trie_.each_prefix(text.substr(at), [&](size_t n, int32_t i) {
      size = n;
      found = i;
    });
    if (found < 0) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + size;
    at = end;
    const AddedToken& token = tokens_[size_t(found)];
    if (token.special && !allow_special) continue;
    if (token.single_word && !is_single_word(text, begin, end)) continue;
    while (token.lstrip && begin > done) {
      const size_t start = previous_start(text, begin);
      size_t next = start;
      if (!is_white_space(next_code_point(text, next))) break;
      begin = start;
    }
    if (token.rstrip) {
      end = std::max(end, space_end);
      while (end < text.size()) {
        size_t next = end;
        if (!is_white_space(next_code_point(text, next))) break;
        end = next;
      }
      space_end = end;
    }
    if (token.lstrip) begin = std::max(begin, done);
    if (begin >= end) continue;  // the token before took all of it
    if (begin > done) parts.push_back({-1, done, begin});
    parts.push_back({token.id, begin, end});
    done = end;
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
  return parts;
}

bool is_marker(std::string_view text) {
  bool is_space = true;
  for (size_t at = 0; at < text.size();)
    is_space = is_white_space(next_code_point(text, at)) && is_space;
  return !is_space && utf8_size(text[0]) < text.size();
}

}  // namespace stretto::nn::tokenizers
