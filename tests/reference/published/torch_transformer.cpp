// torch.nn.Transformer (torch/nn/modules/transformer.py) with its defaults: norms after the residual
// branches, ReLU, a norm after each stack.
#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/reference/published/published.h"

namespace stretto::reference {
namespace {

constexpr double eps = 1e-5;

// The rows first … first + n − 1 of in_proj_weight, applied to x.
Matrix projected(const Weights& w, const Matrix& x, const std::string& name, int64_t part) {
  const Matrix& weight = w[name + "in_proj_weight"];
  const Matrix& bias = w[name + "in_proj_bias"];
  const int64_t d = x.columns;
  Matrix y{x.rows, d};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < d; ++j) {
      y(i, j) = bias(0, part * d + j);
      for (int64_t c = 0; c < d; ++c) y(i, j) += x(i, c) * weight(part * d + j, c);
    }
  return y;
}

Matrix attention(const Weights& w, const Matrix& x, const Matrix& context, const std::string& name,
                 int64_t heads, bool causal) {
  const int64_t d = x.columns / heads;
  const Matrix q = projected(w, x, name, 0), k = projected(w, context, name, 1);
  const Matrix joined = attend(x.rows, heads, projected(w, context, name, 2), heads,
                               [&](int64_t h, int64_t i, int64_t j) {
                                 if (causal && j > i)
                                   return -std::numeric_limits<double>::infinity();
                                 return dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
                               });
  return linear(w, joined, name + "out_proj");
}

Matrix feed_forward(const Weights& w, const Matrix& x, const std::string& layer) {
  const Matrix hidden =
      map(linear(w, x, layer + "linear1"), [](double value) { return std::max(value, 0.0); });
  return linear(w, hidden, layer + "linear2");
}

}  // namespace

Matrix torch_transformer(const Weights& w, const Matrix& source, const Matrix& target,
                         int64_t layers, int64_t heads) {
  Matrix x = source;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "encoder.layers." + std::to_string(n) + ".";
    x = layer_norm(w, x + attention(w, x, x, layer + "self_attn.", heads, false), layer + "norm1",
                   eps);
    x = layer_norm(w, x + feed_forward(w, x, layer), layer + "norm2", eps);
  }
  const Matrix context = layer_norm(w, x, "encoder.norm", eps);
  Matrix y = target;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "decoder.layers." + std::to_string(n) + ".";
    y = layer_norm(w, y + attention(w, y, y, layer + "self_attn.", heads, true), layer + "norm1",
                   eps);
    y = layer_norm(w, y + attention(w, y, context, layer + "multihead_attn.", heads, false),
                   layer + "norm2", eps);
    y = layer_norm(w, y + feed_forward(w, y, layer), layer + "norm3", eps);
  }
  return layer_norm(w, y, "decoder.norm", eps);
}

}  // namespace stretto::reference
