#include "tests/reference/rotary.h"

#include <cmath>
#include <complex>
#include <numbers>
#include <vector>

#include "ops/create.h"
#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

using Complex = std::complex<double>;

// The number of rotated features of a head.
int64_t rotated_features(const RotaryOptions& o, int64_t size) {
  return o.dims > 0 ? o.dims : size;
}

// The features that are the real and the imaginary part of pair n, of d rotated features.
struct Pair {
  Pair(int64_t n, int64_t d, RotaryPairing pairing)
      : real(pairing == RotaryPairing::half ? n : 2 * n),
        imaginary(pairing == RotaryPairing::half ? n + d / 2 : 2 * n + 1) {}
  int64_t real, imaginary;
};

// θ_n, with the scaled base (ntk) and the divided positions (scale).
double rate(int64_t n, int64_t d, const RotaryOptions& o) {
  if (!o.frequencies.empty()) return o.frequencies[size_t(n)] / o.scale;
  const double base = o.base * std::pow(o.ntk, double(d) / double(d - 2));
  return std::pow(base, -2.0 * double(n) / double(d)) / o.scale;
}

}  // namespace

Tensor rotated(const Tensor& x, int64_t first, const RotaryOptions& o) {
  const int64_t length = x.size(2), size = x.size(3), d = rotated_features(o, size);
  std::vector<double> values = x.to_vector<double>();
  for (int64_t row = 0; row < x.size(0) * x.size(1) * length; ++row)
    for (int64_t n = 0; n < d / 2; ++n) {
      const Pair at(n, d, o.pairing);
      double& real = values[size_t(row * size + at.real)];
      double& imaginary = values[size_t(row * size + at.imaginary)];
      const double angle = double(first + row % length) * rate(n, d, o);
      const Complex z = Complex(real, imaginary) * std::polar(o.attention_factor, angle);
      real = z.real();
      imaginary = z.imag();
    }
  return stretto::tensor(values, x.shape());
}

Tensor rotated_2d(const Tensor& x, int64_t width, double base) {
  const int64_t cells = x.size(2), d = x.size(3);
  std::vector<double> values = x.to_vector<double>();
  for (int64_t row = 0; row < x.size(0) * x.size(1) * cells; ++row)
    for (int64_t pair = 0; pair < d / 2; ++pair) {
      const int64_t cell = row % cells, n = pair % (d / 4);
      const int64_t coordinate = pair < d / 4 ? cell % width : cell / width;
      double* const features = &values[size_t(row * d + 2 * pair)];
      const Complex z =
          Complex(features[0], features[1]) *
          std::polar(1.0, double(coordinate) * std::pow(base, -4.0 * double(n) / double(d)));
      features[0] = z.real();
      features[1] = z.imag();
    }
  return stretto::tensor(values, x.shape());
}

Tensor rotary_scores(const Tensor& q, const Tensor& k, const RotaryOptions& o) {
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1);
  const int64_t m = q.size(2), keys = k.size(2), size = q.size(3), d = rotated_features(o, size);
  std::vector<double> scores;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const Matrix qs = matrix(q[b][h]), ks = matrix(k[b][h * groups / heads]);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < keys; ++j) {
          const auto distance = double(i + keys - m - j);
          double score = 0;
          for (int64_t n = 0; n < d / 2; ++n) {
            const Pair at(n, d, o.pairing);
            const Complex product = Complex(qs(i, at.real), qs(i, at.imaginary)) *
                                    std::conj(Complex(ks(j, at.real), ks(j, at.imaginary)));
            const double zeta = (2 * double(n) + 0.4 * double(d)) / (1.4 * double(d));
            const double decay = (o.xpos ? std::pow(zeta, distance / o.xpos_scale_base) : 1) *
                                 o.attention_factor * o.attention_factor;
            score += decay * (product * std::polar(1.0, distance * rate(n, d, o))).real();
          }
          // The features after the pairs are not rotated.
          for (int64_t c = d; c < size; ++c) score += qs(i, c) * ks(j, c);
          scores.push_back(score);
        }
    }
  return stretto::tensor(scores, {batch, heads, m, keys});
}

std::vector<double> llama3_rates(const Llama3Scaling& s) {
  std::vector<double> rates;
  for (int64_t n = 0; n < s.dims / 2; ++n) {
    const double rate = 1 / std::pow(s.base, double(2 * n) / double(s.dims));
    const double wavelength = 2 * std::numbers::pi / rate;
    const double low_wavelength = s.length / s.low_frequency_factor;
    const double high_wavelength = s.length / s.high_frequency_factor;
    if (wavelength > low_wavelength) {
      rates.push_back(rate / s.factor);
    } else if (wavelength < high_wavelength) {
      rates.push_back(rate);
    } else {
      const double smooth = (s.length / wavelength - s.low_frequency_factor) /
                            (s.high_frequency_factor - s.low_frequency_factor);
      rates.push_back((1 - smooth) * rate / s.factor + smooth * rate);
    }
  }
  return rates;
}

std::vector<double> yarn_rates(const YarnScaling& s) {
  // The (fractional) pair that makes this number of rotations in `length` positions.
  const auto correction_dim = [&](double rotations) {
    return double(s.dims) * std::log(s.length / (rotations * 2 * std::numbers::pi)) /
           (2 * std::log(s.base));
  };
  double low = correction_dim(s.beta_fast), high = correction_dim(s.beta_slow);
  if (s.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  if (low < 0) low = 0;
  if (high > double(s.dims - 1)) high = double(s.dims - 1);
  if (low == high) high += 0.001;
  std::vector<double> rates;
  for (int64_t n = 0; n < s.dims / 2; ++n) {
    const double frequency = std::pow(s.base, double(2 * n) / double(s.dims));
    const double extrapolation = 1 / frequency, interpolation = 1 / (s.factor * frequency);
    double ramp = (double(n) - low) / (high - low);
    if (ramp < 0) ramp = 0;
    if (ramp > 1) ramp = 1;
    const double unscaled = 1 - ramp;  // the share of the original frequency
    rates.push_back(interpolation * (1 - unscaled) + extrapolation * unscaled);
  }
  return rates;
}

}  // namespace stretto::reference
