#include "tests/reference/rotary.h"

#include <cmath>
#include <complex>
#include <vector>

#include "ops/create.h"
#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

using Complex = std::complex<double>;

int64_t turning(const RotaryOptions& o, int64_t size) { return o.dims > 0 ? o.dims : size; }

// Where pair n of d numbers has its real and its imaginary part.
struct Pair {
  Pair(int64_t n, int64_t d, RotaryPairing pairing)
      : real(pairing == RotaryPairing::half ? n : 2 * n),
        imaginary(pairing == RotaryPairing::half ? n + d / 2 : 2 * n + 1) {}
  int64_t real, imaginary;
};

// θ_n, with the base and the positions stretched.
double rate(int64_t n, int64_t d, const RotaryOptions& o) {
  const double base = o.base * std::pow(o.ntk, double(d) / double(d - 2));
  return std::pow(base, -2.0 * double(n) / double(d)) / o.scale;
}

}  // namespace

Tensor rotated(const Tensor& x, int64_t first, const RotaryOptions& o) {
  const int64_t length = x.size(2), size = x.size(3), d = turning(o, size);
  std::vector<double> values = x.to_vector<double>();
  for (int64_t row = 0; row < x.size(0) * x.size(1) * length; ++row)
    for (int64_t n = 0; n < d / 2; ++n) {
      const Pair at(n, d, o.pairing);
      double& real = values[size_t(row * size + at.real)];
      double& imaginary = values[size_t(row * size + at.imaginary)];
      const double angle = double(first + row % length) * rate(n, d, o);
      const Complex z = Complex(real, imaginary) * std::polar(1.0, angle);
      real = z.real();
      imaginary = z.imag();
    }
  return stretto::tensor(values, x.shape());
}

Tensor rotary_scores(const Tensor& q, const Tensor& k, const RotaryOptions& o) {
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1);
  const int64_t m = q.size(2), keys = k.size(2), size = q.size(3), d = turning(o, size);
  std::vector<double> scores;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const Matrix qs = matrix(q[b][h]), ks = matrix(k[b][h * groups / heads]);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          const auto lag = double(i + keys - m - j);
          double score = 0;
          for (int64_t n = 0; n < d / 2; ++n) {
            const Pair at(n, d, o.pairing);
            const Complex product = Complex(qs(i, at.real), qs(i, at.imaginary)) *
                                    std::conj(Complex(ks(j, at.real), ks(j, at.imaginary)));
            const double zeta = (2 * double(n) + 0.4 * double(d)) / (1.4 * double(d));
            const double decay = o.xpos ? std::pow(zeta, lag / o.xpos_scale_base) : 1;
            score += decay * (product * std::polar(1.0, lag * rate(n, d, o))).real();
          }
          for (int64_t c = d; c < size; ++c) score += qs(i, c) * ks(j, c);
          scores.push_back(score);
        }
    }
  return stretto::tensor(scores, {batch, heads, m, keys});
}

}  // namespace stretto::reference
