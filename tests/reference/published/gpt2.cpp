// GPT-2 (Radford et al. 2019; modeling_gpt2.py). Its Conv1D has weights [in, out].
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {
namespace {

// Computes x W + b with NAME.weight [in, out].
Matrix conv1d(const Weights& w, const Matrix& x, const std::string& name) {
  const Matrix &weight = w[name + ".weight"], &bias = w[name + ".bias"];
  Matrix y{x.rows, weight.columns};
  for (int64_t i = 0; i < y.rows; ++i)
    for (int64_t j = 0; j < y.columns; ++j) {
      y(i, j) = bias(0, j);
      for (int64_t c = 0; c < x.columns; ++c) y(i, j) += x(i, c) * weight(c, j);
    }
  return y;
}

}  // namespace

Matrix gpt2(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads) {
  const std::string model = "transformer.";
  Tokens positions;
  for (int64_t i = 0; i < int64_t(tokens.size()); ++i) positions.push_back(i);
  Matrix x = rows(w[model + "wte.weight"], tokens) + rows(w[model + "wpe.weight"], positions);
  const int64_t width = x.columns, d = width / heads;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = model + "h." + std::to_string(n);
    const Matrix qkv = conv1d(w, layer_norm(w, x, layer + ".ln_1", 1e-5), layer + ".attn.c_attn");
    const Matrix q = columns(qkv, 0, width), k = columns(qkv, width, width);
    const Matrix joined = attend(
        x.rows, heads, columns(qkv, 2 * width, width), heads, [&](int64_t h, int64_t i, int64_t j) {
          return j > i ? unseen : dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
        });
    x = x + conv1d(w, joined, layer + ".attn.c_proj");
    const Matrix hidden = conv1d(w, layer_norm(w, x, layer + ".ln_2", 1e-5), layer + ".mlp.c_fc");
    x = x + conv1d(w, map(hidden, gelu_tanh), layer + ".mlp.c_proj");
  }
  return times_transposed(layer_norm(w, x, model + "ln_f", 1e-5), w[model + "wte.weight"]);
}

}  // namespace stretto::reference
