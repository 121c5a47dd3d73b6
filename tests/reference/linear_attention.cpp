#include "tests/reference/linear_attention.h"

#include <cmath>
#include <functional>
#include <vector>

#include "ops/create.h"
#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

// Applies f to each element.
Tensor each(const Tensor& x, const std::function<double(double)>& f) {
  std::vector<double> values = x.to_vector<double>();
  for (double& value : values) value = f(value);
  return stretto::tensor(values, x.shape());
}

}  // namespace

Tensor linear_attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                        const LinearAttentionOptions& o) {
  const Values q(queries), k(keys), v(values);
  const std::vector<uint8_t> padding = o.mask.key_padding.defined()
                                           ? o.mask.key_padding.to_vector<uint8_t>()
                                           : std::vector<uint8_t>{};
  const int64_t batch = queries.size(0), heads = queries.size(1), groups = keys.size(1);
  const int64_t m = queries.size(2), n = keys.size(2);
  const int64_t features = queries.size(3), width = values.size(3);
  std::vector<double> y;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i) {
        const int64_t g = h * groups / heads;  // H / G query heads share a key head
        std::vector<double> numerator(size_t(width), 0.0);
        double denominator = o.eps;
        for (int64_t j = 0; j < n; ++j) {
          if (o.mask.causal && j > i + n - m) continue;
          if (!padding.empty() && padding[size_t(b * n + j)]) continue;
          double similarity = 0;
          for (int64_t f = 0; f < features; ++f) similarity += q(b, h, i, f) * k(b, g, j, f);
          for (int64_t d = 0; d < width; ++d) numerator[size_t(d)] += similarity * v(b, g, j, d);
          denominator += similarity;
        }
        for (const double sum : numerator) y.push_back(denominator == 0 ? 0 : sum / denominator);
      }
  return stretto::tensor(y, {batch, heads, m, width});
}

Tensor elu_plus_one(const Tensor& x) {
  return each(x, [](double a) { return (a > 0 ? a : std::expm1(a)) + 1; });
}

Tensor relu_plus(const Tensor& x, double epsilon) {
  return each(x, [epsilon](double a) { return (a > 0 ? a : 0) + epsilon; });
}

}  // namespace stretto::reference
