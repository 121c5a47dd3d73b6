#include "examples/text/corpus.h"

#include <map>
#include <set>

#include "core/known_format.h"
#include "core/utf8.h"
#include "examples/common/file.h"
#include "examples/common/settings.h"
#include "examples/common/text_file.h"
#include "examples/text/grammar.h"

namespace stretto::examples {
namespace {

constexpr int64_t generated_bytes = 1 << 20;

Text map_text(const std::string& path, nn::TokenKind kind, const std::string& hint) {
  const auto file = std::make_shared<const MappedFile>(path);
  const std::string_view text = without_byte_order_mark(file->bytes());
  require(!text.empty(), path + ": is empty");
  if (kind == nn::TokenKind::bytes) return {text, file, file};
  refuse_known_format(file->bytes(), path, "UTF-8 text" + hint);
  const size_t at = find_invalid_utf8(text).at;
  require(at == text.size(), path + ": is not UTF-8 at byte " +
                                 as_text(int64_t(at + file->bytes().size() - text.size())) + hint);
  return {text, file, file};
}

// Returns a note on a file that is not text, for users of --tokens bytes; "" for text.
std::string format_note(const std::string& path, const MappedFile& file) {
  const std::string format = known_format(without_byte_order_mark(file.bytes()));
  return format.empty() ? "" : path + " is " + format + " and is learned as raw bytes";
}

std::string name_of(const CorpusOptions& o) {
  return o.data.empty() ? "the generated text" : o.data;
}

Text generated_text(uint64_t seed) {
  const auto text = std::make_shared<const std::string>(generate_text(seed, generated_bytes));
  return {*text, text};
}

// Returns the last position at or before `at` at which a token or, for words, a line begins. For
// words the position is the start of a word instead if the line is the first one, or begins so far
// before `at` that the part after the position would more than double. Returns 0 if even the word
// begins too far before `at`.
size_t cut(std::string_view text, nn::TokenKind kind, size_t at) {
  if (kind == nn::TokenKind::chars)
    while (at > 0 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  if (kind != nn::TokenKind::words || at == 0) return at;
  const size_t line = text.rfind('\n', at - 1) + 1;  // 0 for the first line
  const size_t word = text.find_last_of(" \t\n\v\f\r", at - 1) + 1;
  const auto is_near = [&](size_t place) { return at - place <= text.size() - at; };
  if (line > 0) return is_near(line) ? line : word;
  return is_near(word) ? word : 0;
}

}  // namespace

nn::TokenKind token_kind(const std::string& name) {
  static const std::map<std::string, nn::TokenKind> kinds{{"bytes", nn::TokenKind::bytes},
                                                          {"chars", nn::TokenKind::chars},
                                                          {"words", nn::TokenKind::words}};
  return find_name(kinds, "--tokens", name);
}

Texts read_texts(const CorpusOptions& o, const std::string& hint) {
  const Text text = o.data.empty() ? generated_text(o.seed) : map_text(o.data, o.kind, hint);
  if (!o.validation.empty()) return {text, map_text(o.validation, o.kind, hint)};
  const size_t size = text.view.size();
  const size_t at = cut(text.view, o.kind, size_t((1 - o.held_out) * double(size)));
  require(at > 0 && at < size, name_of(o) + ": is too short to hold out " + as_text(o.held_out) +
                                   " of it" +
                                   (o.kind == nn::TokenKind::words ? " in whole lines" : ""));
  return {{text.view.substr(0, at), text.owner, text.file}, {text.view.substr(at), text.owner}};
}

Corpus read_corpus(const CorpusOptions& o, std::optional<nn::VocabularyTokenizer> known) {
  const std::string name = name_of(o);
  const Texts texts = read_texts(o, "; --tokens bytes accepts any file");
  const Text &train = texts.train, &valid = texts.valid;
  const nn::VocabularyTokenizer tokenizer = known ? *known : as_usage([&] {
    return nn::VocabularyTokenizer::learn(o.kind, train.view, o.vocabulary, valid.view);
  });
  const auto stream = [&](const Text& part, const std::string& file) {
    try {
      return nn::TokenStream(tokenizer, part.view, part.owner);
    } catch (const Error& e) {
      const bool generated = o.data.empty() && file == name;
      throw UsageError((generated ? "--data is missing: " : "") + file + ": " + plain(e) +
                       " of the checkpoint");
    }
  };
  std::string note, generated;
  if (o.data.empty()) generated = train.view;
  if (o.data.empty() && o.validation.empty()) generated += valid.view;
  if (o.kind == nn::TokenKind::bytes && !o.data.empty()) note = format_note(o.data, *train.file);
  nn::TokenStream to_learn = stream(train, name);
  MappedFiles files;
  for (const Text* part : {&train, &valid})
    if (part->file) files.push_back(part->file);
  return {.tokenizer = tokenizer,
          .train = std::move(to_learn),
          .valid = stream(valid, o.validation.empty() ? name : o.validation),
          .generated = std::move(generated),
          .files = std::move(files),
          .note = std::move(note)};
}

std::vector<nn::TokenStream> documents_of(const nn::TokenStream& tokens,
                                          const nn::VocabularyTokenizer& tokenizer) {
  const bool words = tokenizer.kind() == nn::TokenKind::words;
  const int64_t line_break = tokenizer.id(words ? "<eos>" : "\n");
  std::set<int64_t> blanks;
  if (!words)
    for (const char* blank : {" ", "\t", "\r"}) blanks.insert(tokenizer.id(blank));
  std::vector<nn::TokenStream> documents;
  int64_t document = 0, line = 0, at = 0;  // where they begin; the next token
  bool blank = true;
  const auto end_document = [&](int64_t end) {
    if (end > document) documents.push_back(tokens.slice(document, end));
    document = at;
  };
  const auto end_line = [&] {
    if (blank) end_document(line);
    line = at;
    blank = true;
  };
  tokens.each([&](int64_t token) {
    ++at;
    if (token == line_break)
      end_line();
    else if (!blanks.contains(token))
      blank = false;
  });
  end_line();
  end_document(at);
  return documents;
}

}  // namespace stretto::examples
