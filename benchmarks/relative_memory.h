// Measures the memory of relative logits, for one head of one layer, as in Table 1 of the Music
// Transformer paper (Huang et al. 2018). Shared by the benchmark and its test.
#pragma once

#include <cmath>
#include <utility>

#include "autograd/tape.h"
#include "core/storage.h"
#include "ops/attention/attention.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::benchmarks {

/// Bytes in addition to the queries (and keys and values), in f32.
struct RelativeMemory {
  int64_t positions = 0;  // the relative-position vectors: R [L, L, D] or E [L, D]
  int64_t logits = 0;     // S_rel [L, L], or the strips of fused attention
  int64_t peak = 0;       // the maximum at any time
};

/// Table 1 of the paper, in megabytes of 10^6 bytes; but its value 16 is in MiB: 4·2048² bytes.
struct PaperRow {
  int64_t length;
  double gather_positions, skew_positions, logits;
};
inline constexpr PaperRow paper_table[] = {
    {650, 108, 0.17, 1.7}, {2048, 1100, 0.52, 16}, {3500, 3100, 0.90, 49}};
inline constexpr int64_t paper_d = 64;

namespace detail {

struct Step {
  int64_t result = 0, peak = 0;  // bytes
};

// Returns the result of f, its size and the peak memory of f.
template <class F>
std::pair<Tensor, Step> measure(F&& f) {
  const int64_t before = memory_stats().live;
  reset_peak_memory();
  Tensor y = f();
  const MemoryStats after = memory_stats();
  return {y, {after.live - before, after.peak - before}};
}

inline RelativeMemory sum(const Step& positions, const Step& logits) {
  return {positions.result, logits.result,
          std::max(positions.peak, positions.result + logits.peak)};
}

}  // namespace detail

/// Measures Shaw et al. 2018: R [L, L, D], one vector per pair of positions, then Σ_d Q R. The L²
/// indices are not counted, as in the paper.
inline RelativeMemory gather_memory(int64_t length, int64_t d = paper_d) {
  NoGrad guard;
  const Tensor q = randn({length, d}, RandomKey{}), table = randn({2 * length - 1, d}, RandomKey{});
  Tensor index = empty({length * length}, {.dtype = i64});
  for (int64_t i = 0; i < length; ++i)
    for (int64_t j = 0; j < length; ++j) index.data<int64_t>()[i * length + j] = j - i + length - 1;
  const auto [r, positions] = detail::measure([&] {
    return index_select(table, 0, index).reshape({length, length, d});
  });
  const auto [s, logits] = detail::measure([&, r = r] { return matmul(r, q.unsqueeze(2)); });
  return detail::sum(positions, logits);
}

/// Measures Huang et al. 2018: E [L, D], then skew(Q Eᵀ).
inline RelativeMemory skew_memory(int64_t length, int64_t d = paper_d) {
  NoGrad guard;
  const Tensor q = randn({length, d}, RandomKey{});
  const auto [e, positions] = detail::measure([&] { return randn({length, d}, RandomKey{}); });
  const auto [s, logits] =
      detail::measure([&, e = e] { return skew(matmul(q, e.transpose(0, 1)), length); });
  return detail::sum(positions, logits);
}

/// Returns the bytes that gather_memory() allocates: R, the logits, and the indices in i64.
inline double gather_bytes(int64_t length, int64_t d = paper_d) {
  return double(length) * double(length) * (4 * (double(d) + 1) + 8);
}

/// Measures complete causal relative attention, fused: E [L, D], then softmax(Q Kᵀ + S_rel) V,
/// computed in strips of scores. `logits` counts the strips; only `peak` counts the output [L, D].
inline RelativeMemory fused_memory(int64_t length, int64_t d = paper_d) {
  NoGrad guard;
  const Tensor q = randn({1, 1, length, d}, RandomKey{});
  const auto [e, positions] = detail::measure([&] { return randn({1, length, d}, RandomKey{}); });
  const auto [y, all] = detail::measure([&, e = e] {
    return attention(q, q, q,
                     {.mask = {.causal = true},
                      .relative_keys = {.rows = e, .zero_row = length - 1},
                      .implementation = Implementation::fused});
  });
  RelativeMemory m = detail::sum(positions, all);
  m.logits = all.peak - all.result;
  return m;
}

/// Returns the largest L with square·L² + linear·L ≤ bytes.
inline int64_t longest_length(double square, double linear, double bytes) {
  const double root = std::sqrt(linear * linear + 4 * square * bytes);
  return int64_t(2 * bytes / (linear + root));
}

}  // namespace stretto::benchmarks
