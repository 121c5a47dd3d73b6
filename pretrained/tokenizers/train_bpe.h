// Training of byte-pair encodings, on text or on sequences of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "subword_tokenizer.h"

namespace stretto::nn {

/// How train_bpe() splits a text into words; merges do not cross words.
enum class WordSplit {
  gpt2,    ///< Words with a blank in front, numbers and punctuation, as in GPT-2.
  llama3,  ///< As in Llama 3: at most three digits in a word.
  qwen2,   ///< As in Qwen 2, without its normalization NFC: digits are words.
  smollm   ///< As in SmolLM: digits are words, the rest as in GPT-2.
};

/// Options of train_bpe().
struct BpeTraining {
  /// The size of the vocabulary: special tokens, 256 bytes, and one token for each merge.
  int64_t vocabulary = 8192;
  std::vector<std::string> special_tokens = {};  ///< Get the first ids; the first one becomes eos.
  WordSplit split = WordSplit::gpt2;             ///< The words of the text.
  int64_t min_count = 2;                         ///< Training ends when no pair occurs this often.
  /// Called after every 100 merges and at the end with the number of merges and their maximum.
  std::function<void(int64_t, int64_t)> progress = {};
};

/// Words and how often they occur.
using WordCounts = std::vector<std::pair<std::string, int64_t>>;

/// Trains byte-level BPE (Sennrich, Haddow and Birch 2016; Radford et al. 2019) on UTF-8 text.
/// Deterministic: of the most frequent pairs, the one with the smallest ids is merged, as in the
/// package tokenizers, whose BpeTrainer finds the same merges. Throws Error if the vocabulary is
/// too small for special tokens and bytes.
SubwordTokenizer train_bpe(std::string_view text, const BpeTraining& options = {});

/// Trains on words that were counted elsewhere, for example over many files with count_words().
SubwordTokenizer train_bpe(const WordCounts& words, const BpeTraining& options = {});

/// Returns the words of a text in alphabetical order of their bytes.
WordCounts count_words(std::string_view text, WordSplit split = WordSplit::gpt2);

/// Merges of pairs of integer tokens, for example of music.
class TokenMerges {
 public:
  /// Learns at most `merges` merges on sequences of tokens 0 … tokens − 1. Each merge makes a new
  /// token tokens, tokens + 1, … of the most frequent pair (of equal ones the smallest), while it
  /// occurs at least `min_count` times. A long sequence should be cut at its natural borders, such
  /// as bars: the time is proportional to the lengths of sequences that contain a pair.
  static TokenMerges learn(const std::vector<std::vector<int64_t>>& sequences, int64_t tokens,
                           int64_t merges, int64_t min_count = 2,
                           const std::function<void(int64_t, int64_t)>& progress = {});
  /// Returns merges that were stored. Throws Error if one uses a token of a later merge.
  TokenMerges(int64_t tokens, std::vector<std::pair<int64_t, int64_t>> merges);

  /// Returns a sequence with pairs replaced. Throws Error for a token outside of 0 … tokens − 1.
  std::vector<int64_t> encode(const std::vector<int64_t>& sequence) const;
  /// Returns the sequence of encoded tokens. Throws Error for a token outside of 0 … size() − 1.
  std::vector<int64_t> decode(const std::vector<int64_t>& encoded) const;
  /// Returns the number of tokens, with those of merges.
  int64_t size() const;
  /// Returns the pairs in the order in which they are merged.
  const std::vector<std::pair<int64_t, int64_t>>& pairs() const { return pairs_; }

 private:
  int64_t tokens_;
  std::vector<std::pair<int64_t, int64_t>> pairs_;
};

}  // namespace stretto::nn
