// The public gradient checks: the errors that they find.
#include "ops/gradcheck.h"

#include "autograd/tape.h"
#include "nn/gradcheck.h"
#include "nn/linear.h"
#include "nn/sequential.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

// x³ with its gradient multiplied by `wrong` in element 1, and its second gradient by `second`.
Tensor cube(const Tensor& x, double wrong, double second = 1) {
  const Tensor factor = tensor<double>({1, wrong, 1});
  return record(
      "cube", {x}, x.detach() * x.detach() * x.detach(),
      [x = Saved(x), factor, second](Backward& b) {
        const Tensor slope = x() * x() * 3.0;
        return Tensors{b.grad() * ((slope - slope.detach()) * second + slope.detach()) * factor};
      });
}

std::string found(const std::function<Tensor(const Tensors&)>& f, const Tensors& inputs,
                  GradcheckOptions options = {}) {
  return error_of<Error>([&] { gradcheck(f, inputs, options); });
}

}  // namespace

TEST_CASE("gradcheck finds wrong gradients and names the element") {
  const Tensor x = tensor<double>({1, 2, 3}).set_requires_grad();
  CHECK(found([](const Tensors& in) { return cube(in[0], 1); }, {x}) == "(nothing thrown)");
  CHECK_THAT(found([](const Tensors& in) { return cube(in[0], 1.01); }, {x}),
             Containing("[gradcheck] first order, differentiable input 0: element 1 is the "
                        "first of 1 to differ; got "));
  CHECK_THAT(found([](const Tensors& in) { return cube(in[0], 1, 1.01); }, {x}),
             Containing("[gradcheck] second order (gradient of input 0), differentiable "
                        "input 0: element 0 is the first of 3 to differ"));
  CHECK(found([](const Tensors& in) { return cube(in[0], 1, 1.01); }, {x}, {.twice = false}) ==
        "(nothing thrown)");
  CHECK(found([](const Tensors& in) { return cube(in[0], 1.01); }, {x},
              {.rtol = 0.1, .twice = false}) == "(nothing thrown)");
  int calls = 0;
  CHECK_THAT(found(
                 [&](const Tensors& in) {
                   return record("noisy", {in[0]}, in[0].detach() * 2.0, [&](Backward& b) {
                     return Tensors{b.grad() * (++calls % 2 ? 2.0 : 2.0 + 1e-9)};
                   });
                 },
                 {x}),
             Containing("a repeated backward pass is not bit-identical"));

  CHECK(found([](const Tensors& in) { return in[0] * 2.0; }, {tensor<double>({1})}) ==
        "[gradcheck] no input requires a gradient");
  CHECK_THAT(found([](const Tensors& in) { return in[0] * 2.0; }, {ones({2}).set_requires_grad()}),
             Containing("an input is f32 [2]; inputs that require gradients must be f64 leaves"));
  CHECK(found([](const Tensors& in) { return in[0].to(f32); }, {x}) ==
        "[gradcheck] the function returned f32 [3]; must be f64");
}

TEST_CASE("gradcheck of a module finds wrong gradients and parameters without one") {
  struct Net : nn::Module {
    nn::Linear a{*this, "a", {.in = 3, .out = 3}};
    nn::Linear b{*this, "b", {.in = 3, .out = 2}};
  } net;
  const Tensor x = fixed_noise({3}, 1);
  const auto check = [&](const std::function<Tensor()>& loss) {
    return error_of<Error>([&] { nn::gradcheck(net, loss); });
  };
  const auto loss = [&](double wrong) {
    return [&, wrong] { return sum(square(net.b(cube(net.a(x), wrong)))); };
  };
  CHECK_THAT(check(loss(1)), Containing("[gradcheck] a.weight is f32 [3, 3]; must be f64"));
  net.to(f64);
  CHECK(check(loss(1)) == "(nothing thrown)");
  CHECK_THAT(check(loss(1.01)),
             Containing("[gradcheck] a.weight: the slope along a random direction is "));
  CHECK(check([&] { return sum(square(net.b(x))); }) == "[gradcheck] a.weight gets no gradient");
  CHECK(check([&] { return sum(square(net.b(net.a(x) * 0.0))); }) ==
        "[gradcheck] the gradient of a.weight is 0 everywhere");
  CHECK_THAT(check([&] { return sum(square(net.b(net.a(randn({3}, {.dtype = f64}))))); }),
             Containing("[gradcheck] the loss has different values in two calls, ") &&
                 Containing("; it must not depend on dropout or other random numbers"));
  net.a.freeze();
  CHECK(check([&] { return sum(square(net.b(x))); }) == "(nothing thrown)");
}

}  // namespace stretto::testing
