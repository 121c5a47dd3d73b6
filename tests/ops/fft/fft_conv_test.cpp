// ops/fft_conv: both implementations against the definition; paddings, axes, gradients.
#include "ops/fft/fft_conv.h"

#include <cmath>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/fft.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr Padding paddings[] = {Padding::causal, Padding::valid, Padding::circular};
constexpr ConvForm forms[] = {ConvForm::direct, ConvForm::fft, ConvForm::automatic};

double l1(const Tensor& x) { return sum(abs(x.to(f64))).item(); }
double l2(const Tensor& x) { return std::sqrt(sum(square(x.to(f64))).item()); }

// Returns the error bound of a result in units of the unit roundoff, for one sequence and one
// filter. Direct: a product and at most as many sums as taps. By transforms: each spectrum is off
// by η (the bound of ops/fft/fft_plan.h for a smooth length below 2(n + P), and 7 for halving a
// real transform), multiplied by the other spectrum, which is at most the 1-norm of its sequence;
// then the product (4) and the inverse transform. Circular results sum the overlapping outputs.
double allowed(const Tensor& x, const Tensor& w, ConvForm implementation) {
  const double turns = 2 + double(w.numel()) / double(x.numel());
  if (implementation == ConvForm::direct) return (double(w.numel()) + 1 + turns) * l1(w);
  const double eta = 11 * std::log2(2 * double(x.numel() + w.numel())) + 7;
  return turns * (eta * l2(w) * l1(x) + (2 * eta + 4 + turns) * l1(w) * l2(x));
}

double largest_error(const Tensor& got, const Tensor& want) {
  REQUIRE(got.shape() == want.shape());
  return max(abs(got.to(f64) - want)).item();
}

}  // namespace

TEST_CASE("fft_conv equals its definition within the derived error") {
  const DType dtype = GENERATE(f64, f32);
  const double u = dtype == f64 ? 0x1p-53 : 0x1p-24;
  for (const int64_t n : {1, 2, 3, 7, 16, 33, 64, 65, 200})
    for (const int64_t taps : {1, 2, 3, 8, 17, 63, 64, 65, 130, 450})
      for (const Padding padding : paddings)
        for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
          if (padding == Padding::valid && taps > n) continue;
          INFO(name(dtype) << ", n " << n << ", P " << taps << ", padding " << int(padding)
                           << ", implementation " << int(implementation));
          const Tensor x = fixed_noise({n}, 1, dtype), w = fixed_noise({taps}, 2, dtype);
          const Tensor y = fft_conv(x, w, {.padding = padding, .implementation = implementation});
          CHECK(y.dtype() == dtype);
          CHECK(largest_error(y, reference::convolution(x, w, {.padding = padding})) <=
                allowed(x, w, implementation) * u);
        }
}

TEST_CASE("fft_conv broadcasts the leading dimensions") {
  for (const auto& [x_shape, w_shape] : std::vector<std::pair<Shape, Shape>>{
           {{3, 17}, {3, 5}},            // the same shapes
           {{4, 3, 17}, {3, 5}},         // a filter per channel
           {{40, 17}, {5}},              // one filter, more sequences than lanes
           {{2, 3, 20, 17}, {3, 1, 5}},  // a filter per channel, each used many times
           {{5, 1, 17}, {5, 21, 5}},     // many filters on each sequence
           {{17}, {2, 19, 5}},
           {{2, 1, 17}, {1, 3, 5}},
           {{3, 1, 2, 17}, {1, 2, 1, 1}}})
    for (const Padding padding : paddings)
      for (const ConvForm implementation : forms) {
        INFO("x " << str(x_shape) << ", w " << str(w_shape) << ", padding " << int(padding)
                  << ", implementation " << int(implementation));
        const Tensor x = fixed_noise(x_shape, 3), w = fixed_noise(w_shape, 4);
        CHECK(worst_error(fft_conv(x, w, {.padding = padding, .implementation = implementation}),
                          reference::convolution(x, w, {.padding = padding})) < 1e-12);
      }
}

TEST_CASE("fft_conv over two axes equals its definition") {
  for (const auto& [x_shape, w_shape] : std::vector<std::pair<Shape, Shape>>{{{1, 1}, {1, 1}},
                                                                             {{4, 6}, {2, 3}},
                                                                             {{6, 4}, {6, 4}},
                                                                             {{5, 7}, {1, 7}},
                                                                             {{5, 7}, {5, 1}},
                                                                             {{3, 4}, {5, 9}},
                                                                             {{4, 3}, {9, 2}},
                                                                             {{20, 33}, {7, 18}},
                                                                             {{3, 6, 9}, {3, 2, 4}},
                                                                             {{20, 6, 9}, {2, 4}}})
    for (const Padding padding : paddings)
      for (const ConvForm implementation : forms) {
        const FftConvOptions options{
            .axes = 2, .padding = padding, .implementation = implementation};
        const Tensor x = fixed_noise(x_shape, 5), w = fixed_noise(w_shape, 6);
        if (padding == Padding::valid && (w.size(-1) > x.size(-1) || w.size(-2) > x.size(-2)))
          continue;
        INFO("x " << str(x_shape) << ", w " << str(w_shape) << ", padding " << int(padding)
                  << ", implementation " << int(implementation));
        CHECK(worst_error(fft_conv(x, w, options), reference::convolution(x, w, options)) < 1e-12);
      }
}

TEST_CASE("fft_conv: gradients and second gradients equal finite differences") {
  for (const Padding padding : paddings)
    for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
      INFO("padding " << int(padding) << ", implementation " << int(implementation));
      const auto conv = [=](int64_t axes) {
        return [=](const Tensors& in) {
          return fft_conv(in[0], in[1],
                          {.axes = axes, .padding = padding, .implementation = implementation});
        };
      };
      check_gradients(conv(1), {fixed_leaf({5}, 7), fixed_leaf({3}, 8)});
      check_gradients(conv(1), {fixed_leaf({2, 1, 4}, 9), fixed_leaf({3, 2}, 10)});
      check_gradients(conv(1), {fixed_leaf({3, 4}, 11), fixed_leaf({4}, 12)});
      check_gradients(conv(2), {fixed_leaf({3, 4}, 13), fixed_leaf({2, 2}, 14)});
      if (padding == Padding::valid) continue;
      check_gradients(conv(1), {fixed_leaf({2}, 15), fixed_leaf({2, 5}, 16)});
      check_gradients(conv(2), {fixed_leaf({2, 2}, 17), fixed_leaf({3, 1}, 18)});
    }
}

TEST_CASE("fft_conv: both implementations agree, also in their gradients") {
  for (const Padding padding : paddings)
    for (const int64_t taps : {1, 4, 40, 61}) {
      INFO("padding " << int(padding) << ", P " << taps);
      Tensors first;
      for (const ConvForm implementation : forms) {
        const Tensor x = fixed_leaf({2, 3, 61}, 19), w = fixed_leaf({3, taps}, 20);
        const Tensor y = fft_conv(x, w, {.padding = padding, .implementation = implementation});
        Tensors all = grad({y}, {x, w}, {fixed_noise(y.shape(), 21)});
        all.push_back(y.detach());
        if (first.empty()) first = all;
        for (size_t i = 0; i < all.size(); ++i) CHECK(worst_error(all[i], first[i]) < 1e-12);
      }
    }
}

TEST_CASE("fft_conv: the transform of a circular convolution is the product of the transforms") {
  const Tensor x = fixed_noise({24}, 22), w = fixed_noise({24}, 23);
  const Tensor a = rfft(x), b = rfft(w);
  const auto part = [](const Tensor& z, int64_t i) { return z.slice(-1, i, i + 1); };
  Tensor product = empty_like(a);
  product.slice(-1, 0, 1).copy_(part(a, 0) * part(b, 0) - part(a, 1) * part(b, 1));
  product.slice(-1, 1, 2).copy_(part(a, 0) * part(b, 1) + part(a, 1) * part(b, 0));
  CHECK(worst_error(fft_conv(x, w, {.padding = Padding::circular}), irfft(product, 24)) < 1e-12);
}

TEST_CASE("fft_conv: single taps delay, and filters compose") {
  for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
    INFO("implementation " << int(implementation));
    const Tensor x = fixed_noise({2, 37}, 24), one = ones({1}, {.dtype = f64});
    for (const Padding padding : paddings)
      CHECK(worst_error(fft_conv(x, one, {.padding = padding, .implementation = implementation}),
                        x) < 1e-12);
    // A single late tap delays the sequence.
    Tensor late = zeros({12}, {.dtype = f64});
    late.slice(0, 11).fill_(1);
    CHECK(worst_error(fft_conv(x, late, {.implementation = implementation}),
                      pad(x.slice(1, 0, 26), 1, 11, 0)) < 1e-12);
    CHECK(worst_error(
              fft_conv(x, late, {.padding = Padding::valid, .implementation = implementation}),
              x.slice(1, 0, 26)) < 1e-12);
    // Two filters in sequence equal their convolution.
    const Tensor v = fixed_noise({9}, 25), w = fixed_noise({6}, 26);
    const Tensor vw = fft_conv(pad(v, 0, 0, 5), w, {.implementation = implementation});
    CHECK(worst_error(fft_conv(fft_conv(x, v, {.implementation = implementation}), w,
                               {.implementation = implementation}),
                      fft_conv(x, vw, {.implementation = implementation})) < 1e-12);
  }
}

TEST_CASE("fft_conv: causal results do not depend on later elements") {
  Tensor x = fixed_noise({50}, 27);
  const Tensor w = fixed_noise({50}, 28);
  const Tensor before = fft_conv(x, w, {.implementation = ConvForm::direct});
  x.slice(0, 30).fill_(1e3);
  CHECK(same_bits(fft_conv(x, w, {.implementation = ConvForm::direct}).slice(0, 0, 30),
                  before.slice(0, 0, 30)));
}

TEST_CASE("fft_conv in bf16 is computed in f32") {
  const Tensor x = fixed_noise({3, 17}, 29, bf16), w = fixed_noise({5}, 30, bf16);
  for (const Padding padding : paddings)
    for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
      const FftConvOptions options{.padding = padding, .implementation = implementation};
      CHECK(same_bits(fft_conv(x, w, options), fft_conv(x.to(f32), w.to(f32), options).to(bf16)));
    }
}

TEST_CASE("fft_conv is bit-identical for views, in a batch and for any number of threads") {
  const int threads = num_threads();
  for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
    INFO("implementation " << int(implementation));
    const FftConvOptions options{.implementation = implementation};
    const Tensor x = fixed_noise({60, 3, 130}, 31, f32), w = fixed_noise({3, 70}, 32, f32);
    set_num_threads(1);
    const Tensor y = fft_conv(x, w, options);
    set_num_threads(2);
    CHECK(same_bits(fft_conv(x, w, options), y));
    set_num_threads(threads);
    CHECK(same_bits(fft_conv(x[7][1], w[1], options), y[7][1]));
    CHECK(same_bits(fft_conv(x.slice(0, 5, 9), w, options), y.slice(0, 5, 9)));
    CHECK(same_bits(fft_conv(testing::strided_copy(x), testing::strided_copy(w), options), y));
    CHECK(same_bits(fft_conv(x.transpose(0, 1), w.unsqueeze(1), options), y.transpose(0, 1)));
  }
}

TEST_CASE("fft_conv: repeated gradients are bit-identical for any number of threads") {
  const int threads = num_threads();
  const Tensor x = fixed_noise({20, 3, 100}, 33, f32).set_requires_grad();
  const Tensor w = fixed_noise({3, 90}, 34, f32).set_requires_grad();
  for (const ConvForm implementation : {ConvForm::direct, ConvForm::fft}) {
    Tensors first;
    for (const int n : {1, 2, 2}) {
      set_num_threads(n);
      const Tensor y = fft_conv(x, w, {.implementation = implementation});
      const Tensors g = grad({y}, {x, w}, {fixed_noise(y.shape(), 35, f32)});
      if (first.empty()) first = g;
      CHECK(same_bits(g[0], first[0]));
      CHECK(same_bits(g[1], first[1]));
    }
  }
  set_num_threads(threads);
}

TEST_CASE("fft_conv of empty tensors is empty") {
  for (const Padding padding : paddings) {
    const Tensor x = zeros({0, 3, 9}).set_requires_grad(), w = ones({3, 4}).set_requires_grad();
    const Tensor y = fft_conv(x, w, {.padding = padding});
    CHECK(y.shape() == Shape{0, 3, padding == Padding::valid ? 6 : 9});
    const Tensors g = grad({y}, {x, w}, {zeros(y.shape())});
    CHECK(g[0].shape() == x.shape());
    CHECK(same_bits(g[1], zeros({3, 4})));
  }
}

TEST_CASE("fft_conv: errors") {
  CHECK_THROWS_WITH(fft_conv(zeros({4}), zeros({2}), {.axes = 3}),
                    "[fft_conv] axes is 3; accepted: 1, 2");
  CHECK_THROWS_WITH(
      fft_conv(zeros({}), zeros({2})),
      "[fft_conv] x f32 [], w f32 [2]; both must have one floating-point dtype and at "
      "least 1 dimension");
  CHECK_THROWS_WITH(
      fft_conv(zeros({4, 4}), zeros({2}), {.axes = 2}),
      "[fft_conv] x f32 [4, 4], w f32 [2]; both must have one floating-point dtype and at "
      "least 2 dimensions");
  CHECK_THROWS_WITH(fft_conv(zeros({4}), zeros({2}, {.dtype = f64})),
                    Containing("[fft_conv] x f32 [4], w f64 [2]; both must have one floating"));
  CHECK_THROWS_WITH(fft_conv(zeros({4}, {.dtype = i64}), zeros({2}, {.dtype = i64})),
                    Containing("both must have one floating-point dtype"));
  CHECK_THROWS_WITH(fft_conv(zeros({3, 0}), zeros({2})),
                    "[fft_conv] x f32 [3, 0], w f32 [2]; the sizes that are convolved must be at "
                    "least 1");
  CHECK_THROWS_WITH(fft_conv(zeros({3}), zeros({0})), Containing("must be at least 1"));
  CHECK_THROWS_WITH(fft_conv(zeros({4}), zeros({5}), {.padding = Padding::valid}),
                    "[fft_conv] x f32 [4], w f32 [5]; without padding the filter (5 elements) must "
                    "not be longer than x (4)");
  CHECK_THROWS_WITH(fft_conv(zeros({2, 4}), zeros({3, 2})),
                    Containing("[fft_conv] shapes [2] and [3] do not broadcast"));
}
