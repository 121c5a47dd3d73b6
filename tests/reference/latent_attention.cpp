#include "tests/reference/latent_attention.h"

#include <cmath>

#include "ops/create.h"
#include "tests/reference/attention.h"
#include "tests/reference/rotary.h"

namespace stretto::reference {
namespace {

// Rows x [R, in] through a linear layer.
Matrix linear(const Matrix& x, const nn::Linear& layer) {
  Matrix y = times_transposed(x, matrix(layer.weight));
  if (layer.bias.defined()) {
    const Values bias(layer.bias);
    for (int64_t i = 0; i < y.rows; ++i)
      for (int64_t j = 0; j < y.columns; ++j) y(i, j) += bias(j);
  }
  return y;
}

// Divides the first columns of each row by their root mean square.
Matrix normed(Matrix x, const nn::Norm& norm) {
  const Values weight(norm.weight);
  const int64_t n = norm.options.dim;
  for (int64_t i = 0; i < x.rows; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < n; ++j) squares += x(i, j) * x(i, j);
    const double rms = std::sqrt(squares / double(n) + *norm.options.eps);
    for (int64_t j = 0; j < n; ++j) x(i, j) *= weight(j) / rms;
  }
  return x;
}

// Columns first … first + d − 1 of each of the parts of `stride` columns of x, as heads: [B · N, ..] →
// [B, heads, N, d].
Tensor heads(const Matrix& x, int64_t batch, int64_t count, int64_t stride, int64_t first,
             int64_t d) {
  const int64_t n = x.rows / batch;
  std::vector<double> all;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < count; ++h)
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < d; ++c) all.push_back(x(b * n + i, h * stride + first + c));
  return stretto::tensor(all, {batch, count, n, d});
}

// Joins the features a [B, H, N, d] and b [B, H or 1, N, p].
Tensor joined(const Tensor& a, const Tensor& b) {
  const Values x(a), y(b);
  const Shape s = a.shape();
  const int64_t p = b.size(3);
  std::vector<double> all;
  for (int64_t i = 0; i < s[0]; ++i)
    for (int64_t h = 0; h < s[1]; ++h)
      for (int64_t n = 0; n < s[2]; ++n) {
        for (int64_t c = 0; c < s[3]; ++c) all.push_back(x(i, h, n, c));
        for (int64_t c = 0; c < p; ++c) all.push_back(y(i, h % b.size(1), n, c));
      }
  return stretto::tensor(all, {s[0], s[1], s[2], s[3] + p});
}

}  // namespace

Tensor latent_attention(const nn::LatentAttention& m, const Tensor& x, const RotaryOptions* rope,
                        AttentionOptions options) {
  const auto& o = m.options;
  const int64_t batch = x.size(0), h = o.n_heads, wide = o.d_content + o.d_position;
  const Matrix rows = matrix(x.reshape({-1, o.d_model}));
  const Matrix q = linear(m.q_down ? normed(linear(rows, *m.q_down), *m.q_norm) : rows, m.q);
  const Matrix down = normed(linear(rows, m.kv_down), m.kv_norm);
  Matrix latent{.rows = down.rows, .columns = o.d_latent};
  for (int64_t i = 0; i < latent.rows; ++i)
    for (int64_t c = 0; c < o.d_latent; ++c) latent(i, c) = down(i, c);
  const Matrix up = linear(latent, m.kv_up);
  const int64_t both = o.d_content + o.d_value;
  Tensor q_position = heads(q, batch, h, wide, o.d_content, o.d_position),
         k_position = heads(down, batch, 1, 0, o.d_latent, o.d_position);
  if (rope) {
    q_position = rotated(q_position, 0, *rope);
    k_position = rotated(k_position, 0, *rope);
  }
  options.scale = o.scale.value_or(1 / std::sqrt(double(wide)));
  if (options.relative_keys.defined()) options.relative_query = q_position;
  const Values y(reference::attention(joined(heads(q, batch, h, wide, 0, o.d_content), q_position),
                                      joined(heads(up, batch, h, both, 0, o.d_content), k_position),
                                      heads(up, batch, h, both, o.d_content, o.d_value), options));
  Matrix all{.rows = rows.rows, .columns = h * o.d_value};
  const int64_t n = x.size(1);
  for (int64_t i = 0; i < all.rows; ++i)
    for (int64_t c = 0; c < all.columns; ++c)
      all(i, c) = y(i / n, c / o.d_value, i % n, c % o.d_value);
  return tensor(linear(all, m.out)).reshape(x.shape());
}

}  // namespace stretto::reference
