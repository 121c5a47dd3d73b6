// The noise of convSPE on CUDA must be bit-identical to the CPU's. The kernels of sineSPE and
// convSPE are compared with f64 on the CPU.
#include <cmath>
#include <cstdlib>
#include <vector>

#include "autograd/tape.h"
#include "cuda/spe/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("fill_normal_rows is bit-identical to the CPU at any offset", "[cuda]") {
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

TEST_CASE("fill_normal_columns is the transpose of fill_normal_rows", "[cuda]") {
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

TEST_CASE("fill_normal_rows is correct for more rows than a launch has blocks", "[cuda][large]") {
  NEEDS_GPU();
  const RandomKey key{5, 7};
  for (const Shape& shape : {Shape{4099, 1, 2}, Shape{1, 4099, 2}}) {
    const Tensor out = empty(shape, {.device = gpu});
    cuda::fill_normal_rows(out, key, 2, 0, 2);  // one sequence, cut in two ways
    check_equal(randn({4099 * 2}, key), out.flatten());
  }
}

TEST_CASE("fill_normal_rows and fill_normal_columns accept empty tensors", "[cuda]") {
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
  // convSPE (sines = 0): taps of a filter; for images also rows of taps and columns of the image.
  int64_t taps = 0, tap_rows = 1, columns = 0;

  Shape parameters() const {
    if (sines > 0) return {heads, d, sines};
    return columns == 0 ? Shape{heads, d, taps} : Shape{heads, d, tap_rows, taps};
  }
  SpeCode code(const Tensors& in) const {
    const SpeNoise draws(RandomKey{5, 8}, r);
    if (sines > 0) return SpeCode::sine(in[2], in[3], in[4], draws);
    const int64_t n = first + keys + queries;
    return SpeCode::conv(in[2], in[3], draws,
                         columns == 0 ? Shape{} : Shape{(n + columns - 1) / columns, columns});
  }
};

// Returns q̂, k̂ and the gradients of all inputs; q and k are rounded to `rounded` and have `type`.
Tensors run(const Sizes& s, Device device, DType rounded, DType type,
            Implementation implementation) {
  const DType others = type == f64 ? f64 : f32;
  const auto leaf = [&](const Shape& shape, uint64_t stream, bool operand) {
    const Tensor x =
        operand ? noise(shape, stream, rounded).to(type) : noise(shape, stream, f32).to(others);
    return x.to(device).detach().set_requires_grad();
  };
  Tensors in = {leaf({s.batch, s.heads, s.queries, s.d}, 61, true),
                leaf({s.batch, s.heads, s.keys, s.d}, 62, true)};
  for (uint64_t i = 0; i < (s.sines > 0 ? 3u : 2u); ++i)
    in.push_back(leaf(s.parameters(), 63 + i, false));
  SpeOptions options{.first = s.first, .implementation = implementation};
  if (s.gated) {
    in.push_back(leaf({s.heads, s.d}, 66, false));
    options.gate = SpeGate{in.back(), SpeNoise(RandomKey{5, 9}, s.r)};
  }
  const SpeCode code = s.code(in);
  const SpePair y =
      spe(in[0], in[1], s.sines > 0 ? code.kept(s.first + s.keys + s.queries) : code, options);
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
    {1, 1, 300, 330, 5, 21, 2, 7},  // several blocks, no vector loads
    {1, 1, 10, 10, 41, 70, 2},      // two tiles of columns, three of dimensions
    {2, 1, 70, 100, 32, 64, 5},     // vector loads
    {4, 1, 40, 50, 18, 66, 8},      // a number of sinusoids with its own kernel
    {3, 2, 35, 40, 9, 12, 10},
    {6, 2, 33, 33, 20, 8, 12, 31},            // dimensions four at a time
    {1, 1, 5, 40, 3, 65, 40},                 // dimensions one at a time
    {1, 1, 1100, 9, 64, 4, 1, 1091, false}};  // sums in chunks

const std::vector<Sizes> noise_sizes = {
    {2, 2, 6, 6, 3, 4, 0, 0, true, 3},
    {2, 2, 6, 6, 3, 4, 0, 0, false, 3},
    {2, 1, 1, 1, 1, 1, 0, 0, true, 1},
    {2, 2, 2, 6, 3, 4, 0, 3, true, 9},
    {2, 2, 0, 6, 3, 4, 0, 0, true, 2},
    {0, 2, 6, 6, 3, 4, 0, 0, true, 2},
    {5, 2, 6, 6, 4, 4, 0, 0, true, 8},
    {1, 1, 100, 130, 5, 21, 0, 7, true, 40},         // several blocks, no vector loads
    {1, 1, 10, 10, 9, 70, 0, 1, true, 3},            // tiles of realizations
    {2, 1, 70, 100, 16, 32, 0, 0, true, 17},         // vector loads
    {1, 1, 20, 65, 8, 36, 0, 0, true, 130},          // blocks of taps
    {1, 1, 300, 9, 2, 4, 0, 291, false, 5},          // sums in chunks
    {1, 9, 60, 70, 60, 1, 0, 0, false, 2},           // sums in chunks of several tiles
    {2, 2, 6, 6, 3, 4, 0, 0, true, 3, 2, 5},         // images
    {1, 1, 30, 61, 9, 5, 0, 7, true, 4, 3, 17},      // rows narrower than a tile
    {1, 1, 90, 80, 3, 8, 0, 11, true, 1, 3, 8},      // rows of one tile
    {1, 1, 150, 150, 2, 33, 0, 0, true, 11, 2, 70},  // rows longer than a tile
    {1, 1, 7, 9, 3, 4, 0, 66, true, 2, 1, 70},
    {2, 1, 30, 35, 3, 3, 0, 3, true, 600},  // by FFT
    {1, 2, 9, 11, 2, 2, 0, 3, false, 600, 2, 5}};

// Checks ‖got − exact‖ ≤ bound ‖exact‖ + more.
void check_norm(const Tensor& exact, const Tensor& got, double bound, double more) {
  const double size = norm_of(exact), error = norm_of(got.to(cpu).to(f64) - exact.to(cpu).to(f64));
  CAPTURE(error, size);
  CHECK(error <= bound * size + more);
}

}  // namespace

TEST_CASE("convSPE kernels and all gradients agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const Sizes& s : noise_sizes)
    for (const DType t : {f32, bf16}) {
      CAPTURE(s.batch, s.heads, s.queries, s.keys, s.d, s.r, s.first, s.taps, s.tap_rows, name(t));
      const Tensors exact = run(s, cpu, t, f64, Implementation::composed);
      const Tensors got = run(s, gpu, t, t, Implementation::fused),
                    again = run(s, gpu, t, t, Implementation::automatic);
      ::setenv("STRETTO_CUDA_COMPOSED", "spe", 1);
      const Tensors composed = run(s, gpu, t, t, Implementation::automatic);
      ::unsetenv("STRETTO_CUDA_COMPOSED");
      for (size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        if (!exact[i].defined()) CHECK((!got[i].defined() || norm_of(got[i]) == 0));
        if (!exact[i].defined() || exact[i].numel() == 0) continue;
        CHECK(got[i].device() == gpu);
        CHECK(got[i].dtype() == (t == bf16 && i < 4 ? bf16 : f32));
        CHECK(same_values(got[i], again[i]));
        // Errors of sums of products of varying sign over filters, dimensions, realizations,
        // positions and the batch, or of transforms.
        const double u = unit(f32), rounded = t == bf16 && i < 4 ? unit(bf16) : 0;
        check_norm(exact[i], got[i], 32 * u + rounded, 1e-12);
        check_norm(composed[i], got[i], 32 * u + 2 * rounded, 1e-12);
      }
    }
}

TEST_CASE("convSPE kernels accept any layout, and gradients of only one side", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16}) {
    const Tensor x = noise({2, 2, 40, 12}, 80, t), w = noise({2, 12, 6}, 81, f32);
    const SpeCode code = SpeCode::conv(w.to(gpu), w.to(gpu), SpeNoise(RandomKey{5, 8}, 20));
    const Tensor expected = spe(x.to(gpu), x.to(gpu), code).q;
    const Tensor transposed_heads = x.transpose(1, 2).contiguous().transpose(1, 2),
                 transposed_rows = x.transpose(2, 3).contiguous().transpose(2, 3);
    for (const Tensor& y : {transposed_heads, transposed_rows}) {
      const SpePair got = spe(on_gpu(y), on_gpu(y), code);
      CHECK(same_values(got.q, expected));
      CHECK(same_values(got.k, expected));
    }
    const Tensor keys = on_gpu(transposed_heads).detach().set_requires_grad(),
                 queries = on_gpu(transposed_heads).detach().set_requires_grad();
    const Tensor slope = noise({2, 2, 20, 40}, 82, t).to(gpu).transpose(2, 3);
    const Tensor one_side = grad({spe(queries, keys, code).k}, {keys}, {slope})[0];
    const Tensor both_sides = grad({spe(queries, keys, code).k}, {queries, keys}, {slope})[1];
    CHECK(same_values(one_side, both_sides));
    CHECK(
        same_values(one_side, grad({spe(keys, queries, code).q}, {keys}, {slope.contiguous()})[0]));
  }
}

TEST_CASE("convSPE kernels allocate no codes, accept cached codes and reject f64", "[cuda]") {
  NEEDS_GPU();
  const DefaultDevice use_gpu(gpu);
  const int64_t n = 128, d = 16, r = 16;
  const auto parts = [&](DType t, int64_t taps) {
    const TensorOptions options{.dtype = t, .device = gpu};
    const Tensor w = ones({1, d, taps}, options);
    return SpeCode::conv(w, w, SpeNoise(RandomKey{1, 2}, r));
  };
  const auto operand = [&](DType t) {
    return ones({1, 1, n, d}, {.dtype = t, .device = gpu}).set_requires_grad();
  };
  const int64_t code_bytes = n * d * r * 4;
  for (const int64_t taps : {5, 500}) {
    CAPTURE(taps);
    const Tensor q = operand(f32), k = operand(f32);
    reset_peak_memory();
    const int64_t live = memory_stats().live;
    const SpePair y = spe(q, k, parts(f32, taps));
    grad({sum(y.q) + sum(y.k)}, {q, k});
    CHECK(memory_stats().peak - live < (taps == 5 ? 1 : 3) * code_bytes);
  }
  // Codes of 32 cached positions, as in generation, give the same values.
  const SpeCode code = parts(f32, 40), kept = code.kept(32, 60);
  const Tensor x = noise({1, 1, 3, d}, 83).to(gpu);
  for (const int64_t first : {60, 70, 89})
    check_norm(spe(x, x, code, {.first = first}).k, spe(x, x, kept, {.first = first}).k,
               32 * unit(f32), 0);
  CHECK_THROWS_AS(spe(x, x, kept, {.first = 90}), Error);
  CHECK_THROWS_AS(
      spe(operand(f64), operand(f64), parts(f64, 3), {.implementation = Implementation::fused}),
      Error);
  CHECK(spe(operand(f64), operand(f64), parts(f64, 3)).q.dtype() == f64);
}

TEST_CASE("sineSPE kernels and all gradients agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const Sizes& s : sine_sizes)
    for (const DType t : {f32, bf16}) {
      CAPTURE(s.batch, s.heads, s.queries, s.keys, s.d, s.r, s.sines, s.first, name(t));
      const Tensors exact = run(s, cpu, t, f64, Implementation::composed);
      const Tensors got = run(s, gpu, t, t, Implementation::fused),
                    again = run(s, gpu, t, t, Implementation::automatic);
      ::setenv("STRETTO_CUDA_COMPOSED", "spe", 1);
      const Tensors composed = run(s, gpu, t, t, Implementation::automatic);
      ::unsetenv("STRETTO_CUDA_COMPOSED");
      for (size_t i = 0; i < exact.size(); ++i) {
        CAPTURE(i);
        REQUIRE(got[i].defined() == exact[i].defined());
        if (!exact[i].defined() || exact[i].numel() == 0) continue;
        CHECK(got[i].device() == gpu);
        CHECK(got[i].dtype() == (t == bf16 && i < 4 ? bf16 : f32));
        CHECK(same_values(got[i], again[i]));
        // Compared with f64 a frequency has an error of an ulp, its phase one ulp per period.
        const double u = unit(f32), rounded = t == bf16 && i < 4 ? unit(bf16) : 0;
        const double size = norm_of(exact[i]), error = norm_of(got[i].to(cpu).to(f64) - exact[i]);
        const double apart = norm_of(got[i].to(f64) - composed[i].to(f64));
        // Gradients of frequencies are sums times positions relative to the middle of 32 positions.
        const double more = i == 4 ? 64 * u : 1e-12;
        CAPTURE(error, apart, size);
        CHECK(error <= ((16 + 4 * double(s.first + s.keys)) * u + rounded) * size + more);
        CHECK(apart <= (16 * u + rounded) * size + more);
      }
    }
}

TEST_CASE("sineSPE kernels allocate nothing larger than the operands; f64 is composed", "[cuda]") {
  NEEDS_GPU();
  const auto at = [](DType t, Implementation implementation) {
    const TensorOptions options{.dtype = t, .device = gpu};
    const Tensor q = ones({1, 1, 512, 32}, options), f = ones({1, 32, 2}, options);
    return spe(q, q, SpeCode::sine(f, f, f, SpeNoise(RandomKey{1, 2}, 32)),
               {.implementation = implementation});
  };
  const DefaultDevice use_gpu(gpu);
  at(f32, Implementation::fused);
  reset_peak_memory();
  const int64_t live = memory_stats().live;
  at(f32, Implementation::automatic);
  CHECK(memory_stats().peak - live < 6 * 512 * 32 * 4);
  CHECK_THROWS_AS(at(f64, Implementation::fused), Error);
  CHECK(at(f64, Implementation::automatic).q.dtype() == f64);
}
