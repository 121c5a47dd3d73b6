// Activation checkpointing [autograd/tape.h].
#include "autograd/tape.h"
#include "core/random.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "tests/support/gradcheck.h"
#include "tests/support/op_check.h"

namespace stretto::testing {
namespace {

struct RestoreState {
  RandomState before = random_state();
  ~RestoreState() { set_random_state(before); }
};

void check_bits(const Tensor& a, const Tensor& b) {
  std::string difference;
  if (!same_bits(a, b, difference)) FAIL_CHECK(difference);
}

struct Model {
  Tensor w1 = fixed_noise({16, 8}, 1, f32).set_requires_grad();
  Tensor w2 = fixed_noise({8, 16}, 2, f32).set_requires_grad();
  Tensor gain = fixed_noise({8}, 3, f32).set_requires_grad();

  Tensor block(const Tensor& x) const {
    return x + dropout(linear(gelu(linear(layer_norm(x, gain), w1)), w2), 0.3);
  }
  Tensors parameters() const { return {w1, w2, gain}; }
};

}  // namespace

TEST_CASE("recompute() leaves results and gradients bit-identical", "[autograd]") {
  const RestoreState restore;
  Tensors results;
  std::vector<Tensors> gradients;
  for (bool saving : {false, true}) {
    manual_seed(11);
    const Model model;
    const Tensor x = fixed_noise({12, 8}, 4, f32).set_requires_grad();
    const auto f = [&](const Tensors& in) { return model.block(in[0]); };
    Tensor y = saving ? recompute(f, {x}) : f({x});
    y = dropout(y, 0.1);  // its random numbers are the same with and without recompute()
    sum(y * y).backward();
    results.push_back(y.detach());
    Tensors g = {x.grad()};
    for (const Tensor& p : model.parameters()) g.push_back(p.grad());
    gradients.push_back(g);
    CHECK(random_state().next_stream == 2);
  }
  check_bits(results[0], results[1]);
  for (size_t i = 0; i < gradients[0].size(); ++i) {
    INFO("gradient " << i);
    REQUIRE(gradients[1][i].defined());
    check_bits(gradients[0][i], gradients[1][i]);
  }
}

TEST_CASE("gradients of layers with norms are bit-identical under recompute()", "[autograd]") {
  for (const DType t : {bf16, f32, f64})
    for (const bool sandwich : {false, true})
      for (const bool create : {false, true}) {
        CAPTURE(name(t), sandwich, create);
        std::vector<Tensors> gradients;
        for (const int depth : {0, 1, 2}) {
          Tensors leaves = {fixed_noise({12, 8}, 4, t).set_requires_grad()};
          for (uint64_t i = 0; i < 2; ++i) {
            leaves.push_back(fixed_noise({16, 8}, 10 + i, t).set_requires_grad());
            leaves.push_back(fixed_noise({8, 16}, 20 + i, t).set_requires_grad());
            leaves.push_back(fixed_noise({8}, 30 + i, t).set_requires_grad());
          }
          Tensor x = leaves[0];
          for (size_t i = 1; i < leaves.size(); i += 3) {
            const auto branch = [=](const Tensors& in) {
              Tensor y =
                  linear(gelu(linear(layer_norm(in[0], leaves[i + 2]), leaves[i])), leaves[i + 1]);
              if (sandwich) y = rms_norm(y, leaves[i + 2]);
              return in[0] + y;
            };
            const auto nested = [=](const Tensors& in) { return recompute(branch, in); };
            x = depth == 0   ? branch({x})
                : depth == 1 ? recompute(branch, {x})
                             : recompute(nested, {x});
          }
          const Tensor y = layer_norm(x) + x;
          gradients.push_back(
              grad({sum(y * fixed_noise({12, 8}, 5, t))}, leaves, {}, {.create_graph = create}));
        }
        for (size_t i = 0; i < gradients[0].size(); ++i)
          for (const size_t depth : {1, 2}) {
            CAPTURE(i, depth);
            check_bits(gradients[0][i].detach(), gradients[depth][i].detach());
          }
      }
}

TEST_CASE("recompute() can follow one another and be nested", "[autograd]") {
  const RestoreState restore;
  std::vector<Tensor> gradients;
  for (int depth : {0, 1, 2}) {
    manual_seed(5);
    const Model model;
    const Tensor x = fixed_noise({4, 8}, 4, f32).set_requires_grad();
    const auto f = [&](const Tensors& in) { return model.block(in[0]); };
    const auto g = [&](const Tensors& in) {
      return depth == 2 ? recompute(f, {recompute(f, {in[0]})}) : f({f(in)});
    };
    sum(depth == 0 ? g({x}) : recompute(g, {x})).backward();
    gradients.push_back(x.grad());
  }
  check_bits(gradients[0], gradients[1]);
  check_bits(gradients[0], gradients[2]);
}

TEST_CASE("recompute() saves only its inputs", "[autograd]") {
  const RestoreState restore;
  const Tensor x = ones({1000}, {.requires_grad = true});
  const auto f = [](const Tensors& in) { return exp(exp(exp(in[0]))); };
  const int64_t live = memory_stats().live;
  {
    const Tensor y = f({x});
    CHECK(memory_stats().live - live == 3 * 4000);
  }
  {
    const Tensor y = recompute(f, {x});
    CHECK(memory_stats().live - live == 4000);
    sum(y).backward();
  }
  x.set_grad({});
  CHECK(memory_stats().live == live);
}

TEST_CASE("recompute() accepts inputs of all kinds", "[autograd]") {
  const Tensor a = tensor<float>({1, 2}).set_requires_grad(), b = tensor<float>({3, 4});
  const Tensor ids = tensor<int64_t>({5, 6});
  const auto f = [](const Tensors& in) { return in[0] * in[1] * in[2]; };
  sum(recompute(f, {a, b, ids})).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{15, 24});
  CHECK(!b.grad().defined());
  // The identity, and a view.
  a.set_grad({});
  sum(recompute([](const Tensors& in) { return in[0]; }, {a}) * b).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{3, 4});
  // The same tensor twice.
  a.set_grad({});
  sum(recompute([](const Tensors& in) { return in[0] * in[1]; }, {a, a})).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{2, 4});
  // Parameters used inside, and no input that requires a gradient.
  a.set_grad({});
  sum(recompute([&](const Tensors& in) { return in[0] * a; }, {b})).backward();
  CHECK(a.grad().to_vector<float>() == std::vector<float>{3, 4});
  const NoGrad off;
  CHECK(!recompute(f, {a, b, ids}).requires_grad());
}

TEST_CASE("recompute() can be differentiated twice", "[autograd]") {
  // Inputs that depend on each other, a parameter, and random numbers.
  const Tensor x = testing::fixed_leaf({3}, 1), w = testing::fixed_leaf({3}, 2);
  const RandomState state = random_state();
  const auto f = [&](const Tensors& in) {
    return exp(in[0] * w) * in[1] * rand({3}, {.dtype = f64});
  };
  const auto kept = [&](const Tensors& in) { return f({in[0], sin(in[0])}); };
  const auto again = [&](const Tensors& in) { return recompute(f, {in[0], sin(in[0])}); };
  Tensors seconds;
  for (const bool replayed : {false, true}) {
    set_random_state(state);
    const Tensor y = sum(square(replayed ? again({x}) : kept({x})));
    const Tensors first = grad({y}, {x, w}, {}, {.create_graph = true});
    for (const Tensor& g : grad({sum(square(first[0])) + sum(square(first[1]))}, {x, w}))
      seconds.push_back(g);
  }
  for (size_t i = 0; i < 2; ++i)
    for (int64_t j = 0; j < 3; ++j)
      CHECK(seconds[i + 2][j].item() == Approx(seconds[i][j].item()).epsilon(1e-12));
}

TEST_CASE("recompute() reports changed inputs and errors of its function", "[autograd]") {
  const RestoreState restore;
  const Tensor x = ones({3}, {.requires_grad = true});
  Tensor c = ones({3});
  const Tensor y = sum(recompute([](const Tensors& in) { return in[0] * in[1]; }, {x, c}));
  c.fill_(2);
  CHECK_THROWS_WITH(y.backward(), Containing("[recompute] a tensor (f32 [3]) that the backward"));

  // An error in the recomputation leaves the random state unchanged.
  int runs = 0;
  const Tensor z = sum(recompute(
      [&](const Tensors& in) {
        rand({1});
        if (++runs == 2) fail("block", "no");
        return in[0] * 2.0;
      },
      {x}));
  rand({1});
  const RandomState state = random_state();
  CHECK_THROWS_WITH(z.backward(), "[block] no");
  CHECK(random_state().next_stream == state.next_stream);
  CHECK(random_state().seed == state.seed);
}

}  // namespace stretto::testing
