// DeBERTa v2 (He et al. 2021; modeling_deberta_v2.py), configured as the checkpoints of v3:
// pos_att_type c2p and p2c, share_att_key, position buckets, norm_rel_ebd "layer_norm".
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {
namespace {

constexpr double eps = 1e-7;

// The bucket of a relative position, as make_log_bucket_position() computes it.
int64_t bucket(int64_t relative, int64_t buckets, int64_t max_position) {
  const int64_t mid = buckets / 2;
  const int64_t sign = relative > 0 ? 1 : relative < 0 ? -1 : 0;
  const int64_t size = relative < mid && relative > -mid ? mid - 1 : std::abs(relative);
  if (size <= mid) return relative;
  const double log_bucket =
      std::ceil(std::log(double(size) / double(mid)) /
                std::log(double(max_position - 1) / double(mid)) * double(mid - 1)) +
      double(mid);
  return int64_t(log_bucket) * sign;
}

}  // namespace

Matrix deberta_v2(const Weights& w, const Tokens& tokens, const DebertaSizes& o) {
  Matrix x = layer_norm(w, rows(w["deberta.embeddings.word_embeddings.weight"], tokens),
                        "deberta.embeddings.LayerNorm", eps);
  const Matrix relative =
      layer_norm(w, w["deberta.encoder.rel_embeddings.weight"], "deberta.encoder.LayerNorm", eps);
  const int64_t d = x.columns / o.heads, span = o.buckets;
  const auto clamped = [&](int64_t i) { return std::min(std::max<int64_t>(i, 0), 2 * span - 1); };
  for (int64_t n = 0; n < o.layers; ++n) {
    const std::string layer = "deberta.encoder.layer." + std::to_string(n);
    const std::string self = layer + ".attention.self.";
    const Matrix q = linear(w, x, self + "query_proj"), k = linear(w, x, self + "key_proj");
    const Matrix pos_q = linear(w, relative, self + "query_proj");
    const Matrix pos_k = linear(w, relative, self + "key_proj");
    const Matrix heads =
        attend(x.rows, o.heads, linear(w, x, self + "value_proj"), o.heads,
               [&](int64_t h, int64_t i, int64_t j) {
                 const int64_t distance = bucket(i - j, o.buckets, o.max_distance);
                 const int64_t c2p = clamped(distance + span);
                 const int64_t p2c = clamped(-bucket(j - i, o.buckets, o.max_distance) + span);
                 return (dot(q, i, h, k, j, h, d) + dot(q, i, h, pos_k, c2p, h, d) +
                         dot(k, j, h, pos_q, p2c, h, d)) /
                        std::sqrt(double(d) * 3);
               });
    x = layer_norm(w, x + linear(w, heads, layer + ".attention.output.dense"),
                   layer + ".attention.output.LayerNorm", eps);
    const Matrix hidden = map(linear(w, x, layer + ".intermediate.dense"), gelu);
    x = layer_norm(w, x + linear(w, hidden, layer + ".output.dense"), layer + ".output.LayerNorm",
                   eps);
  }
  return x;
}

}  // namespace stretto::reference
