// Sampling the next token of a sequence from logits.
//
// Reference: none (its tests compare with loops and with transformers)
#pragma once

#include <functional>
#include <map>
#include <span>
#include <vector>

#include "../../core/tensor.h"

namespace stretto::nn {

/// Options of sample() and Sampler. They are applied in the order of Hugging Face's transformers:
/// repetition_penalty, presence_penalty and frequency_penalty, `forbidden`, `constrain`,
/// temperature, top_k, top_p, min_p.
struct SamplingOptions {
  double temperature = 1;  ///< Divides the logits; 0: always the most probable token.
  int64_t top_k = 0;       ///< > 0: only the k most probable tokens.
  /// < 1: only the most probable tokens that together reach probability p (Holtzman et al. 2020).
  double top_p = 1;
  /// > 0: only tokens with at least min_p times the probability of the most probable token (Nguyen
  /// et al. 2024).
  double min_p = 0;
  std::vector<int64_t> forbidden = {};  ///< Tokens that are never sampled.
  /// r > 0: the logit x of each token of the sequence so far, prompt included, becomes x / r, or
  /// x · r if x < 0 (as in transformers, after Keskar et al. 2019); 1: none.
  double repetition_penalty = 1;
  /// Subtracted from the logit of each token that has been generated, without the prompt; 0: none.
  /// With c the number of times that the token has been generated, presence and frequency penalty
  /// change its logit x to x − presence_penalty · [c > 0] − frequency_penalty · c (OpenAI's API;
  /// llama.cpp has the same formula, but also counts the prompt).
  double presence_penalty = 0;
  double frequency_penalty = 0;  ///< See presence_penalty.
  /// Called before each token with the logits [V], which it may change (−∞ excludes a token), and
  /// the sequence so far, prompt included; for grammars and other constraints. Empty: none.
  std::function<void(std::span<double> logits, const std::vector<int64_t>& tokens)> constrain = {};
};

/// Samples the tokens of one sequence.
class Sampler {
 public:
  /// Starts with the tokens of a prompt. Throws if an option is out of range.
  explicit Sampler(SamplingOptions options, std::vector<int64_t> prompt = {});
  /// Samples the next token from logits [V] and appends it to the sequence. `draw` is uniform in
  /// [0, 1); the same draw gives the same token. Ties go to the lower token; top_k keeps exactly k
  /// tokens. Throws if a logit is NaN or no token is possible.
  int64_t operator()(const Tensor& logits, double draw);
  /// Appends a token to the sequence, as if it had been sampled.
  void append(int64_t token);
  /// Returns the sequence so far, prompt included.
  const std::vector<int64_t>& tokens() const { return tokens_; }

 private:
  struct Candidate;
  void penalize(std::vector<double>& scores) const;
  void forbid(std::vector<double>& scores) const;
  std::vector<Candidate> candidates(const std::vector<double>& scores, double top) const;
  static void radix_sort(std::vector<Candidate>& all);

  SamplingOptions o_;
  std::vector<int64_t> forbidden_;     // sorted, each once
  std::vector<int64_t> tokens_;        // prompt and generated tokens
  std::map<int64_t, int64_t> counts_;  // tokens_: how often each one was generated
};

/// Samples one token from logits [V], as Sampler does for an empty sequence.
int64_t sample(const Tensor& logits, const SamplingOptions& options, double draw);

}  // namespace stretto::nn
