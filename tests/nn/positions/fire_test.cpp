#include "nn/positions/fire.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/reference/dense_bias.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using testing::call_of;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::Size;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

// A Fire in f64 with parameters other than the initial ones.
struct SomeFire {
  explicit SomeFire(double threshold, double c = 0.7, double multiplier = 1.3)
      : position(parent, {.n_heads = 3}, {.hidden = 5, .threshold = threshold}) {
    parent.to(f64);
    uint64_t stream = 20;
    for (const Tensor& p : parent.parameters()) p.detach().copy_(fixed_noise(p.shape(), ++stream));
    position.c.detach().fill_(c);
    position.multiplier.detach().fill_(multiplier);
  }
  Parent parent;
  nn::Fire position;
};

}  // namespace

TEST_CASE("Fire: parameters, initial values, label") {
  Parent parent, other;
  const nn::Fire position(parent, {.n_heads = 3}, {});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : parent.named_parameters())
    names.push_back(str(name, " ", tensor.shape()));
  CHECK(names ==
        std::vector<std::string>{"position.c [1]", "position.multiplier [1]",
                                 "position.linear1.weight [32, 1]", "position.linear1.bias [32]",
                                 "position.linear2.weight [3, 32]", "position.linear2.bias [3]"});
  CHECK(position.c.item() == double(0.1f));
  CHECK(position.multiplier.item() == 1);
  CHECK(position.label() == "Fire(hidden 32, threshold 512)");
  CHECK_THROWS_WITH(
      nn::Fire(other, {.n_heads = 3}, {.threshold = -1}),
      "[Fire] hidden 32, threshold -1; hidden must be at least 1, threshold not negative");
}

TEST_CASE("Fire equals its formula") {
  // The threshold is above, within and below the positions; signs cancel in the formula.
  const SomeFire fires[] = {SomeFire(512), SomeFire(4), SomeFire(0), SomeFire(4, -0.7, -1.3)};
  for (const SomeFire& fire : fires)
    for (const Size size : {Size{1, 1}, {7, 7}, {3, 9}, {1, 9}, {9, 3}, {33, 70}}) {
      const nn::Fire& f = fire.position;
      nn::AttentionInputs inputs = call_of(3, size);
      f.apply(inputs);
      const Tensor want = reference::fire_bias({.c = f.c.item(),
                                                .multiplier = f.multiplier.item(),
                                                .threshold = f.options.threshold,
                                                .weight1 = f.linear1.weight,
                                                .bias1 = f.linear1.bias,
                                                .weight2 = f.linear2.weight,
                                                .bias2 = f.linear2.bias},
                                               size.m, size.n);
      CHECK(worst_error(inputs.options.bias, want) < 1e-13);
      for (const bool causal : {false, true}) {
        if (causal && size.m > size.n) continue;
        inputs.options.mask.causal = causal;
        CHECK(worst_error(attention(inputs.q, inputs.k, inputs.v, inputs.options),
                          reference::attention(inputs.q, inputs.k, inputs.v,
                                               {.mask = {.causal = causal}, .bias = want})) <
              1e-12);
      }
    }
}

TEST_CASE("Fire counts positions from the first key") {
  const SomeFire fire(4);
  nn::AttentionInputs whole = call_of(3, {20, 20}), last = call_of(3, {3, 9});
  fire.position.apply(whole);
  last.first_position = 11;
  fire.position.apply(last);
  CHECK(worst_error(last.options.bias, whole.options.bias.slice(1, 17).slice(2, 11)) < 1e-14);
}

TEST_CASE("Fire: gradients") {
  for (const double threshold : {2.0, 512.0}) {
    SomeFire fire(threshold);
    nn::Fire& f = fire.position;
    Tensors inputs{fixed_leaf({1, 3, 3, 4}, 1), fixed_leaf({1, 3, 7, 4}, 2)};
    for (const Tensor& p : fire.parent.parameters())
      inputs.push_back(p.detach().clone().set_requires_grad());
    const Tensor v = fixed_noise({1, 3, 7, 3}, 3);
    check_gradients(
        [&](const Tensors& in) {
          testing::stand_in(in[2], f.c);
          testing::stand_in(in[3], f.multiplier);
          testing::stand_in(in[4], f.linear1.weight);
          testing::stand_in(in[5], f.linear1.bias);
          testing::stand_in(in[6], f.linear2.weight);
          testing::stand_in(in[7], f.linear2.bias);
          nn::AttentionInputs call{in[0], in[1], v, {}};
          call.options.mask.causal = true;
          f.apply(call);
          return attention(call.q, call.k, call.v, call.options);
        },
        inputs);
  }
}

TEST_CASE("Fire in bf16 computes distances in f32") {
  // Below L0 the bias depends only on the distance, also where bf16 would round to multiples of 4.
  SomeFire fire(5000);
  fire.parent.to(bf16);
  nn::AttentionInputs near = call_of(3, {1, 10}, 4, bf16), far = call_of(3, {1, 700}, 4, bf16);
  fire.position.apply(near);
  fire.position.apply(far);
  CHECK(near.options.bias.dtype() == bf16);
  const Tensor last = far.options.bias.slice(2, 690);
  if (default_device().is_cuda())  // other sizes have another order of sums
    CHECK(worst_error(last, near.options.bias) < 0x1p-7);
  else
    CHECK(same_bits(last, near.options.bias));
  CHECK(attention(far.q, far.k, far.v, far.options).dtype() == bf16);
}

TEST_CASE("Fire works in a decoder") {
  testing::check_causal_position(nn::fire());
  testing::check_causal_position(nn::fire({.hidden = 3, .threshold = 5}));
}
