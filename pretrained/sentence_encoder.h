// Vectors of sentences by BERT and its relatives (Sentence-BERT, Reimers & Gurevych 2019).
//
//     const auto encoder = nn::SentenceEncoder::load("all-MiniLM-L6-v2");
//     const Tensor vectors = encoder.encode({"A cat sits.", "A dog runs."});  // [2, 384]
//     const Tensor similarity = matmul(vectors, vectors.transpose(0, 1));
#pragma once

#include <string>
#include <vector>

#include "pretrained.h"

namespace stretto::nn {

/// A BERT that computes one vector per sentence, as the Python package sentence-transformers does.
class SentenceEncoder {
 public:
  /// Loads a folder of sentence-transformers: modules.json with a Transformer (a BERT), a Pooling
  /// ("mean" or "cls") and optionally a Normalize. A folder without modules.json has the mean of
  /// all tokens, not normalized. Other modules are refused by name, as are unknown fields of
  /// sentence_bert_config.json. Without max_seq_length there, model_max_length of the tokenizer
  /// limits sentences. With do_lower_case, each code point is changed by itself: Python's lower()
  /// differs for a Σ at the end of a word. The prompt that default_prompt_name selects in
  /// config_sentence_transformers.json is put before each sentence.
  static SentenceEncoder load(const std::string& path, const PretrainedOptions& options = {});

  /// Returns the vectors [n, d_model] of n sentences, in the model's dtype on the CPU, without
  /// gradients. A sentence with more than max_length() tokens is truncated. `batch` sentences of
  /// similar length are computed at a time; the result does not depend on it except for rounding.
  Tensor encode(const std::vector<std::string>& sentences, int64_t batch = 32) const;

  /// Returns the largest number of tokens of a sentence, with special tokens.
  int64_t max_length() const { return max_length_; }
  /// Returns how the vector of a sentence is computed: Pooling::mean, or Pooling::first ("cls").
  Pooling pooling() const { return pooling_; }
  /// True if vectors have the length 1.
  bool normalizes() const { return normalize_; }
  /// Returns the model with its tokenizer.
  const Pretrained& pretrained() const { return model_; }

 private:
  explicit SentenceEncoder(Pretrained model) : model_(std::move(model)) {}
  Tensor encode_batch(const std::vector<std::vector<int64_t>>& rows) const;

  Pretrained model_;
  Pooling pooling_ = Pooling::mean;
  bool normalize_ = false;
  bool lower_case_ = false;
  std::string prompt_;  // before each sentence
  int64_t max_length_ = 512;
};

}  // namespace stretto::nn
