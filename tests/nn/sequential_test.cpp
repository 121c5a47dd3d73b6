#include "nn/sequential.h"

#include "nn/embedding.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::same_bits;

TEST_CASE("Sequential runs its steps one after the other") {
  manual_seed(1);
  const nn::Sequential net({nn::step<nn::Linear>({.in = 3, .out = 4}), relu,
                            [](const Tensor& x) { return x * 2.0; },
                            nn::step<nn::Linear>({.in = 4, .out = 2, .bias = false})});
  std::vector<std::string> names;
  for (const auto& [name, tensor] : net.named_parameters())
    names.push_back(str(name, " ", tensor.shape()));
  CHECK(names == std::vector<std::string>{"0.weight [4, 3]", "0.bias [4]", "3.weight [2, 4]"});
  const Tensor x = testing::fixed_noise({5, 3}, 1, f32);
  const Tensor hidden = relu(linear(x, net.get_parameter("0.weight"), net.get_parameter("0.bias")));
  CHECK(same_bits(net(x), linear(hidden * 2.0, net.get_parameter("3.weight"))));
  CHECK(same_bits(nn::Sequential({})(x), x));
  CHECK(same_bits((*nn::clone(net))(x), net(x)));
}

TEST_CASE("a Sequential in a module can be trained") {
  struct Net : nn::Module {
    nn::Embedding table{*this, "table", {.count = 5, .dim = 3}};
    nn::Sequential body{*this, "body", {nn::step<nn::Linear>({.in = 3, .out = 2}), tanh}};
  };
  const Net net;
  sum(net.body(net.table(tensor<int64_t>({0, 4})))).backward();
  CHECK(net.named_parameters()[1].name == "body.0.weight");
  for (const Tensor& p : net.parameters()) CHECK(p.grad().defined());
}
