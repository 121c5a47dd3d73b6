#include "tests/reference/linear_attention.h"

#include <cmath>
#include <functional>
#include <vector>

#include "ops/create.h"

namespace stretto::reference {
namespace {

// The elements of a tensor [B, H, L, D], read by index.
struct Values {
  explicit Values(const Tensor& x) : shape(x.shape()), at(x.to_vector<double>()) {}
  double operator()(int64_t b, int64_t h, int64_t l, int64_t d) const {
    return at[size_t(((b * shape[1] + h) * shape[2] + l) * shape[3] + d)];
  }
  Shape shape;
  std::vector<double> at;
};

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
  const int64_t heads = q.shape[1], groups = k.shape[1], m = q.shape[2], n = k.shape[2];
  std::vector<double> y;
  for (int64_t b = 0; b < q.shape[0]; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i) {
        const int64_t g = h * groups / heads;  // H / G query heads share a key head
        std::vector<double> numerator(size_t(v.shape[3]), 0.0);
        double denominator = o.eps;
        for (int64_t j = 0; j < n; ++j) {
          if (o.mask.causal && j > i + n - m) continue;
          if (!padding.empty() && padding[size_t(b * n + j)]) continue;
          double similarity = 0;
          for (int64_t f = 0; f < q.shape[3]; ++f) similarity += q(b, h, i, f) * k(b, g, j, f);
          for (int64_t d = 0; d < v.shape[3]; ++d)
            numerator[size_t(d)] += similarity * v(b, g, j, d);
          denominator += similarity;
        }
        for (const double sum : numerator) y.push_back(denominator == 0 ? 0 : sum / denominator);
      }
  return stretto::tensor(y, {q.shape[0], heads, m, v.shape[3]});
}

Tensor elu_plus_one(const Tensor& x) {
  return each(x, [](double a) { return (a > 0 ? a : std::expm1(a)) + 1; });
}

Tensor relu_plus(const Tensor& x, double epsilon) {
  return each(x, [epsilon](double a) { return (a > 0 ? a : 0) + epsilon; });
}

}  // namespace stretto::reference
