// Samples of given distributions (ops/create.h).
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"

namespace stretto {
namespace {

// A uniform number in (0, 1), from numbers 2 · index and 2 · index + 1 of the key's sequence.
double uniform(RandomKey key, uint64_t index) {
  const uint64_t high = random_bits(key, 2 * index), low = random_bits(key, 2 * index + 1);
  return (double((high << 32 | low) >> 12) + 0.5) * 0x1p-52;
}

// Sample i is the first index whose cumulative weight exceeds uniform number i of the row.
void with_replacement(const double* weights, int64_t classes, int64_t row, int64_t n, RandomKey key,
                      int64_t* to) {
  std::vector<double> sums(weights, weights + classes);
  for (int64_t v = 1; v < classes; ++v) sums[size_t(v)] += sums[size_t(v) - 1];
  for (int64_t i = 0; i < n; ++i) {
    const double at = uniform(key, uint64_t(row * n + i)) * sums.back();
    const auto found = std::upper_bound(sums.begin(), sums.end(), at);
    // Rounding may give the total itself; the last class with a weight reaches it first.
    to[i] = found != sums.end() ? found - sums.begin()
                                : std::lower_bound(sums.begin(), sums.end(), at) - sums.begin();
  }
}

// The n smallest of −log(u) / weight (Efraimidis & Spirakis, "Weighted random sampling with a
// reservoir", 2006).
void without_replacement(const double* weights, int64_t classes, int64_t row, int64_t n,
                         RandomKey key, int64_t* to) {
  std::vector<std::pair<double, int64_t>> times;
  for (int64_t v = 0; v < classes; ++v)
    if (weights[v] > 0)
      times.emplace_back(-std::log(uniform(key, uint64_t(row * classes + v))) / weights[v], v);
  check(int64_t(times.size()) >= n, "multinomial", n, " samples without replacement of ",
        int64_t(times.size()), " weights that are not 0");
  std::partial_sort(times.begin(), times.begin() + n, times.end());
  for (int64_t i = 0; i < n; ++i) to[i] = times[size_t(i)].second;
}

}  // namespace

Tensor bernoulli(const Tensor& p) { return bernoulli(p, next_random_key()); }

Tensor bernoulli(const Tensor& p, RandomKey key) {
  check_floating("bernoulli", p);
  if (p.device().is_cpu())
    for (const double x : p.detach().to_vector<double>())
      check(x >= 0 && x <= 1, "bernoulli", "probability ", x, "; accepted: 0 to 1");
  return lt(rand(p.shape(), key, {.dtype = f32, .device = p.device()}), p.detach()).to(p.dtype());
}

Tensor multinomial(const Tensor& weights, Int n, bool replacement) {
  return multinomial(weights, n, replacement, next_random_key());
}

Tensor multinomial(const Tensor& weights, Int n, bool replacement, RandomKey key) {
  check_floating("multinomial", weights);
  check(weights.dim() >= 1, "multinomial", "weights ", weights, "; must have at least 1 dimension");
  check(n >= 0, "multinomial", n, " samples; must not be negative");
  const int64_t classes = weights.size(-1);
  const std::vector<double> all = weights.to_vector<double>();
  const int64_t rows = classes == 0 ? 0 : weights.numel() / classes;
  check(classes > 0 || n == 0, "multinomial", n, " samples of ", weights, ", which has no weights");
  std::vector<int64_t> ids(size_t(rows * n));
  for (int64_t r = 0; r < rows; ++r) {
    const double* const row = all.data() + r * classes;
    double total = 0;
    for (int64_t v = 0; v < classes; ++v) {
      check(row[v] >= 0 && std::isfinite(row[v]), "multinomial", "weight ", row[v], " in row ", r,
            "; accepted: finite numbers of at least 0");
      total += row[v];
    }
    check(n == 0 || (total > 0 && std::isfinite(total)), "multinomial", "the weights of row ", r,
          " have the sum ", total, "; must be greater than 0 and finite");
    (replacement ? with_replacement : without_replacement)(row, classes, r, n, key,
                                                           ids.data() + r * n);
  }
  Shape shape = weights.shape();
  shape.back() = n;
  return tensor(ids, shape, weights.device());
}

}  // namespace stretto
