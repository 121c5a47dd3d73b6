// AttentionOptions::soft_cap.
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::worst_error;

TEST_CASE("capped attention agrees with its reference", "[attention]") {
  const Tensor q = fixed_noise({2, 4, 5, 3}, 1), k = fixed_noise({2, 2, 7, 3}, 2),
               v = fixed_noise({2, 2, 7, 4}, 3);
  AttentionOptions o{.mask = {.causal = true, .window = 4}, .scale = 2.0, .soft_cap = 0.7};
  o.bias = fixed_noise({4, 1, 7}, 4);
  const Tensor expected = reference::attention(q, k, v, o);
  CHECK(worst_error(attention(q, k, v, o), expected) < 1e-12);
  CHECK(worst_error(
            attention(q.to(f32), k.to(f32), v.to(f32),
                      {.mask = o.mask, .scale = 2.0, .soft_cap = 0.7, .bias = o.bias.to(f32)}),
            expected) < 1e-5);
  // A large cap changes little; every score is below the cap.
  o.soft_cap = 1e6;
  AttentionOptions none = o;
  none.soft_cap = 0;
  CHECK(worst_error(attention(q, k, v, o), attention(q, k, v, none)) < 1e-9);
  o.soft_cap = 0.25;
  o.mask = {};
  CHECK(max(abs(attention_scores(q, k, o))).item() < 0.25);
}

TEST_CASE("capped attention has first and second derivatives", "[attention]") {
  const auto f = [](const Tensors& x) {
    AttentionOptions o{.mask = {.causal = true}, .soft_cap = 0.5};
    o.bias = x[3];
    return attention(x[0], x[1], x[2], o);
  };
  Tensors inputs{fixed_noise({1, 2, 4, 3}, 1), fixed_noise({1, 2, 4, 3}, 2),
                 fixed_noise({1, 2, 4, 2}, 3), fixed_noise({2, 4, 4}, 4)};
  for (Tensor& x : inputs) x.set_requires_grad();
  testing::check_gradients(f, inputs);
}

TEST_CASE("the lse of capped attention has the gradient of the capped scores", "[attention]") {
  if (default_device().is_cuda()) return;  // attention_with_lse() needs the CPU
  const AttentionOptions o{.mask = {.causal = true}, .soft_cap = 0.5};
  const Tensor q = fixed_noise({1, 2, 4, 3}, 1).set_requires_grad(),
               k = fixed_noise({1, 2, 4, 3}, 2).set_requires_grad(),
               v = fixed_noise({1, 2, 4, 2}, 3), g = fixed_noise({1, 2, 4}, 4);
  const Tensors got = grad({attention_with_lse(q, k, v, o).lse}, {q, k}, {g}),
                want = grad({logsumexp(attention_scores(q, k, o), -1)}, {q, k}, {g});
  for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) < 1e-14);
}

TEST_CASE("capped attention needs no slopes of keys that a mask hides", "[attention]") {
  const Shape shape{1, 1, 3, 2};
  const auto gradients = [&](Implementation implementation, const AttentionMask& mask) {
    Tensors inputs;
    for (uint64_t i = 1; i < 4; ++i) inputs.push_back(fixed_noise(shape, i).set_requires_grad());
    {  // memory that new tensors reuse
      Tensors old(20, full({3, 3}, NAN, {.dtype = f64}));
      for (Tensor& x : old) x = x.clone();
    }
    const Tensor y = attention(inputs[0], inputs[1], inputs[2],
                               {.mask = mask, .soft_cap = 0.5, .implementation = implementation});
    return grad({sum(y)}, inputs);
  };
  const Tensor ids = tensor(std::vector<int64_t>{0, 0, 1}, {1, 3}), marks = ids.to(boolean);
  for (const AttentionMask& mask :
       {AttentionMask{.causal = true, .segments = ids},
        AttentionMask{.causal = true, .prefix_lengths = tensor(std::vector<int64_t>{2}, {1})},
        AttentionMask{.window = 1, .global_tokens = marks},
        AttentionMask{.window = 1, .window_after = 1, .hidden = marks.unsqueeze(0)}}) {
    const Tensors fused = gradients(Implementation::fused, mask),
                  composed = gradients(Implementation::composed, mask);
    for (size_t i = 0; i < fused.size(); ++i) CHECK(worst_error(fused[i], composed[i]) < 1e-14);
  }
}

TEST_CASE("a soft cap that is not supported is an error", "[attention]") {
  const Tensor q = ones({1, 1, 2, 4});
  CHECK_THROWS_WITH(attention(q, q, q, {.soft_cap = -1}), Containing("soft_cap -1"));
}
