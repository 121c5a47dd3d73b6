#include "tests/reference/dense_bias.h"

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

Tensor swin_bias(const Tensor& table, int64_t h, int64_t w) {
  const Matrix t = matrix(table);
  return dense(t.columns, h * w, h * w, [&](int64_t head, int64_t q, int64_t k) {
    const int64_t dy = q / w - k / w, dx = q % w - k % w;
    return t((dy + h - 1) * (2 * w - 1) + dx + w - 1, head);
  });
}

Tensor grid_logits(const Tensor& q, const Tensor& height, const Tensor& width) {
  const int64_t batch = q.size(0), heads = q.size(1), size = q.size(3);
  const int64_t h = (height.size(1) + 1) / 2, w = (width.size(1) + 1) / 2;
  const Values qs(q), rh(height), rw(width);
  std::vector<double> values;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t head = 0; head < heads; ++head)
      for (int64_t i = 0; i < h * w; ++i)
        for (int64_t j = 0; j < h * w; ++j) {
          const int64_t dy = j / w - i / w, dx = j % w - i % w;
          double sum = 0;
          for (int64_t d = 0; d < size; ++d)
            sum += qs(b, head, i, d) * (rh(head, dy + h - 1, d) + rw(head, dx + w - 1, d));
          values.push_back(sum);
        }
  return stretto::tensor(values, {batch, heads, h * w, h * w});
}

Tensor shifted_window_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                const Tensor& table, int64_t size, int64_t shift) {
  const int64_t heads = q.size(0), h = q.size(1), w = q.size(2), d = q.size(3);
  const Matrix t = matrix(table);
  // Returns the window of row or column `at` of the image after rolling.
  const auto window = [&](int64_t at, int64_t n) { return (at - shift + n) % n / size; };
  std::vector<double> out;
  for (int64_t head = 0; head < heads; ++head) {
    const Matrix qs = matrix(q[head].reshape({h * w, d})), ks = matrix(k[head].reshape({h * w, d})),
                 vs = matrix(v[head].reshape({h * w, d}));
    const auto score = [&](int64_t i, int64_t j) {
      const int64_t y = i / w, x = i % w, yk = j / w, xk = j % w;
      if (window(y, h) != window(yk, h) || window(x, w) != window(xk, w)) return unseen;
      // Rolling put both into one window, but they are from opposite edges of the image.
      if (std::abs(y - yk) >= size || std::abs(x - xk) >= size) return unseen;
      const int64_t row = (y - yk + size - 1) * (2 * size - 1) + x - xk + size - 1;
      return dot(qs, i, 0, ks, j, 0, d) / std::sqrt(double(d)) + t(row, head);
    };
    const std::vector<double> y =
        attend(h * w, h * w, d, score, [&](int64_t, int64_t j, int64_t c) { return vs(j, c); });
    out.insert(out.end(), y.begin(), y.end());
  }
  return stretto::tensor(out, q.shape());
}

}  // namespace stretto::reference
