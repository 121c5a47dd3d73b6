// The distribution of encoded queries and keys. For fixed q and k the terms a_r = Σ_d q_d Q_d[m, r]
// and b_r = Σ_d k_d K_d[n, r] are Gaussian, independent over r, with variances VA = Σ q² V and VB =
// Σ k² V and covariance C = Σ q k P(m − n), so that the logit (q̂·k̂)/√R = Σ_r a_r b_r / (R√D) has
//
//     mean C/√D,   variance (VA VB + C²)/(R D)
//
// Products of two Gaussians have the cumulants of a quadratic form, κ_4 = 48 (λ₊⁴ + λ₋⁴) with λ± =
// (C ± √(VA VB))/2, which gives the standard error of a variance. Heads have independent noise:
// each is one sample.
#include <cmath>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/ops/spe/spe_setup.h"
#include "tests/reference/spe.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;

namespace {

constexpr int64_t r = 4, length = 6;

int64_t samples() { return default_device().is_cuda() ? 500 : 4000; }

Tensor for_all(const Tensor& x) {  // repeats [1, …] for every head
  Shape shape = x.shape();
  shape[0] = samples();
  return x.to(testing::exact_dtype()).expand(shape);
}

// A code, its templates and its variances [1, D, ·].
struct Law {
  SpeCode code;
  Tensor lags;            // at the position differences −(length − 1) …
  Tensor v_query, v_key;  // [1, D, 1]
};

Law sine_law(int64_t d, uint64_t stream) {
  const Tensor f = fixed_noise({1, d, 3}, 11), o = fixed_noise({1, d, 3}, 12) * 3,
               g = fixed_noise({1, d, 3}, 13);
  const Tensor v = reference::sine_template(f, zeros_like(o), g, 1);
  return {SpeCode::sine(for_all(f), for_all(o), for_all(g), {{.seed = 3, .stream = stream}, r}),
          reference::sine_template(f, o, g, length), v, v};
}

Law conv_law(int64_t d, uint64_t stream) {
  const Tensor a = fixed_noise({1, d, 4}, 14) + 0.5, b = fixed_noise({1, d, 4}, 15) + 0.5;
  return {SpeCode::conv(for_all(a), for_all(b), {{.seed = 3, .stream = stream}, r}),
          reference::conv_template(a, b, length), reference::conv_template(a, a, 1),
          reference::conv_template(b, b, 1)};
}

// Logits [samples, length, length] of one q and one k [D] at all positions.
Tensor logits(const Law& law, const Tensor& q, const Tensor& k, const SpeOptions& options) {
  auto everywhere = [&](const Tensor& x) {
    return x.to(testing::exact_dtype())
        .reshape({1, 1, 1, x.size(0)})
        .expand({1, samples(), length, x.size(0)});
  };
  const SpePair y = spe(everywhere(q), everywhere(k), law.code, options);
  return sum(y.q.select(0, 0).unsqueeze(2) * y.k.select(0, 0).unsqueeze(1), {3}) /
         std::sqrt(double(r));
}

void check_law(Law law, int64_t d, const Tensor& gate, uint64_t stream) {
  const Tensor q = fixed_noise({d}, 21), k = fixed_noise({d}, 22) + 0.3;
  SpeOptions options;
  if (gate.defined()) {
    options.gate = SpeGate{for_all(gate), SpeNoise({.seed = 3, .stream = stream + 100}, r)};
    law.lags = reference::gated_template(law.lags, gate);
    law.v_query = reference::gated_template(law.v_query, gate);
    law.v_key = reference::gated_template(law.v_key, gate);
  }
  const auto qs = q.to_vector<double>(), ks = k.to_vector<double>(),
             p = law.lags.to_vector<double>(), vq = law.v_query.to_vector<double>(),
             vk = law.v_key.to_vector<double>(),
             values = logits(law, q, k, options).to_vector<double>();
  const double n = double(samples());
  for (int64_t i = 0; i < length; ++i)
    for (int64_t j = 0; j < length; ++j) {
      double c = 0, va = 0, vb = 0;
      for (size_t e = 0; e < size_t(d); ++e) {
        c += qs[e] * ks[e] * p[e * size_t(2 * length - 1) + size_t(i - j + length - 1)];
        va += qs[e] * qs[e] * vq[e];
        vb += ks[e] * ks[e] * vk[e];
      }
      double mean = 0, squares = 0;
      for (int64_t s = 0; s < samples(); ++s) mean += values[size_t((s * length + i) * length + j)];
      mean /= n;
      for (int64_t s = 0; s < samples(); ++s)
        squares += std::pow(values[size_t((s * length + i) * length + j)] - mean, 2);
      const double variance = (va * vb + c * c) / double(r * d);
      const double root = std::sqrt(va * vb);
      const double fourth = 48 * (std::pow((c + root) / 2, 4) + std::pow((c - root) / 2, 4)) /
                            (std::pow(double(r), 3) * double(d * d));
      INFO("query " << i << ", key " << j << ", mean " << mean << ", variance " << squares / n);
      CHECK(std::fabs(mean - c / std::sqrt(double(d))) < 4 * std::sqrt(variance / n));
      CHECK(std::fabs(squares / (n - 1) - variance) <
            4 * std::sqrt(fourth / n + 2 * variance * variance / (n - 1)));
    }
}

}  // namespace

TEST_CASE("spe statistics: logits have the mean and variance of theory") {
  for (const int64_t d : {1, 3}) {
    const Tensor gate = fixed_noise({1, d}, 31) * 2;
    check_law(sine_law(d, 1), d, {}, 1);
    check_law(conv_law(d, 2), d, {}, 2);
    check_law(sine_law(d, 3), d, gate, 3);
    check_law(conv_law(d, 4), d, gate, 4);
    for (const double raw : {-30.0, 30.0}) {
      check_law(sine_law(d, 5), d, full({1, d}, raw, {.dtype = f64}), 5);
      check_law(conv_law(d, 6), d, full({1, d}, raw, {.dtype = f64}), 6);
    }
  }
}

TEST_CASE("spe statistics: the distribution does not depend on the absolute position") {
  // Distances between far positions, with the same templates.
  for (const int64_t first : {5, 1000}) {
    const Law laws[] = {sine_law(1, 7), conv_law(1, 8)};
    for (const Law& law : laws) {
      const Tensor one = ones({1}, {.dtype = f64});
      const auto p = law.lags.to_vector<double>();
      const double v = law.v_query.item() * law.v_key.item();
      const Tensor mean_ = mean(logits(law, one, one, {.first = first}), {0});
      const auto got = mean_.to_vector<double>();
      for (int64_t i = 0; i < length; ++i)
        for (int64_t j = 0; j < length; ++j) {
          const double want = p[size_t(i - j + length - 1)];
          CHECK(std::fabs(got[size_t(i * length + j)] - want) <
                4 * std::sqrt((v + want * want) / double(r * samples())));
        }
    }
  }
}
