// BLOOM (BigScience 2022; modeling_bloom.py): a norm of the embeddings, and ALiBi as slope ·
// (position of the key). It differs from −slope · distance by a constant per query, without effect
// in the softmax.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {
namespace {

// The slopes of ALiBi as build_alibi_tensor() computes them.
std::vector<double> slopes(int64_t heads) {
  const double closest = std::pow(2, std::floor(std::log2(double(heads))));
  const double base = std::pow(2, -std::pow(2, -(std::log2(closest) - 3)));
  std::vector<double> all;
  for (int64_t i = 1; i <= int64_t(closest); ++i) all.push_back(std::pow(base, double(i)));
  const double extra = std::pow(2, -std::pow(2, -(std::log2(2 * closest) - 3)));
  for (int64_t i = 1; int64_t(all.size()) < heads; i += 2)
    all.push_back(std::pow(extra, double(i)));
  return all;
}

}  // namespace

Matrix bloom(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads) {
  Matrix x =
      layer_norm(w, rows(w["word_embeddings.weight"], tokens), "word_embeddings_layernorm", 1e-5);
  const int64_t d = x.columns / heads;
  const std::vector<double> slope = slopes(heads);
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "h." + std::to_string(n), attn = layer + ".self_attention";
    const Matrix qkv =
        linear(w, layer_norm(w, x, layer + ".input_layernorm", 1e-5), attn + ".query_key_value");
    // The columns of a head are its query, its key, then its value.
    Matrix v = x;
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t c = 0; c < x.columns; ++c) v(i, c) = qkv(i, (c / d * 3 + 2) * d + c % d);
    const Matrix joined = attend(x.rows, heads, v, heads, [&](int64_t h, int64_t i, int64_t j) {
      if (j > i) return unseen;
      return slope[size_t(h)] * double(j) +
             dot(qkv, i, 3 * h, qkv, j, 3 * h + 1, d) / std::sqrt(double(d));
    });
    x = x + linear(w, joined, attn + ".dense");
    const Matrix hidden = linear(w, layer_norm(w, x, layer + ".post_attention_layernorm", 1e-5),
                                 layer + ".mlp.dense_h_to_4h");
    x = x + linear(w, map(hidden, gelu_tanh), layer + ".mlp.dense_4h_to_h");
  }
  return times_transposed(layer_norm(w, x, "ln_f", 1e-5), w["word_embeddings.weight"]);
}

}  // namespace stretto::reference
