// Sampling tokens from a model, one after the other.
//
// Reference: none (sampling, not a formula)
#pragma once

#include <functional>
#include <vector>

#include "../../core/random.h"
#include "../../core/tensor.h"

namespace stretto::nn {

/// Options of sample().
struct SamplingOptions {
  double temperature = 1;  ///< Divides the logits; 0: always the most probable token.
  int64_t top_k = 0;       ///< > 0: only the k most probable tokens.
  /// < 1: only the most probable tokens that together reach probability p (Holtzman et al. 2020).
  double top_p = 1;
  std::vector<int64_t> forbidden = {};  ///< Tokens that are never sampled.
};

/// Samples one token from logits [V]. `draw` is uniform in [0, 1); the same draw gives the same
/// token. Ties go to the lower token. Throws if a logit is NaN or an option is out of range.
int64_t sample(const Tensor& logits, const SamplingOptions& options, double draw);

/// Options of generate().
struct GenerationOptions {
  int64_t max_tokens = 256;  ///< Largest number of new tokens.
  int64_t end_token = -1;    ///< Stops after this token, which is part of the result; −1: none.
  /// The same seed and options give the same tokens. The random numbers differ from those of the
  /// program after manual_seed() with the same seed.
  uint64_t seed = 0;
  SamplingOptions sampling = {};  ///< Options of each sample().
};

/// Continues `prompt` (at least one token) and returns the new tokens. `model(tokens [1, n])`
/// returns logits [1, n, V] for tokens that continue those of earlier calls: a model with its
/// cache. `on_token` receives each token as it is sampled and stops generation by returning false.
/// No gradients are recorded.
std::vector<int64_t> generate(const std::function<Tensor(const Tensor&)>& model,
                              const std::vector<int64_t>& prompt, const GenerationOptions& options,
                              const std::function<bool(int64_t)>& on_token = {});

}  // namespace stretto::nn
