// Steps of several micro-batches on the GPU, eager and as a CUDA graph, against the CPU.
#include "nn/training/trainer.h"

#include "nn/embedding.h"
#include "nn/linear.h"
#include "ops/loss.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

constexpr int64_t vocabulary = 7, length = 5, rows = 4;

struct Net : nn::Module {
  nn::Embedding tokens{*this, "tokens", {.count = vocabulary, .dim = 4}};
  nn::Linear out{*this, "out", {.in = 4, .out = vocabulary}};
};

// Each batch i has different scored targets; every fifth batch has none, and every third batch none
// in its last two rows.
nn::Batch batch_of(int64_t i) {
  std::vector<int64_t> inputs, targets;
  for (int64_t k = 0; k < rows * length; ++k) {
    inputs.push_back((3 * i + k) % vocabulary);
    const bool empty = i % 5 == 4 || (i % 3 == 2 && k >= 2 * length);
    const bool scored = !empty && (k * (i + 2)) % 3 != 0;
    targets.push_back(scored ? (i + 2 * k) % vocabulary : nn::ignore_index);
  }
  return {tensor(inputs, {rows, length}, cpu), tensor(targets, {rows, length}, cpu)};
}

struct Outcome {
  std::vector<double> numbers;
  std::vector<int64_t> batches;
};

Outcome train(Device device, bool graph) {
  manual_seed(3);
  Net net;
  net.to(f64).to(device);
  nn::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.5});
  nn::Trainer trainer(net, optimizer,
                      {.steps = 8, .max_grad_norm = 0.5, .micro_batches = 2, .cuda_graph = graph});
  Outcome got;
  for (int64_t step = 0; step < 8; ++step) {
    const nn::StepResult r = trainer.step([&] {
      const nn::Batch b = trainer.stage_batch(step, [&](int64_t i) {
        got.batches.push_back(i);
        return batch_of(i);
      });
      return cross_entropy(net.out(net.tokens(b.inputs)), b.targets,
                           {.ignore_index = nn::ignore_index});
    });
    got.numbers.insert(got.numbers.end(), {r.loss, r.gradient_norm});
  }
  for (const Tensor& p : net.parameters())
    for (const double x : p.to_vector<double>()) got.numbers.push_back(x);
  return got;
}

}  // namespace

TEST_CASE("Micro-batches are weighted by their numbers of scored targets on the GPU, too",
          "[cuda]") {
  NEEDS_GPU();
  const Outcome plain = train(cpu, false), eager = train(gpu, false), graph = train(gpu, true);
  CHECK(eager.batches == plain.batches);
  CHECK(graph.batches == plain.batches);
  CHECK(same_values(graph.numbers, eager.numbers));
  REQUIRE(eager.numbers.size() == plain.numbers.size());
  // Sums of 20 terms of at most 10, eight steps of learning rate 0.1.
  for (size_t i = 0; i < plain.numbers.size(); ++i)
    CHECK(std::abs(eager.numbers[i] - plain.numbers[i]) <= 1e-12);
}
