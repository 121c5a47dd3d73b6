// Batches for masked language models: tokens of which some are hidden and to be predicted.
//
// Reference: none (a rule of counts; its tests count)
#pragma once

#include <vector>

#include "batch.h"

namespace stretto::nn {

/// The defaults are those of BERT (Devlin et al. 2019, §3.1).
struct MaskingOptions {
  int64_t vocabulary = 0;  ///< Random tokens are drawn from 0 … vocabulary − 1.
  int64_t mask_token = 0;  ///< The id that hides a token.
  double share = 0.15;     ///< Probability that a token is to be predicted.
  double masked = 0.8;     ///< Probability that a token to be predicted is hidden by mask_token,
  double random = 0.1;     ///< or replaced by a random token; else it stays as it is.
  /// Ids that are neither predicted nor drawn as random tokens, as padding and separators;
  /// mask_token is one of them in any case.
  std::vector<int64_t> special = {};
};

/// Returns a batch made of tokens [B, L] (i64 or i32), on the CPU: `inputs` with tokens hidden or
/// replaced, `targets` the original id of each token to be predicted and ignore_index elsewhere.
/// Each token is chosen independently: a batch may have no target. A function of the arguments
/// alone; the draws of a token depend on seed, step and its place in the batch.
Batch masked_batch(const Tensor& tokens, const MaskingOptions& options, uint64_t seed,
                   int64_t step);

}  // namespace stretto::nn
