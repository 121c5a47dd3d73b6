// Random trainings: a step divided into micro-batches equals the step of the whole batch, and a run
// that is stopped and resumed equals one that is not. STRETTO_FUZZ_ROUNDS=n runs n of each.
#include <cmath>
#include <cstdlib>

#include "nn/data/draws.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/optim/weight_average.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

int64_t rounds(int64_t usual) {
  const char* text = std::getenv("STRETTO_FUZZ_ROUNDS");
  return text != nullptr ? std::stoll(text) : usual;
}

struct Sizes {
  int64_t vocabulary, dim, layers, unused;
  double dropout;
};

// Each token through some layers; the loss does not depend on `unused`.
struct Net : nn::Module {
  explicit Net(const Sizes& s)
      : sizes(s),
        tokens(*this, "tokens", {.count = s.vocabulary, .dim = s.dim}),
        layers(*this, "layers", s.layers, nn::LinearOptions{.in = s.dim, .out = s.dim}),
        dropout(*this, "dropout", {.p = s.dropout}),
        out(*this, "out", {.in = s.dim, .out = s.vocabulary}),
        unused(parameter("unused", ones({s.unused}))) {}
  Tensor loss(const nn::Batch& b) const {
    Tensor x = tokens(b.inputs);
    for (const nn::Linear& layer : layers) x = x + dropout(tanh(layer(x)));
    return cross_entropy(out(x), b.targets, {.ignore_index = nn::ignore_index});
  }

  const Sizes sizes;
  nn::Embedding tokens;
  nn::List<nn::Linear> layers;
  nn::Dropout dropout;
  nn::Linear out;
  const Tensor unused;
};

nn::Batch random_batch(nn::Draws& draws, int64_t rows, int64_t length, int64_t vocabulary) {
  std::vector<int64_t> inputs, targets;
  const int64_t scored_rows = draws.below(rows + 1);  // may be none
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t i = 0; i < length; ++i) {
      inputs.push_back(draws.below(vocabulary));
      const bool scored = r < scored_rows && draws.below(3) > 0;
      targets.push_back(scored ? draws.below(vocabulary) : nn::ignore_index);
    }
  return {tensor(inputs, {rows, length}), tensor(targets, {rows, length})};
}

// Freezes and unfreezes random parameters, by step `number` of case `seed`.
void freeze_some(Net& net, uint64_t seed, int64_t number) {
  nn::Draws draws(seed + 1000000, number);
  for (const Tensor& p : net.parameters()) p.set_requires_grad(draws.below(4) > 0);
  net.out.weight.set_requires_grad();  // at least one parameter is trained
}

struct Outcome {
  std::vector<double> numbers;         // losses and norms, and then the weights
  std::vector<std::vector<bool>> has;  // whether each parameter has a gradient, after each step
};

// Runs a few steps of case `seed`: each batch whole, or in micro-batches.
Outcome train(uint64_t seed, bool cut) {
  nn::Draws draws(seed, 0);
  const Sizes sizes{2 + draws.below(8), 1 + draws.below(5), draws.below(3), 1 + draws.below(2), 0};
  const int64_t micro_batches = int64_t(2) << draws.below(2),
                rows = micro_batches * (1 + draws.below(2));
  const int64_t length = 1 + draws.below(5), steps = 1 + draws.below(3);
  const bool freezes = draws.below(3) == 0;
  manual_seed(seed);
  Net net(sizes);
  net.to(f64);
  nn::SGD optimizer(net.parameters(), {.lr = 0.1, .momentum = 0.5, .weight_decay = 0.1});
  nn::Trainer trainer(
      net, optimizer,
      {.steps = steps, .max_grad_norm = 0.5, .micro_batches = cut ? micro_batches : 1});
  Outcome got;
  for (int64_t step = 0; step < steps; ++step) {
    nn::Draws own(seed, step + 1);
    const nn::Batch batch = random_batch(own, rows, length, sizes.vocabulary);
    if (freezes) freeze_some(net, seed, step);
    const nn::StepResult r = trainer.step(
        [&] { return net.loss(trainer.stage_batch(step, [&](int64_t) { return batch; })); });
    got.numbers.insert(got.numbers.end(), {r.loss, r.gradient_norm});
    got.has.emplace_back();
    for (const Tensor& p : net.parameters()) got.has.back().push_back(p.grad().defined());
  }
  for (const Tensor& p : net.parameters())
    for (const double x : p.to_vector<double>()) got.numbers.push_back(x);
  return got;
}

// A run that is stopped after random numbers of steps: its files and the batches it used.
struct Run {
  std::string checkpoint, metrics;
  std::vector<int64_t> batches;
};

// With `resumed` a new model, optimizer and trainer resume from the checkpoint after every stop,
// else the same objects continue.
Run run(uint64_t seed, const std::string& folder, bool resumed) {
  nn::Draws draws(seed, 0);
  const Sizes sizes{2 + draws.below(6), 1 + draws.below(4), draws.below(3), 1,
                    draws.below(2) == 0 ? 0.0 : 0.3};
  const int64_t steps = 2 + draws.below(8), length = 1 + draws.below(4);
  const int64_t kind = draws.below(3), rates = draws.below(3), micro_batches = 1 + draws.below(2);
  const bool averages = draws.below(2) == 0, best = draws.below(2) == 0;
  const DType dtype = draws.below(3) == 0 ? bf16 : f32;
  const int64_t evaluate_every = 1 + draws.below(3);
  Run got;
  struct Program {
    std::unique_ptr<Net> net;
    std::unique_ptr<nn::Optimizer> optimizer;
    std::unique_ptr<nn::WeightAverage> average;
    std::unique_ptr<nn::Trainer> trainer;
  };
  std::optional<Program> p;
  const auto start = [&] {
    p.emplace();
    manual_seed(seed);
    p->net = std::make_unique<Net>(sizes);
    p->net->to(dtype);
    if (kind == 0)
      p->optimizer =
          std::make_unique<nn::SGD>(p->net->parameters(), nn::SGDOptions{.momentum = 0.9});
    else
      p->optimizer = std::make_unique<nn::AdamW>(p->net->parameters(), nn::AdamWOptions{});
    if (averages) p->average = std::make_unique<nn::WeightAverage>(*p->net);
    nn::TrainerOptions o{.steps = steps,
                         .max_grad_norm = 1,
                         .average = p->average.get(),
                         .micro_batches = micro_batches,
                         .evaluate_every = evaluate_every,
                         .keep_best = best,
                         .folder = folder,
                         .quiet = true};
    if (rates == 0) o.schedule = nn::WarmupCosine{.peak = 0.1, .warmup = 2, .steps = steps};
    p->trainer = std::make_unique<nn::Trainer>(*p->net, *p->optimizer, o);
    if (rates == 1)
      p->trainer->options.after_step = [&](const nn::StepResult& r) {
        p->optimizer->set_learning_rate(p->optimizer->learning_rate() * (r.loss > 1 ? 1.1 : 0.7));
      };
  };
  for (int64_t micro_batch = 0;; ++micro_batch) {
    nn::Draws own(seed, micro_batch + 1);
    const int64_t stop_after = own.below(4);
    if (micro_batch == 0 || resumed) {
      start();
      p->trainer->resume();
    }
    nn::Trainer& t = *p->trainer;
    const int64_t end = t.steps_done() + stop_after;
    t.options.stop = [&t, end] { return t.steps_done() >= end; };
    const bool done = t.run(
        [&](int64_t i) {
          const nn::Batch b = t.stage_batch(i, [&](int64_t at) {
            if (got.batches.empty() || got.batches.back() != at) got.batches.push_back(at);
            nn::Draws of_batch(seed, 1000 + at);
            return random_batch(of_batch, 2 + 2 * of_batch.below(2), length, sizes.vocabulary);
          });
          return p->net->loss(b);
        },
        [&] {
          p->net->eval();
          nn::Draws held_out(seed, 999);
          const double value =
              p->net->loss(random_batch(held_out, 8, length, sizes.vocabulary)).item();
          p->net->train();
          return value;
        });
    if (done) break;
  }
  got.checkpoint = read_file(folder + "/checkpoint.safetensors");
  for (const std::vector<double>& row : p->trainer->metrics().rows())
    for (const size_t column : {0, 2, 3, 4, 5}) got.metrics += str(row[column], ' ');
  return got;
}

}  // namespace

TEST_CASE("A random step equals that of its whole batch, however it is divided",
          "[trainer][fuzz]") {
  int64_t nothing = 0;
  const int64_t n = rounds(60);
  for (int64_t seed = 1; seed <= n; ++seed) {
    INFO("seed " << seed);
    const Outcome whole = train(uint64_t(seed), false), got = train(uint64_t(seed), true);
    nothing += whole.numbers[0] == 0;
    REQUIRE(got.has == whole.has);
    REQUIRE(got.numbers.size() == whole.numbers.size());
    // Sums of at most 40 values of at most 10, in f64, three steps of rate 0.1.
    double most = 0;
    for (size_t i = 0; i < got.numbers.size(); ++i)
      most = std::max(most, std::abs(got.numbers[i] - whole.numbers[i]));
    REQUIRE(most <= 1e-12);
  }
  CHECK(nothing > n / 50);  // some batches score nothing
  CHECK(nothing < n / 2);
}

TEST_CASE("A random run that is stopped is resumed bit for bit", "[trainer][fuzz]") {
  const TempDir dir;
  const int64_t n = rounds(10);
  for (int64_t seed = 1; seed <= n; ++seed) {
    INFO("seed " << seed);
    const std::string folder = dir.file(str("run", seed));
    const Run whole = run(uint64_t(seed), folder + "a", false);
    const Run stopped = run(uint64_t(seed), folder + "b", true);
    REQUIRE(stopped.batches == whole.batches);
    for (size_t i = 0; i < whole.batches.size(); ++i) REQUIRE(whole.batches[i] == int64_t(i));
    REQUIRE(stopped.metrics == whole.metrics);
    REQUIRE(stopped.checkpoint == whole.checkpoint);
    std::filesystem::remove_all(folder + "a");
    std::filesystem::remove_all(folder + "b");
  }
}
