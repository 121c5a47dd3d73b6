// CPU against CUDA, kernel by kernel, then through the tape; and what happens without a GPU.
//
// Tolerances are those of the arithmetic: one correctly rounded operation agrees to the bit; a sum
// of n terms is off by at most its depth times the rounding unit times the sum of absolute values.

#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "cuda/device.h"
#include "cuda/index.h"
#include "cuda/kernels.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/skew.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/catch.h"

using namespace stretto;

#define NEEDS_GPU() \
  if (!cuda_available()) STRETTO_SKIP("no CUDA GPU: " + cuda_description())

namespace {

const Device gpu(DeviceType::cuda, 0);
constexpr double inf = std::numeric_limits<double>::infinity();

// The rounding unit, half the distance from 1 to the next number: the relative error of one
// rounding.
double unit(DType t) {
  return t == f64 ? std::ldexp(1.0, -53) : t == f32 ? std::ldexp(1.0, -24) : std::ldexp(1.0, -8);
}

Tensor noise(const Shape& shape, uint64_t stream, DType dtype = f32) {
  return randn(shape, RandomKey{11, stream}).to(dtype);
}

// The values of x on the GPU, in the same layout: strides and gaps included.
Tensor on_gpu(const Tensor& x) {
  int64_t extent = x.offset() + 1;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (x.size(d) == 0) extent = x.offset();
    extent += std::max<int64_t>(x.size(d) - 1, 0) * x.strides()[d];
  }
  const Tensor all = make_view(x.detach(), 0, {extent}, {1});
  return make_view(all.to(gpu), x.offset(), x.shape(), x.strides());
}

bool same_bits(double a, double b) {
  return (std::isnan(a) && std::isnan(b)) ||
         std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

void check_equal(const Tensor& expected, const Tensor& actual) {
  REQUIRE(actual.device() == gpu);
  REQUIRE(actual.shape() == expected.shape());
  REQUIRE(actual.dtype() == expected.dtype());
  const std::vector<double> e = expected.to_vector<double>(), a = actual.to_vector<double>();
  size_t wrong = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (same_bits(e[i], a[i])) continue;
    if (++wrong <= 3) UNSCOPED_INFO("element " << i << ": " << a[i] << ", expected " << e[i]);
  }
  CHECK(wrong == 0);
}

// |actual − expected| <= allowed(i), element by element; NaN and infinities must agree.
template <class F>
void check_close(const Tensor& expected, const Tensor& actual, F allowed) {
  REQUIRE(actual.device() == gpu);
  REQUIRE(actual.shape() == expected.shape());
  const std::vector<double> e = expected.to_vector<double>(), a = actual.to_vector<double>();
  size_t wrong = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    if (same_bits(e[i], a[i]) || std::abs(a[i] - e[i]) <= allowed(i)) continue;
    if (++wrong <= 3)
      UNSCOPED_INFO("element " << i << ": " << a[i] << ", expected " << e[i] << " within "
                               << allowed(i));
  }
  CHECK(wrong == 0);
}

// As a bool: Catch would print vectors of 100,000 numbers.
template <class T>
bool same_values(const std::vector<T>& a, const std::vector<T>& b) {
  return a == b;
}
bool same_values(const Tensor& a, const Tensor& b) {
  return same_values(a.to_vector<double>(), b.to_vector<double>());
}

const std::vector<DType> floating = {f32, f64, bf16};

}  // namespace

// ---- without a GPU ----

TEST_CASE("without a usable GPU every way in says why", "[cuda]") {
  if (cuda_available()) STRETTO_SKIP("this machine has a GPU: " + cuda_description());
  const std::string why = cuda_description();
  INFO(why);
  const bool documented =
      why ==
          "this build of Stretto has no CUDA: no CUDA Toolkit was found when it was configured" ||
      why.find("but no NVIDIA driver is installed here") != std::string::npos ||
      why.find("but the NVIDIA driver is too old: it serves CUDA ") != std::string::npos ||
      why.find("but the NVIDIA driver finds no GPU: see nvidia-smi") != std::string::npos ||
      why.find("but the GPUs cannot be asked for: ") != std::string::npos ||
      why.find("too old for this build") != std::string::npos;
  CHECK(documented);
  CHECK(cuda::device_count() == 0);

  const auto text = Containing("device cuda:0 cannot be used: " + why);
  REQUIRE_THROWS_WITH(empty({2, 3}, {.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(zeros({2, 3}, {.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(randn({2, 3}, Options{.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(ones({2, 3}).to(Device("cuda")), text);
  REQUIRE_THROWS_AS(empty({2}, {.device = "cuda"}), Error);
  REQUIRE_THROWS_WITH(empty({2}, {.device = "cuda:1"}), Containing("[empty] device cuda:1 cannot"));
  CHECK(memory_stats("cuda").live == 0);
}

TEST_CASE("without a usable GPU the CUDA entry points are errors, not crashes", "[cuda]") {
  if (cuda_available()) STRETTO_SKIP("this machine has a GPU: " + cuda_description());
  const Tensor x = ones({2, 2});
  float host[4];
  REQUIRE_THROWS_AS(cuda::allocate(64, 0), Error);
  REQUIRE_THROWS_AS(cuda::free(host, 0), Error);
  REQUIRE_THROWS_AS(cuda::copy(host, cpu, host, gpu, 16), Error);
  REQUIRE_THROWS_AS(cuda::synchronize(0), Error);
  REQUIRE_THROWS_WITH(cuda::allocate(64, 0), Containing("[cuda] "));
  CHECK(x.to_vector<float>() == std::vector<float>{1, 1, 1, 1});  // the CPU goes on
}

// ---- random numbers ----

TEST_CASE("our Philox has cuRAND's bits", "[cuda]") {
  // On the host, by cuRAND's own header: wherever the toolkit is.
  const RandomKey keys[] = {
      {0, 0}, {1, 2}, {0x123456789abcdef0u, 0xfedcba9876543210u}, {~0ull, ~0ull}};
  for (const RandomKey key : keys) {
    for (const int64_t n : {1, 7, 1001}) {
      std::vector<uint32_t> theirs(static_cast<size_t>(n));
      try {
        cuda::curand_philox(key, n, theirs.data(), cpu);
      } catch (const Error& error) {
        STRETTO_SKIP(std::string("no cuRAND: ") + error.what());
      }
      bool same = true;
      for (int64_t i = 0; i < n; ++i) same &= theirs[size_t(i)] == random_bits(key, uint64_t(i));
      CHECK(same);
    }
  }
}

TEST_CASE("Philox on the GPU, ours and cuRAND's, has the host's bits", "[cuda]") {
  NEEDS_GPU();
  for (const RandomKey key : {RandomKey{0, 0}, RandomKey{42, 7}, RandomKey{~0ull, 1ull << 40}}) {
    for (const int64_t n : {0, 1, 3, 4, 4097, 300001}) {
      std::vector<uint32_t> ours(static_cast<size_t>(n)), theirs(static_cast<size_t>(n));
      cuda::device_philox(key, n, ours.data(), gpu);
      cuda::curand_philox(key, n, theirs.data(), gpu);
      bool same = true;
      for (int64_t i = 0; i < n; ++i) same &= ours[size_t(i)] == random_bits(key, uint64_t(i));
      CHECK(same);
      CHECK(same_values(ours, theirs));
    }
  }
}

TEST_CASE("uniforms have the CPU's bits, normals its values", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{3, 4};
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{1}, Shape{5}, Shape{7, 1001}, Shape{70001, 3}}) {
    for (const DType t : floating) {
      CAPTURE(str(shape), name(t));
      check_equal(rand(shape, key, {.dtype = t}), rand(shape, key, {.dtype = t, .device = gpu}));
      // radius <= sqrt(48 ln 2) < 6; log, sqrt, sin and cos are each within a few ulp.
      const double allowed = 6 * 16 * unit(f32) + (t == bf16 ? 6 * unit(bf16) * 2 : 0);
      check_close(randn(shape, key, {.dtype = t}), randn(shape, key, {.dtype = t, .device = gpu}),
                  [&](size_t) { return allowed; });
    }
  }
}

// ---- copies and elementwise ----

TEST_CASE("tensors travel to the GPU and back unchanged", "[cuda]") {
  NEEDS_GPU();
  for (const Shape& shape : {Shape{}, Shape{0, 3}, Shape{1}, Shape{17, 3}, Shape{65537}}) {
    for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
      const Tensor x = mul(noise(shape, 1), 20).to(i32).to(t);
      check_equal(x, x.to(gpu));
      CHECK(same_values(x.to(gpu).to(cpu), x));
    }
  }
  const Tensor x = noise({4, 6, 5}, 2);
  check_equal(x.transpose(0, 2), x.transpose(0, 2).to(gpu));
  check_equal(x.transpose(0, 2), x.to(gpu).transpose(0, 2).contiguous());
  check_equal(x.slice(1, 1, 6, 2), x.to(gpu).slice(1, 1, 6, 2).clone());
  check_equal(x.select(0, 2).expand({3, 6, 5}), x.to(gpu).select(0, 2).expand({3, 6, 5}).clone());
}

TEST_CASE("conversions on the GPU are C++ casts", "[cuda]") {
  NEEDS_GPU();
  const DType all[] = {f32, f64, bf16, i64, i32, u8, boolean};
  const Tensor values =
      tensor(std::vector<double>{0, 1, 2.5, 3.99, 100.25, 0.1, 77.7, 1.0 / 3}, {8});
  const Tensor large =
      tensor(std::vector<int64_t>{16777217, -16777219, int64_t(1) << 53, 257}, {4});
  const Tensor special = tensor(
      std::vector<double>{inf, -inf, std::nan(""), -0.0, 1e-45, 1e39, 3.39e38, 1.00390625}, {8});
  for (const DType from : all) {
    for (const DType to : all) {
      CAPTURE(name(from), name(to));
      const Tensor x = values.to(from);
      check_equal(x.to(to), x.to(gpu).to(to));
      const Tensor strided = x.reshape({2, 4}).transpose(0, 1);
      check_equal(strided.to(to), on_gpu(strided).to(to));
      if (is_floating(from) && (is_floating(to) || to == boolean)) {
        const Tensor s = special.to(from);
        check_equal(s.to(to), s.to(gpu).to(to));
      }
    }
  }
  for (const DType to : {f32, f64, bf16, i64}) check_equal(large.to(to), large.to(gpu).to(to));
  const Tensor many = noise({70001}, 3);  // the packed kernels, with a tail
  check_equal(many.to(bf16), many.to(gpu).to(bf16));
  check_equal(many.to(bf16).to(f32), many.to(bf16).to(gpu).to(f32));
  check_equal(many.slice(0, 1).to(bf16), many.to(gpu).slice(0, 1).to(bf16));  // not aligned
}

TEST_CASE("fill", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{33, 7}, Shape{70003}}) {
      CAPTURE(name(t), str(shape));
      const Tensor x = empty(shape, {.dtype = t, .device = gpu});
      cuda::fill(x, 3);
      check_equal(full(shape, 3, {.dtype = t}), x);
    }
  }
  Tensor expected = zeros({6, 8}), actual = zeros({6, 8}, {.device = gpu});
  expected.transpose(0, 1).slice(0, 1, 8, 3).fill_(2.5);
  actual.transpose(0, 1).slice(0, 1, 8, 3).fill_(2.5);
  check_equal(expected, actual);
}

TEST_CASE("binary operations have the CPU's bits", "[cuda]") {
  NEEDS_GPU();
  const struct {
    cuda::Binary op;
    Tensor (*reference)(const Tensor&, const Tensor&);
  } operations[] = {{cuda::Binary::add, add},
                    {cuda::Binary::sub, sub},
                    {cuda::Binary::mul, mul},
                    {cuda::Binary::div, div}};
  const std::vector<std::pair<Shape, Shape>> shapes = {{{}, {}},
                                                       {{0}, {1}},
                                                       {{1}, {1}},
                                                       {{5}, {5}},
                                                       {{3, 1}, {1, 4}},
                                                       {{7, 33}, {33}},
                                                       {{70001}, {70001}},
                                                       {{257, 129}, {}},
                                                       {{2, 3, 5}, {3, 1}},
                                                       {{4, 1, 6}, {5, 1}},
                                                       {{65536, 3}, {1, 3}}};
  uint64_t stream = 100;
  for (const auto& [sa, sb] : shapes) {
    for (const DType t : floating) {
      const Tensor a = noise(sa, ++stream, t), b = noise(sb, ++stream, t);
      for (const auto& o : operations) {
        CAPTURE(str(sa), str(sb), name(t), int(o.op));
        check_equal(o.reference(a, b), cuda::binary(o.op, a.to(gpu), b.to(gpu)));
      }
    }
  }
  // Any strides: transposed, with steps and gaps, not aligned, with an offset.
  const Tensor base = noise({24, 36}, ++stream);
  for (const Tensor& a :
       {base.transpose(0, 1), base.slice(1, 1, 36, 2).transpose(0, 1),
        base.select(1, 3).unsqueeze(1).expand({24, 24}), base.flatten().slice(0, 1, 577)}) {
    const Tensor b = noise(a.shape(), ++stream);
    for (const auto& o : operations) {
      check_equal(o.reference(a, b), cuda::binary(o.op, on_gpu(a), b.to(gpu)));
      check_equal(o.reference(b, a), cuda::binary(o.op, b.to(gpu), on_gpu(a)));
      check_equal(o.reference(a, a), cuda::binary(o.op, on_gpu(a), on_gpu(a)));
    }
  }
  const Tensor x = tensor(std::vector<double>{0, -0.0, inf, -inf, std::nan(""), 1}, {6}).to(f32);
  for (const auto& o : operations)
    check_equal(o.reference(x.unsqueeze(1), x),
                cuda::binary(o.op, x.to(gpu).unsqueeze(1), x.to(gpu)));
}

TEST_CASE("more elements than the grid has threads", "[cuda][large]") {
  NEEDS_GPU();
  for (const Tensor& a : {noise({4200003}, 150), noise({1100, 1000}, 151).transpose(0, 1)})
    check_equal(a + a, cuda::binary(cuda::Binary::add, on_gpu(a), on_gpu(a)));
}

TEST_CASE("add_scalar, mul_scalar and add_scaled", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{13}, Shape{70001}, Shape{19, 23}}) {
      CAPTURE(name(t), str(shape));
      const Tensor x = noise(shape, 200, t);
      check_equal(add(x, 0.3), cuda::add_scalar(x.to(gpu), 0.3));
      check_equal(mul(x, -1.7), cuda::mul_scalar(x.to(gpu), -1.7));
    }
    const Tensor to = noise({19, 23}, 201, t), from = noise({23}, 202, t);
    const Tensor a = to.clone(), b = to.to(gpu);
    const uint32_t version = b.storage().version;
    a.transpose(0, 1).add_(from.unsqueeze(1), 0.37);
    cuda::add_scaled(b.transpose(0, 1), from.to(gpu).unsqueeze(1), 0.37);
    CHECK(b.storage().version == version);  // the op's business
    // The GPU fuses multiply and add: one rounding less than the CPU, in f32 (f64); then, for
    // bf16, either result may be rounded across a boundary.
    const auto va = abs(to).to_vector<double>(), vf = abs(from).to_vector<double>();
    check_close(a, b, [&](size_t i) {
      const double size = va[i] + 0.37 * vf[i % 23];
      return size * 2 * unit(t);
    });
  }
}

// ---- sums ----

namespace {

void compare_sum(const Tensor& x, const Shape& dims) {
  CAPTURE(str(x), str(x.strides()), str(dims));
  auto reference = [&](const Tensor& v) { return dims.empty() ? v : sum(v, dims, true); };
  const Tensor exact = reference(x.to(f64)), size = reference(abs(x.to(f64)));
  const cuda::SumPlan plan = cuda::plan_sum(x.shape(), x.strides(), dims);
  const double depth = double(plan.chunk) / 8 + 16 + double(plan.splits);
  const double u = unit(x.dtype() == f64 ? f64 : f32);
  const auto v = exact.to_vector<double>(), s = size.to_vector<double>();
  const Tensor y = cuda::sum(on_gpu(x), dims, true);
  CHECK(y.dtype() == x.dtype());
  auto allowed = [&](size_t i) {
    // A f64 sum on the CPU errs too.
    return s[i] * u * (x.dtype() == f64 ? depth + double(plan.count) : depth) +
           (x.dtype() == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
  };
  check_close(exact, y, allowed);
  const Tensor again = cuda::sum(on_gpu(x), dims, true);
  CHECK(same_values(y, again));
  Shape dropped;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) dropped.push_back(x.size(d));
  CHECK(cuda::sum(on_gpu(x), dims, false).shape() == dropped);
}

}  // namespace

TEST_CASE("sums", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 300;
  for (const DType t : floating) {
    compare_sum(noise({1}, ++stream, t), {0});
    compare_sum(noise({31}, ++stream, t), {0});
    compare_sum(noise({1000}, ++stream, t), {0});
    compare_sum(noise({100003}, ++stream, t), {0});    // rows in chunks
    compare_sum(noise({300, 129}, ++stream, t), {1});  // a warp per row
    compare_sum(noise({40, 3001}, ++stream, t), {1});  // a block per row
    compare_sum(noise({3001, 40}, ++stream, t), {0});  // columns in chunks
    compare_sum(noise({50, 4000}, ++stream, t), {0});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {1, 3});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {0, 2});
    compare_sum(noise({5, 7, 9, 11}, ++stream, t), {0, 1, 2, 3});
    compare_sum(noise({5, 7}, ++stream, t), {});
  }
  const Tensor x = noise({40, 50, 60}, ++stream);
  compare_sum(x.transpose(0, 2), {0});
  compare_sum(x.transpose(0, 2), {2});
  compare_sum(x.transpose(0, 1).slice(2, 1, 60, 3), {0, 2});
  compare_sum(x.select(0, 1).expand({33, 50, 60}), {0});
  for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0}}) {
    const Tensor none = zeros(shape);
    for (int64_t d = 0; d < shape.dim(); ++d)
      check_equal(sum(none, {d}), cuda::sum(none.to(gpu), {d}, false));
  }
  check_equal(tensor(std::vector<double>{inf}, {1}).to(f32),
              cuda::sum(tensor(std::vector<double>{1, inf}, {2}).to(f32).to(gpu), {0}, true));
}

TEST_CASE("large sums", "[cuda][large]") {
  NEEDS_GPU();
  uint64_t stream = 350;
  compare_sum(noise({65537, 3}, ++stream), {1});
  compare_sum(noise({65537, 3}, ++stream), {0});
  compare_sum(noise({65537, 33}, ++stream), {1});
  compare_sum(noise({4100, 1030}, ++stream), {1});
  compare_sum(noise({2, 140000}, ++stream), {0});  // more tiles of columns than blocks
}

// ---- matrix products ----

TEST_CASE("matrix products", "[cuda]") {
  NEEDS_GPU();
  struct Sizes {
    Shape batch;
    int64_t m, k, n;
    bool shared;
  };
  const Sizes all[] = {
      {{}, 1, 1, 1, false},      {{}, 3, 5, 7, false},      {{}, 64, 33, 17, false},
      {{}, 129, 257, 65, false}, {{4}, 5, 6, 7, false},     {{2, 3}, 9, 1, 4, false},
      {{4}, 5, 6, 7, true},      {{2, 3}, 9, 8, 4, true},   {{}, 0, 3, 2, false},
      {{}, 3, 0, 2, false},      {{}, 3, 2, 0, false},      {{0}, 3, 2, 4, false},
      {{3}, 4, 0, 5, true},      {{70000}, 2, 3, 2, false}, {{}, 1, 300, 1, false}};
  uint64_t stream = 400;
  for (const Sizes& s : all) {
    for (const DType t : floating) {
      auto shape = [](const Shape& batch, int64_t rows, int64_t columns) {
        Shape result = batch;
        result.push_back(rows);
        result.push_back(columns);
        return result;
      };
      const Tensor a = noise(shape(s.batch, s.m, s.k), ++stream, t);
      const Tensor b = noise(shape(s.shared ? Shape{} : s.batch, s.k, s.n), ++stream, t);
      const Tensor exact = matmul(a.to(f64), b.to(f64));
      const Tensor size = matmul(abs(a.to(f64)), abs(b.to(f64)));
      const auto v = exact.to_vector<double>(), sz = size.to_vector<double>();
      for (const bool ta : {false, true}) {
        for (const bool tb : {false, true}) {
          CAPTURE(str(a), str(b), ta, tb);
          const Tensor ga = (ta ? a.transpose(-1, -2).contiguous() : a).to(gpu);
          const Tensor gb = (tb ? b.transpose(-1, -2).contiguous() : b).to(gpu);
          const Tensor y = cuda::matmul(ga, gb, ta, tb);
          CHECK(y.dtype() == t);
          const double k = double(s.k + 1);
          check_close(exact, y, [&](size_t i) {
            return sz[i] * k * (t == f64 ? 2 * unit(f64) : unit(f32)) +
                   (t == bf16 ? std::abs(v[i]) * 1.01 * unit(bf16) : 0);
          });
          CHECK(same_values(y, cuda::matmul(ga, gb, ta, tb)));
        }
      }
    }
  }
  // Not TF32: 1 + 2^-12 would be rounded to 1.
  const Tensor a = full({16, 16}, 1 + std::ldexp(1.0, -12));
  const Tensor i = eye(16);
  check_equal(a, cuda::matmul(a.to(gpu), i.to(gpu), false, false));
}

// ---- softmax ----

namespace {

void compare_softmax(const Shape& shape, DType t, uint64_t stream) {
  CAPTURE(str(shape), name(t));
  const Tensor x = mul(noise(shape, stream++), 3).to(t);
  const Tensor exact = softmax(x.to(f64));
  const auto v = exact.to_vector<double>();
  const double width = double(shape.back());
  // x − max, exp and the division err by about |x − max| + 3 units (|x| < 20), the sum by its
  // depth.
  const double relative = (40 + 4 + width / 32 + 8) * unit(t == f64 ? f64 : f32) +
                          (t == f64 ? 40 * unit(f64) : 0) + (t == bf16 ? 1.01 * unit(bf16) : 0);
  const Tensor y = cuda::softmax(x.to(gpu));
  check_close(exact, y, [&](size_t i) { return v[i] * relative + 1e-38; });

  const Tensor p = exact.to(t), g = noise(shape, stream++, t);
  const Tensor p64 = p.to(f64), g64 = g.to(f64);
  const Tensor dot = sum(p64 * g64, {-1}, true), dot_size = sum(p64 * abs(g64), {-1}, true);
  const Tensor expected = p64 * (g64 - dot);
  const auto size = (p64 * (abs(g64) + dot_size)).to_vector<double>();
  check_close(expected, cuda::softmax_backward(p.to(gpu), g.to(gpu)), [&](size_t i) {
    return size[i] * ((width / 32 + 12) * 2 * unit(t == f64 ? f64 : f32) +
                      (t == bf16 ? 1.01 * unit(bf16) : 0)) +
           1e-38;
  });
}

}  // namespace

TEST_CASE("softmax and its gradient", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 500;
  for (const Shape& shape :
       {Shape{1}, Shape{0, 4}, Shape{4, 0}, Shape{3, 5}, Shape{17, 31}, Shape{5, 32},
        Shape{2, 3, 33}, Shape{9, 1024}, Shape{9, 1025}, Shape{3, 5000}})
    for (const DType t : floating) compare_softmax(shape, t, stream += 2);
}

TEST_CASE("large softmax", "[cuda][large]") {
  NEEDS_GPU();
  compare_softmax({65537, 3}, f32, 550);
  compare_softmax({4100, 1030}, f32, 552);
}

TEST_CASE("softmax of extremes", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t width : {4, 2000}) {
    for (const DType t : floating) {
      Tensor x = zeros({7, width}, {.dtype = t});
      x[0].fill_(-inf);              // nothing to attend to: zeros
      x[1].slice(0, 1).fill_(-inf);  // one key
      x[2].fill_(3e38);              // no overflow
      x[3].slice(0, 0, 1).fill_(std::nan(""));
      x[4].fill_(-inf);
      x[4].slice(0, 1, 2).fill_(std::nan(""));  // NaN among −inf stays NaN
      x[5].slice(0, 0, 1).fill_(inf);
      x[6].fill_(-3e38);
      CAPTURE(width, name(t));
      const Tensor expected = softmax(x);
      const auto y = cuda::softmax(x.to(gpu)).to_vector<double>();
      const auto e = expected.to_vector<double>();
      for (int64_t r = 0; r < 7; ++r) {
        CAPTURE(r);
        for (int64_t c : {int64_t(0), int64_t(1), width - 1}) {
          const size_t at = size_t(r * width + c);
          CHECK(std::isnan(y[at]) == std::isnan(e[at]));
          if (!std::isnan(e[at])) CHECK(y[at] == Approx(e[at]).epsilon(2 * unit(t)));
        }
      }
      CHECK(y[0] == 0);
      CHECK(y[size_t(width)] == 1);
      CHECK(std::isnan(y[size_t(4 * width)]));
    }
  }
}

// ---- skew ----

TEST_CASE("skew and unskew move the same bits as on the CPU", "[cuda]") {
  NEEDS_GPU();
  struct Sizes {
    Shape shape;
    int64_t width;
  };
  uint64_t stream = 600;
  for (const Sizes& s : std::vector<Sizes>{{{4, 4}, 4},
                                           {{1, 1}, 1},
                                           {{3, 7}, 5},
                                           {{5, 3}, 9},
                                           {{2, 3, 6, 11}, 6},
                                           {{2, 5, 40}, 33},
                                           {{0, 4}, 3},
                                           {{3, 0}, 4},
                                           {{3, 4}, 0},
                                           {{0, 2, 3}, 4},
                                           {{65537, 1, 3}, 2},
                                           {{3, 257, 513}, 257}}) {
    for (const DType t : floating) {
      CAPTURE(str(s.shape), s.width, name(t));
      const Tensor x = noise(s.shape, ++stream, t);
      check_equal(skew(x, s.width), cuda::skew(x.to(gpu), s.width));
      check_equal(unskew(x, s.width), cuda::unskew(x.to(gpu), s.width));
    }
  }
}

// ---- through the tape ----

TEST_CASE("gradients on the GPU are the CPU's", "[cuda]") {
  NEEDS_GPU();
  // In f64, where a few hundred roundings stay below 1e-12 for values of order 1 to 100.
  using Function = Tensor (*)(const Tensors&);
  struct Case {
    const char* name;
    std::vector<Shape> inputs;
    Function f;
  };
  const Case cases[] = {
      {"add", {{3, 1, 5}, {4, 1}}, [](const Tensors& x) { return x[0] + x[1]; }},
      {"sub", {{3, 5}, {5}}, [](const Tensors& x) { return x[0] - x[1]; }},
      {"mul", {{3, 5}, {3, 1}}, [](const Tensors& x) { return x[0] * x[1] * 1.5 + 2.0; }},
      {"div", {{3, 5}, {3, 5}}, [](const Tensors& x) { return x[0] / (x[1] * x[1] + 1.0); }},
      {"sum", {{3, 5, 4}}, [](const Tensors& x) { return sum(x[0] * x[0], {1}); }},
      {"mean",
       {{3, 5, 4}},
       [](const Tensors& x) {
         return mean(x[0] * x[0], {0, 2});
       }},
      {"matmul", {{2, 3, 5}, {2, 5, 4}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
      {"matmul, shared", {{2, 3, 5}, {5, 4}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
      {"matmul, transposed",
       {{2, 5, 3}, {2, 4, 5}},
       [](const Tensors& x) { return matmul(x[0].transpose(1, 2), x[1].transpose(1, 2)); }},
      {"softmax", {{3, 5, 7}}, [](const Tensors& x) { return softmax(x[0]); }},
      {"softmax, dim 1", {{3, 5, 7}}, [](const Tensors& x) { return softmax(x[0], 1); }},
      {"skew", {{2, 5, 9}}, [](const Tensors& x) { return skew(x[0], 5); }},
      {"unskew", {{2, 5, 5}}, [](const Tensors& x) { return unskew(x[0], 9); }},
      {"relative attention",
       {{2, 6, 4}, {2, 6, 4}, {2, 6, 4}, {11, 4}},
       [](const Tensors& x) {
         const Tensor content = matmul(x[0], x[1].transpose(1, 2));
         const Tensor position = skew(matmul(x[0], x[3].transpose(0, 1)), 6);
         return matmul(softmax((content + position) * 0.5), x[2]);
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Tensors host, device;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      host.push_back(noise(c.inputs[i], 700 + i, f64).set_requires_grad());
      device.push_back(host.back().detach().to(gpu).set_requires_grad());
    }
    const Tensor y = c.f(host), z = c.f(device);
    const Tensor weights = noise(y.shape(), 800, f64);
    check_close(y, z, [](size_t) { return 1e-12; });
    y.backward(weights, {.retain_graph = true});
    z.backward(weights.to(gpu), {.retain_graph = true});
    for (size_t i = 0; i < host.size(); ++i)
      check_close(host[i].grad(), device[i].grad(), [](size_t) { return 1e-12; });
    // Again, and the same bits.
    const Tensors once = grad({z}, device, {weights.to(gpu)}, {.retain_graph = true});
    const Tensors twice = grad({z}, device, {weights.to(gpu)});
    for (size_t i = 0; i < device.size(); ++i) CHECK(same_values(once[i], twice[i]));
  }
}

// ---- memory and errors ----

TEST_CASE("GPU memory is back where it was", "[cuda]") {
  NEEDS_GPU();
  const int64_t before = memory_stats(gpu).live;
  {
    Tensor w = noise({64, 64}, 900).to(gpu).set_requires_grad();
    for (int step = 0; step < 3; ++step) {
      const Tensor y = sum(softmax(matmul(noise({32, 64}, 901).to(gpu), w)));
      y.backward();
      NoGrad guard;
      w.add_(w.grad(), -0.1);
      w.set_grad({});
    }
    CHECK(memory_stats(gpu).live > before);
  }
  CHECK(memory_stats(gpu).live == before);
  release_cached_memory(gpu);
  CHECK(memory_stats(gpu).cached == 0);
}

TEST_CASE("errors on the GPU name what was asked and leave it usable", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({3, 4}, 910), y = x.to(gpu);
  REQUIRE_THROWS_WITH(empty({1}, {.device = "cuda:15"}),
                      Containing("[empty] device cuda:15 cannot be used: " + cuda_description()));
  REQUIRE_THROWS_AS(empty({int64_t(1) << 48}, {.device = gpu}), OutOfMemory);
  REQUIRE_THROWS_WITH(empty({int64_t(1) << 48}, {.device = gpu}),
                      Containing("out of memory on cuda:0"));
  REQUIRE_THROWS_AS(cuda::synchronize(63), Error);
  REQUIRE_THROWS_WITH(cuda::synchronize(63), Containing("[cuda] cudaSetDevice"));
  REQUIRE_THROWS_AS(cuda::fill_uniform(empty({2}, {.dtype = i64, .device = gpu}), {}), Error);
  REQUIRE_THROWS_WITH(add(x, y), Containing("different devices"));
  // The same words on both devices.
  auto message = [](auto f) {
    try {
      f();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string host = message([&] { matmul(x, x); }), device = message([&] { matmul(y, y); });
  for (size_t at; (at = device.find(" on cuda:0")) != std::string::npos;) device.erase(at, 10);
  CHECK(host == device);
  CHECK(host.find("[matmul] ") == 0);
  check_equal(x + x, y + y);
}
