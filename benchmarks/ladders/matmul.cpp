// The matrix product C = A B of [n, n] matrices. All steps except the last sum every element of C
// over k in ascending order, so their results are bit-identical.
#include <algorithm>
#include <vector>

#include "benchmarks/ladders/ladder.h"
#include "core/gemm/gemm.h"
#include "core/math.h"
#include "core/parallel.h"
#include "core/random.h"
#include "ops/create.h"

namespace stretto::ladders {

Tensor noise(const Shape& shape, uint64_t stream, double low, double high) {
  Tensor x = empty(shape);
  float* to = x.data<float>();
  for (int64_t i = 0; i < x.numel(); ++i)
    to[i] = float(low + (high - low) * uniform_from_bits(random_bits({.seed = 1, .stream = stream},
                                                                     uint64_t(i))));
  return x;
}

namespace {

// The definition: one dot product after the other. B is read by columns: a cache line per element.
void dot_products(const float* a, const float* b, float* c, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t j = 0; j < n; ++j) {
      float sum = 0;
      for (int64_t k = 0; k < n; ++k) sum += a[i * n + k] * b[k * n + j];
      c[i * n + j] = sum;
    }
}

// The inner loop runs along rows of B and C: contiguous memory, and its additions are independent.
void along_rows(const float* a, const float* b, float* c, int64_t n) {
  std::fill(c, c + n * n, 0.0f);
  for (int64_t i = 0; i < n; ++i)
    for (int64_t k = 0; k < n; ++k)
      for (int64_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
}

constexpr int64_t block = 128;

// B in blocks of 128 × 128, which stay in L2 during the loop over all rows of A.
void in_blocks(const float* a, const float* b, float* c, int64_t n) {
  std::fill(c, c + n * n, 0.0f);
  for (int64_t k0 = 0; k0 < n; k0 += block)
    for (int64_t j0 = 0; j0 < n; j0 += block)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t k = k0; k < std::min(n, k0 + block); ++k)
          for (int64_t j = j0; j < std::min(n, j0 + block); ++j)
            c[i * n + j] += a[i * n + k] * b[k * n + j];
}

constexpr int64_t tall = 4, wide = 32;

// A tile of C with `tall` rows and `wide` columns stays in registers. The panel of B is [n, wide].
STRETTO_CLONES void tile(const float* a, const float* panel, float* c, int64_t n, int64_t rows,
                         int64_t columns) {
  float sums[tall][wide] = {};
  if (rows == tall) {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < tall; ++i)
        for (int64_t j = 0; j < wide; ++j) sums[i][j] += a[i * n + k] * panel[k * wide + j];
  } else {
    for (int64_t k = 0; k < n; ++k)
      for (int64_t i = 0; i < rows; ++i)
        for (int64_t j = 0; j < wide; ++j) sums[i][j] += a[i * n + k] * panel[k * wide + j];
  }
  for (int64_t i = 0; i < rows; ++i) std::copy_n(sums[i], columns, c + i * n);
}

// Packs the panel of B from column j0 on, padded with zeros, and multiplies all rows of A with it.
void panels(const float* a, const float* b, float* c, int64_t n, int64_t j0) {
  const int64_t columns = std::min(wide, n - j0);
  std::vector<float> panel(size_t(n * wide));
  for (int64_t k = 0; k < n; ++k) std::copy_n(b + k * n + j0, columns, &panel[size_t(k * wide)]);
  for (int64_t i = 0; i < n; i += tall)
    tile(a + i * n, panel.data(), c + i * n + j0, n, std::min(tall, n - i), columns);
}

// C is written once, not n times: a tile is summed in registers, as wide as the processor has them,
// from a copy of B in which the rows of the tile's columns are contiguous.
void in_registers(const float* a, const float* b, float* c, int64_t n) {
  for (int64_t j0 = 0; j0 < n; j0 += wide) panels(a, b, c, n, j0);
}

// Panels are independent: each one is a task for a thread.
void on_threads(const float* a, const float* b, float* c, int64_t n) {
  parallel_for((n + wide - 1) / wide, 1,
               [&](int64_t first, int64_t) { panels(a, b, c, n, first * wide); });
}

// The library's product: tiles as wide as the processor allows, in blocks for each cache level.
void library(const float* a, const float* b, float* c, int64_t n) {
  gemm_parallel<float>({n, n, n, 1, {a, n}, {b, n}, 0, c, n});
}

Step step(const char* name, void (*product)(const float*, const float*, float*, int64_t)) {
  return {name, [product](const Tensors& x) {
            Tensor c = empty(x[0].shape());
            product(x[0].data<float>(), x[1].data<float>(), c.data<float>(), x[0].size(0));
            return c;
          }};
}

}  // namespace

Ladder matmul() {
  return {.name = "matrix product, [n, n] by [n, n]",
          .steps = {step("dot products", dot_products), step("along rows", along_rows),
                    step("in blocks", in_blocks), step("in registers", in_registers),
                    step("on threads", on_threads), step("library", library)},
          .inputs =
              [](int64_t n) {
                return Tensors{noise({n, n}, 1), noise({n, n}, 2)};
              },
          .size = 768,
          .unit = "GFLOP/s",
          .work = [](int64_t n) { return 2e-9 * double(n * n * n); },
          // A sum of n products of at most 1, with n (n + 1) roundings, in each of two steps.
          .tolerance = [](int64_t n) { return 2 * double(n * (n + 1)) * unit_roundoff; }};
}

}  // namespace stretto::ladders
