// Copies, conversions and elementwise kernels: CPU against CUDA.
#include <vector>

#include "cuda/kernels.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "tests/cuda/gpu.h"

using namespace stretto;
using namespace stretto::testing;

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

TEST_CASE("conversions on the GPU are those on the CPU", "[cuda]") {
  NEEDS_GPU();
  const DType all[] = {f32, f64, bf16, i64, i32, u8, boolean};
  const Tensor values =
      tensor(std::vector<double>{0, 1, 2.5, 3.99, 100.25, 0.1, 77.7, 1.0 / 3}, {8});
  const Tensor large =
      tensor(std::vector<int64_t>{16777217, -16777219, int64_t(1) << 53, 257}, {4});
  const Tensor special = tensor(std::vector<double>{inf, -inf, std::nan(""), -0.0, 1e-45, 1e39,
                                                    3.39e38, 1.00390625, 300.5, -1.5, -3e9, -1e30},
                                {12});
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

TEST_CASE("add_scalar, mul_scalar, div_scalar and add_scaled", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{13}, Shape{70001}, Shape{19, 23}}) {
      CAPTURE(name(t), str(shape));
      const Tensor x = noise(shape, 200, t);
      check_equal(add(x, 0.3), cuda::add_scalar(x.to(gpu), 0.3));
      check_equal(mul(x, -1.7), cuda::mul_scalar(x.to(gpu), -1.7));
      check_equal(div(x, 3), cuda::div_scalar(x.to(gpu), 3));
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
