// Beam search for the most probable sequences of a model.
//
// Reference: none (its tests try every sequence)
#pragma once

#include <functional>
#include <vector>

#include "../../core/tensor.h"
#include "generation.h"

namespace stretto::nn {

/// The divisor of the log probability of a sequence of n tokens, with α = length_penalty.
enum class LengthPenalty {
  gnmt,  ///< ((5 + n) / 6)^α (Wu et al. 2016, eq. 14, without coverage).
  power  ///< n^α; with α = 1 the mean over tokens (Hugging Face's generate).
};

/// Options of beam_search().
struct BeamSearchOptions {
  int64_t beam = 4;                             ///< Number of hypotheses, at least 1.
  double length_penalty = 0;                    ///< α; 0: none (Vaswani et al. 2017: 0.6).
  LengthPenalty penalty = LengthPenalty::gnmt;  ///< Formula of the length penalty.
  int64_t max_tokens = 256;                     ///< Largest number of new tokens.
  std::vector<int64_t> end_tokens = {};         ///< Any of them ends a sequence and is part of it.
  int64_t n_best = 1;                           ///< Number of results, at most `beam`.
  std::vector<int64_t> forbidden = {};          ///< Tokens that are never chosen.
};

/// A sequence found by beam search.
struct Hypothesis {
  std::vector<int64_t> tokens;  ///< New tokens, without the prompt.
  double log_probability = 0;   ///< Sum of the tokens' log probabilities.
  double score = 0;             ///< log_probability divided by the length penalty.
  GenerationEnd end = GenerationEnd::max_tokens;  ///< end_token, max_tokens or length.
};

/// Continues `prompt` (at least one token). Returns at most n_best hypotheses, best first. A
/// sequence whose continuations are all forbidden or impossible (−∞) is dropped unless it has
/// ended; if no sequence remains, the call throws.
///
/// `model(tokens [n, m])` returns logits [n, m, V]: first for the prompt (n = 1), then for one more
/// token of each of the n ≤ beam live hypotheses. Before the model is called, `reorder(rows [n])`
/// is called with the earlier row that each hypothesis continues, unless each continues its own
/// row; pass the reorder() of a cache.
///
/// Each step keeps the `beam` most probable continuations. A continuation that ends moves to the
/// results and leaves its place in the beam empty. A beam of 1 is therefore greedy search, and a
/// beam that holds all sequences finds the best. Ties go to the hypothesis that ranked higher in
/// the previous step, then to the lower token. The search stops when no live sequence can become
/// better than the results. If the model throws PositionError after the first new token, because
/// its learned positions have ended, the live hypotheses are results (GenerationEnd::length). No
/// gradients are recorded. Call eval() of the model first: its dropout would be an error.
std::vector<Hypothesis> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                    const std::function<void(const Tensor&)>& reorder,
                                    const std::vector<int64_t>& prompt,
                                    const BeamSearchOptions& options);

/// Continues several prompts [P, m] (i64 or i32) at once; entry i equals the result for prompt i
/// by itself, except that all searches end if the model throws PositionError. The rows that the
/// model receives are first the prompts, then the live hypotheses, ordered by prompt; a prompt
/// whose search has ended has no rows.
std::vector<std::vector<Hypothesis>> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                                 const std::function<void(const Tensor&)>& reorder,
                                                 const Tensor& prompts,
                                                 const BeamSearchOptions& options);

}  // namespace stretto::nn
