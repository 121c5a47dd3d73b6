#include "examples/text/tokenizer.h"

#include <algorithm>

#include "examples/common/settings.h"

namespace stretto::examples {
namespace {

constexpr const char* end_of_line = "<eos>";
constexpr const char* unknown_word = "<unk>";
constexpr const char* unknown_character = "\xEF\xBF\xBD";  // U+FFFD

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// Bytes of the code point at the start of `text`, 0 where there is none.
size_t code_point_size(std::string_view text) {
  const auto byte = [&](size_t i) { return i < text.size() ? uint8_t(text[i]) : uint8_t(0); };
  const auto follows = [&](size_t i) { return (byte(i) & 0xC0) == 0x80; };
  const uint8_t a = byte(0), b = byte(1);
  if (a < 0x80) return 1;
  if (a >= 0xC2 && a <= 0xDF) return follows(1) ? 2 : 0;
  if (a >= 0xE0 && a <= 0xEF) {
    if ((a == 0xE0 && b < 0xA0) || (a == 0xED && b > 0x9F)) return 0;
    return follows(1) && follows(2) ? 3 : 0;
  }
  if (a >= 0xF0 && a <= 0xF4) {
    if ((a == 0xF0 && b < 0x90) || (a == 0xF4 && b > 0x8F)) return 0;
    return follows(1) && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

// Calls f with every piece of the text that is one token.
template <class F>
void each_piece(TokenKind kind, std::string_view text, F&& f) {
  if (kind != TokenKind::words) {
    for (size_t i = 0; i < text.size();) {
      const size_t n =
          kind == TokenKind::bytes ? 1 : std::max<size_t>(1, code_point_size(text.substr(i)));
      f(text.substr(i, n));
      i += n;
    }
    return;
  }
  for (size_t i = 0; i < text.size(); ++i) {
    const size_t end = std::min(text.find('\n', i), text.size());
    while (i < end) {
      const size_t begin = i;
      while (i < end && !is_blank(text[i])) ++i;
      if (i > begin) f(text.substr(begin, i - begin));
      while (i < end && is_blank(text[i])) ++i;
    }
    f(std::string_view(end_of_line));
  }
}

std::vector<std::string> frequent_words(std::string_view text, int64_t limit) {
  struct Count {
    int64_t count = 0, first = 0;
  };
  std::unordered_map<std::string_view, Count> counts;
  each_piece(TokenKind::words, text, [&](std::string_view piece) {
    Count& c = counts[piece];
    if (c.count++ == 0) c.first = int64_t(counts.size());
  });
  counts[unknown_word];
  std::vector<std::pair<std::string_view, Count>> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.count != b.second.count ? a.second.count > b.second.count
                                            : a.second.first < b.second.first;
  });
  std::vector<std::string> words{end_of_line};
  int64_t room = limit > 0 ? limit - 2 : INT64_MAX;
  for (const auto& [word, count] : order) {
    if (word == end_of_line) continue;
    if (word != unknown_word && room-- <= 0) continue;
    words.emplace_back(word);
  }
  return words;
}

}  // namespace

TokenKind token_kind(const std::string& name) {
  if (name == "bytes") return TokenKind::bytes;
  if (name == "chars") return TokenKind::chars;
  require(name == "words", "--tokens " + name + ": accepted are bytes, chars and words");
  return TokenKind::words;
}

Tokenizer::Tokenizer(TokenKind kind, std::vector<std::string> pieces)
    : kind_(kind), pieces_(std::move(pieces)) {
  for (const std::string& piece : pieces_)
    require(tokens_.emplace(piece, int32_t(tokens_.size())).second,
            "malformed vocabulary: \"" + piece + "\" is in it twice");
  if (kind_ == TokenKind::bytes) return;
  const auto unknown = tokens_.find(kind_ == TokenKind::chars ? unknown_character : unknown_word);
  require(unknown != tokens_.end(), "malformed vocabulary: nothing stands for what is unknown");
  unknown_ = unknown->second;
}

Tokenizer Tokenizer::learn(TokenKind kind, std::string_view text, int64_t limit) {
  if (kind == TokenKind::words) return {kind, frequent_words(text, limit)};
  std::unordered_map<std::string_view, bool> seen;
  each_piece(kind, text, [&](std::string_view piece) { seen.emplace(piece, true); });
  if (kind == TokenKind::chars) seen.erase(unknown_character);
  std::vector<std::string> pieces;
  for (const auto& [piece, yes] : seen) pieces.emplace_back(piece);
  std::sort(pieces.begin(), pieces.end());  // bytes as unsigned, so code points too
  if (kind == TokenKind::chars) pieces.emplace_back(unknown_character);
  return {kind, std::move(pieces)};
}

std::vector<int32_t> Tokenizer::encode(std::string_view text) const {
  std::vector<int32_t> tokens;
  each_piece(kind_, text, [&](std::string_view piece) {
    const auto found = tokens_.find(piece);
    if (found == tokens_.end() && kind_ == TokenKind::bytes) {
      const uint8_t byte = uint8_t(piece[0]);
      constexpr const char* digits = "0123456789ABCDEF";
      const std::string hex{'0', 'x', digits[byte >> 4], digits[byte & 15]};
      throw UsageError("byte " + hex +
                       (byte > 32 && byte < 127 ? " ('" + std::string(piece) + "')" : "") +
                       " is not in the vocabulary");
    }
    tokens.push_back(found == tokens_.end() ? unknown_ : found->second);
  });
  return tokens;
}

std::string Tokenizer::decode(const std::vector<int64_t>& tokens) const {
  std::string text;
  bool line_begins = true;
  for (int64_t token : tokens) {
    const std::string& piece = pieces_.at(size_t(token));
    if (kind_ != TokenKind::words) {
      text += piece;
    } else if (piece == end_of_line) {
      text += '\n';
      line_begins = true;
    } else {
      text += (line_begins ? "" : " ") + piece;
      line_begins = false;
    }
  }
  return text;
}

std::string Tokenizer::to_note() const {
  std::string note;
  for (const std::string& piece : pieces_) {
    if (kind_ == TokenKind::bytes) {
      constexpr const char* digits = "0123456789abcdef";
      note += digits[uint8_t(piece[0]) >> 4];
      note += digits[uint8_t(piece[0]) & 15];
    } else {
      note += piece;
      if (kind_ == TokenKind::words) note += '\n';
    }
  }
  return note;
}

Tokenizer Tokenizer::from_note(TokenKind kind, const std::string& note) {
  std::vector<std::string> pieces;
  if (kind == TokenKind::bytes) {
    require(note.size() % 2 == 0, "malformed vocabulary: an odd number of hexadecimal digits");
    for (size_t i = 0; i < note.size(); i += 2) {
      int byte = 0;
      const char* end = note.data() + i + 2;
      require(std::from_chars(note.data() + i, end, byte, 16).ptr == end,
              "malformed vocabulary: \"" + note.substr(i, 2) + "\" is no byte");
      pieces.emplace_back(1, char(byte));
    }
  } else if (kind == TokenKind::chars) {
    each_piece(kind, note, [&](std::string_view piece) { pieces.emplace_back(piece); });
  } else {
    for (size_t i = 0, end; i < note.size(); i = end + 1) {
      end = std::min(note.find('\n', i), note.size());
      pieces.push_back(note.substr(i, end - i));
    }
  }
  require(!pieces.empty(), "malformed vocabulary: it is empty");
  return {kind, std::move(pieces)};
}

int64_t invalid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = code_point_size(text.substr(i));
    if (n == 0) return int64_t(i);
    i += n;
  }
  return -1;
}

}  // namespace stretto::examples
