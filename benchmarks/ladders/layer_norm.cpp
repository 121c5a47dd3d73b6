// Layer norm after a residual connection, for the rows of x and r [rows, n]:
// y = w · (s − mean s) / √(var s + ε) + b with s = x + r.
#include <cmath>
#include <vector>

#include "benchmarks/ladders/ladder.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/rows.h"

namespace stretto::ladders {

namespace {

constexpr int64_t n_rows = 2048;
constexpr float eps = 1e-5f;

struct Operands {
  const float *x, *r, *w, *b;
  float* y;
  int64_t n;
};

// The definition: the sum is a separate array, as with two separate ops; one pass each for mean and
// variance; a square root and a division per element.
void definition(const Operands& o, int64_t first, int64_t last) {
  std::vector<float> sums(size_t((last - first) * o.n));
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = o.x[first * o.n + int64_t(i)] + o.r[first * o.n + int64_t(i)];
  for (int64_t row = first; row < last; ++row) {
    const float* s = &sums[size_t((row - first) * o.n)];
    float mean = 0, variance = 0;
    for (int64_t i = 0; i < o.n; ++i) mean += s[i] / float(o.n);
    for (int64_t i = 0; i < o.n; ++i) variance += (s[i] - mean) * (s[i] - mean) / float(o.n);
    for (int64_t i = 0; i < o.n; ++i)
      o.y[row * o.n + i] = (s[i] - mean) / std::sqrt(variance + eps) * o.w[i] + o.b[i];
  }
}

// Divisions are moved out of the loops: one by n per pass, one by the square root per row.
void divided_once(const Operands& o, int64_t first, int64_t last) {
  std::vector<float> sums(size_t((last - first) * o.n));
  for (size_t i = 0; i < sums.size(); ++i)
    sums[i] = o.x[first * o.n + int64_t(i)] + o.r[first * o.n + int64_t(i)];
  for (int64_t row = first; row < last; ++row) {
    const float* s = &sums[size_t((row - first) * o.n)];
    float total = 0, power = 0;
    for (int64_t i = 0; i < o.n; ++i) total += s[i];
    const float mean = total / float(o.n);
    for (int64_t i = 0; i < o.n; ++i) power += (s[i] - mean) * (s[i] - mean);
    const float scale = 1 / std::sqrt(power / float(o.n) + eps);
    for (int64_t i = 0; i < o.n; ++i) o.y[row * o.n + i] = (s[i] - mean) * scale * o.w[i] + o.b[i];
  }
}

// Computes one row. Sums in 16 lanes, so that the loops are vectorized. s is stored in y, whose row
// stays in the cache until it is done: only x and r are read from memory, only y is written.
STRETTO_CLONES void fused_row(const float* x, const float* r, const float* w, const float* b,
                              float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i) y[i] = x[i] + r[i];
  const float mean = rows::sum<float>(n, [&](int64_t i) { return y[i]; }) / float(n);
  const float power = rows::sum<float>(n, [&](int64_t i) { return (y[i] - mean) * (y[i] - mean); });
  const float scale = 1 / math::sqrt(power / float(n) + eps);
  for (int64_t i = 0; i < n; ++i) y[i] = (y[i] - mean) * scale * w[i] + b[i];
}

void fused(const Operands& o, int64_t first, int64_t last) {
  for (int64_t row = first; row < last; ++row)
    fused_row(o.x + row * o.n, o.r + row * o.n, o.w, o.b, o.y + row * o.n, o.n);
}

Step step(const char* name, void (*run)(const Operands&, int64_t, int64_t), bool threads = false) {
  return {name, [run, threads](const Tensors& x) {
            const int64_t n = x[0].size(1);
            Tensor y = empty(x[0].shape());
            const Operands o{x[0].data<float>(), x[1].data<float>(), x[2].data<float>(),
                             x[3].data<float>(), y.data<float>(),    n};
            parallel_for(n_rows, threads ? rows_per_chunk(n) : n_rows,
                         [&](int64_t first, int64_t last) { run(o, first, last); });
            return y;
          }};
}

}  // namespace

Ladder layer_norm() {
  return {.name = "layer norm of x + r, 2,048 rows of n elements",
          .steps = {step("definition", definition),
                    step("divided once", divided_once),
                    step("fused, in lanes", fused),
                    // Rows are independent.
                    step("fused, on threads", fused, true),
                    {"the library's, two ops",
                     [](const Tensors& x) {
                       return stretto::layer_norm(x[0] + x[1], x[2], x[3], double(eps));
                     }}},
          .inputs =
              [](int64_t n) {
                Tensor x = noise({n_rows, n}, 1);  // −3 and 3 alternately, plus noise in [−1, 1)
                for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] += i % n % 2 ? 3 : -3;
                return Tensors{x, noise({n_rows, n}, 2), noise({n}, 3, 0.5, 1.5), noise({n}, 4)};
              },
          .size = 1024,
          .unit = "GB/s",
          .work = [](int64_t n) { return 12e-9 * double(n_rows * n); },  // x, r and y
          // |s| ≤ 5 and the standard deviation is at least 0.9. Errors: 5 n roundings for the mean,
          // about as many (relative) for the deviation, 6 times that for the quotient, which is at
          // most 6, times w.
          .tolerance = [](int64_t n) { return 100 * double(n + 8) * unit_roundoff; }};
}

}  // namespace stretto::ladders
