// Fourier transforms and convolutions [ops/fft/fft.h, ops/fft/fft_conv.h].
#include "ops/create.h"
#include "ops/fft/fft.h"
#include "ops/fft/fft_conv.h"
#include "tests/support/op_table.h"

namespace stretto::testing {
namespace {

// cos and sin of 2πk/n; exact where they are 0 or ±1.
struct Root {
  Number cos, sin;
};
Root root(int64_t k, int64_t n) {
  k = (k % n + n) % n;
  if (4 * k % n == 0) {
    const double c[] = {1, 0, -1, 0}, s[] = {0, 1, 0, -1};
    return {c[4 * k / n], s[4 * k / n]};
  }
  const double angle = 2 * M_PI * double(k) / double(n);
  return {std::cos(angle), std::sin(angle)};
}

// The DFT of complex numbers along dimension d; `sign` is the sign of the exponent.
Array dft(const Array& x, int64_t d, int sign, double scale) {
  const int64_t n = x.shape[d], last = x.shape.dim() - 1;
  return build(x.shape, [&](const Shape& i) {
    Number sum;
    for (int64_t j = 0; j < n; ++j) {
      const Shape at = with_entry(i, d, j);
      const Root w = root(sign * j * i[d], n);
      const Number &re = x.at(with_entry(at, last, 0)), &im = x.at(with_entry(at, last, 1));
      sum = sum + (i[last] == 0 ? re * w.cos - im * w.sin : re * w.sin + im * w.cos);
    }
    return scale == 1 ? sum : sum * Number(scale);
  });
}

Array real_dft(const Array& x) {
  const int64_t d = x.shape.dim() - 1, n = x.shape[d];
  Shape shape = with_entry(x.shape, d, n / 2 + 1);
  shape.push_back(2);
  return build(shape, [&](const Shape& i) {
    const Shape row(i.begin(), d + 1);
    Number sum;
    for (int64_t j = 0; j < n; ++j) {
      const Root w = root(-j * i[d], n);
      sum = sum + x.at(with_entry(row, d, j)) * (i[d + 1] == 0 ? w.cos : w.sin);
    }
    return sum;
  });
}

Array inverse_real_dft(const Array& x, int64_t n) {
  const int64_t d = x.shape.dim() - 2;
  Shape shape(x.shape.begin(), d + 1);
  shape[d] = n;
  return build(shape, [&](const Shape& i) {
    Number sum;
    for (int64_t k = 0; k <= n / 2; ++k) {
      Shape at = with_entry(i, d, k);
      at.push_back(0);
      const Number& re = x.at(at);
      at.back() = 1;
      const Number& im = x.at(at);
      const Root w = root(k * i[d], n);
      const bool edge = k == 0 || 2 * k == n;
      sum = sum + (edge ? re * w.cos : Number(2) * (re * w.cos - im * w.sin));
    }
    return sum * Number(1.0 / double(n));
  });
}

template <class Call, class F>
Op transform(const char* name, std::vector<Shape> shapes, Shape large, Call call, F reference) {
  Op op = {.name = name,
           .call = [call](const Tensors& x) { return call(x[0]); },
           .reference = [reference](const Arrays& x) { return reference(x[0]); },
           .large = {{large}}};
  for (const Shape& shape : shapes) op.samples.push_back({{shape}});
  return op;
}

void add_transforms(std::vector<Op>& table) {
  const std::vector<Shape> complex = {{1, 2},  {2, 2},       {3, 2},    {3, 4, 2},
                                      {5, 2},  {7, 2},       {2, 8, 2}, {11, 2},
                                      {12, 2}, {2, 3, 5, 2}, {16, 2},   {0, 4, 2}};
  table.push_back(transform("fft", complex, {210, 20, 2}, fft,
                            [](const Array& x) { return dft(x, x.shape.dim() - 2, -1, 1); }));
  table.back().errors = {{[] { fft(ones({3})); }, "[fft] got f32 [3]; accepted: complex numbers"}};
  table.push_back(transform("ifft", complex, {210, 20, 2}, ifft, [](const Array& x) {
    const int64_t d = x.shape.dim() - 2;
    return dft(x, d, 1, 1.0 / double(x.shape[d]));
  }));
  table.push_back(
      transform("rfft", {{1}, {2}, {3}, {4}, {3, 5}, {6}, {2, 8}, {11}, {13}, {2, 3, 20}, {0, 4}},
                {400, 20}, rfft, real_dft));
  table.push_back(transform("rfft2", {{1, 1}, {2, 3}, {3, 4}, {2, 5, 6}, {0, 2, 2}}, {210, 5, 6},
                            rfft2, [](const Array& x) {
                              const Array rows = real_dft(x);
                              return dft(rows, rows.shape.dim() - 3, -1, 1);
                            }));
  for (const int64_t odd : {0, 1}) {
    const auto length = [odd](int64_t bins) { return 2 * (bins - 1) + odd; };
    const char *one = odd == 1 ? "irfft, odd" : "irfft, even",
               *two = odd == 1 ? "irfft2, odd" : "irfft2, even";
    table.push_back(transform(
        one, {{2, 2}, {3, 2}, {2, 4, 2}, {6, 2}, {2, 3, 9, 2}, {0, 4, 2}}, {400, 11, 2},
        [=](const Tensor& x) { return irfft(x, length(x.size(-2))); },
        [=](const Array& x) { return inverse_real_dft(x, length(x.shape[x.shape.dim() - 2])); }));
    table.push_back(transform(
        two, {{1, 2, 2}, {3, 2, 2}, {2, 2, 4, 2}, {0, 1, 2, 2}}, {210, 5, 4, 2},
        [=](const Tensor& x) { return irfft2(x, length(x.size(-2))); },
        [=](const Array& x) {
          const int64_t d = x.shape.dim() - 3;
          return inverse_real_dft(dft(x, d, 1, 1.0 / double(x.shape[d])), length(x.shape[d + 1]));
        }));
  }
  table.push_back(transform(
      "irfft of one bin", {{1, 2}, {3, 1, 2}, {0, 1, 2}}, {4200, 1, 2},
      [](const Tensor& x) { return irfft(x, 1); },
      [](const Array& x) { return inverse_real_dft(x, 1); }));
}

// Along the last axis. The error bound of a sum of products holds only for the direct
// implementation: an error of the FFT implementation depends on all elements. tests/ops/fft tests
// that one, and two axes.
Array convolution(const Array& x, const Array& w, Padding padding) {
  const int64_t n = x.shape.back(), taps = w.shape.back();
  Shape shape = broadcast_of(with_entry(x.shape, x.shape.dim() - 1, 1),
                             with_entry(w.shape, w.shape.dim() - 1, 1));
  const int64_t d = shape.dim() - 1;
  shape[d] = padding == Padding::valid ? n - taps + 1 : n;
  return build(shape, [&](const Shape& i) {
    Number sum;
    for (int64_t p = 0; p < taps; ++p) {
      int64_t s = i[d] - p;
      if (padding == Padding::valid) s += taps - 1;
      if (padding == Padding::circular) s = (s % n + n) % n;
      if (s >= 0) sum = sum + w.at(with_entry(i, d, p)) * x.at(with_entry(i, d, s));
    }
    return sum;
  });
}

Op convolution_op(const char* name, Padding padding) {
  Op op = {.name = name,
           .call =
               [padding](const Tensors& x) {
                 return fft_conv(x[0], x[1],
                                 {.padding = padding, .implementation = ConvForm::direct});
               },
           .reference = [padding](const Arrays& x) { return convolution(x[0], x[1], padding); },
           .large = {{{1500, 20}}, {{7}}}};
  for (const auto& [x, w] : std::vector<std::pair<Shape, Shape>>{{{1}, {1}},
                                                                 {{4}, {3}},
                                                                 {{2, 5}, {5}},
                                                                 {{3, 9}, {3, 4}},
                                                                 {{2, 3, 6}, {3, 2}},
                                                                 {{2, 1, 5}, {3, 3}},
                                                                 {{33}, {17}},
                                                                 {{70}, {2, 4}},
                                                                 {{0, 4}, {3}},
                                                                 {{3, 4}, {0, 1, 2}}})
    op.samples.push_back({{x}, {w}});
  if (padding != Padding::valid) {
    op.samples.push_back({{{2}}, {{5}}});
    op.samples.push_back({{{2, 3}}, {{2, 11}}});
  }
  op.errors = {{[] {
                  fft_conv(ones({2, 3}), ones({3, 3}));
                },
                "[fft_conv] shapes [2] and [3] do not broadcast"}};
  return op;
}

}  // namespace

void add_fft_ops(std::vector<Op>& table) {
  add_transforms(table);
  table.push_back(convolution_op("fft_conv causal, direct", Padding::causal));
  table.push_back(convolution_op("fft_conv valid, direct", Padding::valid));
  table.push_back(convolution_op("fft_conv circular, direct", Padding::circular));
}

}  // namespace stretto::testing
