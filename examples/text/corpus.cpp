#include "examples/text/corpus.h"

#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/text/grammar.h"

namespace stretto::examples {
namespace {

constexpr int64_t generated_bytes = 1 << 20;

std::string read_text_file(const std::string& path, TokenKind kind) {
  std::string text = read_whole_file(path);
  require(!text.empty(), path + ": is empty");
  const int64_t at = kind == TokenKind::bytes ? -1 : invalid_utf8(text);
  require(at < 0,
          path + ": is not UTF-8 at byte " + as_text(at) + "; --tokens bytes takes any file");
  return text;
}

// The last place at or before `at` where a token, for words a line, begins.
size_t cut(const std::string& text, TokenKind kind, size_t at) {
  if (kind == TokenKind::chars)
    while (at > 0 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  if (kind == TokenKind::words)
    while (at > 0 && text[at - 1] != '\n') --at;
  return at;
}

}  // namespace

Corpus read_corpus(const CorpusOptions& o, std::optional<Tokenizer> known) {
  const std::string name = o.data.empty() ? "the generated text" : o.data;
  std::string text =
      o.data.empty() ? generate_text(o.seed, generated_bytes) : read_text_file(o.data, o.kind);
  std::string valid;
  if (o.validation.empty()) {
    const size_t at = cut(text, o.kind, size_t((1 - o.held_out) * double(text.size())));
    require(at > 0 && at < text.size(), name + ": is too short to hold out " + as_text(o.held_out) +
                                            " of it" +
                                            (o.kind == TokenKind::words ? " in whole lines" : ""));
    valid = text.substr(at);
    text.resize(at);
  } else {
    valid = read_text_file(o.validation, o.kind);
  }
  Corpus corpus{known ? std::move(*known)
                      : Tokenizer::learn(o.kind, o.kind == TokenKind::bytes ? text + valid : text,
                                         o.vocabulary),
                {},
                {},
                {},
                int64_t(valid.size())};
  const auto encode = [&](const std::string& part, const std::string& file) {
    try {
      return corpus.tokenizer.encode(part);
    } catch (const UsageError& e) {
      throw UsageError(file + ": " + e.what() + " of the checkpoint");
    }
  };
  corpus.train = encode(text, name);
  corpus.valid = encode(valid, o.validation.empty() ? name : o.validation);
  if (o.data.empty()) corpus.generated = o.validation.empty() ? text + valid : text;
  return corpus;
}

}  // namespace stretto::examples
