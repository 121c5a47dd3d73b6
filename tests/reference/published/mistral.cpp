// Mistral (Jiang et al. 2023; modeling_mistral.py): a sliding window of `window` positions,
// including the query's own.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {

Matrix mistral(const Weights& w, const Tokens& tokens, const LlamaSizes& o) {
  Matrix x = rows(w["model.embed_tokens.weight"], tokens);
  for (int64_t n = 0; n < o.layers; ++n) {
    const std::string layer = "model.layers." + std::to_string(n), attn = layer + ".self_attn";
    const Matrix y = rms_norm(w, x, layer + ".input_layernorm", o.eps);
    Matrix q = linear(w, y, attn + ".q_proj"), k = linear(w, y, attn + ".k_proj");
    rotate_half(q, o.heads, o.rates);
    rotate_half(k, o.kv_heads, o.rates);
    const int64_t d = q.columns / o.heads;
    const Matrix heads = attend(x.rows, o.heads, linear(w, y, attn + ".v_proj"), o.kv_heads,
                                [&](int64_t h, int64_t i, int64_t j) {
                                  if (j > i || j <= i - o.window) return unseen;
                                  const int64_t group = h / (o.heads / o.kv_heads);
                                  return dot(q, i, h, k, j, group, d) / std::sqrt(double(d));
                                });
    x = x + linear(w, heads, attn + ".o_proj");
    const Matrix z = rms_norm(w, x, layer + ".post_attention_layernorm", o.eps);
    const Matrix hidden =
        map(linear(w, z, layer + ".mlp.gate_proj"), silu) * linear(w, z, layer + ".mlp.up_proj");
    x = x + linear(w, hidden, layer + ".mlp.down_proj");
  }
  return linear(w, rms_norm(w, x, "model.norm", o.eps), "lm_head");
}

}  // namespace stretto::reference
