#include "tests/reference/spe.h"

#include <cmath>
#include <numbers>
#include <vector>

#include "ops/create.h"
#include "tests/reference/attention.h"

namespace stretto::reference {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return std::log1p(std::exp(-std::fabs(x))) + std::fmax(x, 0); }
// The angle 2πf·n less whole turns. The fused multiply-add does not round f·n, so that the angle is
// exact at far positions.
double angle(double f, int64_t n) {
  const double whole_turns = std::nearbyint(f * double(n));
  return 2 * std::numbers::pi * std::fma(f, double(n), -whole_turns);
}

}  // namespace

Tensor sine_code(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, const Tensor& z,
                 int64_t first, int64_t n) {
  const Values f(freqs), g(gains), noise(z), theta(offsets.defined() ? offsets : zeros_like(freqs));
  const int64_t heads = f.shape[0], d_head = f.shape[1], sines = f.shape[2];
  const int64_t r_count = noise.shape[3];
  std::vector<double> code;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d = 0; d < d_head; ++d)
      for (int64_t l = first; l < first + n; ++l)
        for (int64_t r = 0; r < r_count; ++r) {
          double sum = 0;
          for (int64_t k = 0; k < sines; ++k) {
            const double phase = angle(sigmoid(f(h, d, k)) / 2, l) + theta(h, d, k);
            sum += softplus(g(h, d, k)) * (std::cos(phase) * noise(h, d, 2 * k, r) +
                                           std::sin(phase) * noise(h, d, 2 * k + 1, r));
          }
          code.push_back(sum / std::sqrt(2 * double(sines)));
        }
  return stretto::tensor(code, {heads, d_head, n, r_count});
}

Tensor conv_code(const Tensor& filter, const Tensor& z, int64_t width, int64_t first, int64_t n) {
  const Values w(filter), noise(z);
  const int64_t heads = w.shape[0], d_head = w.shape[1], rows = w.shape[2], taps = w.shape[3];
  const int64_t r_count = noise.shape[2];
  std::vector<double> code;
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d = 0; d < d_head; ++d)
      for (int64_t l = first; l < first + n; ++l)
        for (int64_t r = 0; r < r_count; ++r) {
          double sum = 0;
          for (int64_t p1 = 0; p1 < rows; ++p1)
            for (int64_t p2 = 0; p2 < taps; ++p2)
              sum += w(h, d, p1, p2) *
                     noise(h, d, r, l / width - p1 + rows - 1, l % width - p2 + taps - 1);
          code.push_back(sum);
        }
  return stretto::tensor(code, {heads, d_head, n, r_count});
}

Tensor gated_code(const Tensor& code, const Tensor& gate, const Tensor& epsilon) {
  const Values c(code), raw(gate), e(epsilon);
  std::vector<double> values;
  for (int64_t h = 0; h < c.shape[0]; ++h)
    for (int64_t d = 0; d < c.shape[1]; ++d)
      for (int64_t l = 0; l < c.shape[2]; ++l)
        for (int64_t r = 0; r < c.shape[3]; ++r)
          values.push_back(std::sqrt(sigmoid(-raw(h, d))) * c(h, d, l, r) +
                           std::sqrt(sigmoid(raw(h, d))) * e(h, d, r));
  return stretto::tensor(values, code.shape());
}

Tensor encoded(const Tensor& x, const Tensor& code) {
  const Values from(x), c(code);
  const int64_t d_head = c.shape[1], r_count = c.shape[3];
  std::vector<double> y;
  for (int64_t b = 0; b < from.shape[0]; ++b)
    for (int64_t h = 0; h < from.shape[1]; ++h)
      for (int64_t l = 0; l < from.shape[2]; ++l)
        for (int64_t r = 0; r < r_count; ++r) {
          double sum = 0;
          for (int64_t d = 0; d < d_head; ++d) sum += from(b, h, l, d) * c(h, d, l, r);
          y.push_back(sum / std::pow(double(d_head * r_count), 0.25));
        }
  return stretto::tensor(y, {from.shape[0], from.shape[1], from.shape[2], r_count});
}

Tensor sine_template(const Tensor& freqs, const Tensor& offsets, const Tensor& gains, int64_t n) {
  const Values f(freqs), theta(offsets), g(gains);
  const int64_t sines = f.shape[2];
  std::vector<double> p;
  for (int64_t h = 0; h < f.shape[0]; ++h)
    for (int64_t d = 0; d < f.shape[1]; ++d)
      for (int64_t tau = 1 - n; tau < n; ++tau) {
        double sum = 0;
        for (int64_t k = 0; k < sines; ++k)
          sum += std::pow(softplus(g(h, d, k)), 2) *
                 std::cos(angle(sigmoid(f(h, d, k)) / 2, tau) + theta(h, d, k));
        p.push_back(sum / (2 * double(sines)));
      }
  return stretto::tensor(p, {f.shape[0], f.shape[1], 2 * n - 1});
}

Tensor conv_template(const Tensor& filter_q, const Tensor& filter_k, int64_t n) {
  const Values q(filter_q), k(filter_k);
  const int64_t taps = q.shape[2];
  std::vector<double> p;
  for (int64_t h = 0; h < q.shape[0]; ++h)
    for (int64_t d = 0; d < q.shape[1]; ++d)
      for (int64_t tau = 1 - n; tau < n; ++tau) {
        double sum = 0;
        for (int64_t a = 0; a < taps; ++a)
          if (a - tau >= 0 && a - tau < taps) sum += q(h, d, a) * k(h, d, a - tau);
        p.push_back(sum);
      }
  return stretto::tensor(p, {q.shape[0], q.shape[1], 2 * n - 1});
}

Tensor gated_template(const Tensor& p, const Tensor& gate) {
  const Values from(p), raw(gate);
  std::vector<double> values;
  for (int64_t h = 0; h < from.shape[0]; ++h)
    for (int64_t d = 0; d < from.shape[1]; ++d)
      for (int64_t tau = 0; tau < from.shape[2]; ++tau)
        values.push_back(sigmoid(-raw(h, d)) * from(h, d, tau) + sigmoid(raw(h, d)));
  return stretto::tensor(values, p.shape());
}

}  // namespace stretto::reference
