// The compiled parts of a SubwordTokenizer.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "components/added_tokens.h"
#include "components/decoder.h"
#include "components/normalizer.h"
#include "components/pre_tokenizer.h"
#include "files/definition.h"
#include "models/model.h"
#include "models/word_cache.h"
#include "subword_tokenizer.h"

namespace stretto::nn::tokenizers {

/// Everything of a tokenizer. Immutable, except for the pool of scratch memory.
struct Compiled {
  /// Memory of one call of encode() or decode(); reused by later calls.
  struct Scratch {
    MatchScratch match;
    ModelScratch model;
    WordCache cache;
    std::vector<std::string> buffers;  // of the stages
  };
  /// Borrows a Scratch from the pool.
  class Lease {
   public:
    explicit Lease(const Compiled& data);
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    Scratch& operator*() const { return *scratch_; }

   private:
    const Compiled& data_;
    std::unique_ptr<Scratch> scratch_;
  };

  explicit Compiled(Definition of);

  /// Returns the text of a token; nothing if there is none.
  std::optional<std::string_view> token(int64_t id) const;
  std::optional<int64_t> id(std::string_view token) const;
  /// Returns, for each of definition.added, whether it controls the model in prompts of a template
  /// with this source: special tokens, and others whose text occurs in the source and is more than
  /// one character or white space.
  std::vector<bool> control_tokens(std::string_view source) const;
  std::string text_of(const std::vector<int64_t>& ids, DecodeOptions options) const;
  /// Passes the text of a token to the decoders, unless it is skipped.
  void pass(int64_t id, DecodeOptions options, Decoding& to) const;
  std::string tokenizer_json() const;
  std::string config_json() const;

  Definition definition;  // without the tables of the model
  std::unique_ptr<Normalizer> normalizer;
  PreTokenizers pre_tokenizers;
  std::unique_ptr<Model> model;
  std::vector<std::unique_ptr<Decoder>> decoders;
  Template around;
  AddedTokens raw_tokens, normalized_tokens;  // by the text in which they are found
  AddedTokens written_tokens;                 // all, as they are written
  std::unordered_map<int64_t, size_t> added_by_id;
  std::unordered_map<std::string, int32_t> added_by_text;
  std::vector<std::string> decoded;  // the texts of definition.added for the decoders
  std::vector<bool> skipped;         // true if they are left out with the special tokens
  std::optional<int64_t> bos, eos, pad, unk;
  int64_t size = 0;

 private:
  void add_tokens();
  void check_ids() const;

  mutable std::mutex mutex_;
  mutable std::vector<std::unique_ptr<Scratch>> free_;
};

}  // namespace stretto::nn::tokenizers
