// Fourier transforms and convolutions: CUDA against the CPU in f64.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/fft/fft_conv.h"
#include "ops/reduce.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

double norm_of(const Tensor& x) { return std::sqrt(sum(square(x.to(f64).to(cpu))).item()); }

// Checks ‖got − exact‖ ≤ bound · ‖exact‖; for bf16 plus the rounding of the result.
void check_near(const Tensor& exact, const Tensor& got, double bound) {
  REQUIRE(got.device() == gpu);
  REQUIRE(got.shape() == exact.shape());
  const double error = norm_of(got.to(cpu).to(f64) - exact), size = norm_of(exact);
  const double allowed = (bound + (got.dtype() == bf16 ? 2 * unit(bf16) : 0)) * size;
  CAPTURE(error, size, allowed);
  CHECK(error <= allowed);
}

// The bound of ops/fft/fft_plan.h for Bluestein lengths, the largest, plus the extra pass of a real
// transform; twice, for the f64 reference and for roots of unity rounded in f64.
double bound_of(int64_t n, DType t) {
  return 2 * (72 * std::log2(4 * double(n) + 4) + 16) * unit(t == f64 ? f64 : f32);
}

}  // namespace

TEST_CASE("Fourier transforms of all kinds of lengths agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 1;
  // One and several passes, odd lengths, Bluestein lengths, and sizes below and
  // above shared memory.
  for (const int64_t n : {1, 2, 3, 13, 48, 210, 343, 1000, 1018, 2048, 2049, 4096, 4099, 10000}) {
    for (const DType t : floating) {
      const int64_t rows = n < 100 ? 37 : 3;
      CAPTURE(n, name(t));
      const Tensor z = noise({rows, n, 2}, ++stream, t), x = noise({rows, n}, ++stream, t);
      const double bound = bound_of(n, t);
      check_near(fft(z.to(f64)), fft(z.to(gpu)), bound);
      check_near(ifft(z.to(f64)), ifft(z.to(gpu)), bound);
      check_near(rfft(x.to(f64)), rfft(x.to(gpu)), bound);
      const Tensor bins = noise({rows, n / 2 + 1, 2}, ++stream, t);
      check_near(irfft(bins.to(f64), n), irfft(bins.to(gpu), n), bound);
      CHECK(same_values(fft(z.to(gpu)), fft(z.to(gpu))));
    }
  }
  const Tensor x = noise({70001, 2, 2}, ++stream);  // more rows than a launch has blocks
  check_near(fft(x.to(f64)), fft(x.to(gpu)), bound_of(2, f32));
}

TEST_CASE("direct and FFT convolutions agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 100;
  struct Sizes {
    Shape x, w;
    int64_t axes;
  };
  for (const Sizes& s : std::vector<Sizes>{{{5}, {3}, 1},
                                           {{2, 3, 300}, {3, 200}, 1},
                                           {{2, 1, 40}, {3, 7}, 1},
                                           {{4, 700}, {700}, 1},
                                           {{2, 9, 11}, {4, 5}, 2},
                                           {{3, 20, 30}, {3, 20, 11}, 2}}) {
    for (const Padding padding : {Padding::causal, Padding::valid, Padding::circular}) {
      for (const ConvForm implementation : {ConvForm::automatic, ConvForm::direct, ConvForm::fft}) {
        for (const DType t : floating) {
          CAPTURE(str(s.x), str(s.w), int(padding), int(implementation), name(t));
          const FftConvOptions options{
              .axes = s.axes, .padding = padding, .implementation = implementation};
          const Tensor x = noise(s.x, ++stream, t), w = noise(s.w, ++stream, t);
          const auto run = [&](Device device, DType type) {
            const Tensors leaves = {x.to(type).to(device).detach().set_requires_grad(),
                                    w.to(type).to(device).detach().set_requires_grad()};
            const Tensor y = fft_conv(leaves[0], leaves[1], options);
            const Tensor g = noise(y.shape(), 99, t).to(type).to(device);
            Tensors all = grad({y}, leaves, {g});
            all.push_back(y.detach());
            return all;
          };
          // Errors of products of n elements and of two transforms, relative to the norms before
          // cancellation: for noise at most √n times the norm of the result.
          const double n = double(x.numel() + w.numel());
          const Tensors exact = run(cpu, f64), got = run(gpu, t);
          for (size_t i = 0; i < exact.size(); ++i)
            check_near(
                exact[i], got[i],
                3 * bound_of(int64_t(n), t) * std::sqrt(n) + (t == bf16 ? 2 * unit(bf16) : 0));
        }
      }
    }
  }
}

TEST_CASE("FFT convolutions in one kernel agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 500;
  struct Sizes {
    Shape x, w;
    Padding padding = Padding::causal;
  };
  std::vector<Sizes> all = {{{3, 2, 1000}, {2, 900}, Padding::valid},
                            {{3, 2, 1000}, {2, 900}, Padding::circular},
                            {{37, 1, 100}, {2, 50}},  // sums over several blocks
                            {{3, 260}, {3, 260}},     // nothing broadcast
                            {{2, 40}, {2, 700}},      // more taps than elements
                            {{2, 1500}, {45}, Padding::valid},
                            {{5, 1, 130}, {1, 7, 70}, Padding::circular},
                            {{700, 1, 40}, {3, 300}}};  // more rows than one launch handles
  for (const int64_t n : {256, 512, 1024, 2048, 4096, 8192, 16384}) all.push_back({{2, n}, {n}});
  for (const Sizes& s : all) {
    for (const DType t : floating) {
      if ((t == bf16 && s.x.numel() > 4000) || s.x.numel() > 40000) continue;
      CAPTURE(str(s.x), str(s.w), int(s.padding), name(t));
      const FftConvOptions options{.padding = s.padding, .implementation = ConvForm::fft};
      const Tensor x = noise(s.x, ++stream, t), w = noise(s.w, ++stream, t);
      const auto run = [&](Device device, DType type) {
        const Tensors leaves = {x.to(type).to(device).detach().set_requires_grad(),
                                w.to(type).to(device).detach().set_requires_grad()};
        const Tensor y = fft_conv(leaves[0], leaves[1], options);
        const Tensor g = noise(y.shape(), 99, t).to(type).to(device);
        Tensors results = grad({y}, leaves, {g});
        results.push_back(y.detach());
        return results;
      };
      const Tensors exact = run(cpu, f64), got = run(gpu, t), again = run(gpu, t);
      for (size_t i = 0; i < exact.size(); ++i) {
        check_near(exact[i], got[i], 16 * unit(t == f64 ? f64 : f32));
        CHECK(same_values(got[i], again[i]));
      }
      if (t != f32) continue;
      ::setenv("STRETTO_CUDA_COMPOSED", "fft_conv", 1);
      const Tensors composed = run(gpu, t);
      ::unsetenv("STRETTO_CUDA_COMPOSED");
      for (size_t i = 0; i < exact.size(); ++i) {
        check_near(exact[i], composed[i], 64 * unit(f32));
        CHECK_FALSE(same_values(got[i], composed[i]));
      }
    }
  }
}
