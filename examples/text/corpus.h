// A text as a language model needs it: tokens to learn from, tokens to judge by.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "examples/text/tokenizer.h"

namespace stretto::examples {

struct CorpusOptions {
  std::string data;        // empty: generate_text(seed)
  std::string validation;  // empty: the last `held_out` of the data
  TokenKind kind = TokenKind::bytes;
  int64_t vocabulary = 0;  // most words, 0: all
  double held_out = 0.1;
  uint64_t seed = 1;
};

struct Corpus {
  Tokenizer tokenizer;
  std::vector<int32_t> train, valid;
  std::string generated;  // the text, where it was
  int64_t valid_bytes = 0;
};

/// Reads and splits. The vocabulary is `known`, or that of the training part (of bytes: of both).
/// The cut moves back to the start of a character; for words, of a line. Throws UsageError, naming
/// the file, where it cannot be read, is empty or is not UTF-8 (but for bytes), and where a part
/// has no token.
Corpus read_corpus(const CorpusOptions& options, std::optional<Tokenizer> known = {});

}  // namespace stretto::examples
