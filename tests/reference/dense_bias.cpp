#include "tests/reference/dense_bias.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/attention.h"
#include "tests/reference/relative_bias.h"

namespace stretto::reference {

Tensor fire_bias(const FireParameters& fire, int64_t m, int64_t n) {
  const Matrix w1 = matrix(fire.weight1), w2 = matrix(fire.weight2);
  const auto b1 = fire.bias1.to_vector<double>(), b2 = fire.bias2.to_vector<double>();
  return dense(w2.rows, m, n, [&](int64_t h, int64_t i, int64_t j) {
    // The threshold L0 keeps the normalizer of the first queries away from log 1 = 0.
    const double threshold = std::fabs(fire.multiplier * fire.threshold);
    const double x = std::log(std::fabs(fire.c * double(i - j)) + 1) /
                     (std::log(std::fabs(fire.c * std::max(double(i), threshold)) + 1) + 1e-6);
    double y = b2[size_t(h)];
    for (int64_t u = 0; u < w1.rows; ++u)
      y += w2(h, u) * std::max(0.0, w1(u, 0) * x + b1[size_t(u)]);
    return y;
  });
}

Tensor window_bias(const Tensor& table, int64_t h, int64_t w) {
  const Matrix t = matrix(table);
  return dense(t.columns, h * w, h * w, [&](int64_t head, int64_t q, int64_t k) {
    const int64_t dy = q / w - k / w, dx = q % w - k % w;
    return t((dy + h - 1) * (2 * w - 1) + dx + w - 1, head);
  });
}

Tensor grid_logits(const Tensor& q, const Tensor& height, const Tensor& width) {
  const int64_t batch = q.size(0), heads = q.size(1);
  const int64_t h = (height.size(1) + 1) / 2, w = (width.size(1) + 1) / 2;
  std::vector<double> values;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t head = 0; head < heads; ++head) {
      const Matrix qs = matrix(q[b][head]), rh = matrix(height[head]), rw = matrix(width[head]);
      for (int64_t i = 0; i < h * w; ++i)
        for (int64_t j = 0; j < h * w; ++j) {
          const int64_t dy = j / w - i / w, dx = j % w - i % w;
          double sum = 0;
          for (int64_t d = 0; d < qs.columns; ++d)
            sum += qs(i, d) * (rh(dy + h - 1, d) + rw(dx + w - 1, d));
          values.push_back(sum);
        }
    }
  return stretto::tensor(values, {batch, heads, h * w, h * w});
}

Tensor shifted_window_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& table, int64_t size, int64_t shift) {
  const int64_t heads = q.size(0), h = q.size(1), w = q.size(2), d = q.size(3);
  const auto qs = q.to_vector<double>(), ks = k.to_vector<double>(), vs = v.to_vector<double>();
  const Matrix t = matrix(table);
  // Returns the row or column at which row or column `at` of the image is after rolling.
  const auto rolled = [&](int64_t at, int64_t n) { return (at - shift + n) % n; };
  std::vector<double> out(qs.size());
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t y = 0; y < h; ++y)
      for (int64_t x = 0; x < w; ++x) {
        const auto cell = [&](int64_t row, int64_t column) {
          return size_t(((head * h + row) * w + column) * d);
        };
        const int64_t ry = rolled(y, h), rx = rolled(x, w);
        std::vector<double> sum(size_t(d), 0);
        double total = 0;
        for (int64_t yk = 0; yk < h; ++yk)
          for (int64_t xk = 0; xk < w; ++xk) {
            const int64_t ryk = rolled(yk, h), rxk = rolled(xk, w);
            if (ry / size != ryk / size || rx / size != rxk / size) continue;
            // Rolling put both into one window, but they are from opposite edges of the image.
            if (std::abs(y - yk) >= size || std::abs(x - xk) >= size) continue;
            double score = 0;
            for (int64_t c = 0; c < d; ++c)
              score += qs[cell(y, x) + size_t(c)] * ks[cell(yk, xk) + size_t(c)];
            const int64_t row = (y - yk + size - 1) * (2 * size - 1) + x - xk + size - 1;
            const double weight = std::exp(score / std::sqrt(double(d)) + t(row, head));
            total += weight;
            for (int64_t c = 0; c < d; ++c) sum[size_t(c)] += weight * vs[cell(yk, xk) + size_t(c)];
          }
        for (int64_t c = 0; c < d; ++c) out[cell(y, x) + size_t(c)] = sum[size_t(c)] / total;
      }
  return stretto::tensor(out, q.shape());
}

}  // namespace stretto::reference
