// Tensors created on the GPU and dropout: bit-identical to the CPU; activation functions.
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/activation.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("arange and linspace are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, f64, bf16, i64, i32, u8}) {
    CAPTURE(name(t));
    for (const int64_t n : {0, 1, 3, 200}) {
      check_equal(arange(n, {.dtype = t}), arange(n, {.dtype = t, .device = gpu}));
      check_equal(arange(3, 3 + 2 * double(n) / 4, 2, {.dtype = t}),
                  arange(3, 3 + 2 * double(n) / 4, 2, {.dtype = t, .device = gpu}));
      if (!is_floating(t)) continue;
      check_equal(arange(0.3, -17.1, -0.07, {.dtype = t}),
                  arange(0.3, -17.1, -0.07, {.dtype = t, .device = gpu}));
      check_equal(linspace(-0.1, 0.7, n, {.dtype = t}),
                  linspace(-0.1, 0.7, n, {.dtype = t, .device = gpu}));
    }
  }
  CHECK(arange(3, {.device = gpu, .requires_grad = false}).device() == gpu);
  CHECK(linspace(0, 1, 3, {.device = gpu, .requires_grad = true}).requires_grad());
}

TEST_CASE("randint is bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const RandomState before = random_state();
  for (const DType t : {f32, f64, bf16, i64, i32, u8, boolean}) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{7}, Shape{300, 5}}) {
      const auto draw = [&](Device device) {
        set_random_state(before);
        return randint(0, t == boolean ? 2 : 200, shape, {.dtype = t, .device = device});
      };
      check_equal(draw(cpu), draw(gpu));
    }
  }
  const auto wide = [&](Device device) {
    set_random_state(before);
    return randint(-5, (int64_t(1) << 32) - 5, {1001}, {.dtype = i64, .device = device});
  };
  check_equal(wide(cpu), wide(gpu));
  set_random_state(before);
}

TEST_CASE("tril and triu are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  for (const Shape& shape : {Shape{1, 1}, Shape{5, 7}, Shape{2, 70, 3}, Shape{0, 4}, Shape{4, 0}}) {
    for (const int64_t k : {int64_t(-3), int64_t(0), int64_t(2), INT64_MIN, INT64_MAX}) {
      for (const DType t : {f32, bf16, i64, boolean}) {
        CAPTURE(str(shape), k, name(t));
        const Tensor x = mul(noise(shape, 1), 20).to(i32).to(t);
        check_equal(tril(x, k), tril(x.to(gpu), k));
        check_equal(triu(x, k), triu(x.to(gpu), k));
      }
    }
  }
}

TEST_CASE("dropout drops the same elements on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{5, 9};
  for (const DType t : floating) {
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{9}, Shape{70003}, Shape{33, 5}}) {
      for (const double p : {0.1, 0.5, 1.0}) {
        CAPTURE(name(t), str(shape), p);
        const Tensor x = noise(shape, 2, t);
        check_equal(dropout(x, p, key), dropout(x.to(gpu), p, key));
        const Tensor y = noise(shape, 4, t);
        check_equal(dropout_add(x, y, p, key), dropout_add(x.to(gpu), y.to(gpu), p, key));
      }
    }
    const Tensor x = noise({40, 50}, 3, t);
    check_equal(dropout(x.transpose(0, 1), 0.3, key), dropout(on_gpu(x.transpose(0, 1)), 0.3, key));
    const Tensor flat = x.flatten().slice(0, 1);  // not aligned
    check_equal(dropout(flat, 0.3, key), dropout(on_gpu(flat), 0.3, key));
    const Tensor whole = x.flatten().slice(0, 0, flat.numel());
    check_equal(dropout_add(whole, flat, 0.3, key),
                dropout_add(on_gpu(whole), on_gpu(flat), 0.3, key));
  }
}

TEST_CASE("activation functions with gate and dropout agree on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{5, 10};
  const auto compare = [&](const Tensor& x, const Tensor& up, const Tensor& g, Activation f,
                           double p) {
    const auto results = [&](Device device) {
      const auto there = [&](const Tensor& t) { return device == cpu ? t.detach() : on_gpu(t); };
      Tensors in{there(x).set_requires_grad()};
      if (up.defined()) in.push_back(there(up).set_requires_grad());
      const Tensor y = activate_and_drop(in[0], up.defined() ? in[1] : Tensor(), f, p, key);
      Tensors all = grad({y}, in, {there(g)});
      all.push_back(y.detach());
      return all;
    };
    const Tensors expected = results(cpu), got = results(gpu);
    for (size_t i = 0; i < got.size(); ++i) {
      if (f == Activation::relu) {
        check_equal(expected[i], got[i]);
        continue;
      }
      // exp and erf differ by a few units; bf16 may be rounded to a neighbor, twice with dropout.
      const auto e = expected[i].to_vector<double>();
      const double fine = 32 * unit(x.dtype() == f64 ? f64 : f32),
                   coarse = x.dtype() == bf16 ? 4 * unit(bf16) : 0;
      check_close(expected[i], got[i],
                  [&](size_t k) { return fine * (1 + std::abs(e[k])) + coarse * std::abs(e[k]); });
    }
  };
  for (const DType t : floating)
    for (const Activation f :
         {Activation::relu, Activation::gelu, Activation::gelu_tanh, Activation::silu})
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{9}, Shape{33, 50}}) {
        CAPTURE(name(t), int(f), str(shape));
        const Tensor x = noise(shape, 5, t), up = noise(shape, 6, t), g = noise(shape, 7, t);
        compare(x, up, g, f, 0);
        for (const double p : {0.3, 1.0}) compare(x, up, g, f, p), compare(x, {}, g, f, p);
        if (shape.dim() < 2) continue;
        compare(x.transpose(0, 1), up.transpose(0, 1), g.transpose(0, 1), f, 0.3);
        const auto odd = [](const Tensor& y) { return y.flatten().slice(0, 1); };  // not aligned
        compare(odd(x), odd(up), odd(g), f, 0.3);
      }
}

TEST_CASE("random kernels are correct for more elements than the grid has threads",
          "[cuda][large]") {
  NEEDS_GPU();
  const RandomKey key{5, 10};
  const Tensor x = noise({4300001}, 4);
  check_equal(dropout(x, 0.3, key), dropout(x.to(gpu), 0.3, key));
  check_equal(rand(x.shape(), key), rand(x.shape(), key, {.device = gpu}));
}
