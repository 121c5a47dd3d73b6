// ops/fft against the definition, with the rounding errors that ops/fft/fft_plan.h derives;
// identities of the Fourier transform; gradients; layouts; errors.
#include "ops/fft/fft.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/fft.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;

namespace {

std::vector<int64_t> lengths() {
  std::vector<int64_t> n;
  for (int64_t i = 1; i <= 70; ++i) n.push_back(i);
  for (int64_t i : {97, 101, 127, 128, 343, 360, 499, 1009, 1024, 2048, 4096}) n.push_back(i);
  for (int64_t i = 96; i <= 3072; i *= 2) n.push_back(i);
  return n;
}

// For comparisons with the definition, n² products in long double: ARM64 has no instructions for it.
std::vector<int64_t> defined_lengths() {
  std::vector<int64_t> n = lengths();
  if (testing::emulator) std::erase_if(n, [](int64_t i) { return i > 400; });
  return n;
}

double unit_roundoff(DType dtype) { return dtype == f64 ? 0x1p-53 : 0x1p-24; }

// The bounds of ops/fft/fft_plan.h, in units of the unit roundoff.
double allowed(int64_t n) {
  int64_t rest = n;
  for (int64_t prime : {2, 3, 5, 7})
    while (rest % prime == 0) rest /= prime;
  return rest == 1 ? 11 * std::log2(double(n)) : 72 * std::log2(4 * double(n));
}

double norm_of(const Tensor& x) {
  long double sum = 0;
  for (double v : x.to_vector<double>()) sum += (long double)(v)*v;
  return double(std::sqrt(sum));
}

// ‖got − want‖₂ / ‖want‖₂.
double distance(const Tensor& got, const Tensor& want) {
  if (!(got.shape() == want.shape())) return HUGE_VAL;
  const double error = norm_of(got.to(f64) - want.to(f64));
  return error == 0 ? 0 : error / norm_of(want);
}

// Bins 1 … (n−1)/2 also represent their conjugates: × √2 for the norm of the whole spectrum.
Tensor whole(const Tensor& bins, int64_t n) {
  Tensor y = bins.to(f64).clone();
  y.slice(-2, 1, (n + 1) / 2).mul_(std::sqrt(2.0));
  return y;
}

// Returns x[j − by], circularly.
Tensor rolled(const Tensor& x, int64_t by) {
  Tensor y = empty_like(x);
  const int64_t n = x.size(-2);
  y.slice(-2, by).copy_(x.slice(-2, 0, n - by));
  y.slice(-2, 0, by).copy_(x.slice(-2, n - by));
  return y;
}

// Returns e^(−2πi k by/n) x_k.
Tensor shifted_spectrum(const Tensor& x, int64_t by) {
  const int64_t n = x.size(-2);
  const std::vector<double> v = x.to_vector<double>();
  std::vector<double> y;
  for (int64_t k = 0; k < n; ++k) {
    const double angle = -2 * M_PI * double(k * by % n) / double(n);
    const double re = v[size_t(2 * k)], im = v[size_t(2 * k + 1)];
    y.push_back(re * std::cos(angle) - im * std::sin(angle));
    y.push_back(re * std::sin(angle) + im * std::cos(angle));
  }
  return tensor(y, x.shape());
}

}  // namespace

TEST_CASE("fft and ifft equal their definition within the derived error") {
  const DType dtype = GENERATE(f64, f32);
  for (const int64_t n : defined_lengths()) {
    INFO("n " << n << ", " << name(dtype));
    const Tensor x = fixed_noise({n, 2}, 1, dtype);
    CHECK(distance(fft(x), reference::dft(x)) <= allowed(n) * unit_roundoff(dtype));
    // 1/n is rounded, and so is its product.
    CHECK(distance(ifft(x), reference::dft(x, true)) <= (allowed(n) + 2) * unit_roundoff(dtype));
  }
}

TEST_CASE("rfft and irfft equal their definition within the derived error") {
  const DType dtype = GENERATE(f64, f32);
  for (const int64_t n : defined_lengths()) {
    INFO("n " << n << ", " << name(dtype));
    const Tensor x = fixed_noise({n}, 2, dtype), bins = fixed_noise({n / 2 + 1, 2}, 3, dtype);
    // Half the length for an even n, and 7 more roundings to separate the two halves.
    CHECK(distance(whole(rfft(x), n), whole(reference::real_dft(x), n)) <=
          allowed(n) * unit_roundoff(dtype));
    CHECK(distance(irfft(bins, n), reference::inverse_real_dft(bins, n)) <=
          (allowed(n) + 2) * unit_roundoff(dtype));
  }
}

TEST_CASE("transforms over two dimensions equal two one-dimensional transforms") {
  for (const auto& [n1, n2] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {1, 6}, {5, 1}, {4, 6}, {6, 5}, {11, 8}, {16, 34}}) {
    INFO(n1 << " × " << n2);
    const Tensor x = fixed_noise({2, n1, n2}, 4);
    const Tensor rows = reference::real_dft(x).transpose(-3, -2);
    const Tensor bins = reference::dft(rows).transpose(-3, -2);
    const double tolerance = (allowed(n1) + allowed(n2) + 8) * 0x1p-53;
    CHECK(distance(whole(rfft2(x), n2), whole(bins, n2)) <= tolerance);
    CHECK(distance(irfft2(bins, n2), x) <= tolerance);
  }
}

TEST_CASE("inverse transforms undo the forward transforms") {
  const DType dtype = GENERATE(f64, f32);
  for (const int64_t n : lengths()) {
    INFO("n " << n << ", " << name(dtype));
    const double tolerance = (2 * allowed(n) + 2) * unit_roundoff(dtype);
    const Tensor z = fixed_noise({3, n, 2}, 5, dtype), x = fixed_noise({3, n}, 6, dtype);
    CHECK(distance(ifft(fft(z)), z) <= tolerance);
    CHECK(distance(fft(ifft(z)), z) <= tolerance);
    CHECK(distance(irfft(rfft(x), n), x) <= tolerance);
  }
}

TEST_CASE("Parseval's theorem, the shift theorem and linearity hold") {
  for (const int64_t n : lengths()) {
    INFO("n " << n);
    constexpr double u = 0x1p-53;
    const Tensor x = fixed_noise({n, 2}, 7), y = fixed_noise({n, 2}, 8), spectrum = fft(x);
    CHECK(std::fabs(norm_of(spectrum) / (std::sqrt(double(n)) * norm_of(x)) - 1) <=
          (allowed(n) + 4) * u);
    const Tensor real = fixed_noise({n}, 9);
    CHECK(std::fabs(norm_of(whole(rfft(real), n)) / (std::sqrt(double(n)) * norm_of(real)) - 1) <=
          (allowed(n) + 6) * u);
    // Two transforms, and the product of this test with rounded angles below 2π.
    for (const int64_t by : {int64_t(0), n / 3, n - 1})
      CHECK(distance(fft(rolled(x, by)), shifted_spectrum(spectrum, by)) <=
            (2 * allowed(n) + 16) * u);
    const Tensor sum = 2.0 * spectrum - 3.0 * fft(y);
    CHECK(norm_of(fft(2.0 * x - 3.0 * y) - sum) <=
          (2 * allowed(n) + 4) * u * (2 * norm_of(spectrum) + 3 * norm_of(fft(y))));
  }
}

TEST_CASE("rfft is the first half of fft, and its first and middle bins are real") {
  for (const int64_t n : {1, 2, 7, 12, 22, 64}) {
    INFO("n " << n);
    const Tensor x = fixed_noise({n}, 10);
    Tensor z = zeros({n, 2}, {.dtype = f64});
    z.slice(1, 0, 1).copy_(x.unsqueeze(1));
    const Tensor half = rfft(x);
    CHECK(distance(half, fft(z).slice(0, 0, n / 2 + 1)) <= 2 * allowed(n) * 0x1p-53);
    CHECK(half.select(0, 0).select(0, 1).item() == 0);
    if (n % 2 == 0) CHECK(half.select(0, n / 2).select(0, 1).item() == 0);
  }
}

TEST_CASE("irfft ignores the imaginary parts of bins 0 and n/2") {
  for (const int64_t n : {1, 2, 5, 8, 22, 23}) {
    INFO("n " << n);
    const Tensor bins = fixed_noise({n / 2 + 1, 2}, 11);
    Tensor other = bins.clone();
    other.select(0, 0).slice(0, 1).fill_(7);
    if (n % 2 == 0) other.select(0, n / 2).slice(0, 1).fill_(-7);
    CHECK(same_bits(irfft(bins, n), irfft(other, n)));
  }
}

TEST_CASE("transforms of an impulse and of a constant are right") {
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 12, 64, 105}) {
    INFO("n " << n);
    const Tensor one = ones({n}, {.dtype = f64});
    Tensor first = zeros({n}, {.dtype = f64});
    first.slice(0, 0, 1).fill_(1);
    for (const auto& [k, v] : {std::pair{0, 1.0}, {1, 0.0}})
      CHECK(testing::worst_error(rfft(first).select(1, k), full({n / 2 + 1}, v, {.dtype = f64})) ==
            0);
    const Tensor bins = rfft(one);
    CHECK(bins.select(0, 0).select(0, 0).item() == double(n));
    CHECK(norm_of(bins.slice(0, 1)) <= allowed(n) * 0x1p-53 * double(n));
  }
}

TEST_CASE("bf16 is computed in f32") {
  const Tensor z = fixed_noise({3, 12, 2}, 12, bf16), x = fixed_noise({3, 12}, 13, bf16);
  const Tensor deep = z.unsqueeze(0);
  CHECK(same_bits(fft(z), fft(z.to(f32)).to(bf16)));
  CHECK(same_bits(rfft(x), rfft(x.to(f32)).to(bf16)));
  CHECK(same_bits(irfft(z, 22), irfft(z.to(f32), 22).to(bf16)));
  CHECK(same_bits(rfft2(x), rfft2(x.to(f32)).to(bf16)));
  CHECK(same_bits(irfft2(deep, 22), irfft2(deep.to(f32), 22).to(bf16)));
}

TEST_CASE("transforms: gradients and second gradients equal finite differences") {
  for (const int64_t n : {1, 2, 3, 4, 5, 8, 11}) {
    INFO("n " << n);
    const bool twice = n <= 5;
    check_gradients([](const Tensors& in) { return fft(in[0]); }, {fixed_leaf({2, n, 2}, 14)},
                    twice);
    check_gradients([](const Tensors& in) { return ifft(in[0]); }, {fixed_leaf({n, 2}, 15)}, twice);
    check_gradients([](const Tensors& in) { return rfft(in[0]); }, {fixed_leaf({2, n}, 16)}, twice);
    check_gradients([n](const Tensors& in) { return irfft(in[0], n); },
                    {fixed_leaf({2, n / 2 + 1, 2}, 17)}, twice);
    check_gradients([](const Tensors& in) { return rfft2(in[0]); }, {fixed_leaf({3, n}, 18)},
                    twice);
    check_gradients([n](const Tensors& in) { return irfft2(in[0], n); },
                    {fixed_leaf({2, n / 2 + 1, 2}, 19)}, twice);
  }
  // A function that is not linear: the power spectrum.
  check_gradients([](const Tensors& in) { return sum(square(rfft(in[0])), {-1}); },
                  {fixed_leaf({6}, 20)});
}

TEST_CASE("the transform of a sequence does not depend on the batch or the layout") {
  const DType dtype = GENERATE(f32, f64);
  for (const int64_t n : {5, 30, 37, 64, 72}) {
    INFO("n " << n << ", " << name(dtype));
    const Tensor z = fixed_noise({41, n, 2}, 21, dtype), x = fixed_noise({41, n}, 22, dtype);
    const Tensor fz = fft(z), fx = rfft(x), back = irfft(fx, n);
    for (const int64_t row : {0, 15, 16, 40}) {
      CHECK(same_bits(fft(z[row]), fz[row]));
      CHECK(same_bits(rfft(x[row]), fx[row]));
      CHECK(same_bits(irfft(fx[row], n), back[row]));
    }
    CHECK(same_bits(fft(testing::strided_copy(z)), fz));
    CHECK(same_bits(rfft(x.transpose(0, 1).contiguous().transpose(0, 1)), fx));
    CHECK(same_bits(irfft(testing::strided_copy(fx), n), back));
    CHECK(same_bits(rfft(x.slice(0, 3, 20, 2)), fx.slice(0, 3, 20, 2)));
    CHECK(same_bits(rfft(x[0].expand({3, n}))[2], fx[0]));
  }
}

TEST_CASE("transforms are bit-identical for any number of threads") {
  const int threads = num_threads();
  for (const int64_t n : {360, 499}) {
    const Tensor x = fixed_noise({200, n}, 23, f32), z = fixed_noise({200, n, 2}, 24, f32);
    set_num_threads(1);
    const Tensor fx = rfft(x), fz = ifft(z), back = irfft(fx, n);
    set_num_threads(2);
    CHECK(same_bits(rfft(x), fx));
    CHECK(same_bits(ifft(z), fz));
    CHECK(same_bits(irfft(fx, n), back));
    set_num_threads(threads);
  }
}

TEST_CASE("transforms of empty tensors are empty") {
  CHECK(fft(zeros({0, 4, 2})).shape() == Shape{0, 4, 2});
  CHECK(rfft(zeros({3, 0, 5})).shape() == Shape{3, 0, 3, 2});
  CHECK(irfft(zeros({0, 3, 2}), 4).shape() == Shape{0, 4});
  CHECK(rfft2(zeros({0, 4, 5})).shape() == Shape{0, 4, 3, 2});
  CHECK(irfft2(zeros({0, 4, 3, 2}), 5).shape() == Shape{0, 4, 5});
}

TEST_CASE("transforms: errors") {
  CHECK_THROWS_WITH(
      fft(zeros({4, 3})),
      "[fft] got f32 [4, 3]; accepted: complex numbers as a floating-point tensor [.., n, 2]");
  CHECK_THROWS_WITH(ifft(zeros({2})), Containing("[ifft] got f32 [2]; accepted: complex numbers"));
  CHECK_THROWS_WITH(fft(zeros({4, 2}, {.dtype = i64})),
                    Containing("[fft] got i64 [4, 2]; accepted"));
  CHECK_THROWS_WITH(fft(zeros({3, 0, 2})),
                    "[fft] got f32 [3, 0, 2], whose length is 0; must be at least 1");
  CHECK_THROWS_WITH(rfft(zeros({})),
                    "[rfft] got f32 []; accepted: a floating-point tensor [.., n]");
  CHECK_THROWS_WITH(rfft(zeros({3, 0})),
                    "[rfft] got f32 [3, 0], whose length is 0; must be at least 1");
  CHECK_THROWS_WITH(irfft(zeros({3, 2}), 6),
                    "[irfft] got f32 [3, 2] for n = 6; the spectrum of n ≥ 1 real values has n/2 + "
                    "1 bins");
  CHECK_THROWS_WITH(irfft(zeros({1, 2}), 0), Containing("[irfft] got f32 [1, 2] for n = 0"));
  CHECK_THROWS_WITH(irfft(zeros({1, 2}), -1), Containing("[irfft] got f32 [1, 2] for n = -1"));
  CHECK_THROWS_WITH(irfft(zeros({3, 3}), 4),
                    Containing("[irfft] got f32 [3, 3]; accepted: complex"));
  CHECK_THROWS_WITH(rfft2(zeros({3})),
                    "[rfft2] got f32 [3]; accepted: a floating-point tensor [.., n1, n2]");
  CHECK_THROWS_WITH(rfft2(zeros({0, 3})), Containing("[rfft2] got f32 [0, 3], whose length is 0"));
  CHECK_THROWS_WITH(irfft2(zeros({3, 2}), 4),
                    "[irfft2] got f32 [3, 2]; accepted: complex numbers as a floating-point tensor "
                    "[.., n1, m, 2]");
  CHECK_THROWS_WITH(irfft2(zeros({3, 2, 2}), 4),
                    Containing("[irfft2] got f32 [3, 2, 2] for n = 4; the spectrum"));
}
