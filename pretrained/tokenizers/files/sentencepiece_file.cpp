// A SentencePiece model: a message of protobuf (sentencepiece_model.proto).
#include <bit>
#include <cmath>
#include <cstring>

#include "core/error.h"
#include "core/utf8.h"
#include "pretrained/tokenizers/files/families.h"

namespace stretto::nn::tokenizers {
namespace {

// Reads the fields of one message.
class Message {
 public:
  Message(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  uint64_t field = 0;     // its number
  uint64_t number = 0;    // the value of an integer or of a float's bits
  std::string_view text;  // the value of a string or message

  bool next() {
    if (at_ == bytes_.size()) return false;
    const uint64_t key = varint();
    field = key >> 3;
    text = {};
    number = 0;
    switch (key & 7) {
      case 0:
        number = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        text = take(varint());
        break;
      case 5: {
        uint32_t bits;
        std::memcpy(&bits, take(4).data(), 4);
        number = bits;
        break;
      }
      default:
        malformed();
    }
    return true;
  }

  [[noreturn]] void malformed() const { fail(op, name_, ": is not a SentencePiece model"); }

 private:
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) malformed();
      const auto byte = uint8_t(bytes_[at_++]);
      value |= uint64_t(byte & 127) << shift;
      if (byte < 128) return value;
    }
    malformed();
  }
  std::string_view take(uint64_t size) {
    if (size > bytes_.size() - at_) malformed();
    at_ += size;
    return bytes_.substr(at_ - size, size);
  }

  std::string_view bytes_;
  const std::string& name_;
  size_t at_ = 0;
};

void read_piece(Message piece, Definition& d) {
  Token token;
  token.id = int32_t(d.vocabulary.size());
  PieceType type = PieceType::normal;
  while (piece.next()) {
    if (piece.field == 1) token.text = piece.text;
    if (piece.field == 2) token.score = std::bit_cast<float>(uint32_t(piece.number));
    if (piece.field == 3) {
      if (piece.number < 1 || piece.number > 6) piece.malformed();
      type = PieceType(piece.number);
    }
  }
  check(std::isfinite(token.score) && token.text.size() <= max_token_bytes, op, d.name,
        ": the piece ", token.id, " has a score that is not finite, or too many bytes");
  check(token.id < max_ids, op, d.name, ": has more than ", max_ids, " pieces");
  d.vocabulary.push_back(std::move(token));
  d.sentencepiece->types.push_back(type);
}

struct Names {
  std::string bos = "<s>", eos = "</s>", pad = "<pad>";
};

void read_trainer(Message spec, Definition& d, Names& names) {
  uint64_t type = 1;
  while (spec.next()) {
    if (spec.field == 3) type = spec.number;
    if (spec.field == 24) d.sentencepiece->whitespace_is_suffix = spec.number != 0;
    if (spec.field == 35) d.sentencepiece->byte_fallback = spec.number != 0;
    if (spec.field == 46) names.bos = spec.text;
    if (spec.field == 47) names.eos = spec.text;
    if (spec.field == 48) names.pad = spec.text;
  }
  check(type == 1 || type == 2, op, d.name, ": the model type ",
        type == 3   ? "WORD"
        : type == 4 ? "CHAR"
                    : "?",
        " is not supported; supported are UNIGRAM and BPE");
  d.sentencepiece->unigram = type == 1;
}

void read_normalizer(Message spec, Definition& d) {
  while (spec.next()) {
    if (spec.field == 2) d.sentencepiece->charsmap = spec.text;
    if (spec.field == 3) d.sentencepiece->add_dummy_prefix = spec.number != 0;
    if (spec.field == 4) d.sentencepiece->remove_extra_whitespaces = spec.number != 0;
    if (spec.field == 5)
      check(spec.number != 0, op, d.name, ": escape_whitespaces = false is not supported");
  }
}

}  // namespace

Definition read_sentencepiece(const std::string& path) {
  const std::string bytes = read_text_file(path);
  Definition d;
  d.name = path;
  d.sentencepiece.emplace();
  d.sentencepiece->unigram = true;
  Names names;
  Message model(bytes, d.name);
  while (model.next()) {
    const Message part(model.text, d.name);
    if (model.field == 1) read_piece(part, d);
    if (model.field == 2) read_trainer(part, d, names);
    if (model.field == 3) read_normalizer(part, d);
  }
  check(!d.vocabulary.empty(), op, path, ": is not a SentencePiece model");
  for (const Token& token : d.vocabulary) {
    if (d.sentencepiece->types[size_t(token.id)] != PieceType::control) continue;
    if (token.text == names.bos) d.special.bos = token.text;
    if (token.text == names.eos) d.special.eos = token.text;
    if (token.text == names.pad) d.special.pad = token.text;
  }
  set_sentencepiece(d);
  return d;
}

}  // namespace stretto::nn::tokenizers
