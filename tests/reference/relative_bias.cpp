#include "tests/reference/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

// A non-negative integer of any size in digits of 32 bits, the lowest first.
using Digits = std::vector<uint32_t>;

// Multiplies x by factor^times; factor is below 2^32.
void multiply(Digits& x, int64_t factor, int64_t times) {
  for (; times > 0; --times) {
    uint64_t carry = 0;
    for (uint32_t& digit : x) {
      carry += digit * uint64_t(factor);
      digit = uint32_t(carry);
      carry >>= 32;
    }
    if (carry > 0) x.push_back(uint32_t(carry));
  }
}

// True if a ≥ b.
bool at_least(const Digits& a, const Digits& b) {
  if (a.size() != b.size()) return a.size() > b.size();
  return !std::lexicographical_compare(a.rbegin(), a.rend(), b.rbegin(), b.rend());
}

}  // namespace

std::vector<int64_t> t5_thresholds(int64_t n, int64_t max_distance) {
  const int64_t e = n / 2;
  std::vector<int64_t> first;
  for (int64_t b = 0; b <= e; ++b) first.push_back(b);
  for (int64_t b = e + 1; b < n; ++b) {
    // Bucket b starts at the smallest a with e + log(a / e) / log(max_distance / e) · (n − e) ≥ b,
    // that is a^(n − e) ≥ max_distance^(b − e) · e^(n − b). a = max_distance fulfils it, so a
    // binary search below it finds the smallest a.
    Digits bound{1};
    multiply(bound, max_distance, b - e);
    multiply(bound, e, n - b);
    int64_t low = first.back(), high = max_distance;
    while (low < high) {
      const int64_t a = (low + high) / 2;
      Digits power{1};
      multiply(power, a, n - e);
      if (at_least(power, bound)) {
        high = a;
      } else {
        low = a + 1;
      }
    }
    first.push_back(low);
  }
  return first;
}

namespace {

double distance(int64_t i, int64_t j) { return std::fabs(double(i - j)); }

// For a power of two, H slopes 2^(−8/H), 2^(−16/H), …; else those of the largest power of two P <
// H, then every other slope of 2P heads.
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
                                bool bidirectional) {
  int64_t bucket = 0, n = buckets, a = std::max<int64_t>(-relative, 0);
  if (bidirectional) {
    n = buckets / 2;
    if (relative > 0) bucket = n;
    a = std::abs(relative);
  }
  const int64_t e = n / 2;
  if (a < e) return bucket + a;
  const double steps = std::log(double(a) / double(e)) / std::log(max_distance / double(e));
  return bucket + std::min(n - 1, e + int64_t(steps * double(n - e)));
}

Tensor t5_bias(const Tensor& table, int64_t m, int64_t n, double max_distance, bool bidirectional) {
  const Matrix t = matrix(table);
  return dense(t.columns, m, n, [&](int64_t h, int64_t i, int64_t j) {
    return t(t5_bucket_by_logarithms(j - i, t.rows, max_distance, bidirectional), h);
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
