// Causal linear attention of 4 heads, with positive features q, k [4, n, f] and values v [4, n, d]:
//
//     y_i = Σ_{j ≤ i} (q_i · k_j) v_j / Σ_{j ≤ i} q_i · k_j
#include <algorithm>
#include <vector>

#include "benchmarks/ladders/ladder.h"
#include "core/gemm/gemm.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"

namespace stretto::ladders {

namespace {

constexpr int64_t heads = 4, f = 64, d = 64, e = d + 1;

// One head.
struct Operands {
  const float *q, *k, *v;
  float* y;
  int64_t n;
};

// The definition: O(n²) operations.
void definition(const Operands& o) {
  for (int64_t i = 0; i < o.n; ++i) {
    float sums[e] = {};
    for (int64_t j = 0; j <= i; ++j) {
      float product = 0;
      for (int64_t c = 0; c < f; ++c) product += o.q[i * f + c] * o.k[j * f + c];
      for (int64_t c = 0; c < d; ++c) sums[c] += product * o.v[j * d + c];
      sums[d] += product;
    }
    for (int64_t c = 0; c < d; ++c) o.y[i * d + c] = sums[c] / sums[d];
  }
}

// Appends a column of ones to the values, so that numerator and denominator are one sum.
std::vector<float> with_ones(const Operands& o) {
  std::vector<float> v(size_t(o.n * e), 1.0f);
  for (int64_t j = 0; j < o.n; ++j) std::copy_n(o.v + j * d, d, &v[size_t(j * e)]);
  return v;
}

// y = the first d columns of the sums [n, e], divided by the last one.
void divide(const float* sums, float* y, int64_t n) {
  for (int64_t i = 0; i < n; ++i)
    for (int64_t c = 0; c < d; ++c) y[i * d + c] = sums[i * e + c] / sums[i * e + d];
}

// Two matrix products with a mask between them: still O(n²), but at the speed of BLAS.
void products(const Operands& o) {
  const std::vector<float> v = with_ones(o);
  std::vector<float> s(size_t(o.n * o.n)), sums(size_t(o.n * e));
  gemm(o.n, o.n, f, 1.0f, {o.q, f}, {o.k, f, true}, 0.0f, s.data(), o.n);
  for (int64_t i = 0; i < o.n; ++i)
    std::fill(&s[size_t(i * o.n)] + i + 1, &s[size_t(i * o.n)] + o.n, 0.0f);
  gemm(o.n, e, o.n, 1.0f, {s.data(), o.n}, {v.data(), e}, 0.0f, sums.data(), e);
  divide(sums.data(), o.y, o.n);
}

// state += k vᵀ, sums = q · state, for one position.
STRETTO_CLONES void advance(float* state, const float* q, const float* k, const float* v,
                            float* sums) {
  for (int64_t c = 0; c < f; ++c)
    for (int64_t j = 0; j < e; ++j) {
      state[c * e + j] += k[c] * v[j];
      sums[j] += q[c] * state[c * e + j];
    }
}

// q_i is a common factor of the sum over j, and the rest of the sum grows by one term from i to
// i + 1: a state [f, e], and O(n) operations. Generation works this way, token by token. Here the
// whole state is read and written for each position.
void recurrent(const Operands& o) {
  const std::vector<float> v = with_ones(o);
  std::vector<float> state(size_t(f * e)), sums(size_t(o.n * e));
  for (int64_t i = 0; i < o.n; ++i)
    advance(state.data(), o.q + i * f, o.k + i * f, &v[size_t(i * e)], &sums[size_t(i * e)]);
  divide(sums.data(), o.y, o.n);
}

constexpr int64_t chunk = 32;

// Only matrix products, for 32 positions at a time: masked products within the chunk; all earlier
// positions through the state, which is read and written once per chunk:
// sums = Q S + tril(Q Kᵀ) V, S += Kᵀ V.
void in_chunks(const Operands& o) {
  const std::vector<float> v = with_ones(o);
  std::vector<float> state(size_t(f * e)), s(size_t(chunk * chunk)), sums(size_t(chunk * e));
  for (int64_t at = 0; at < o.n; at += chunk) {
    const int64_t m = std::min(chunk, o.n - at);
    const float *q = o.q + at * f, *k = o.k + at * f, *values = &v[size_t(at * e)];
    gemm(m, m, f, 1.0f, {q, f}, {k, f, true}, 0.0f, s.data(), chunk);
    for (int64_t i = 0; i < m; ++i)
      std::fill(&s[size_t(i * chunk)] + i + 1, &s[size_t(i * chunk)] + m, 0.0f);
    gemm(m, e, f, 1.0f, {q, f}, {state.data(), e}, 0.0f, sums.data(), e);
    gemm(m, e, m, 1.0f, {s.data(), chunk}, {values, e}, 1.0f, sums.data(), e);
    gemm(f, e, m, 1.0f, {k, f, true}, {values, e}, 1.0f, state.data(), e);
    divide(sums.data(), o.y + at * d, m);
  }
}

// Heads are independent, the positions of a head are not: each head is a task for a thread.
Step step(const char* name, void (*run)(const Operands&), bool threads = false) {
  return {name, [run, threads](const Tensors& x) {
            const int64_t n = x[0].size(1);
            Tensor y = empty({heads, n, d});
            parallel_for(heads, threads ? 1 : heads, [&](int64_t h, int64_t end) {
              for (; h < end; ++h)
                run({x[0].data<float>() + h * n * f, x[1].data<float>() + h * n * f,
                     x[2].data<float>() + h * n * d, y.data<float>() + h * n * d, n});
            });
            return y;
          }};
}

Tensor library(const Tensors& x) {
  return linear_attention(x[0].unsqueeze(0), x[1].unsqueeze(0), x[2].unsqueeze(0),
                          {.mask = {.causal = true}})
      .squeeze(0);
}

}  // namespace

Ladder causal_linear_attention() {
  return {.name = "causal linear attention, 4 heads of n positions, 64 features",
          .steps = {step("definition", definition),
                    step("products", products),
                    step("recurrent", recurrent),
                    step("in chunks", in_chunks),
                    step("in chunks, on threads", in_chunks, true),
                    {"the library's", library}},
          .inputs =
              [](int64_t n) {
                return Tensors{noise({heads, n, f}, 1, 0.1, 1), noise({heads, n, f}, 2, 0.1, 1),
                               noise({heads, n, d}, 3)};
              },
          .size = 1024,
          .unit = "GFLOP/s",
          .work = [](int64_t n) { return 4e-9 * double(heads * n * f * e); },
          // Sums of n f positive products in any order, for numerator and denominator, and their
          // quotient, which is at most 1.
          .tolerance = [](int64_t n) { return 4 * double(n + f + 4) * unit_roundoff; }};
}

}  // namespace stretto::ladders
