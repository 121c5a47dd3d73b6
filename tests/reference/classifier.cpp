#include "tests/reference/classifier.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace stretto::reference {
namespace {

std::vector<double> values_of(const Tensor& x) { return x.to_vector<double>(); }

Matrix linear(const Matrix& x, const nn::Linear& layer) {
  Matrix y = times_transposed(x, matrix(layer.weight));
  if (!layer.bias.defined()) return y;
  const std::vector<double> bias = values_of(layer.bias);
  for (int64_t i = 0; i < y.rows; ++i)
    for (int64_t j = 0; j < y.columns; ++j) y(i, j) += bias[size_t(j)];
  return y;
}

Matrix layer_norm(const Matrix& x, const nn::Norm& norm) {
  const std::vector<double> weight = values_of(norm.weight), bias = values_of(norm.bias);
  const double n = double(x.columns);
  Matrix y{x.rows, x.columns};
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < x.columns; ++j) mean += x(i, j) / n;
    for (int64_t j = 0; j < x.columns; ++j) variance += (x(i, j) - mean) * (x(i, j) - mean) / n;
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = (x(i, j) - mean) / std::sqrt(variance + 1e-6) * weight[size_t(j)] + bias[size_t(j)];
  }
  return y;
}

Matrix plus(Matrix x, const Matrix& y) {
  for (size_t i = 0; i < x.values.size(); ++i) x.values[i] += y.values[i];
  return x;
}

Matrix relu(Matrix x) {
  for (double& value : x.values) value = std::max(value, 0.0);
  return x;
}

Matrix gelu_tanh(Matrix x) {
  for (double& v : x.values)
    v = 0.5 * v * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v)));
  return x;
}

Matrix self_attention(const Matrix& x, const nn::MultiHeadAttention& a) {
  const Matrix q = linear(x, a.q), k = linear(x, a.k), v = linear(x, a.v);
  const int64_t d = q.columns / a.options.n_heads;
  const Matrix heads =
      attend(x.rows, a.options.n_heads, v, a.options.n_heads, [&](int64_t h, int64_t i, int64_t j) {
        return dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
      });
  return linear(heads, a.out);
}

Matrix head(const nn::SequenceClassifier& model, const Matrix& x) {
  Matrix y = relu(linear(x, model.hidden));
  if (model.hidden2) y = relu(linear(y, *model.hidden2));
  return linear(y, *model.out);
}

}  // namespace

Matrix encode(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens) {
  const nn::SequenceClassifier::Options& o = model.options;
  const int64_t extra = o.pooling == nn::Pooling::cls ? 1 : 0;
  const Matrix table = matrix(model.embedding.weight);
  Matrix x{int64_t(tokens.size()) + extra, o.layer.d_model};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t c = 0; c < x.columns; ++c) {
      x(i, c) = i < extra ? values_of(model.cls)[size_t(c)] : table(tokens[size_t(i - extra)], c);
      if (o.input.learned_length > 0) x(i, c) += matrix(model.embedding.positions.table)(i, c);
      if (!o.input.sinusoid) continue;
      const double angle =
          double(i) * std::pow(10000.0, -double(c - c % 2) / double(o.layer.d_model));
      x(i, c) += c % 2 == 0 ? std::sin(angle) : std::cos(angle);
    }
  for (int64_t i = 0; i < o.n_layers; ++i) {
    const nn::TransformerLayer& layer = model.layers[i];
    x = plus(x, self_attention(layer_norm(x, layer.norm1), layer.self_attention()));
    const Matrix inner =
        gelu_tanh(linear(layer_norm(x, *layer.norm2), layer.feed_forward().linear1));
    x = plus(x, linear(inner, layer.feed_forward().linear2));
  }
  x = layer_norm(x, model.norm);
  Matrix pooled{1, o.layer.d_model};
  const int64_t last = o.pooling == nn::Pooling::mean ? x.rows : 1;
  for (int64_t i = 0; i < last; ++i)
    for (int64_t c = 0; c < x.columns; ++c) pooled(0, c) += x(i, c) / double(last);
  return pooled;
}

Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& tokens) {
  return head(model, encode(model, tokens));
}

Matrix classify(const nn::SequenceClassifier& model, const std::vector<int64_t>& first,
                const std::vector<int64_t>& second) {
  const Matrix a = encode(model, first), b = encode(model, second);
  Matrix joined{1, 2 * a.columns};
  for (int64_t c = 0; c < a.columns; ++c) {
    joined(0, c) = a(0, c);
    joined(0, a.columns + c) = b(0, c);
  }
  return head(model, joined);
}

}  // namespace stretto::reference
