// A text as a language model needs it: tokens to learn from, tokens to judge by.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "examples/common/file.h"
#include "nn/data/token_stream.h"

namespace stretto::examples {

/// "bytes", "chars", "words"; UsageError for another name.
nn::TokenKind token_kind(const std::string& name);

struct CorpusOptions {
  std::string data;        // empty: generate_text(seed)
  std::string validation;  // empty: the last `held_out` of the data
  nn::TokenKind kind = nn::TokenKind::bytes;
  int64_t vocabulary = 0;  // most words, 0: all
  double held_out = 0.1;
  uint64_t seed = 1;
};

struct Corpus {
  nn::Tokenizer tokenizer;
  nn::TokenStream train, valid;
  std::string generated;                                 // the text, where it was
  std::vector<std::shared_ptr<const MappedFile>> files;  // that the tokens are of
  std::string note;  // what the data are, where tokens are bytes and the data no text; else ""
};

/// Maps the files and splits: of a text only what a step needs is read, so that it may be larger
/// than the memory. Memory on top of that, whatever the text: for bytes none, for chars and words
/// the vocabulary (a word takes about 150 bytes) and 1/32 of the size. The vocabulary is `known`,
/// or that of the training part (of bytes: of both). A byte order mark at the start is left out.
///
/// The cut moves back to the start of a character; for words, of a line, or of a word where the
/// line is the first one or longer than the part behind the cut. Throws UsageError, naming the
/// file, if it cannot be mapped (MappedFile), is empty or, except for bytes, not UTF-8 or in
/// another format (known_format() of text_file.h names it), and if a part has no token.
Corpus read_corpus(const CorpusOptions& options, std::optional<nn::Tokenizer> known = {});

}  // namespace stretto::examples
