// The likeliest sequences of a model, sought with a beam.
//
// Reference: none (its tests try every sequence)
#pragma once

#include <functional>
#include <vector>

#include "../../core/tensor.h"

namespace stretto::nn {

/// What the log probability of a sequence of n tokens is divided by, with α = length_penalty:
/// gnmt: ((5 + n) / 6)^α (Wu et al. 2016, eq. 14, without coverage); power: n^α, with α = 1 the
/// mean of its tokens (Hugging Face's generate).
enum class LengthPenalty { gnmt, power };

struct BeamSearchOptions {
  int64_t beam = 4;
  double length_penalty = 0;  // α; 0: none. Vaswani et al. 2017 have 0.6
  LengthPenalty penalty = LengthPenalty::gnmt;
  int64_t max_tokens = 256;             // new ones
  int64_t end_token = -1;               // ≥ 0: a sequence ends with it; it is part of the result
  int64_t n_best = 1;                   // at most `beam`
  std::vector<int64_t> forbidden = {};  // tokens that are never taken
};

struct Hypothesis {
  std::vector<int64_t> tokens;  // without the prompt
  double log_probability = 0;
  double score = 0;  // with the length penalty
};

/// Continues `prompt` (at least one token); best hypothesis first, fewer than n_best where the beam
/// finds no more: a sequence all of whose continuations are forbidden or impossible (−∞) is left
/// out unless it has ended, and where nothing else is left that is an error. `model(tokens [n, m])`
/// returns logits [n, m, V]: first for the prompt (n = 1), then for one more token of each of the n
/// ≤ beam hypotheses that go on. `reorder(rows [n])` tells, before that, which of its earlier rows
/// each of them continues, unless each continues its own: what a cache's reorder() does.
///
/// Each step keeps the `beam` likeliest of all continuations. One that ends is kept for the result
/// and leaves its place in the beam empty, so a beam of 1 is greedy search and a beam that holds
/// all sequences finds the best. Ties go to the hypothesis ranked higher before, then to the lower
/// token. The search stops where no sequence can become better than those found. Recording is off.
std::vector<Hypothesis> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                    const std::function<void(const Tensor&)>& reorder,
                                    const std::vector<int64_t>& prompt,
                                    const BeamSearchOptions& options);

/// The same of several prompts [P, m] (i64 or i32) at once, each as if it were alone: entry i is
/// what row i gives. The model's rows are first the prompts, then the hypotheses that go on, those
/// of the first prompt first; a prompt whose search has ended has none.
std::vector<std::vector<Hypothesis>> beam_search(const std::function<Tensor(const Tensor&)>& model,
                                                 const std::function<void(const Tensor&)>& reorder,
                                                 const Tensor& prompts,
                                                 const BeamSearchOptions& options);

}  // namespace stretto::nn
