// GPT-J (Wang & Komatsuzaki 2021; modeling_gptj.py): parallel branches after one norm; neighboring
// features form the pairs of the rotation.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {

Matrix gptj(const Weights& w, const Tokens& tokens, int64_t layers, int64_t heads,
            int64_t rotary_dims) {
  Matrix x = rows(w["transformer.wte.weight"], tokens);
  const int64_t d = x.columns / heads;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "transformer.h." + std::to_string(n);
    const Matrix y = layer_norm(w, x, layer + ".ln_1", 1e-5);
    Matrix q = linear(w, y, layer + ".attn.q_proj"), k = linear(w, y, layer + ".attn.k_proj");
    rotate_interleaved(q, heads, rotary_rates(rotary_dims, 10000));
    rotate_interleaved(k, heads, rotary_rates(rotary_dims, 10000));
    const Matrix joined = attend(x.rows, heads, linear(w, y, layer + ".attn.v_proj"), heads,
                                 [&](int64_t h, int64_t i, int64_t j) {
                                   if (j > i) return unseen;
                                   return dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
                                 });
    const Matrix hidden = map(linear(w, y, layer + ".mlp.fc_in"), gelu_tanh);
    x = x + linear(w, joined, layer + ".attn.out_proj") + linear(w, hidden, layer + ".mlp.fc_out");
  }
  return linear(w, layer_norm(w, x, "transformer.ln_f", 1e-5), "lm_head");
}

}  // namespace stretto::reference
