// Softmax of the rows of x [rows, n].
#include "ops/softmax.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "benchmarks/ladders/ladder.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/rows.h"

namespace stretto::ladders {

namespace {

constexpr int64_t n_rows = 256;

// The definition, with the maximum subtracted to prevent overflow. Each exponential is computed
// twice, and each element is divided.
void definition(const float* x, float* y, int64_t n) {
  float top = x[0], total = 0;
  for (int64_t i = 0; i < n; ++i) top = std::max(top, x[i]);
  for (int64_t i = 0; i < n; ++i) total += std::exp(x[i] - top);
  for (int64_t i = 0; i < n; ++i) y[i] = std::exp(x[i] - top) / total;
}

// Exponentials are expensive: each is computed once and stored in y. One division per row.
void exponentials_once(const float* x, float* y, int64_t n) {
  float top = x[0], total = 0;
  for (int64_t i = 0; i < n; ++i) top = std::max(top, x[i]);
  for (int64_t i = 0; i < n; ++i) total += y[i] = std::exp(x[i] - top);
  const float scale = 1 / total;
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

// An exponential without branches or calls, and sums in 16 lanes: the loops are vectorized.
STRETTO_CLONES void in_lanes(const float* x, float* y, int64_t n) {
  const float top = rows::max<float>(n, [&](int64_t i) { return x[i]; });
  for (int64_t i = 0; i < n; ++i) y[i] = math::exp(x[i] - top);
  const float scale = 1 / rows::sum<float>(n, [&](int64_t i) { return y[i]; });
  for (int64_t i = 0; i < n; ++i) y[i] *= scale;
}

// Online softmax (Milakov & Gimelshein 2018): maximum and sum in one pass, in chunks that stay in
// L1. If a chunk increases the maximum, the sum so far is rescaled. Fused attention works this way,
// because its rows never exist as a whole.
STRETTO_CLONES void online(const float* x, float* y, int64_t n) {
  constexpr int64_t chunk = 512;
  float top = -std::numeric_limits<float>::infinity(), total = 0;
  for (int64_t at = 0; at < n; at += chunk) {
    const int64_t count = std::min(chunk, n - at);
    const float before = top;
    top = std::max(top, rows::max<float>(count, [&](int64_t i) { return x[at + i]; }));
    total = total * math::exp(before - top) +
            rows::sum<float>(count, [&](int64_t i) { return math::exp(x[at + i] - top); });
  }
  const float scale = 1 / total;
  for (int64_t i = 0; i < n; ++i) y[i] = math::exp(x[i] - top) * scale;
}

Step step(const char* name, void (*row)(const float*, float*, int64_t), bool threads = false) {
  return {name, [row, threads](const Tensors& x) {
            const int64_t n = x[0].size(1);
            Tensor result = empty(x[0].shape());
            const float* from = x[0].data<float>();
            float* to = result.data<float>();
            parallel_for(n_rows, threads ? rows_per_chunk(n) : n_rows, [&](int64_t r, int64_t end) {
              for (; r < end; ++r) row(from + r * n, to + r * n, n);
            });
            return result;
          }};
}

}  // namespace

Ladder softmax() {
  return {.name = "softmax of 256 rows of n elements",
          .steps = {step("definition", definition),
                    step("exponentials once", exponentials_once),
                    step("in lanes", in_lanes),
                    step("online", online),
                    // Rows are independent: all threads share them.
                    step("in lanes, on threads", in_lanes, true),
                    {"the library's", [](const Tensors& x) { return stretto::softmax(x[0], 1); }}},
          .inputs =
              [](int64_t n) {
                return Tensors{noise({n_rows, n}, 1, -8, 8)};
              },
          .size = 8192,
          .unit = "GB/s",
          .work = [](int64_t n) { return 8e-9 * double(n_rows * n); },  // read once, written once
          // Exponentials with errors of up to 4 ulp, a sum of n, and a scale; results are ≤ 1.
          .tolerance = [](int64_t n) { return 2 * double(n + 16) * unit_roundoff; }};
}

}  // namespace stretto::ladders
