// Biases of attention scores as the papers write them, by loops in double precision: the dense bias
// [H, M, N] that is added to the scores. Query i is at position i + N − M.
//
//   Raffel et al. 2020   T5: Exploring the Limits of Transfer Learning
//   Press et al. 2022    ALiBi: Train Short, Test Long
//   Chi et al. 2022      KERPLE: Kernelized Relative Positional Embedding
#pragma once

#include <cstdint>
#include <vector>

#include "ops/create.h"

namespace stretto::reference {

/// Returns f(head, position of the query, position of the key) for all of them [H, M, N].
template <class F>
Tensor dense(int64_t heads, int64_t m, int64_t n, F f) {
  std::vector<double> values;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) values.push_back(f(h, i + n - m, j));
  return stretto::tensor(values, {heads, m, n});
}

/// Returns the smallest distance of each of the n buckets of one direction, computed exactly with
/// integers of any size (Raffel et al., §2.1, and the authors' code).
std::vector<int64_t> t5_thresholds(int64_t n, int64_t max_distance);

/// Returns the bucket of a relative position, with logarithms as in the authors' code. If a
/// distance is exactly the smallest of a bucket, rounding decides; with the authors' 32 buckets and
/// max_distance 128 the result is correct.
int64_t t5_bucket_by_logarithms(int64_t relative, int64_t buckets, double max_distance,
                                bool bidirectional);

/// Computes the bias of T5 (Raffel et al., §2.1): table [buckets, H] → [H, M, N].
Tensor t5_bias(const Tensor& table, int64_t m, int64_t n, double max_distance, bool bidirectional);

/// Computes the bias of ALiBi, −slope_h |i − j| [H, M, N], with the slopes of the authors'
/// recursion (Press et al., §3).
Tensor alibi_bias(int64_t heads, int64_t m, int64_t n);

/// Computes the logarithmic bias of KERPLE (Chi et al.), −p log(1 + a|i − j|): p and a are [H], the
/// result is [H, M, N].
Tensor kerple_log_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);
/// Computes the power bias of KERPLE (Chi et al.), −a|i − j|^p: p, a [H] → [H, M, N].
Tensor kerple_power_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);

}  // namespace stretto::reference
