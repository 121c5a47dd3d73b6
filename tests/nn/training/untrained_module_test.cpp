// A module that is not registered with its parent gets gradients but is never trained; the first
// step reports it.
#include <functional>

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

const std::string untrained =
    "the weight f32 [1, 4] of a Linear got a gradient, but no optimizer updates it or another "
    "parameter of its model; declare the module as a child, Linear name{*this, \"name\", …}, or "
    "freeze() it if it must not be trained";
const std::string words = "[train] step 1: [AdamW] " + untrained;

// Returns the error of the first step of a loop without a Trainer.
std::string own_step(const nn::Module& net, const std::function<Tensor()>& loss) {
  nn::SGD optimizer(net.parameters(), {});
  loss().backward();
  return error_of<Error>([&] { optimizer.step(); });
}

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

TEST_CASE("A loop without a Trainer reports what is not trained", "[trainer]") {
  Forgetful net;
  net.out.bias.set_requires_grad(false);
  const std::vector<float> before = net.in.weight.to_vector<float>();
  const auto loss = [&] { return mean(square(net(ones({2, 3})))); };
  CHECK(own_step(net, loss) == "[SGD] " + untrained);
  CHECK(net.in.weight.to_vector<float>() == before);
  net.out.freeze();
  CHECK(own_step(net, loss) == "(nothing thrown)");

  // A leaf without a module, unless it is younger than the optimizer or in one.
  const Tensor scale = ones({4}).set_requires_grad();
  const auto scaled = [&](const Tensor& x) { return mean(net.in(ones({2, 3})) * x); };
  CHECK(
      own_step(net, [&] { return scaled(scale); }) ==
      "[SGD] a leaf f32 [4] got a gradient, but belongs to no module and to no optimizer; make it "
      "by parameter(\"name\", …) in a module, or, if your program itself uses the gradient, after "
      "the optimizer");
  CHECK(own_step(net, [&] { return scaled(ones({4}).set_requires_grad()); }) == "(nothing thrown)");
  const nn::SGD others({scale}, {});
  CHECK(own_step(net, [&] { return scaled(scale); }) == "(nothing thrown)");

  // A backward pass that did not reach the optimizer's parameters says nothing about them.
  Forgetful other;
  CHECK(own_step(net, [&] {
          net.in.weight.set_grad(zeros({4, 3}));
          return mean(other(ones({2, 3})));
        }) == "(nothing thrown)");
}

TEST_CASE("A first step without a gradient is an error", "[trainer]") {
  Forgetful net;
  nn::SGD optimizer(net.parameters(), {});
  net.freeze();  // as add_lora() does
  CHECK_THROWS_WITH(optimizer.step(),
                    "[SGD] no parameter has a gradient; call backward() before the first step, and "
                    "make the optimizer from the parameters that the model has now");
}

TEST_CASE("Parameters of another optimizer and inputs are not reported", "[trainer]") {
  Forgetful net;
  {
    const nn::SGD others(net.out.parameters(), {});
    CHECK(first_step(net, {}) == "(nothing thrown)");
  }
  CHECK(first_step(net, {}) != "(nothing thrown)");

  struct Scaled : nn::Module {
    nn::LayerNorm norm{*this, "norm", {.dim = 3}};
  } scaled;
  nn::SGD optimizer(scaled.parameters(), {});
  nn::Trainer trainer(scaled, optimizer, {.steps = 1});
  trainer.step([&] { return mean(square(scaled.norm(ones({2, 3}).set_requires_grad()))); });
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
