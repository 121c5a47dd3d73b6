#include "tests/reference/gated_linear_attention.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/create.h"
#include "tests/reference/attention.h"

namespace stretto::reference {

Tensor gated_linear_attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                              const GatedLinearAttentionOptions& o, Tensor* state) {
  const Values q(queries), k(keys), v(values), decay(o.log_decay), betas(o.beta, 1);
  const Values padding(o.mask.key_padding), segments(o.mask.segments);
  const int64_t batch = q.shape[0], m = q.shape[2], n = k.shape[2], f = q.shape[3], dv = v.shape[3];
  const int64_t heads = std::max({q.shape[1], k.shape[1], v.shape[1]});
  const Values before(state && state->defined() ? *state : Tensor());
  const double scale = o.scale.value_or(f > 0 ? 1 / std::sqrt(double(f)) : 1);
  std::vector<double> y, last;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t hq = h * q.shape[1] / heads, hk = h * k.shape[1] / heads,
                    hv = h * v.shape[1] / heads;
      const std::vector<double> zero_row(size_t(dv), 0.0);
      std::vector<std::vector<double>> s(size_t(f), zero_row);
      for (int64_t i = 0; i < f; ++i)
        for (int64_t d = 0; d < dv; ++d) s[size_t(i)][size_t(d)] = before(b, h, i, d);
      for (int64_t t = 0; t < n; ++t) {
        if (t > 0 && segments(b, t) != segments(b, t - 1)) s.assign(size_t(f), zero_row);
        if (padding(b, t) == 0) {
          for (int64_t i = 0; i < f; ++i) {
            const double log_alpha = decay.shape.dim() == 1   ? decay(h)
                                     : decay.shape.dim() == 3 ? decay(b, h, t)
                                                              : decay(b, h, t, i);
            for (double& x : s[size_t(i)]) x *= std::exp(log_alpha);
          }
          for (int64_t d = 0; d < dv; ++d) {
            double value = v(b, hv, t, d);  // β (v − k S)
            for (int64_t i = 0; i < f && o.beta.defined(); ++i)
              value -= k(b, hk, t, i) * s[size_t(i)][size_t(d)];
            value *= betas(b, h, t);
            for (int64_t i = 0; i < f; ++i) s[size_t(i)][size_t(d)] += k(b, hk, t, i) * value;
          }
        }
        for (int64_t d = 0; d < dv && t >= n - m; ++d) {
          double sum = 0;
          for (int64_t i = 0; i < f; ++i) sum += q(b, hq, t - (n - m), i) * s[size_t(i)][size_t(d)];
          y.push_back(scale * sum);
        }
      }
      for (const std::vector<double>& row : s) last.insert(last.end(), row.begin(), row.end());
    }
  if (state) *state = stretto::tensor(last, {batch, heads, f, dv});
  return stretto::tensor(y, {batch, heads, m, dv});
}

}  // namespace stretto::reference
