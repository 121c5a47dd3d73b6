// BERT (Devlin et al. 2019; modeling_bert.py), without a head.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {

Matrix bert(const Weights& w, const Tokens& tokens, const Tokens& types, int64_t layers,
            int64_t heads) {
  constexpr double eps = 1e-12;
  const std::string input = "bert.embeddings.";
  Tokens positions;
  for (int64_t i = 0; i < int64_t(tokens.size()); ++i) positions.push_back(i);
  Matrix x = layer_norm(w,
                        rows(w[input + "word_embeddings.weight"], tokens) +
                            rows(w[input + "position_embeddings.weight"], positions) +
                            rows(w[input + "token_type_embeddings.weight"], types),
                        input + "LayerNorm", eps);
  const int64_t d = x.columns / heads;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "bert.encoder.layer." + std::to_string(n);
    const std::string self = layer + ".attention.self.";
    const Matrix q = linear(w, x, self + "query"), k = linear(w, x, self + "key");
    const Matrix joined = attend(x.rows, heads, linear(w, x, self + "value"), heads,
                                 [&](int64_t h, int64_t i, int64_t j) {
                                   return dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
                                 });
    x = layer_norm(w, x + linear(w, joined, layer + ".attention.output.dense"),
                   layer + ".attention.output.LayerNorm", eps);
    const Matrix hidden = map(linear(w, x, layer + ".intermediate.dense"), gelu);
    x = layer_norm(w, x + linear(w, hidden, layer + ".output.dense"), layer + ".output.LayerNorm",
                   eps);
  }
  return x;
}

}  // namespace stretto::reference
