// Batches divided into micro-batches: parameters that are frozen, or that no micro-batch reaches,
// do not change.
#include "nn/distributed/data_parallel_step.h"
#include "nn/distributed/optimizer_shards.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/process_threads.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

struct Net : nn::Module {
  nn::Linear body{*this, "body", {.in = 3, .out = 4}};
  nn::Linear head{*this, "head", {.in = 4, .out = 2}};
  nn::Linear aside{*this, "aside", {.in = 3, .out = 2}};
  Tensor operator()(const Tensor& x) const { return head(relu(body(x))); }
};

using Weights = std::vector<std::vector<double>>;

Weights weights_of(const nn::Module& net) {
  Weights all;
  for (const Tensor& p : net.parameters()) all.push_back(p.to_vector<double>());
  return all;
}

nn::AdamW::Options decaying() { return {.lr = 0.1, .weight_decay = 0.1}; }

// Freezes the body in steps 0 and 1, and the head in step 3.
void freeze_for(Net& net, int64_t step) {
  net.body.freeze(step < 2);
  net.head.freeze(step == 3);
}

const std::vector<std::string> names{"body.weight", "body.bias",    "head.weight",
                                     "head.bias",   "aside.weight", "aside.bias"};

// Returns the parameters that a step changed, from the weights before and after it.
std::vector<std::string> changed(const Weights& before, const Weights& after) {
  std::vector<std::string> all;
  for (size_t i = 0; i < before.size(); ++i)
    if (before[i] != after[i]) all.push_back(names[i]);
  return all;
}

const std::vector<std::string> body{names[0], names[1]}, head{names[2], names[3]},
    both{names[0], names[1], names[2], names[3]};
const std::vector<std::vector<std::string>> trained{head, head, both, body, both};

}  // namespace

TEST_CASE("Frozen and unused parameters do not change when batches are divided", "[trainer]") {
  for (const int64_t micro_batches : {1, 2, 4}) {
    manual_seed(2);
    Net net;
    nn::AdamW optimizer(net.parameters(), decaying());
    nn::Trainer trainer(net, optimizer, {.steps = 5, .micro_batches = micro_batches});
    const Tensor rows = randn({8, 3});
    for (int64_t step = 0; step < 5; ++step) {
      INFO(micro_batches << " parts, step " << step);
      freeze_for(net, step);
      const Weights before = weights_of(net);
      trainer.step([&] {
        const Tensors x = trainer.stage(step, [&](int64_t) { return Tensors{rows}; });
        return mean(square(net(x[0])));
      });
      CHECK(changed(before, weights_of(net)) == trained[size_t(step)]);
      CHECK_FALSE(net.aside.weight.grad().defined());
    }
    CHECK(optimizer.state()[0].steps == 3);
    CHECK(optimizer.state()[4].steps == 0);
  }
}

// The same with several processes, each with its shard of the optimizer's state.
TEST_CASE("Frozen and unused parameters do not change on any process", "[distributed]") {
  std::vector<Weights> alone;
  for (const int size : {1, 2, 4})
    for (const bool scatter : {false, true}) {
      std::vector<Weights> got;
      std::vector<int64_t> steps;
      each_of(size, [&](nn::ProcessGroup& group) {
        Net net;
        uint64_t key = 0;
        for (const Tensor& p : net.parameters()) {
          std::vector<double> values;  // threads share the program's random state
          for (int64_t i = 0; i < p.numel(); ++i)
            values.push_back(uniform_from_bits(random_bits({5, key}, uint64_t(i))) - 0.5);
          ++key;
          p.detach().copy_(tensor(values, p.shape()));
        }
        nn::AdamW optimizer(net.parameters(), decaying());
        nn::DataParallelStep step(net, net.parameters(), 4, group, 1, scatter);
        std::optional<nn::OptimizerShards> shards;
        if (size > 1) shards.emplace(optimizer, step.reducer(), group);
        std::vector<double> values;
        for (int64_t i = 0; i < 24; ++i) values.push_back(double(i % 7) - 3);
        const Tensor rows = tensor(values, {8, 3}).to(f32);
        std::vector<Weights> own{weights_of(net)};
        for (int64_t s = 0; s < 5; ++s) {
          freeze_for(net, s);
          step(s, [&] {
            return mean(square(net(step.stage(
                s, [&](int64_t) { return Tensors{rows}; }, -1)[0])));
          });
          step.reducer().scatters() ? shards->clip(0.5)
                                    : nn::clip_grad_norm(net.parameters(), 0.5).item();
          shards ? shards->step() : optimizer.step();
          own.push_back(weights_of(net));
        }
        if (shards) shards->gather();
        if (!group.is_root()) return;
        got = own;
        for (const nn::ParameterState& s : optimizer.state()) steps.push_back(s.steps);
      });
      INFO(size << " processes" << (scatter ? ", scattered" : ""));
      for (size_t s = 0; s < 5; ++s) CHECK(changed(got[s], got[s + 1]) == trained[s]);
      CHECK(steps == std::vector<int64_t>{3, 3, 4, 4, 0, 0});
      if (alone.empty()) alone = got;
      CHECK(got == alone);
    }
}
