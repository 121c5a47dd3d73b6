// T5 1.1 (Raffel et al. 2020, Shazeer 2020; modeling_t5.py).
#include <cmath>

#include "tests/reference/published/published.h"
#include "tests/reference/relative_bias.h"

namespace stretto::reference {
namespace {

// The encoder or the decoder.
struct Stack {
  const Weights& w;
  std::string name;  // "encoder" or "decoder"
  int64_t heads, max_distance;
  bool decoder() const { return name == "decoder"; }

  // Scores are not scaled. All blocks use the position biases of the first block, except in
  // cross-attention, which has none.
  Matrix attention(const Matrix& x, const Matrix& context, const std::string& layer,
                   bool self) const {
    const Matrix q = linear(w, x, layer + ".q"), k = linear(w, context, layer + ".k");
    const Matrix& table = w[name + ".block.0.layer.0.SelfAttention.relative_attention_bias.weight"];
    const int64_t d = q.columns / heads;
    const Matrix joined = attend(
        x.rows, heads, linear(w, context, layer + ".v"), heads,
        [&](int64_t h, int64_t i, int64_t j) {
          if (self && decoder() && j > i) return unseen;
          double score = dot(q, i, h, k, j, h, d);
          if (self)
            score += table(
                t5_bucket_by_logarithms(j - i, table.rows, double(max_distance), !decoder()), h);
          return score;
        });
    return linear(w, joined, layer + ".o");
  }

  Matrix operator()(Matrix x, const Matrix& context, int64_t layers) const {
    for (int64_t n = 0; n < layers; ++n) {
      const std::string block = name + ".block." + std::to_string(n) + ".layer.";
      const auto norm = [&](int part) {
        return rms_norm(w, x, block + std::to_string(part) + ".layer_norm", 1e-6);
      };
      const Matrix y = norm(0);
      x = x + attention(y, y, block + "0.SelfAttention", true);
      if (decoder()) x = x + attention(norm(1), context, block + "1.EncDecAttention", false);
      const int last = decoder() ? 2 : 1;
      const std::string dense = block + std::to_string(last) + ".DenseReluDense";
      const Matrix z = norm(last);
      x = x + linear(w,
                     map(linear(w, z, dense + ".wi_0"), gelu_tanh) * linear(w, z, dense + ".wi_1"),
                     dense + ".wo");
    }
    return rms_norm(w, x, name + ".final_layer_norm", 1e-6);
  }
};

}  // namespace

Matrix t5(const Weights& w, const Tokens& source, const Tokens& target, int64_t layers,
          int64_t heads, int64_t max_distance) {
  const Matrix& table = w["shared.weight"];
  const Stack encoder{w, "encoder", heads, max_distance},
      decoder{w, "decoder", heads, max_distance};
  const Matrix context = encoder(rows(table, source), {}, layers);
  return linear(w, decoder(rows(table, target), context, layers), "lm_head");
}

}  // namespace stretto::reference
