#include "tests/reference/random_features.h"

#include <cmath>
#include <functional>
#include <vector>

#include "ops/create.h"

namespace stretto::reference {
namespace {

using Function = std::function<double(double)>;

// Eq. 5 with h(x') = h_of_square(|x'|²), the functions f_1 … f_l and the normalizer m.
Tensor random_features(const Tensor& x, const Tensor& projection, const Function& h_of_square,
                       const std::vector<Function>& functions, double m) {
  const int64_t d = x.size(3), rows = x.numel() / d, n = projection.size(0);
  const std::vector<double> from = x.to_vector<double>(), w = projection.to_vector<double>();
  std::vector<double> phi;
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<double> scaled;
    double squares = 0;
    for (int64_t i = 0; i < d; ++i) {
      scaled.push_back(from[size_t(row * d + i)] / std::pow(double(d), 0.25));
      squares += scaled.back() * scaled.back();
    }
    for (const Function& f : functions)
      for (int64_t r = 0; r < n; ++r) {
        double product = 0;
        for (int64_t i = 0; i < d; ++i) product += w[size_t(r * d + i)] * scaled[size_t(i)];
        phi.push_back(h_of_square(squares) / std::sqrt(m) * f(product));
      }
  }
  return stretto::tensor(phi, {x.size(0), x.size(1), x.size(2), n * int64_t(functions.size())});
}

double exp_minus_half(double squares) { return std::exp(-squares / 2); }

}  // namespace

Tensor positive_features(const Tensor& x, const Tensor& projection) {
  return random_features(x, projection, exp_minus_half, {[](double a) { return std::exp(a); }},
                         double(projection.size(0)));
}

Tensor hyperbolic_features(const Tensor& x, const Tensor& projection) {
  return random_features(
      x, projection, exp_minus_half,
      {[](double a) { return std::exp(a); }, [](double a) { return std::exp(-a); }},
      double(2 * projection.size(0)));
}

Tensor trigonometric_features(const Tensor& x, const Tensor& projection) {
  return random_features(
      x, projection, [](double squares) { return std::exp(squares / 2); },
      {[](double a) { return std::cos(a); }, [](double a) { return std::sin(a); }},
      double(projection.size(0)));
}

}  // namespace stretto::reference
