#include "tests/reference/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

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

}  // namespace stretto::reference
