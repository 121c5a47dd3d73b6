// Copies, conversions and elementwise kernels: CPU against CUDA.
#include <vector>

#include "autograd/accumulate.h"
#include "cuda/elementwise.h"
#include "cuda/runtime/copy.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

// ---- copies and elementwise ----

TEST_CASE("copies to the GPU and back are bit-identical", "[cuda]") {
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

TEST_CASE("conversions of every dtype to bf16 round once on the GPU", "[cuda]") {
  NEEDS_GPU();
  std::vector<double> middles;
  for (int i = 0; i < 256; ++i)
    for (const double beside : {-1e-10, 0.0, 1e-10})
      middles.push_back((i % 2 ? -1 : 1) * (1 + (i + 0.5) / 128) * (1 + beside));
  for (const double x :
       {5e-324, 0x1p-134, 0x1p-134 + 0x1p-160, 0x1.FEFFFFFFFp127, 0x1.FFp127, 1e300})
    middles.push_back(x);
  const Tensor x = tensor(middles, {int64_t(middles.size())});
  check_equal(x.to(bf16), x.to(gpu).to(bf16));
  const Tensor whole =
      tensor<int64_t>({257, (int64_t(257) << 30) + 1, (int64_t(257) << 30) - 1,
                       -(int64_t(257) << 30) - 1, (int64_t(257) << 54) + 1, INT64_MAX, INT64_MIN});
  check_equal(whole.to(bf16), whole.to(gpu).to(bf16));
  const Tensor narrow = tensor<int32_t>({(257 << 22) + 1, (257 << 22) - 1, -(257 << 22) - 1});
  check_equal(narrow.to(bf16), narrow.to(gpu).to(bf16));
}

TEST_CASE("transposed copies are correct for full and partial tiles", "[cuda]") {
  NEEDS_GPU();
  struct Order {
    Shape sizes, dims;
  };
  uint64_t stream = 50;
  for (const Order& o : std::vector<Order>{{{64, 64}, {1, 0}},
                                           {{33, 97}, {1, 0}},
                                           {{129, 65}, {1, 0}},
                                           {{7, 40}, {1, 0}},  // too narrow for tiles of 4 bytes
                                           {{3, 70, 5, 66}, {0, 3, 2, 1}},
                                           {{40, 3, 2, 50}, {3, 2, 1, 0}},
                                           {{2, 35, 3, 33}, {0, 2, 3, 1}}}) {
    for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
      CAPTURE(str(o.sizes), str(o.dims), name(t));
      const Tensor x = mul(noise(o.sizes, ++stream), 20).to(i32).to(t);
      const Tensor y = on_gpu(x);
      check_equal(x.permute(o.dims).clone(), y.permute(o.dims).clone());
      for (const DType to : {f32, bf16, i64, u8})
        check_equal(x.permute(o.dims).to(to).clone(), y.permute(o.dims).to(to).clone());
      // Copies into a transposed view, and adds a transposed operand.
      const Tensor into = zeros(o.sizes, {.dtype = t, .device = gpu}).permute(o.dims);
      into.copy_(y.permute(o.dims).clone());
      check_equal(x.permute(o.dims).clone(), into);
      if (t == boolean || t == u8 || t == i32) continue;
      const Tensor straight = x.permute(o.dims).clone();
      check_equal(x.permute(o.dims) + straight, y.permute(o.dims) + straight.to(gpu));
    }
  }
}

TEST_CASE("conversions are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const DType all[] = {f32, f64, bf16, i64, i32, u8, boolean};
  const Tensor values =
      tensor(std::vector<double>{0, 1, 2.5, 3.99, 100.25, 0.1, 77.7, 1.0 / 3}, {8});
  const Tensor large =
      tensor(std::vector<int64_t>{16777217, -16777219, int64_t(1) << 53, 257}, {4});
  const Tensor special = tensor(
      std::vector<double>{inf, -inf, std::nan(""), -0.0, 1e-45, 1e39, 3.39e38, 1.00390625, 300.5,
                          -1.5, -3e9, -1e30, 255, 256, 0x1p31, -0x1p31, 0x1p63, -0x1p63},
      {18});
  for (const DType from : all) {
    for (const DType to : all) {
      CAPTURE(name(from), name(to));
      const Tensor x = values.to(from);
      check_equal(x.to(to), x.to(gpu).to(to));
      const Tensor strided = x.reshape({2, 4}).transpose(0, 1);
      check_equal(strided.to(to), on_gpu(strided).to(to));
      if (is_floating(from)) {
        const Tensor s = special.to(from);
        check_equal(s.to(to), s.to(gpu).to(to));
      }
    }
  }
  for (const DType to : {f32, f64, bf16, i64}) check_equal(large.to(to), large.to(gpu).to(to));
  const Tensor many = noise({70001}, 3);  // kernels with vector loads, with a tail
  check_equal(many.to(bf16), many.to(gpu).to(bf16));
  check_equal(many.to(bf16).to(f32), many.to(bf16).to(gpu).to(f32));
  check_equal(many.slice(0, 1).to(bf16), many.to(gpu).slice(0, 1).to(bf16));  // not aligned
}

TEST_CASE("fill sets all elements of a tensor or view on the GPU", "[cuda]") {
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

TEST_CASE("binary operations are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  using Function = Tensor (*)(const Tensor&, const Tensor&);
  const Function operations[] = {add, sub, mul, div, maximum, minimum, eq, ne, lt, le, gt, ge};
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
                                                       {{4, 8, 16}, {16}},    // rows that repeat
                                                       {{4, 8, 16}, {8, 1}},  // columns
                                                       {{4, 8, 16}, {4, 1, 16}},
                                                       {{3, 1, 48}, {5, 48}},
                                                       {{65536, 3}, {1, 3}}};
  uint64_t stream = 100;
  for (const auto& [sa, sb] : shapes) {
    for (const DType t : floating) {
      const Tensor a = noise(sa, ++stream, t), b = noise(sb, ++stream, t);
      for (const Function& f : operations) {
        CAPTURE(str(sa), str(sb), name(t), &f - operations);
        check_equal(f(a, b), f(a.to(gpu), b.to(gpu)));
      }
    }
  }
  // Views with all kinds of strides: transposed, with steps and gaps, unaligned, aligned rows.
  const Tensor base = noise({24, 36}, ++stream);
  for (const Tensor& a :
       {base.transpose(0, 1), base.slice(1, 1, 36, 2).transpose(0, 1),
        base.select(1, 3).unsqueeze(1).expand({24, 24}), base.flatten().slice(0, 1, 577),
        base.slice(1, 4, 36), base.slice(1, 2, 34)}) {
    const Tensor b = noise(a.shape(), ++stream);
    for (const Function& f : operations) {
      check_equal(f(a, b), f(on_gpu(a), b.to(gpu)));
      check_equal(f(b, a), f(b.to(gpu), on_gpu(a)));
      check_equal(f(a, a), f(on_gpu(a), on_gpu(a)));
    }
  }
  const Tensor x = tensor(std::vector<double>{0, -0.0, inf, -inf, std::nan(""), 1}, {6}).to(f32);
  for (const Function& f : operations)
    check_equal(f(x.unsqueeze(1), x), f(x.to(gpu).unsqueeze(1), x.to(gpu)));
}

TEST_CASE("operations on integers and masks agree on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  using Function = Tensor (*)(const Tensor&, const Tensor&);
  const Function operations[] = {add, sub, mul, div, maximum, minimum, eq, ne, lt, le, gt, ge};
  const Tensor whole = tensor<int64_t>({0, 1, -1, 7, 255, 256, INT32_MAX, INT64_MIN, INT64_MAX});
  for (const DType s : {i64, i32, u8, boolean, f32}) {
    for (const DType t : {i64, i32, u8, boolean}) {
      const Tensor a = whole.to(s), b = flip(whole, 0).unsqueeze(1).to(t);
      for (const Function& f : operations) {
        CAPTURE(name(s), name(t), &f - operations);
        check_equal(f(a, b), f(a.to(gpu), b.to(gpu)));
      }
    }
    const Tensor a = whole.to(s), there = a.to(gpu);
    check_equal(abs(a), abs(there));
    check_equal(heaviside(a), heaviside(there));
    check_equal(sign(a), sign(there));
    if (!is_floating(s)) check_equal(sum(a), sum(there));
    for (const double c : {0.0, 3.0, -300.0, 2.5, 1e30}) {
      CAPTURE(name(s), c);
      check_equal(a + c, there + c);
      check_equal(a * c, there * c);
      check_equal(a / c, there / c);
      check_equal(eq(a, c), eq(there, c));
      check_equal(lt(a, c), lt(there, c));
    }
  }
  const Tensor a = tensor<bool>({false, false, true, true}), b = tensor<bool>({false, true});
  for (const DType t : {boolean, u8}) {
    const Tensor u = a.to(t).unsqueeze(1), v = b.to(t);
    check_equal(logical_and(u, v), logical_and(u.to(gpu), v.to(gpu)));
    check_equal(logical_or(u, v), logical_or(u.to(gpu), v.to(gpu)));
    check_equal(logical_not(u), logical_not(u.to(gpu)));
    for (const DType values : {f32, f64, bf16, i64, i32, u8, boolean}) {
      const Tensor x = whole.slice(0, 0, 8).view({4, 2}).to(values),
                   y = whole.slice(0, 7).to(values);
      check_equal(where(u, x, y), where(u.to(gpu), x.to(gpu), y.to(gpu)));
      check_equal(
          where(u.transpose(0, 1), x.transpose(0, 1), y.unsqueeze(1)),
          where(on_gpu(u).transpose(0, 1), on_gpu(x).transpose(0, 1), on_gpu(y).unsqueeze(1)));
      check_equal(masked_fill(x, u, 1), masked_fill(x.to(gpu), u.to(gpu), 1));
    }
  }
  REQUIRE_THROWS_WITH(where(a, whole.slice(0, 0, 4).to(gpu), whole.slice(0, 0, 4).to(gpu)),
                      Containing("[where] the tensors are on different devices"));
}

TEST_CASE("elementwise kernels are correct for more elements than the grid has threads",
          "[cuda][large]") {
  NEEDS_GPU();
  for (const Tensor& a : {noise({4200003}, 150), noise({1100, 1000}, 151).transpose(0, 1)})
    check_equal(a + a, on_gpu(a) + on_gpu(a));
}

TEST_CASE("bf16 is converted while it is added to f32 on the GPU", "[cuda]") {
  NEEDS_GPU();
  for (const Shape& shape : {Shape{}, Shape{0}, Shape{13}, Shape{70001}, Shape{19, 23}}) {
    CAPTURE(str(shape));
    const Tensor a = noise(shape, 240, bf16), sum = noise(shape, 242);
    Tensors terms{a};
    while (terms.size() < most_bf16_terms) {
      terms.push_back(noise(shape, 243 + terms.size(), bf16));
      Tensors there;
      for (const Tensor& x : terms) there.push_back(x.to(gpu));
      for (const DType t : {f32, bf16}) check_equal(add_bf16(terms, t), add_bf16(there, t));
    }
    check_equal(sum.clone().add_(a), sum.to(gpu).add_(a.to(gpu)));
  }
  const Tensor a = noise({19, 23}, 243, bf16), b = noise({23, 19}, 244, bf16).transpose(0, 1);
  check_equal(add_bf16({a, b}, f32), add_bf16({a.to(gpu), on_gpu(b)}, f32));
}

TEST_CASE("functions with a scalar, and add_scaled, agree on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{13}, Shape{70001}, Shape{19, 23}}) {
      CAPTURE(name(t), str(shape));
      const Tensor x = noise(shape, 200, t);
      check_equal(x + 0.3, x.to(gpu) + 0.3);
      check_equal(x * -1.7, x.to(gpu) * -1.7);
      check_equal(x / 3, x.to(gpu) / 3);
      check_equal(3 / x, 3 / x.to(gpu));
      check_equal(clamp(x, -0.3, 0.7), clamp(x.to(gpu), -0.3, 0.7));
      const Tensor whole = mul(x, 100).to(i64);
      for (const DType w : {i64, i32, u8})
        check_equal(clamp(whole.to(w), -3.5, 70), clamp(whole.to(gpu).to(w), -3.5, 70));
    }
    const Tensor to = noise({19, 23}, 201, t), from = noise({23}, 202, t);
    const Tensor a = to.clone(), b = to.to(gpu);
    const uint32_t version = b.storage().version;
    a.transpose(0, 1).add_(from.unsqueeze(1), 0.37);
    cuda::add_scaled(b.transpose(0, 1), from.to(gpu).unsqueeze(1), 0.37);
    CHECK(b.storage().version == version);  // the caller increments it
    // The GPU fuses multiply and add, one rounding less than the CPU, in f32 (f64); so in bf16 the
    // results may then round to different neighbors.
    const auto va = abs(to).to_vector<double>(), vf = abs(from).to_vector<double>();
    check_close(a, b, [&](size_t i) {
      const double size = va[i] + 0.37 * vf[i % 23];
      return size * 2 * unit(t);
    });
  }
}
