// Qwen3 (Yang et al. 2025; modeling_qwen3.py): RMSNorm of each head's queries and keys before the
// rotation; the output projection is tied to the embedding.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {
namespace {

// Divides each head by its root mean square and multiplies by NAME.weight [D].
Matrix head_norm(const Weights& w, const Matrix& x, const std::string& name, int64_t heads,
                 double eps) {
  const int64_t d = x.columns / heads;
  Matrix y = x;
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t h = 0; h < heads; ++h) {
      const double square = dot(x, i, h, x, i, h, d) / double(d);
      for (int64_t c = 0; c < d; ++c)
        y(i, h * d + c) *= w[name + ".weight"](0, c) / std::sqrt(square + eps);
    }
  return y;
}

}  // namespace

Matrix qwen3(const Weights& w, const Tokens& tokens, const LlamaSizes& o) {
  Matrix x = rows(w["model.embed_tokens.weight"], tokens);
  for (int64_t n = 0; n < o.layers; ++n) {
    const std::string layer = "model.layers." + std::to_string(n), attn = layer + ".self_attn";
    const Matrix y = rms_norm(w, x, layer + ".input_layernorm", o.eps);
    Matrix q = head_norm(w, linear(w, y, attn + ".q_proj"), attn + ".q_norm", o.heads, o.eps);
    Matrix k = head_norm(w, linear(w, y, attn + ".k_proj"), attn + ".k_norm", o.kv_heads, o.eps);
    rotate_half(q, o.heads, o.rates, o.attention_factor);
    rotate_half(k, o.kv_heads, o.rates, o.attention_factor);
    const int64_t d = q.columns / o.heads;
    const Matrix heads = attend(x.rows, o.heads, linear(w, y, attn + ".v_proj"), o.kv_heads,
                                [&](int64_t h, int64_t i, int64_t j) {
                                  if (j > i) return unseen;
                                  const int64_t group = h / (o.heads / o.kv_heads);
                                  return dot(q, i, h, k, j, group, d) / std::sqrt(double(d));
                                });
    x = x + linear(w, heads, attn + ".o_proj");
    const Matrix z = rms_norm(w, x, layer + ".post_attention_layernorm", o.eps);
    const Matrix hidden =
        map(linear(w, z, layer + ".mlp.gate_proj"), silu) * linear(w, z, layer + ".mlp.up_proj");
    x = x + linear(w, hidden, layer + ".mlp.down_proj");
  }
  return times_transposed(rms_norm(w, x, "model.norm", o.eps), w["model.embed_tokens.weight"]);
}

}  // namespace stretto::reference
