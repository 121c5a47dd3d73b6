// The noise of convSPE: CUDA against the CPU's draws, bit for bit. sineSPE in its kernels: CUDA
// against the CPU in f64.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "autograd/tape.h"
#include "cuda/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("rows of normal draws have the CPU's bits, wherever a row begins", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{5, 6};
  const int64_t blocks = 3;
  for (const DType t : {f32, f64})
    for (const int64_t rows : {1, 4})
      for (const int64_t n : {1, 3, 4, 130, 1027})
        for (const int64_t first : {0, 1, 2, 3, 1022})
          for (const int64_t pitch : {int64_t(0), n, int64_t(1) << 33}) {
            CAPTURE(name(t), rows, n, first, pitch);
            const int64_t apart = (int64_t(1) << 40) + 2;
            const Tensor out = empty({blocks, rows, n}, {.dtype = t, .device = gpu});
            cuda::fill_normal_rows(out, key, apart, first, pitch);
            std::vector<float> draws(static_cast<size_t>(n));
            std::vector<double> expected;
            for (int64_t k = 0; k < blocks; ++k)
              for (int64_t i = 0; i < rows; ++i) {
                normal_draws(key, k * apart + first + i * pitch, n, draws.data());
                expected.insert(expected.end(), draws.begin(), draws.end());
              }
            CHECK(same_values(out.to_vector<double>(), expected));
          }
}

TEST_CASE("columns of normal draws are the rows', turned", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{5, 8};
  for (const DType t : {f32, f64})
    for (const int64_t r : {1, 3, 8, 64, 1800})
      for (const int64_t rows : {1, 3})
        for (const int64_t n : {1, 32, 45})
          for (const int64_t first : {0, 1, 1023}) {
            CAPTURE(name(t), r, rows, n, first);
            const int64_t apart = (int64_t(1) << 40) + 2, pitch = n * r + 5;
            const Tensor out = empty({2, r, rows, n}, {.dtype = t, .device = gpu});
            const Tensor by_row = empty({2, rows, n * r}, {.dtype = t, .device = gpu});
            cuda::fill_normal_columns(out, key, apart, first, pitch);
            cuda::fill_normal_rows(by_row, key, apart, first, pitch);
            check_equal(by_row.to(cpu).view({2, rows, n, r}).permute({0, 3, 1, 2}).contiguous(),
                        out);
          }
}

TEST_CASE("rows of normal draws beyond a launch's blocks are like the first", "[cuda][large]") {
  NEEDS_GPU();
  const RandomKey key{5, 7};
  for (const Shape& shape : {Shape{4099, 1, 2}, Shape{1, 4099, 2}}) {
    const Tensor out = empty(shape, {.device = gpu});
    cuda::fill_normal_rows(out, key, 2, 0, 2);  // one sequence, whichever way it is cut
    check_equal(randn({4099 * 2}, key), out.flatten());
  }
}

TEST_CASE("rows of normal draws: nothing to draw", "[cuda]") {
  NEEDS_GPU();
  for (const Shape& shape : {Shape{0, 2, 3}, Shape{2, 0, 3}, Shape{2, 3, 0}}) {
    cuda::fill_normal_rows(empty(shape, {.device = gpu}), {1, 2}, 8, 0, 4);
    cuda::fill_normal_columns(empty(shape, {.device = gpu}).unsqueeze(1), {1, 2}, 8, 0, 4);
  }
  synchronize(gpu);
}

namespace {

double norm_of(const Tensor& x) {
  return x.numel() == 0 ? 0 : std::sqrt(sum(square(x.to(f64).to(cpu))).item());
}

struct Sizes {
  int64_t batch, heads, queries, keys, d, r, sines;
  int64_t first = 0;
  bool gated = true;
};

// q̂, k̂ and the gradients of all inputs; q and k have been rounded to `rounded` and are of `type`.
Tensors run(const Sizes& s, Device device, DType rounded, DType type, Form form) {
  const DType others = type == f64 ? f64 : f32;
  const auto leaf = [&](const Shape& shape, uint64_t stream, bool operand) {
    const Tensor x =
        operand ? noise(shape, stream, rounded).to(type) : noise(shape, stream, f32).to(others);
    return x.to(device).detach().set_requires_grad();
  };
  Tensors in = {leaf({s.batch, s.heads, s.queries, s.d}, 61, true),
                leaf({s.batch, s.heads, s.keys, s.d}, 62, true)};
  for (uint64_t i = 0; i < 3; ++i) in.push_back(leaf({s.heads, s.d, s.sines}, 63 + i, false));
  SpeOptions options{.first = s.first, .form = form};
  if (s.gated) {
    in.push_back(leaf({s.heads, s.d}, 66, false));
    options.gate = SpeGate{in[5], SpeNoise(RandomKey{5, 9}, s.r)};
  }
  const SpeCode code = SpeCode::sine(in[2], in[3], in[4], SpeNoise(RandomKey{5, 8}, s.r));
  const SpePair y = spe(in[0], in[1], code.kept(s.first + s.keys + s.queries), options);
  Tensors all{y.q.detach(), y.k.detach()};
  const auto slope = [&](const Tensor& of, uint64_t stream) {
    return noise(of.shape(), stream, rounded).to(type).to(device);
  };
  for (const Tensor& g : grad({y.q, y.k}, in, {slope(y.q, 71), slope(y.k, 72)})) all.push_back(g);
  return all;
}

const std::vector<Sizes> sine_sizes = {
    {2, 2, 6, 6, 3, 4, 2},
    {2, 2, 6, 6, 3, 4, 2, 0, false},
    {2, 1, 1, 1, 1, 1, 1},
    {2, 2, 2, 6, 3, 4, 2, 3},
    {2, 2, 0, 6, 3, 4, 2},
    {0, 2, 6, 6, 3, 4, 2},
    {5, 2, 6, 6, 4, 4, 1},
    {1, 1, 300, 330, 5, 21, 2, 7},            // several blocks, no packs
    {1, 1, 10, 10, 41, 70, 2},                // two tiles of columns, three of dimensions
    {2, 1, 70, 100, 32, 64, 5},               // packs
    {6, 2, 33, 33, 20, 8, 12, 31},            // dimensions by fours
    {1, 1, 5, 40, 3, 65, 40},                 // and one by one
    {1, 1, 1100, 9, 64, 4, 1, 1091, false}};  // sums in parts

}  // namespace

TEST_CASE("codes of sinusoids on chip, and all gradients", "[cuda]") {
  NEEDS_GPU();
  for (const Sizes& s : sine_sizes)
    for (const DType t : {f32, bf16}) {
      CAPTURE(s.batch, s.heads, s.queries, s.keys, s.d, s.r, s.sines, s.first, name(t));
      const Tensors exact = run(s, cpu, t, f64, Form::composed);
      const Tensors got = run(s, gpu, t, t, Form::fused),
                    again = run(s, gpu, t, t, Form::automatic);
      ::setenv("STRETTO_CUDA_COMPOSED", "spe", 1);
      const Tensors composed = run(s, gpu, t, t, Form::automatic);
      ::unsetenv("STRETTO_CUDA_COMPOSED");
      for (size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        REQUIRE(got[i].defined() == exact[i].defined());
        if (!exact[i].defined() || exact[i].numel() == 0) continue;
        CHECK(got[i].device() == gpu);
        CHECK(got[i].dtype() == (t == bf16 && i < 4 ? bf16 : f32));
        CHECK(same_values(got[i], again[i]));
        // Against f64 a frequency is off by an ulp, and its phase by as many as there are turns.
        const double u = unit(f32), rounded = t == bf16 && i < 4 ? unit(bf16) : 0;
        const double size = norm_of(exact[i]), error = norm_of(got[i].to(cpu).to(f64) - exact[i]);
        const double apart = norm_of(got[i].to(f64) - composed[i].to(f64));
        // Frequencies' gradients are positions times sums, about the middle of each 32 of them.
        const double more = i == 4 ? 64 * u : 1e-12;
        CAPTURE(error, apart, size);
        CHECK(error <= ((16 + 4 * double(s.first + s.keys)) * u + rounded) * size + more);
        CHECK(apart <= (16 * u + rounded) * size + more);
      }
    }
}

TEST_CASE("codes of sinusoids: nothing larger than operands is made, f64 is composed", "[cuda]") {
  NEEDS_GPU();
  const auto at = [](DType t, Form form) {
    const TensorOptions options{.dtype = t, .device = gpu};
    const Tensor q = ones({1, 1, 512, 32}, options), f = ones({1, 32, 2}, options);
    return spe(q, q, SpeCode::sine(f, f, f, SpeNoise(RandomKey{1, 2}, 32)), {.form = form});
  };
  const DefaultDevice there(gpu);
  at(f32, Form::fused);
  reset_peak_memory();
  const int64_t live = memory_stats().live;
  at(f32, Form::automatic);
  CHECK(memory_stats().peak - live < 6 * 512 * 32 * 4);
  CHECK_THROWS_AS(at(f64, Form::fused), Error);
  CHECK(at(f64, Form::automatic).q.dtype() == f64);
}
