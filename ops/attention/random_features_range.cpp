// Bounds of random features, and their logarithms for inputs that would overflow or underflow.
#include <algorithm>
#include <cmath>

#include "ops/attention/heads.h"
#include "ops/attention/random_features.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

template <class S>
STRETTO_CLONES double square_of_row(const S* x, int64_t n) {
  return rows::sum<double>(n, [&](int64_t i) {
    const auto value = double(compute_t<S>(x[i]));
    return value * value;
  });
}

// The largest |x|² of rows that are not padding; not finite if a row is not finite.
template <class S>
double largest_square(const Tensor& x, const uint8_t* padding) {
  const Heads<S> from = heads_of<S>(x);
  double largest = 0;
  for (int64_t b = 0; b < x.size(0); ++b)
    for (int64_t h = 0; h < x.size(1); ++h)
      for (int64_t i = 0; i < x.size(2); ++i) {
        if (padding && padding[b * x.size(2) + i]) continue;
        const double square = square_of_row(from.at(b, h, i), x.size(3));
        largest = square <= largest ? largest : square;
      }
  return largest;
}

double largest_square(const Tensor& x, const Tensor& padding = {}) {
  const Tensor from = rows_contiguous(x),
               padded = padding.defined() ? padding.to(u8).contiguous() : Tensor();
  double largest = 0;
  dispatch_floating(x.dtype(), "random_features", [&]<class T>() {
    largest = largest_square<T>(from, padded.defined() ? padded.data<uint8_t>() : nullptr);
  });
  return largest;
}

double largest_row_square(const Tensor& projection) {
  return largest_square(projection.unsqueeze(0).unsqueeze(0));
}

double bound_of(double square, DType type) {
  return std::max(0.0, square / 2 - (type == f64 ? 600.0 : 60.0));
}

}  // namespace

double log_random_feature_bound(const Tensor& projection, DType type) {
  return bound_of(largest_row_square(projection), type);
}

// Let r = |k'|, and w the largest norm of a row of the projection. The query's largest feature is
// scaled to 1 by own_max. The same feature of the key is at least e^(−½r² − w r − bound). Both are
// also divided by √F.
bool random_features_in_range(const Tensor& k, const Tensor& projection, const Tensor& padding) {
  const double square = largest_row_square(projection),
               r = std::sqrt(largest_square(k, padding) / std::sqrt(double(k.size(3))));
  const double least = r * r / 2 + std::sqrt(square) * r + bound_of(square, k.dtype());
  return least < (k.dtype() == f64 ? 650 : 70);
}

Tensor log_random_features(const Tensor& x, const Tensor& projection, RandomFeatureKind kind,
                           Side side) {
  const bool pairs = kind == RandomFeatureKind::hyperbolic;
  check(pairs || kind == RandomFeatureKind::positive, "log_random_features",
        "features of this kind are not exponentials; accepted: positive, hyperbolic");
  const Tensor scaled = x.to(f64) * std::pow(double(x.size(3)), -0.25);
  const Tensor u = linear(scaled, projection.to(f64));
  const double log_root = std::log(double(projection.size(0)) * (pairs ? 2 : 1)) / 2;
  const Tensor logs = (pairs ? cat({u, -u}, 3) : u) - log_root;
  return side == Side::query ? logs : logs - sum(square(scaled), {3}, true) * 0.5;
}

}  // namespace stretto
