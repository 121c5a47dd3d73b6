// The average of weights: its formula, evaluations with it, and checkpoints.
#include "nn/optim/weight_average.h"

#include <cmath>
#include <type_traits>

#include "nn/dropout.h"
#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

struct Net : nn::Module {
  nn::Linear in{*this, "in", {.in = 3, .out = 4}};
  nn::Dropout dropout{*this, "dropout", {.p = 0.2}};
  nn::Linear out{*this, "out", {.in = 4, .out = 1}};
  Tensor operator()(const Tensor& x) const { return out(dropout(relu(in(x)))); }
};

Tensor loss_of(const Net& net) {
  const Tensor x = randn({4, 3}, {.dtype = net.in.weight.dtype()});
  return mean(square(net(x) - sum(x, {1}, true)));
}

}  // namespace

// A copy would share the averages, but not the number of updates.
static_assert(!std::is_copy_constructible_v<nn::WeightAverage>);
static_assert(!std::is_copy_assignable_v<nn::WeightAverage>);

TEST_CASE("An average weighs the earlier weights by powers of the decay", "[average]") {
  for (const DType dtype : {f64, f32, bf16}) {
    manual_seed(1);
    Net net;
    net.to(dtype);
    const double decay = 0.8;
    nn::WeightAverage average(net, {.decay = decay});
    CHECK(average.tensors()[0].tensor.dtype() == (dtype == f64 ? f64 : f32));
    CHECK(average.tensors()[0].tensor.to_vector<double>() == net.in.weight.to_vector<double>());
    std::vector<std::vector<double>> seen;
    for (int t = 1; t <= 5; ++t) {
      net.in.weight.detach().copy_(randn({4, 3}));
      average.update();
      seen.push_back(net.in.weight.to_vector<double>());
      const std::vector<double> got = average.tensors()[0].tensor.to_vector<double>();
      for (size_t i = 0; i < got.size(); ++i) {
        double sum = 0, weights = 0;
        for (int k = 1; k <= t; ++k) {
          const double w = std::pow(decay, t - k);
          sum += w * seen[size_t(k) - 1][i], weights += w;
        }
        // Two roundings per update, of values up to 4.
        CHECK(got[i] == Approx(sum / weights).epsilon(0).margin(dtype == f64 ? 1e-14 : 1e-5));
      }
    }
    CHECK(average.updates() == 5);
    const std::vector<double> own = net.in.weight.to_vector<double>();
    {
      const nn::WeightAverage::Use averaged(average);
      CHECK(net.in.weight.to_vector<double>() ==
            average.tensors()[0].tensor.to(dtype).to_vector<double>());
      CHECK(error_of<Error>([&] { average.update(); }) ==
            "[WeightAverage] update() cannot be called while the model has the averages "
            "(WeightAverage::Use)");
      CHECK(error_of<Error>([&] { const nn::WeightAverage::Use again(average); }) ==
            "[WeightAverage] the model has the averages already");
    }
    CHECK(net.in.weight.to_vector<double>() == own);
  }
  Net net;
  CHECK(error_of<Error>([&] { nn::WeightAverage(net, {.decay = 1}); }) ==
        "[WeightAverage] decay 1; accepted: at least 0 and below 1");
}

TEST_CASE("An average is resumed with its run", "[average][trainer]") {
  const TempDir dir;
  for (const DType dtype : {f32, bf16}) {
    const std::string name = dtype == f32 ? "f32" : "bf16";
    const auto run = [&](const std::string& folder, int64_t stop_at) {
      manual_seed(1);
      Net net;
      net.to(dtype);
      nn::AdamW optimizer(net.parameters(), {.lr = 0.01});
      nn::WeightAverage average(net, {.decay = 0.9});
      std::vector<double> validations;
      nn::Trainer trainer(net, optimizer,
                          {.steps = 6,
                           .average = &average,
                           .evaluate_every = 1,
                           .folder = dir.file(name + folder),
                           .stop = [&] { return trainer.steps_done() == stop_at; },
                           .quiet = true});
      trainer.resume();
      trainer.run([&](int64_t) { return loss_of(net); },
                  [&] {
                    const nn::WeightAverage::Use averaged(average);
                    return mean(net.in.weight).item();
                  });
      return read_file(trainer.checkpoint_path());
    };
    const std::string whole = run("whole", -1);
    run("parts", 3);
    CHECK(run("parts", -1) == whole);
  }

  // Checkpoints with and without an average cannot be exchanged.
  const std::string path = dir.file("f32whole/checkpoint.safetensors");
  Net net;
  nn::AdamW optimizer(net.parameters(), {.lr = 0.01});
  nn::WeightAverage average(net);
  nn::Trainer trainer(net, optimizer, {.steps = 6, .quiet = true});
  CHECK(error_of<Error>([&] { trainer.load(path); }) ==
        "[load] " + path + ": has a weight average, but options.average is not set");
  trainer.options.average = &average;
  CHECK(trainer.load(path).tensors.empty());
  CHECK(average.updates() == 6);
  trainer.options.average = nullptr;
  trainer.save(path);
  trainer.options.average = &average;
  CHECK(error_of<Error>([&] { trainer.load(path); }) ==
        "[load] " + path + ": has no weight average; set options.average after loading");
  CHECK(error_of<Error>([&] { average.load({}, 3); }) ==
        "[WeightAverage] the average of in.weight is missing");
}
