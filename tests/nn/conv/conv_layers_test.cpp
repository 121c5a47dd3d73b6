// Conv1d, Conv2d, GroupNorm, BatchNorm.
#include <cmath>
#include <string>
#include <vector>

#include "nn/conv/channel_norm.h"
#include "nn/conv/conv.h"
#include "nn/files/weights.h"
#include "nn/gradcheck.h"
#include "nn/module.h"
#include "ops/channel_norm.h"
#include "ops/conv/conv.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::fixed_noise;

namespace {

std::vector<std::string> names_of(const nn::Module& m) {
  std::vector<std::string> names;
  for (const nn::NamedTensor& t : m.named_tensors()) names.push_back(t.name);
  return names;
}

// A small network with every layer.
struct Network : nn::Module {
  nn::Conv2d patches{*this, "patches", {.in = 3, .out = 4, .kernel = 2, .stride = 2}};
  nn::BatchNorm norm{*this, "norm", {.dim = 4}};
  nn::GroupNorm groups{*this, "groups", {.groups = 2, .dim = 4}};
  nn::Conv1d depthwise{
      *this, "depthwise", {.in = 4, .out = 4, .kernel = 3, .padding = 1, .groups = 4}};
  Tensor operator()(const Tensor& x) const {
    return depthwise(groups(norm(patches(x))).flatten(2));
  }
};

}  // namespace

TEST_CASE("Convolution layers have PyTorch's parameters") {
  manual_seed(1);
  const nn::Conv1d one({.in = 8, .out = 200, .kernel = 3, .stride = 2, .padding = 1, .groups = 4});
  CHECK(one.label() == "Conv1d(8 → 200, kernel 3, groups 4)");
  CHECK(one.weight.shape() == Shape{200, 2, 3});
  CHECK(one.bias.shape() == Shape{200});
  const double bound = 1 / std::sqrt(6.0), most = max(abs(one.weight)).item();
  CHECK(most <= bound);
  CHECK(most > 0.98 * bound);  // of 1,200 numbers: fails with probability 0.98^1200 < 1e-10
  const Tensor x = fixed_noise({2, 8, 7}, 1, f32);
  CHECK(equal(one(x), conv1d(x, one.weight, one.bias, {.stride = 2, .padding = 1, .groups = 4})));

  const nn::Conv2d two(
      {.in = 3, .out = 5, .kernel = {2, 3}, .padding = {1, 0}, .dilation = 2, .bias = false});
  CHECK(two.label() == "Conv2d(3 → 5, kernel 2 × 3, no bias)");
  CHECK(two.weight.shape() == Shape{5, 3, 2, 3});
  CHECK(two.parameters().size() == 1);
  const Tensor image = fixed_noise({2, 3, 6, 7}, 1, f32);
  CHECK(equal(two(image), conv2d(image, two.weight, {}, {.padding = {1, 0}, .dilation = 2})));

  CHECK_THROWS_WITH(nn::Conv1d({.in = 3, .out = 4}),
                    Containing("[Conv1d] in = 3, out = 4, kernel 1 × 0; must be positive"));
  CHECK_THROWS_WITH(nn::Conv2d({.in = 3, .out = 4, .kernel = 1, .groups = 2}),
                    Containing("[Conv2d] groups = 2 for in = 3 and out = 4; groups must divide"));
}

TEST_CASE("GroupNorm and BatchNorm have PyTorch's parameters and buffers") {
  const nn::GroupNorm group({.groups = 2, .dim = 4});
  CHECK(group.label() == "GroupNorm(2 groups, 4)");
  CHECK(names_of(group) == std::vector<std::string>{"weight", "bias"});
  CHECK(nn::GroupNorm({.groups = 2, .dim = 4, .affine = false}).parameters().empty());
  CHECK_THROWS_WITH(nn::GroupNorm({.groups = 3, .dim = 4}),
                    Containing("[GroupNorm] groups = 3, dim = 4; both must be positive"));

  const nn::BatchNorm batch({.dim = 4});
  CHECK(batch.label() == "BatchNorm(4)");
  CHECK(names_of(batch) == std::vector<std::string>{"weight", "bias", "running_mean", "running_var",
                                                    "num_batches_tracked"});
  CHECK_THROWS_WITH(nn::BatchNorm({}), Containing("[BatchNorm] dim = 0 must be positive"));
}

TEST_CASE("BatchNorm tracks statistics in training and uses them in evaluation") {
  nn::BatchNorm norm({.dim = 2, .momentum = 0.5});
  const Tensor x = fixed_noise({4, 2, 3}, 1, f32) + 2.0;
  const Tensor y = norm(x);
  CHECK(std::abs(mean(y).item()) < 1e-6);
  CHECK(norm.num_batches_tracked.item<int64_t>() == 1);
  CHECK(testing::worst_error(norm.running_mean, mean(x, {0, 2}) * 0.5) < 1e-6);
  norm.eval();
  const Tensor z = norm(x);
  CHECK(norm.num_batches_tracked.item<int64_t>() == 1);
  CHECK(equal(z, batch_norm(x, norm.running_mean, norm.running_var, norm.weight, norm.bias)));
  norm.to(bf16);
  CHECK(norm.running_var.dtype() == f32);
  CHECK(norm(x.to(bf16)).dtype() == bf16);
}

TEST_CASE("Convolution and normalization layers: gradients, clones, files") {
  manual_seed(2);
  Network network;
  const Tensor x = fixed_noise({2, 3, 4, 6}, 1, f32);
  network(x);
  const auto copy = nn::clone(network);
  network.eval(), copy->eval();
  CHECK(equal((*copy)(x), network(x)));

  const testing::TempDir dir;
  const std::string path = dir.file("weights.safetensors");
  nn::save_weights(path, network);
  Network loaded;
  nn::load_weights(path, loaded);
  loaded.eval();
  CHECK(equal(loaded(x), network(x)));
  CHECK(loaded.norm.num_batches_tracked.item<int64_t>() == 1);

  network.to(f64);  // in training the bias before batch norm has no gradient
  nn::gradcheck(network, [&] { return sum(square(network(x.to(f64)))); });
}
