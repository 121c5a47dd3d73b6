// Drawing tokens from a model, one after the other.
//
// Reference: none (drawing, not a formula)
#pragma once

#include <functional>
#include <vector>

#include "../../core/random.h"
#include "../../core/tensor.h"

namespace stretto::nn {

struct SamplingOptions {
  double temperature = 1;  // logits are divided by it; 0: always the likeliest token
  int64_t top_k = 0;       // > 0: only the k likeliest
  double top_p = 1;        // < 1: only the likeliest that together reach p (Holtzman et al. 2020)
  std::vector<int64_t> forbidden = {};  // tokens that are never drawn
};

/// Draws one token from logits [V]. `draw` is uniform in [0, 1): the same draw gives the same
/// token. Ties go to the lower token. Throws for NaN logits and for options out of range.
int64_t sample(const Tensor& logits, const SamplingOptions& options, double draw);

struct GenerationOptions {
  int64_t max_tokens = 256;  // new ones
  int64_t end_token = -1;    // ≥ 0: stop after drawing it; it is part of the result
  /// The same seed and options give the same tokens. Its draws are others than those of the program
  /// after manual_seed() of the same number.
  uint64_t seed = 0;
  SamplingOptions sampling = {};
};

/// Continues `prompt` (at least one token). `model(tokens [1, n])` returns logits [1, n, V] for
/// tokens that continue those of earlier calls: a model with its cache. Recording is off. Returns
/// the new tokens; `on_token` sees each as it is drawn and stops the run by returning false.
std::vector<int64_t> generate(const std::function<Tensor(const Tensor&)>& model,
                              const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token = {});

}  // namespace stretto::nn
