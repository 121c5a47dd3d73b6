#include "tests/reference/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/create.h"
#include "tests/reference/music_transformer.h"

namespace stretto::reference {
namespace {

// f(h, query's position, key's position) for all of them: [H, M, N].
template <class F>
Tensor dense(int64_t heads, int64_t m, int64_t n, F f) {
  std::vector<double> values;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) values.push_back(f(h, i + n - m, j));
  return stretto::tensor(values, {heads, m, n});
}

double distance(int64_t i, int64_t j) { return std::fabs(double(i - j)); }

std::vector<double> slopes(int64_t heads) {
  const double power = std::floor(std::log2(double(heads)));
  std::vector<double> list;
  if (double(heads) == std::exp2(power)) {
    for (int64_t h = 0; h < heads; ++h)
      list.push_back(std::pow(std::exp2(-std::exp2(3 - power)), double(h + 1)));
    return list;
  }
  const auto closest = int64_t(std::exp2(power));
  list = slopes(closest);
  const std::vector<double> finer = slopes(2 * closest);
  for (int64_t h = 0; h < heads - closest; ++h) list.push_back(finer[size_t(2 * h)]);
  return list;
}

}  // namespace

int64_t t5_bucket_by_logarithms(int64_t relative, int64_t buckets, double max_distance,
                                bool two_sided) {
  int64_t bucket = 0, n = buckets, a = std::max<int64_t>(-relative, 0);
  if (two_sided) {
    n = buckets / 2;
    if (relative > 0) bucket = n;
    a = std::abs(relative);
  }
  const int64_t e = n / 2;
  if (a < e) return bucket + a;
  const double steps = std::log(double(a) / double(e)) / std::log(max_distance / double(e));
  return bucket + std::min(n - 1, e + int64_t(steps * double(n - e)));
}

Tensor t5_bias(const Tensor& table, int64_t m, int64_t n, double max_distance, bool two_sided) {
  const Matrix t = matrix(table);
  return dense(t.columns, m, n, [&](int64_t h, int64_t i, int64_t j) {
    return t(t5_bucket_by_logarithms(j - i, t.rows, max_distance, two_sided), h);
  });
}

Tensor alibi_bias(int64_t heads, int64_t m, int64_t n) {
  const std::vector<double> slope = slopes(heads);
  return dense(heads, m, n,
               [&](int64_t h, int64_t i, int64_t j) { return -slope[size_t(h)] * distance(i, j); });
}

Tensor kerple_log_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n) {
  const auto ps = p.to_vector<double>(), as = a.to_vector<double>();
  return dense(p.numel(), m, n, [&](int64_t h, int64_t i, int64_t j) {
    return -ps[size_t(h)] * std::log(1 + as[size_t(h)] * distance(i, j));
  });
}

Tensor kerple_power_bias(const Tensor& p, const Tensor& a, int64_t m, int64_t n) {
  const auto ps = p.to_vector<double>(), as = a.to_vector<double>();
  return dense(p.numel(), m, n, [&](int64_t h, int64_t i, int64_t j) {
    return -as[size_t(h)] * std::pow(distance(i, j), ps[size_t(h)]);
  });
}

Tensor fire_bias(const FireParameters& fire, int64_t m, int64_t n) {
  const Matrix w1 = matrix(fire.weight1), w2 = matrix(fire.weight2);
  const auto b1 = fire.bias1.to_vector<double>(), b2 = fire.bias2.to_vector<double>();
  return dense(w2.rows, m, n, [&](int64_t h, int64_t i, int64_t j) {
    const double threshold = std::fabs(fire.multiplier * fire.length);
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

}  // namespace stretto::reference
