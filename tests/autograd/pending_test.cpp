// Closures that add their gradient to that of other ops [autograd/tape.h, Backward::take_pending].
#include <cmath>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

using List = std::vector<double>;
List list(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace

// The gradient of a residual branch reaches x before norm's backward closure runs, which adds it to
// its own (Backward::take_pending).
TEST_CASE("a norm adds its gradient to that of the residual branch", "[autograd]") {
  const auto noise = [](uint64_t stream, DType t) {
    return testing::fixed_noise({70, 33}, stream, t);
  };
  for (const DType t : {f32, f64, bf16}) {
    CAPTURE(name(t));
    const Tensor w = testing::fixed_noise({33}, 1, t);
    const auto branch = [&](const Tensor& x) { return layer_norm(x, w); };
    const Tensor values = noise(2, t), g = noise(3, t);
    const auto alone = [&](DType type) {
      const Tensor x = values.detach().to(type).detach().set_requires_grad();
      const Tensor y = layer_norm(x, w.to(type));
      return grad({y}, {x}, {g.to(type)})[0];
    };
    for (const Tensor& residual : {noise(4, t), noise(5, t).slice(0, 0, 1).expand({70, 33}),
                                   testing::fixed_noise({33, 70}, 6, t).transpose(0, 1)}) {
      const Tensor leaf = values.detach().set_requires_grad(), x = leaf * 1.0;
      Tensor seen;
      x.register_hook([&](const Tensor& total) { seen = total; });
      const Tensor y = branch(x), z = x * 1.0;  // z's closure runs first
      const Tensors got = grad({y, z}, {leaf, x}, {g, residual}, {.retain_graph = true});
      CHECK(testing::same_bits(got[0], got[1]));
      CHECK(testing::same_bits(got[0], seen));
      if (t != bf16) CHECK(testing::same_bits(got[0], alone(t) + residual));
      const Tensor exact = alone(f64) + residual.to(f64);
      const double allowed = t == f64 ? 1e-12 : t == f32 ? 1e-5 : 0x1p-8;  // bf16: one rounding
      CHECK(max(abs(got[0].to(f64) - exact)).item() < max(abs(exact)).item() * allowed);
      const Tensors recorded = grad({y, z}, {leaf}, {g, residual}, {.create_graph = true});
      CHECK(max(abs(recorded[0].to(f64) - exact)).item() < max(abs(exact)).item() * 0x1p-6);
    }
  }
}

TEST_CASE("an op that overwrites takes only a gradient that nobody else holds", "[autograd]") {
  for (const bool shared : {false, true}) {
    const Tensor leaf = testing::fixed_noise({5}, 1, f32).set_requires_grad(), x = leaf * 1.0;
    bool taken = false;
    const Tensor first = record("take", {x}, x.detach().clone(), [&](Backward& b) {
      const Tensor pending = b.take_pending(0, true);
      taken = pending.defined();
      return Tensors{taken ? Tensor(pending).add_(b.grad()) : b.grad()};
    });
    Tensor held;
    const Tensor second = record("hold", {x}, x.detach().clone(), [&](Backward& b) {
      Tensor g = b.grad().clone();
      if (shared) held = g;
      return Tensors{std::move(g)};
    });
    backward({first, second}, Tensors(2, ones({5})));
    CHECK(taken != shared);
    CHECK(list(leaf.grad()) == List(5, 2));
    if (shared) CHECK(list(held) == List(5, 1));
  }
}

TEST_CASE("a sum in bf16 is continued in f32 after three partial sums", "[autograd]") {
  const Tensor leaf = ones({3}, {.dtype = bf16}).set_requires_grad(), x = leaf * 1.0;
  constexpr int uses = 600;  // a sum in bf16 would stop at 256
  Tensors outputs;
  int taken = 0;
  for (int i = 0; i < uses; ++i)
    outputs.push_back(record("take", {x}, x.detach().clone(), [&](Backward& b) {
      const Tensor pending = b.take_pending(0);
      taken += pending.defined();
      return Tensors{pending.defined() ? pending + b.grad() : b.grad()};
    }));
  backward(outputs, Tensors(uses, ones({3}, {.dtype = bf16})));
  CHECK(taken == 3);
  CHECK(list(leaf.grad()) == List(3, uses));
}

TEST_CASE("an op takes only a single gradient of the dtype of its input", "[autograd]") {
  for (const DType t : {f32, bf16})
    for (const int uses : {0, 1, 2, 3}) {
      CAPTURE(name(t), uses);
      const Tensor leaf = testing::fixed_noise({5}, 1, t).set_requires_grad(), x = leaf * 1.0;
      bool taken = false;
      const Tensor first = record("take", {x}, x.detach().clone(), [&](Backward& b) {
        const Tensor pending = b.take_pending(0);
        taken = pending.defined();
        return Tensors{taken ? pending + b.grad() : b.grad()};
      });
      Tensors outputs{first};
      for (int i = 0; i < uses; ++i) outputs.push_back(x * 1.0);
      const Tensors ones_of(outputs.size(), ones({5}, {.dtype = t}));
      backward(outputs, ones_of);
      CHECK(taken == (uses == 1 || (uses > 1 && t == f32)));  // in bf16 several are not yet added
      CHECK(list(leaf.grad()) == List(5, uses + 1));
    }
  const Tensor x = tensor<double>({1, 2}).set_requires_grad();
  sum(record("take", {x}, x.detach().clone(),
             [](Backward& b) {
               CHECK(!b.take_pending(0).defined());  // a leaf
               return Tensors{b.grad()};
             }) +
      x)
      .backward();
  CHECK(list(x.grad()) == List{2, 2});
}

TEST_CASE("anomaly detection does not blame an op for a gradient from another one", "[autograd]") {
  const Tensor leaf = testing::fixed_noise({2, 4}, 1, f32).set_requires_grad(), x = leaf * 1.0;
  const Tensor y = layer_norm(x), z = x * 1.0;
  set_anomaly_detection(true);
  CHECK_NOTHROW(backward({y, z}, {ones({2, 4}), full({2, 4}, INFINITY)}));
  set_anomaly_detection(false);
  CHECK(leaf.grad().to_vector<double>()[0] == INFINITY);
}

}  // namespace stretto
