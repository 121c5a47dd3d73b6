#include "nn/data/vocabulary_tokenizer.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "core/available_memory.h"
#include "core/error.h"
#include "core/utf8.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "Tokenizer";
constexpr const char* end_of_line = "<eos>";
constexpr const char* unknown_word = "<unk>";
constexpr const char* unknown_character = "\xEF\xBF\xBD";  // U+FFFD

bool is_blank(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The number of bytes of the character at the start of `text`; 1 if it is not valid UTF-8.
size_t character_size(std::string_view text) {
  if (uint8_t(text[0]) < 0x80) return 1;
  return find_invalid_utf8(text.substr(0, 4)).at == 0 ? 1 : utf8_size(text[0]);
}

constexpr size_t code_points = 0x110000;

// The code point of a piece. Bytes that are not UTF-8 get the last code point, which is unassigned.
size_t code_point(std::string_view piece) {
  if (piece.size() == 1 && uint8_t(piece[0]) >= 0x80) return code_points - 1;
  size_t at = 0;
  return next_code_point(piece, at);
}

template <class F>
void each_piece(TokenKind kind, std::string_view text, F&& f) {
  PieceReader reader(kind, text);
  for (std::string_view piece; reader.next(piece);) f(piece);
}

// Limits memory: if all words of a text are different, their table is many times larger than the
// text.
void check_words(size_t n) {
  constexpr double bytes_per_word = 150;  // in all tables
  check(bytes_per_word * double(n) < double(available_memory()), op,
        "too many different words for the available memory; bytes as tokens work for any text");
}

std::vector<std::string> frequent_words(std::string_view text, int64_t limit) {
  struct Count {
    int64_t count = 0, first = 0;
  };
  std::unordered_map<std::string_view, Count> counts;
  each_piece(TokenKind::words, text, [&](std::string_view piece) {
    Count& c = counts[piece];
    if (c.count++ > 0) return;
    c.first = int64_t(counts.size());
    if ((counts.size() & 0xFFFFF) == 0) check_words(2 * counts.size());
  });
  counts[unknown_word];
  std::vector<std::pair<std::string_view, Count>> order(counts.begin(), counts.end());
  std::sort(order.begin(), order.end(), [](const auto& a, const auto& b) {
    return a.second.count != b.second.count ? a.second.count > b.second.count
                                            : a.second.first < b.second.first;
  });
  std::vector<std::string> words{end_of_line};
  int64_t left = limit > 0 ? limit - 2 : INT64_MAX;
  for (const auto& [word, count] : order) {
    if (word == end_of_line) continue;
    if (word != unknown_word && left-- <= 0) continue;
    words.emplace_back(word);
  }
  return words;
}

}  // namespace

bool PieceReader::next(std::string_view& piece) {
  if (kind_ != TokenKind::words) {
    if (at_ >= text_.size()) return false;
    const size_t n = kind_ == TokenKind::bytes ? 1 : character_size(text_.substr(at_));
    piece = text_.substr(at_, n);
    at_ += n;
    return true;
  }
  while (at_ < text_.size() && text_[at_] != '\n' && is_blank(text_[at_])) ++at_;
  if (at_ < text_.size() && text_[at_] != '\n') {
    const size_t begin = at_;
    while (at_ < text_.size() && !is_blank(text_[at_])) ++at_;
    piece = text_.substr(begin, at_ - begin);
    return true;
  }
  piece = end_of_line;
  if (at_ < text_.size()) {
    ++at_;
    return true;
  }
  const bool last = !ended_ && !text_.empty() && text_.back() != '\n';
  ended_ = true;
  return last;
}

struct VocabularyTokenizer::Vocabulary {
  TokenKind kind;
  std::vector<std::string> pieces;                      // by id
  std::unordered_map<std::string_view, int32_t> words;  // ids by piece
  std::array<int64_t, 256> bytes;                       // for bytes: ids by byte
  std::vector<int32_t> chars;                           // for chars: ids by code point
  int32_t unknown = -1;                                 // for chars and words
};

VocabularyTokenizer::VocabularyTokenizer(TokenKind kind, std::vector<std::string> pieces) {
  const auto v = std::make_shared<Vocabulary>();
  v->kind = kind;
  v->pieces = std::move(pieces);
  std::unordered_map<std::string_view, int32_t>& tokens = v->words;
  for (const std::string& piece : v->pieces)
    check(tokens.emplace(piece, int32_t(tokens.size())).second, op, "malformed vocabulary: \"",
          piece, "\" occurs twice");
  v->bytes.fill(-1);
  if (kind == TokenKind::bytes) {
    for (const auto& [piece, token] : tokens) v->bytes[uint8_t(piece[0])] = token;
  } else {
    const auto unknown = tokens.find(kind == TokenKind::chars ? unknown_character : unknown_word);
    check(unknown != tokens.end(), op, "malformed vocabulary: it has no token for unknown pieces");
    v->unknown = unknown->second;
  }
  if (kind == TokenKind::chars) {
    v->chars.assign(code_points, v->unknown);
    for (const auto& [piece, token] : tokens) v->chars[code_point(piece)] = token;
  }
  vocabulary_ = v;
}

VocabularyTokenizer VocabularyTokenizer::learn(TokenKind kind, std::string_view text, int64_t limit,
                                               std::string_view more) {
  check(kind != TokenKind::words || limit == 0 || limit >= 2, op, "a limit of ", limit,
        " words; must be at least 2, <eos> and <unk>, or 0 for no limit");
  if (kind == TokenKind::words) return {kind, frequent_words(text, limit)};
  std::vector<std::string> pieces;
  if (kind == TokenKind::bytes) {
    std::array<bool, 256> seen{};
    for (const std::string_view part : {text, more})
      for (const char c : part) seen[uint8_t(c)] = true;
    for (size_t byte = 0; byte < seen.size(); ++byte)
      if (seen[byte]) pieces.emplace_back(1, char(byte));
    return {kind, std::move(pieces)};
  }
  std::vector<bool> seen(code_points);
  each_piece(kind, text, [&](std::string_view piece) {
    const size_t point = code_point(piece);
    if (seen[point] || piece == unknown_character) return;
    seen[point] = true;
    pieces.emplace_back(piece);
  });
  std::sort(pieces.begin(), pieces.end());  // by unsigned bytes, hence by code point
  pieces.emplace_back(unknown_character);
  return {kind, std::move(pieces)};
}

int64_t VocabularyTokenizer::size() const { return int64_t(vocabulary_->pieces.size()); }
TokenKind VocabularyTokenizer::kind() const { return vocabulary_->kind; }

int64_t VocabularyTokenizer::id(std::string_view piece) const {
  const Vocabulary& v = *vocabulary_;
  if (v.kind == TokenKind::bytes) return v.bytes[uint8_t(piece[0])];
  if (v.kind == TokenKind::chars) return v.chars[code_point(piece)];
  const auto found = v.words.find(piece);
  return found == v.words.end() ? v.unknown : found->second;
}

const std::array<int64_t, 256>& VocabularyTokenizer::of_bytes() const { return vocabulary_->bytes; }

void refuse_byte(char c) {
  const uint8_t byte = uint8_t(c);
  constexpr const char* digits = "0123456789ABCDEF";
  const std::string hex{'0', 'x', digits[byte >> 4], digits[byte & 15]};
  fail(op, "byte ", hex, byte > 32 && byte < 127 ? " ('" + std::string(1, c) + "')" : "",
       " is not in the vocabulary");
}

std::vector<int64_t> VocabularyTokenizer::encode(std::string_view text) const {
  std::vector<int64_t> ids;
  each_piece(kind(), text, [&](std::string_view piece) {
    const int64_t id = this->id(piece);
    if (id < 0) refuse_byte(piece[0]);
    ids.push_back(id);
  });
  return ids;
}

std::string VocabularyTokenizer::decode(const std::vector<int64_t>& ids) const {
  std::string text;
  bool line_begins = true;
  for (const int64_t id : ids) {
    check(id >= 0 && id < size(), op, "token ", id, "; must be 0 to ", size() - 1);
    const std::string& piece = vocabulary_->pieces[size_t(id)];
    if (kind() != TokenKind::words) {
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

std::string VocabularyTokenizer::to_note() const {
  std::string note;
  for (const std::string& piece : vocabulary_->pieces) {
    if (kind() == TokenKind::bytes) {
      constexpr const char* digits = "0123456789abcdef";
      note += digits[uint8_t(piece[0]) >> 4];
      note += digits[uint8_t(piece[0]) & 15];
    } else {
      note += piece;
      if (kind() == TokenKind::words) note += '\n';
    }
  }
  return note;
}

VocabularyTokenizer VocabularyTokenizer::from_note(TokenKind kind, const std::string& note) {
  std::vector<std::string> pieces;
  if (kind == TokenKind::bytes) {
    check(note.size() % 2 == 0, op, "malformed vocabulary: an odd number of hexadecimal digits");
    for (size_t i = 0; i < note.size(); i += 2) {
      int byte = 0;
      const char* end = note.data() + i + 2;
      check(std::from_chars(note.data() + i, end, byte, 16).ptr == end, op,
            "malformed vocabulary: \"", note.substr(i, 2), "\" is not a byte");
      pieces.emplace_back(1, char(byte));
    }
  } else if (kind == TokenKind::chars) {
    check(find_invalid_utf8(note).at == note.size(), op, "malformed vocabulary: it is not UTF-8");
    each_piece(kind, note, [&](std::string_view piece) { pieces.emplace_back(piece); });
  } else {
    for (size_t i = 0, end; i < note.size(); i = end + 1) {
      end = std::min(note.find('\n', i), note.size());
      pieces.push_back(note.substr(i, end - i));
    }
  }
  check(!pieces.empty(), op, "malformed vocabulary: it is empty");
  return {kind, std::move(pieces)};
}

}  // namespace stretto::nn
