// Subword tokenizers of published models: text to ids and back.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "../../nn/data/tokenizer.h"
#include "components/decoder_state.h"

namespace stretto::nn {

/// Options of SubwordTokenizer::encode().
struct EncodeOptions {
  /// Adds the tokens around the text that the tokenizer's file defines, such as `<s>` or `[CLS]`.
  bool add_special_tokens = true;
  /// Finds special tokens that are written in the text, such as `<|im_end|>`. False for text of
  /// users: it is then encoded as ordinary characters.
  bool allow_special = true;
  /// Removed from the text after special tokens have been found. A text with special tokens of its
  /// own can thereby quote a user's text, as SubwordTokenizer::escape_special() returns it.
  std::string_view escape = {};
};

/// Options of SubwordTokenizer::decode().
struct DecodeOptions {
  bool skip_special_tokens = true;  ///< Leaves out tokens that are marked as special.
};

/// The vocabulary in the metadata of a GGUF file (keys tokenizer.ggml.…).
struct GgufVocabulary {
  std::string name = {};                  ///< The path, for errors.
  std::string model = {};                 ///< tokenizer.ggml.model: gpt2, llama, bert or t5.
  std::string pre = {};                   ///< tokenizer.ggml.pre: how gpt2 splits words.
  std::vector<std::string> tokens = {};   ///< tokenizer.ggml.tokens.
  std::vector<float> scores = {};         ///< tokenizer.ggml.scores, for llama and t5.
  std::vector<int32_t> token_types = {};  ///< tokenizer.ggml.token_type; may be empty.
  std::vector<std::string> merges = {};   ///< tokenizer.ggml.merges, for gpt2.
  std::optional<int64_t> bos = {};        ///< tokenizer.ggml.bos_token_id.
  std::optional<int64_t> eos = {};        ///< tokenizer.ggml.eos_token_id.
  std::optional<int64_t> unk = {};        ///< tokenizer.ggml.unknown_token_id.
  std::optional<int64_t> pad = {};        ///< tokenizer.ggml.padding_token_id.
  std::optional<int64_t> sep = {};  ///< tokenizer.ggml.seperator_token_id (its spelling), for bert.
  std::optional<int64_t> cls = {};  ///< tokenizer.ggml.cls_token_id, for bert.
  std::optional<bool> add_bos = {};  ///< tokenizer.ggml.add_bos_token; default: true for llama.
  std::optional<bool> add_eos = {};  ///< tokenizer.ggml.add_eos_token; default: true for t5.
  std::optional<bool> add_space_prefix = {};  ///< tokenizer.ggml.add_space_prefix; default: true.
  std::optional<bool> remove_extra_whitespaces = {};  ///< tokenizer.ggml.remove_extra_whitespaces.
  std::string charsmap = {};                          ///< tokenizer.ggml.precompiled_charsmap.
};

namespace tokenizers {
struct Definition;
struct Compiled;
}  // namespace tokenizers

/// The tokenizer of a published model: byte-level BPE, SentencePiece's BPE and Unigram, or
/// WordPiece. A handle: copies share the immutable data, and all members may be called by several
/// threads.
///
///     const auto tokenizer = nn::SubwordTokenizer::load("SmolLM2-135M-Instruct");
///     const std::vector<int64_t> ids = tokenizer.encode("Hello, world!");
///
/// Ids are equal to those of the Python packages tokenizers and sentencepiece. Components of a
/// tokenizer.json that are not supported are refused by name.
class SubwordTokenizer final : public Tokenizer {
 public:
  /// Reads a tokenizer. `path` is a tokenizer.json, a SentencePiece model (*.model), or a directory
  /// with one of: tokenizer.json; vocab.json and merges.txt (encoder.json and vocab.bpe); vocab.txt
  /// (WordPiece); tokenizer.model, spiece.model, spm.model or one other *.model. In a directory,
  /// tokenizer_config.json, special_tokens_map.json and added_tokens.json name the special tokens,
  /// add tokens and set options, as in transformers (docs/tokenizers.md). Padding and truncation in
  /// a file are ignored. Throws Error "[tokenizer] path: …" for a malformed file, an unsupported
  /// component, or files that contradict each other.
  static SubwordTokenizer load(const std::string& path);
  /// Returns the tokenizer of a GGUF file. Throws Error for an unknown model or pre-tokenizer.
  static SubwordTokenizer from_gguf(const GgufVocabulary& vocabulary);
  /// Returns the vocabulary for a GGUF file. Throws Error unless the tokenizer is byte-level BPE of a
  /// family that from_gguf() knows.
  GgufVocabulary to_gguf() const;
  /// Returns the tokenizer of a definition, as the readers of files produce it.
  explicit SubwordTokenizer(tokenizers::Definition definition);

  /// Returns the ids of a text. Bytes that are not UTF-8 are read as U+FFFD, one for each
  /// ill-formed sequence, as Python's errors="replace". Throws Error for a text of 2 GB or more.
  std::vector<int64_t> encode(std::string_view text, EncodeOptions options) const;
  std::vector<int64_t> encode(std::string_view text) const override { return encode(text, {}); }
  /// Returns a text with `escape`, which the text must not contain, within each control token that
  /// is written in it: encode() with EncodeOptions::escape reads them as ordinary characters.
  /// Control tokens are the special tokens, and the other added tokens that occur in `source`, the
  /// text of a chat template. Added tokens of white space or of one character control nothing unless
  /// they are special. Throws Error for a special token of one character, and for a text that is
  /// encoded with a control token in spite of the escape, by normalization or as a piece of the model.
  std::string escape_special(std::string_view text, std::string_view escape,
                             std::string_view source = {}) const;
  /// Returns the text of ids. Bytes that are not UTF-8 become U+FFFD. Ids without a token, which
  /// models with padded embeddings can produce, are skipped. Throws Error for a negative id.
  std::string decode(const std::vector<int64_t>& ids, DecodeOptions options) const;
  std::string decode(const std::vector<int64_t>& ids) const override { return decode(ids, {}); }

  /// Returns the largest id + 1.
  int64_t size() const override;
  /// Returns the text of a token as in the vocabulary; nothing if there is no token with this id.
  std::optional<std::string> token(int64_t id) const;
  /// Returns the id of a token; nothing if there is none.
  std::optional<int64_t> id(std::string_view token) const;
  /// True if the token is marked as special.
  bool is_special(int64_t id) const;

  /// Returns the id of the token at the beginning of a text, if one is defined.
  std::optional<int64_t> bos() const;
  /// Returns the id of the token at the end of a text, if one is defined.
  std::optional<int64_t> eos() const;
  /// Returns the id of the token for padding, if one is defined.
  std::optional<int64_t> pad() const;
  /// Returns the id of the token for unknown text, if one is defined.
  std::optional<int64_t> unk() const;

  /// Writes the tokenizer: a path that ends with .json is a tokenizer.json; a SentencePiece model
  /// is written there as transformers converts it. Any other path is a directory. It gets the same
  /// files as the directory from which the tokenizer was read; a tokenizer from elsewhere is
  /// written as tokenizer.json and tokenizer_config.json. Throws Error if a file cannot be
  /// written.
  void save(const std::string& path) const;

 private:
  friend class DecodeStream;

  std::shared_ptr<const tokenizers::Compiled> data_;
};

/// Decodes ids as they arrive; text that later ids can change is held back: a character whose bytes
/// are not complete, a run of byte tokens such as `<0xE2>`, blanks that the decoder may strip.
///
///     nn::DecodeStream stream(tokenizer);
///     while (…) std::cout << stream.add(next_id()) << std::flush;
///     std::cout << stream.finish();
class DecodeStream {
 public:
  /// Starts a text.
  explicit DecodeStream(SubwordTokenizer tokenizer, DecodeOptions options = {});
  /// Adds an id and returns the text that is certain by now; may be empty. The concatenation of all
  /// texts, with finish(), equals decode() of all ids.
  std::string add(int64_t id);
  /// Returns the text that was held back, with U+FFFD for incomplete characters, and starts again.
  std::string finish();

 private:
  SubwordTokenizer tokenizer_;
  DecodeOptions options_;
  std::vector<tokenizers::DecoderState> states_;
};

}  // namespace stretto::nn
