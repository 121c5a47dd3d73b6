// The data of a language model: training and validation tokens of a text.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "examples/common/file.h"
#include "nn/data/token_stream.h"
#include "nn/data/vocabulary_tokenizer.h"

namespace stretto::examples {

/// Parses "bytes", "chars" or "words"; UsageError for any other name.
nn::TokenKind token_kind(const std::string& name);

struct CorpusOptions {
  std::string data;        ///< empty: generate_text(seed)
  std::string validation;  ///< empty: the last fraction `held_out` of the data
  nn::TokenKind kind = nn::TokenKind::bytes;
  int64_t vocabulary = 0;  ///< maximum number of words; 0: unlimited
  double held_out = 0.1;
  uint64_t seed = 1;
};

/// A text in UTF-8, without a byte order mark.
struct Text {
  std::string_view view;
  std::shared_ptr<const void> owner;
  std::shared_ptr<const MappedFile> file = {};  ///< null: the text was generated
};

struct Texts {
  Text train, valid;
};

/// Maps the files and splits the text, as read_corpus() does; `vocabulary` is not used. `hint` ends
/// the errors about files that are not UTF-8.
Texts read_texts(const CorpusOptions& options, const std::string& hint = "");

using MappedFiles = std::vector<std::shared_ptr<const MappedFile>>;

struct Corpus {
  nn::VocabularyTokenizer tokenizer;
  nn::TokenStream train, valid;
  std::string generated;  ///< the text, if it was generated
  MappedFiles files;      ///< the sources of the tokens
  std::string note;       ///< format of data that are not text, if tokens are bytes; else ""
};

/// Maps the files and splits the text. Only the tokens that a step needs are read, so a text may be
/// larger than the memory. Bytes need no additional memory. Chars and words need memory for the
/// vocabulary (about 150 bytes per word) and 1/32 of the text's size. The vocabulary is `known`, or
/// learned from the training part (bytes: from both parts). A byte order mark at the start is
/// skipped.
///
/// The split point moves back to the start of a character; for words to the start of a line. If
/// that line is the first one, or starts so far back that the part after the split point would
/// more than double, the split point moves to the start of a word instead. Throws UsageError,
/// naming the file, if it cannot be mapped (MappedFile), is empty or, except for bytes, not UTF-8
/// or in another format (see known_format() in text_file.h), and if a part has no tokens.
Corpus read_corpus(const CorpusOptions& options, std::optional<nn::VocabularyTokenizer> known = {});

/// Returns the documents of a text, which are separated by blank lines: the tokens of each document
/// with its line breaks, without the blank lines.
std::vector<nn::TokenStream> documents_of(const nn::TokenStream& tokens,
                                          const nn::VocabularyTokenizer& tokenizer);

}  // namespace stretto::examples
