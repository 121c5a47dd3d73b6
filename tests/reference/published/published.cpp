#include "tests/reference/published/published.h"

#include <cmath>
#include <numbers>

namespace stretto::reference {

Weights::Weights(const std::map<std::string, Tensor>& tensors) {
  for (const auto& [name, tensor] : tensors) {
    if (tensor.dim() == 0) continue;
    const bool one = tensor.dim() == 1 || tensor.size(0) == 1;
    matrices_[name] = matrix(one ? tensor.reshape({-1, tensor.size(-1)}) : tensor.flatten(1));
  }
}

Matrix operator+(const Matrix& a, const Matrix& b) {
  Matrix y = a;
  for (size_t i = 0; i < y.values.size(); ++i) y.values[i] += b.values[i];
  return y;
}

Matrix operator*(const Matrix& a, const Matrix& b) {
  Matrix y = a;
  for (size_t i = 0; i < y.values.size(); ++i) y.values[i] *= b.values[i];
  return y;
}

Matrix rows(const Matrix& table, const Tokens& tokens) {
  Matrix y{int64_t(tokens.size()), table.columns};
  for (int64_t i = 0; i < y.rows; ++i)
    for (int64_t j = 0; j < y.columns; ++j) y(i, j) = table(tokens[size_t(i)], j);
  return y;
}

Matrix columns(const Matrix& x, int64_t first, int64_t n) {
  Matrix y{x.rows, n};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < n; ++j) y(i, j) = x(i, first + j);
  return y;
}

Matrix map(Matrix x, double (*f)(double)) {
  for (double& value : x.values) value = f(value);
  return x;
}

Matrix linear(const Weights& w, const Matrix& x, const std::string& name) {
  Matrix y = times_transposed(x, w[name + ".weight"]);
  if (w.has(name + ".bias"))
    for (int64_t i = 0; i < y.rows; ++i)
      for (int64_t j = 0; j < y.columns; ++j) y(i, j) += w[name + ".bias"](0, j);
  return y;
}

Matrix layer_norm(const Weights& w, const Matrix& x, const std::string& name, double eps) {
  Matrix y = x;
  const auto n = double(x.columns);
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < x.columns; ++j) mean += x(i, j) / n;
    for (int64_t j = 0; j < x.columns; ++j) variance += (x(i, j) - mean) * (x(i, j) - mean) / n;
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = (x(i, j) - mean) / std::sqrt(variance + eps) * w[name + ".weight"](0, j) +
                w[name + ".bias"](0, j);
  }
  return y;
}

Matrix rms_norm(const Weights& w, const Matrix& x, const std::string& name, double eps) {
  Matrix y = x;
  for (int64_t i = 0; i < x.rows; ++i) {
    double square = 0;
    for (int64_t j = 0; j < x.columns; ++j) square += x(i, j) * x(i, j) / double(x.columns);
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = x(i, j) / std::sqrt(square + eps) * w[name + ".weight"](0, j);
  }
  return y;
}

double gelu(double x) { return 0.5 * x * (1 + std::erf(x / std::numbers::sqrt2)); }

double gelu_tanh(double x) {
  return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (x + 0.044715 * x * x * x)));
}

double silu(double x) { return x / (1 + std::exp(-x)); }

void rotate_half(Matrix& x, int64_t heads, const std::vector<double>& rates, double factor) {
  const int64_t d = x.columns / heads, pairs = int64_t(rates.size());
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < pairs; ++i) {
        double &a = x(t, h * d + i), &b = x(t, h * d + pairs + i);
        const double c = factor * std::cos(double(t) * rates[size_t(i)]);
        const double s = factor * std::sin(double(t) * rates[size_t(i)]);
        const double rotated = a * c - b * s;
        b = b * c + a * s;
        a = rotated;
      }
}

void rotate_interleaved(Matrix& x, int64_t heads, const std::vector<double>& rates) {
  const int64_t d = x.columns / heads;
  for (int64_t t = 0; t < x.rows; ++t)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < int64_t(rates.size()); ++i) {
        double &a = x(t, h * d + 2 * i), &b = x(t, h * d + 2 * i + 1);
        const double c = std::cos(double(t) * rates[size_t(i)]);
        const double s = std::sin(double(t) * rates[size_t(i)]);
        const double rotated = a * c - b * s;
        b = b * c + a * s;
        a = rotated;
      }
}

std::vector<double> rotary_rates(int64_t dims, double base) {
  std::vector<double> rates;
  for (int64_t i = 0; i < dims; i += 2)
    rates.push_back(1 / std::pow(base, double(i) / double(dims)));
  return rates;
}

}  // namespace stretto::reference
