#include "tests/reference/depth_attention.h"

#include <cmath>

#include "ops/create.h"

namespace stretto::reference {

Tensor mixed_over_depth(const std::vector<Tensor>& sources, const Tensor& query) {
  const std::vector<double> q = query.to_vector<double>();
  const size_t d = q.size(), rows = size_t(sources[0].numel()) / d;
  std::vector<std::vector<double>> all;
  for (const Tensor& s : sources) all.push_back(s.to_vector<double>());
  std::vector<double> out(rows * d);
  for (size_t row = 0; row < rows; ++row) {
    double total = 0;
    std::vector<double> y(d);
    for (const std::vector<double>& s : all) {
      const double* const v = s.data() + row * d;
      double squares = 0, score = 0;
      for (size_t i = 0; i < d; ++i) squares += v[i] * v[i], score += v[i] * q[i];
      const double norm = std::sqrt(squares / double(d) + 1e-6);
      const double weight = std::exp(score / norm / std::sqrt(double(d)));
      total += weight;
      for (size_t i = 0; i < d; ++i) y[i] += weight * v[i] / norm;
    }
    for (size_t i = 0; i < d; ++i) out[row * d + i] = y[i] / total;
  }
  return tensor(out, sources[0].shape());
}

}  // namespace stretto::reference
