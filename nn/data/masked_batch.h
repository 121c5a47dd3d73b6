// Batches for masked language models: some tokens are masked and become targets.
//
// Reference: none (the tests check frequencies).
#pragma once

#include <vector>

#include "batch.h"
#include "crops.h"

namespace stretto::nn {

/// Options of masked_batch(). The defaults are those of BERT (Devlin et al. 2019, §3.1).
struct MaskingOptions {
  int64_t vocabulary = 0;  ///< Number of ids; random tokens are drawn from 0 … vocabulary − 1.
  int64_t mask_token = 0;  ///< Id that replaces a masked token.
  double share = 0.15;     ///< Probability that a token is selected as a target.
  double masked = 0.8;     ///< Probability that a selected token is replaced by mask_token.
  double random = 0.1;     ///< Probability that it is replaced by a random token; else it stays.
  /// Ids that are never selected and never drawn as random tokens, e.g. padding and separators;
  /// mask_token is always one of them.
  std::vector<int64_t> special = {};
};

/// Returns a batch from tokens [B, L] (i64 or i32), on the CPU: `inputs` has tokens masked or
/// replaced, `targets` the original ids of the selected tokens and ignore_index elsewhere. Tokens
/// are selected independently, so a batch may have no target. The result depends only on the
/// arguments; the random numbers of a token depend on seed, step and its index in the batch.
Batch masked_batch(const Tensor& tokens, const MaskingOptions& options, uint64_t seed,
                   int64_t step);
/// Returns a batch from rows of different lengths, with their padding. Padding is never selected,
/// whatever its id.
Batch masked_batch(const PaddedRows& rows, const MaskingOptions& options, uint64_t seed,
                   int64_t step);

}  // namespace stretto::nn
