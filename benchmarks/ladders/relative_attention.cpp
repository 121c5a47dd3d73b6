// Causal relative attention of the Music Transformer for one head, with q, k, v [n, d], and e
// [n, d] with the vector of the largest distance, n − 1, in row 0:
//
//     score(i, j) = (q_i · k_j + q_i · e[j − i + n − 1]) / √d,  j ≤ i
//     out_i = Σ_j softmax_j(score)_ij v_j
#include <algorithm>
#include <cmath>
#include <vector>

#include "benchmarks/ladders/ladder.h"
#include "core/gemm/gemm.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/rows.h"

namespace stretto::ladders {

namespace {

constexpr int64_t d = 64;
const float scale = 1 / std::sqrt(float(d));

struct Operands {
  const float *q, *k, *v, *e;
  float* out;
  int64_t n;
};

float dot(const float* a, const float* b) {
  float sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += a[c] * b[c];
  return sum;
}

// s = softmax of the first `seen` elements, 0 for the others.
STRETTO_CLONES void softmax_row(float* s, int64_t seen, int64_t n) {
  const float top = rows::max<float>(seen, [&](int64_t j) { return s[j]; });
  for (int64_t j = 0; j < seen; ++j) s[j] = math::exp(s[j] - top);
  const float factor = 1 / rows::sum<float>(seen, [&](int64_t j) { return s[j]; });
  for (int64_t j = 0; j < seen; ++j) s[j] *= factor;
  std::fill(s + seen, s + n, 0.0f);
}

// s[j] = factor · (s[j] + p[j]).
STRETTO_CLONES void add_scaled(float* s, const float* p, float factor, int64_t n) {
  for (int64_t j = 0; j < n; ++j) s[j] = factor * (s[j] + p[j]);
}

// As in Shaw et al. 2018: gathers a row of e for every pair of positions, n² d elements.
void gathered(const Operands& o) {
  std::vector<float> rows(size_t(o.n * o.n * d)), s(size_t(o.n));
  for (int64_t i = 0; i < o.n; ++i)
    for (int64_t j = 0; j <= i; ++j)
      std::copy_n(o.e + (j - i + o.n - 1) * d, d, &rows[size_t((i * o.n + j) * d)]);
  for (int64_t i = 0; i < o.n; ++i) {
    for (int64_t j = 0; j <= i; ++j)
      s[size_t(j)] = scale * (dot(o.q + i * d, o.k + j * d) +
                              dot(o.q + i * d, &rows[size_t((i * o.n + j) * d)]));
    softmax_row(s.data(), i + 1, o.n);
    std::fill_n(o.out + i * d, d, 0.0f);
    for (int64_t j = 0; j <= i; ++j)
      for (int64_t c = 0; c < d; ++c) o.out[i * d + c] += s[size_t(j)] * o.v[j * d + c];
  }
}

// As in Huang et al. 2018: the row of e depends only on the relative position, so Q Eᵀ contains all
// dot products, shifted by one column from row to row: the skew. Three matrix products, and n²
// elements instead of n² d.
void skewed(const Operands& o) {
  const int64_t n = o.n;
  std::vector<float> s(size_t(n * n)), p(size_t(n * n));
  gemm(n, n, d, 1.0f, {o.q, d}, {o.k, d, true}, 0.0f, s.data(), n);
  gemm(n, n, d, 1.0f, {o.q, d}, {o.e, d, true}, 0.0f, p.data(), n);
  for (int64_t i = 0; i < n; ++i) {
    add_scaled(&s[size_t(i * n)], &p[size_t(i * n + n - 1 - i)], scale, i + 1);
    softmax_row(&s[size_t(i * n)], i + 1, n);
  }
  gemm(n, d, n, 1.0f, {s.data(), n}, {o.v, d}, 0.0f, o.out, d);
}

constexpr int64_t strip = 32;

// Computes queries first … last − 1. They attend to keys 0 … last − 1, at distances 0 … last − 1:
// the last `last` rows of e. Their scores are one strip [m, last].
void one_strip(const Operands& o, int64_t first, int64_t last) {
  const int64_t m = last - first;
  std::vector<float> s(size_t(m * last)), p(size_t(m * last));
  gemm(m, last, d, 1.0f, {o.q + first * d, d}, {o.k, d, true}, 0.0f, s.data(), last);
  gemm(m, last, d, 1.0f, {o.q + first * d, d}, {o.e + (o.n - last) * d, d, true}, 0.0f, p.data(),
       last);
  for (int64_t i = 0; i < m; ++i) {
    const int64_t seen = first + i + 1;
    add_scaled(&s[size_t(i * last)], &p[size_t(i * last + last - seen)], scale, seen);
    softmax_row(&s[size_t(i * last)], seen, last);
  }
  gemm(m, d, last, 1.0f, {s.data(), last}, {o.v, d}, 0.0f, o.out + first * d, d);
}

// 32 queries at a time: their scores stay in the cache from the product to the output, no array has
// size n², and keys after the last query of the strip are skipped, which is half of the work.
void in_strips(const Operands& o) {
  for (int64_t first = 0; first < o.n; first += strip)
    one_strip(o, first, std::min(o.n, first + strip));
}

// Strips are independent. Long strips come first, to balance the threads.
void on_threads(const Operands& o) {
  const int64_t count = (o.n + strip - 1) / strip;
  parallel_for(count, 1, [&](int64_t i, int64_t) {
    const int64_t first = (count - 1 - i) * strip;
    one_strip(o, first, std::min(o.n, first + strip));
  });
}

Step step(const char* name, void (*run)(const Operands&)) {
  return {name, [run](const Tensors& x) {
            Tensor out = empty(x[0].shape());
            run({x[0].data<float>(), x[1].data<float>(), x[2].data<float>(), x[3].data<float>(),
                 out.data<float>(), x[0].size(0)});
            return out;
          }};
}

Tensor library(const Tensors& x) {
  const int64_t n = x[0].size(0);
  const Shape one_head{1, 1, n, d};
  AttentionOptions options;
  options.mask.causal = true;
  options.relative_keys = {.rows = x[3].reshape({1, n, d}), .zero_row = n - 1};
  return attention(x[0].reshape(one_head), x[1].reshape(one_head), x[2].reshape(one_head), options)
      .reshape({n, d});
}

}  // namespace

Ladder relative_attention() {
  return {
      .name = "relative attention, causal, n positions, head dimension 64",
      .steps = {step("gathered", gathered),
                step("skewed", skewed),
                step("in strips", in_strips),
                step("on threads", on_threads),
                {"the library's", library}},
      .inputs =
          [](int64_t n) {
            return Tensors{noise({n, d}, 1), noise({n, d}, 2), noise({n, d}, 3), noise({n, d}, 4)};
          },
      .size = 1024,
      .unit = "GFLOP/s",
      .work = [](int64_t n) { return 3e-9 * double(n * (n + 1) * d); },
      // Scores are sums of 2 d products of at most 1, divided by √d. The relative error of a weight
      // is twice that of its score plus the roundings of a sum of n; so is the error of the mean of
      // values of at most 1.
      .tolerance =
          [](int64_t n) {
            const double score = 2 * double(d) * double(d + 2) / std::sqrt(double(d));
            return 2 * (2 * score + 2 * double(n + 16)) * unit_roundoff;
          }};
}

}  // namespace stretto::ladders
