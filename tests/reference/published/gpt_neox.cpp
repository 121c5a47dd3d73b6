// GPT-NeoX (Black et al. 2022; modeling_gpt_neox.py): parallel branches, each with its own norm;
// only the first features of each head are rotated; query_key_value holds the query, key and
// value of one head after the other.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {

Matrix gpt_neox(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
                double rotary_share) {
  Matrix x = rows(w["gpt_neox.embed_in.weight"], tokens);
  const int64_t d = x.columns / heads;
  const std::vector<double> rates = rotary_rates(int64_t(double(d) * rotary_share), 10000);
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "gpt_neox.layers." + std::to_string(n);
    const Matrix qkv = linear(w, layer_norm(w, x, layer + ".input_layernorm", 1e-5),
                              layer + ".attention.query_key_value");
    Matrix parts[3] = {x, x, x};
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t h = 0; h < heads; ++h)
        for (int64_t part = 0; part < 3; ++part)
          for (int64_t c = 0; c < d; ++c)
            parts[part](i, h * d + c) = qkv(i, (h * 3 + part) * d + c);
    auto& [q, k, v] = parts;
    rotate_half(q, heads, rates);
    rotate_half(k, heads, rates);
    const Matrix joined = attend(x.rows, heads, v, heads, [&](int64_t h, int64_t i, int64_t j) {
      return j > i ? unseen : dot(parts[0], i, h, parts[1], j, h, d) / std::sqrt(double(d));
    });
    const Matrix attended = linear(w, joined, layer + ".attention.dense");
    const Matrix hidden = linear(w, layer_norm(w, x, layer + ".post_attention_layernorm", 1e-5),
                                 layer + ".mlp.dense_h_to_4h");
    x = x + attended + linear(w, map(hidden, gelu), layer + ".mlp.dense_4h_to_h");
  }
  return linear(w, layer_norm(w, x, "gpt_neox.final_layer_norm", 1e-5), "embed_out");
}

}  // namespace stretto::reference
