#include "tests/reference/fft.h"

#include <cmath>
#include <vector>

#include "ops/create.h"
#include "ops/view.h"

namespace stretto::reference {
namespace {

using Real = long double;

struct Complex {
  Real re = 0, im = 0;
};

using Sequence = std::vector<Complex>;

// The n-th roots of unity, e^(2πi k/n).
std::vector<Complex> roots(int64_t n) {
  std::vector<Complex> w;
  for (int64_t k = 0; k < n; ++k) {
    const Real angle = 2 * 3.14159265358979323846264338327950288L * Real(k) / Real(n);
    w.push_back({std::cos(angle), std::sin(angle)});
  }
  return w;
}

Sequence dft(const Sequence& x, bool inverse) {
  const auto n = int64_t(x.size());
  const std::vector<Complex> w = roots(n);
  Sequence y(x.size());
  for (int64_t k = 0; k < n; ++k) {
    Complex sum;
    int64_t jk = 0;  // modulo n, so that the angle is exact for every j and k
    for (const Complex& a : x) {
      const Real c = w[size_t(jk)].re, s = inverse ? w[size_t(jk)].im : -w[size_t(jk)].im;
      sum.re += a.re * c - a.im * s;
      sum.im += a.re * s + a.im * c;
      if ((jk += k) >= n) jk -= n;
    }
    const Real scale = inverse ? Real(n) : 1;
    y[size_t(k)] = {sum.re / scale, sum.im / scale};
  }
  return y;
}

// Applies f to each row of `width` elements of x: read() makes a sequence of a row, write() appends
// the elements of f's result to those of a tensor of this shape.
template <class Read, class F, class Write>
Tensor by_rows(const Tensor& x, int64_t width, const Shape& shape, Read read, F f, Write write) {
  const std::vector<double> values = x.to_vector<double>();
  std::vector<double> results;
  for (size_t row = 0; row < values.size(); row += size_t(width))
    write(f(read(values.data() + row)), results);
  return tensor(results, shape);
}

void write_complex(const Sequence& y, std::vector<double>& to) {
  for (const Complex& c : y) {
    to.push_back(double(c.re));
    to.push_back(double(c.im));
  }
}

Sequence read_complex(const double* from, int64_t n) {
  Sequence x;
  for (int64_t j = 0; j < n; ++j) x.push_back({from[2 * j], from[2 * j + 1]});
  return x;
}

}  // namespace

Tensor dft(const Tensor& x, bool inverse) {
  const int64_t n = x.size(-2);
  return by_rows(
      x, 2 * n, x.shape(), [&](const double* from) { return read_complex(from, n); },
      [&](const Sequence& s) { return dft(s, inverse); }, write_complex);
}

Tensor real_dft(const Tensor& x) {
  const int64_t n = x.size(-1), bins = n / 2 + 1;
  Shape shape = x.shape();
  shape.back() = bins;
  shape.push_back(2);
  return by_rows(
      x, n, shape,
      [&](const double* from) {
        Sequence s;
        for (int64_t j = 0; j < n; ++j) s.push_back({from[j], 0});
        return s;
      },
      [&](const Sequence& s) {
        Sequence y = dft(s, false);
        y.resize(size_t(bins));
        return y;
      },
      write_complex);
}

Tensor inverse_real_dft(const Tensor& x, int64_t n) {
  const int64_t bins = n / 2 + 1;
  Shape shape(x.shape().begin(), x.dim() - 1);
  shape.back() = n;
  return by_rows(
      x, 2 * bins, shape, [&](const double* from) { return read_complex(from, bins); },
      [&](Sequence s) {
        s.resize(size_t(n));  // the second half is the conjugate of the first, reversed
        for (int64_t k = 0; k < bins; ++k) {
          Complex& a = s[size_t(k)];
          if (k == (n - k) % n) a.im = 0;
          s[size_t((n - k) % n)] = k == (n - k) % n ? a : Complex{a.re, -a.im};
        }
        return dft(s, true);
      },
      [](const Sequence& y, std::vector<double>& to) {
        for (const Complex& c : y) to.push_back(double(c.re));
      });
}

Tensor convolution(const Tensor& left, const Tensor& right, const FftConvOptions& options) {
  const bool two_axes = options.axes == 2;
  Tensor x = two_axes ? left : left.unsqueeze(-2), w = two_axes ? right : right.unsqueeze(-2);
  const Shape batch = broadcast_shapes("convolution", Shape(x.shape().begin(), x.dim() - 2),
                                       Shape(w.shape().begin(), w.dim() - 2));
  const auto broadcast = [&](const Tensor& t) {
    Shape shape = batch;
    shape.push_back(t.size(-2));
    shape.push_back(t.size(-1));
    return broadcast_to(t, shape).to_vector<double>();
  };
  const int64_t n[] = {x.size(-2), x.size(-1)}, taps[] = {w.size(-2), w.size(-1)};
  const std::vector<double> xs = broadcast(x), ws = broadcast(w);
  // Returns the index of x that tap p multiplies for output t of an axis; negative: none.
  const auto source = [&](int axis, int64_t t, int64_t p) -> int64_t {
    int64_t s = t - p;
    if (options.padding == Padding::valid) s += taps[axis] - 1;
    if (options.padding == Padding::circular) s = (s % n[axis] + n[axis]) % n[axis];
    return s;
  };
  int64_t length[] = {n[0], n[1]};
  if (options.padding == Padding::valid)
    for (int axis : {0, 1}) length[axis] -= taps[axis] - 1;
  std::vector<double> y;
  for (int64_t b = 0; b < batch.numel(); ++b)
    for (int64_t t0 = 0; t0 < length[0]; ++t0)
      for (int64_t t1 = 0; t1 < length[1]; ++t1) {
        Real sum = 0;
        for (int64_t p0 = 0; p0 < taps[0]; ++p0)
          for (int64_t p1 = 0; p1 < taps[1]; ++p1) {
            const int64_t s0 = source(0, t0, p0), s1 = source(1, t1, p1);
            if (s0 >= 0 && s1 >= 0)
              sum += Real(ws[size_t((b * taps[0] + p0) * taps[1] + p1)]) *
                     Real(xs[size_t((b * n[0] + s0) * n[1] + s1)]);
          }
        y.push_back(double(sum));
      }
  Shape shape = batch;
  shape.push_back(length[0]);
  shape.push_back(length[1]);
  const Tensor result = tensor(y, shape);
  return two_axes ? result : result.squeeze(-2);
}

}  // namespace stretto::reference
