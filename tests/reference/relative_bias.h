// Biases of attention scores as the papers write them, by loops in double precision: what is added
// to the score of query i and key j, as a whole matrix. Query i stands at position i + N − M.
//
//   Raffel et al. 2020   T5: Exploring the Limits of Transfer Learning
//   Press et al. 2022    ALiBi: Train Short, Test Long
//   Chi et al. 2022      KERPLE: Kernelized Relative Positional Embedding
#pragma once

#include <cstdint>
#include <vector>

#include "ops/create.h"

namespace stretto::reference {

/// f(head, position of the query, position of the key) for all of them → [H, M, N].
template <class F>
Tensor dense(int64_t heads, int64_t m, int64_t n, F f) {
  std::vector<double> values;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) values.push_back(f(h, i + n - m, j));
  return stretto::tensor(values, {heads, m, n});
}

/// The first distance of each of the n buckets of one side, by comparisons of whole numbers of any
/// size.
std::vector<int64_t> t5_thresholds(int64_t n, int64_t max_distance);

/// The bucket of a relative position, with logarithms as in the authors' code. Where a distance is
/// exactly the first of a bucket rounding decides; with their 32 buckets and 128 it decides
/// rightly.
int64_t t5_bucket_by_logarithms(int64_t relative, int64_t buckets, double max_distance,
                                bool bidirectional);

/// table [buckets, H] → [H, M, N] (Raffel et al., §2.1).
Tensor t5_bias(const Tensor& table, int64_t m, int64_t n, double max_distance, bool bidirectional);

/// → [H, M, N] (Press et al., §3). The slopes by the authors' recursion.
Tensor alibi_bias(int64_t heads, int64_t m, int64_t n);

/// p, a [H] → [H, M, N]: −p log(1 + a|i − j|) and −a|i − j|^p (Chi et al.).
Tensor kerple_log_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);
Tensor kerple_power_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n);

}  // namespace stretto::reference
