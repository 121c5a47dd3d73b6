// A module that is not registered with its parent gets gradients but is never trained; the first
// step reports it.
#include "autograd/tape.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

struct Forgetful : nn::Module {
  nn::Linear in{*this, "in", {.in = 3, .out = 4}};
  nn::Linear out{{.in = 4, .out = 1}};
  Tensor operator()(const Tensor& x) const { return out(relu(in(x))); }
};

// Returns the error of the first step, with micro-batches or with the forward pass in recompute().
std::string first_step(Forgetful& net, nn::TrainerOptions options, bool replayed = false) {
  options.steps = 2;
  nn::AdamW optimizer(net.parameters(), {.lr = 0.1});
  nn::Trainer trainer(net, optimizer, options);
  const std::vector<float> before = net.in.weight.to_vector<float>();
  const std::string text = error_of<Error>([&] {
    trainer.step([&] {
      const Tensor x = trainer.stage(0, [](int64_t) { return Tensors{ones({2, 3})}; })[0];
      if (!replayed) return mean(square(net(x)));
      return mean(recompute([&](const Tensors& h) { return net(h[0]); }, {x}));
    });
  });
  const bool thrown = text != "(nothing thrown)";
  CHECK((net.in.weight.to_vector<float>() == before) == thrown);
  CHECK(trainer.steps_done() == (thrown ? 0 : 1));
  return text;
}

const std::string words =
    "[train] step 1: the weight f32 [1, 4] of a Linear got a gradient, but belongs neither to "
    "Forgetful nor to an optimizer; declare the module as a child, Linear name{*this, \"name\", "
    "…}, or freeze() it if it must not be trained";

}  // namespace

TEST_CASE("A module that is no child of the model is reported", "[trainer]") {
  Forgetful net;
  net.out.bias.set_requires_grad(false);
  CHECK(first_step(net, {}) == words);
  CHECK(first_step(net, {.micro_batches = 2}) == words);
  CHECK(first_step(net, {}, true) == words);
  net.out.freeze();
  CHECK(first_step(net, {}) == "(nothing thrown)");
}

TEST_CASE("Parameters of another optimizer and leaves of no module are not reported", "[trainer]") {
  Forgetful net;
  {
    const nn::SGD others(net.out.parameters(), {});
    CHECK(first_step(net, {}) == "(nothing thrown)");
  }
  CHECK(first_step(net, {}) != "(nothing thrown)");

  struct Scaled : nn::Module {
    nn::LayerNorm norm{*this, "norm", {.dim = 3}};
  } scaled;
  const Tensor input = ones({2, 3}).set_requires_grad();
  nn::SGD optimizer(scaled.parameters(), {});
  nn::Trainer trainer(scaled, optimizer, {.steps = 1});
  trainer.step([&] { return mean(square(scaled.norm(input))); });
  CHECK(trainer.steps_done() == 1);

  // If only a part of a model is trained, the rest of the model is not reported.
  struct Pair : nn::Module {
    nn::Linear a{*this, "a", {.in = 3, .out = 3}};
    nn::Linear b{*this, "b", {.in = 3, .out = 1}};
  } pair;
  nn::SGD of_b(pair.b.parameters(), {});
  nn::Trainer head(pair.b, of_b, {.steps = 1});
  head.step([&] { return mean(pair.b(pair.a(ones({2, 3})))); });
  CHECK(head.steps_done() == 1);
}

TEST_CASE("An optimizer that trains no parameter of the model is reported", "[trainer]") {
  nn::Linear trained({.in = 3, .out = 1}), other({.in = 3, .out = 1});
  const auto error_with = [&](const Tensors& parameters) {
    nn::SGD optimizer(parameters, {});
    nn::Trainer trainer(trained, optimizer, {.steps = 1});
    return error_of<Error>([&] { trainer.step([&] { return mean(trained(ones({2, 3}))); }); });
  };
  const std::string nothing =
      "[train] step 1: the optimizer has no parameter of Linear(3 → 1) that is trained; make it "
      "from the parameters that the model has now";
  CHECK(error_with(other.parameters()) == nothing);
  trained.weight.set_requires_grad(false);
  CHECK(error_with({trained.weight}) == nothing);
  CHECK(error_with({trained.bias}) == "(nothing thrown)");
}
