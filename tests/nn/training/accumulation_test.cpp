// A step is the mean over all scored targets, however its batch is divided into micro-batches.
#include <cmath>
#include <set>

#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/training/trainer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"

using namespace stretto;           // NOLINT
using namespace stretto::testing;  // NOLINT

namespace {

constexpr int64_t vocabulary = 7, length = 5;

struct Net : nn::Module {
  nn::Embedding tokens{*this, "tokens", {.count = vocabulary, .dim = 4}};
  nn::Linear out{*this, "out", {.in = 4, .out = vocabulary}};
  Tensor loss(const nn::Batch& b) const {
    return cross_entropy(out(tokens(b.inputs)), b.targets, {.ignore_index = nn::ignore_index});
  }
};

// Rows with these numbers of scored targets.
nn::Batch batch_of(const std::vector<int64_t>& scored) {
  const int64_t rows = int64_t(scored.size());
  nn::Batch b{randint(0, vocabulary, {rows, length}), randint(0, vocabulary, {rows, length})};
  for (int64_t r = 0; r < rows; ++r)
    b.targets[r].slice(0, scored[size_t(r)]).fill_(double(nn::ignore_index));
  return b;
}

struct Outcome {
  double loss, norm;
  std::vector<double> gradient, weights;
};

// One step over `batch`, in micro-batches.
Outcome step(const nn::Batch& batch, int64_t micro_batches) {
  Net net;
  net.to(f64);
  nn::AdamW optimizer(net.parameters(), {.lr = 0.1, .weight_decay = 0.1});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = micro_batches});
  const nn::StepResult r = trainer.step(
      [&] { return net.loss(trainer.stage_batch(0, [&](int64_t) { return batch; })); });
  Outcome got{r.loss, r.gradient_norm, {}, {}};
  for (const Tensor& p : net.parameters()) {
    for (const double x : p.grad().to_vector<double>()) got.gradient.push_back(x);
    for (const double x : p.to_vector<double>()) got.weights.push_back(x);
  }
  return got;
}

// Both are sums of at most 25 terms of at most 1, in f64.
void check_equal(const Outcome& got, const Outcome& expected) {
  CHECK(got.loss == Approx(expected.loss).epsilon(1e-13).margin(1e-13));
  CHECK(got.norm == Approx(expected.norm).epsilon(1e-13).margin(1e-13));
  REQUIRE(got.gradient.size() == expected.gradient.size());
  for (size_t i = 0; i < got.gradient.size(); ++i)
    CHECK(got.gradient[i] == Approx(expected.gradient[i]).epsilon(0).margin(1e-14));
}

}  // namespace

TEST_CASE("A step is the mean over its scored targets, however its batch is divided", "[trainer]") {
  manual_seed(4);
  const RandomState begin = random_state();
  const auto compared = [&](const std::vector<int64_t>& scored) {
    set_random_state(begin);
    const nn::Batch batch = batch_of(scored);
    const RandomState ready = random_state();
    const Outcome whole = step(batch, 1);
    for (int64_t n = 2; n <= int64_t(scored.size()); n *= 2) {
      set_random_state(ready);
      check_equal(step(batch, n), whole);
    }
    return whole;
  };
  compared({3, 0, 5, 5, 5, 5, 2, 0});  // of 2: 13 and 12; of 8: two without targets
  compared({0, 0, 0, 0, 1, 5, 5, 5});  // none, and 16
  compared({5, 5, 0, 0});              // 10, and none
  // A step that scores nothing has a gradient of zeros, with which AdamW still decays.
  const Outcome nothing = compared({0, 0, 0, 0});
  CHECK(nothing.loss == 0);
  CHECK(nothing.norm == 0);
}

TEST_CASE("A step that scores nothing changes weights the same, however its batch is divided",
          "[trainer]") {
  manual_seed(5);
  const nn::Batch batch = batch_of({0, 0, 0, 0});
  const RandomState ready = random_state();
  const Outcome whole = step(batch, 1);
  for (const int64_t n : {2, 4}) {
    set_random_state(ready);
    CHECK(step(batch, n).weights == whole.weights);
  }
}

TEST_CASE("The mean over no targets, 0 / 0, counts as nothing", "[trainer]") {
  if (default_device().is_cuda()) STRETTO_SKIP("on a GPU the host does not wait for a loss");
  Net net;
  net.to(f64);
  nn::SGD optimizer(net.parameters(), {.lr = 0.1});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 2});
  const nn::Batch whole = batch_of({0, 4});
  const nn::StepResult r = trainer.step([&] {
    const nn::Batch b = trainer.stage_batch(0, [&](int64_t) { return whole; });
    const Tensor scored = ne(b.targets, double(nn::ignore_index)).to(f64);
    const Tensor losses = sum(square(net.out(net.tokens(b.inputs))), {-1});
    return sum(losses * scored) / sum(scored);
  });
  CHECK(r.loss > 0);
  CHECK(std::isfinite(r.gradient_norm));
  CHECK(r.gradient_norm > 0);
}

TEST_CASE("Micro-batches staged without targets have equal weights", "[trainer]") {
  Net net;
  net.to(f64);
  nn::SGD optimizer(net.parameters(), {.lr = 0});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 2});
  const Tensor ids = randint(0, vocabulary, {4, length});
  const auto loss_of = [&](const Tensor& x) { return mean(square(net.out(net.tokens(x)))); };
  const nn::StepResult r = trainer.step(
      [&] { return loss_of(trainer.stage(0, [&](int64_t) { return Tensors{ids}; })[0]); });
  const std::vector<double> got = net.out.weight.grad().to_vector<double>();
  net.zero_grad();
  const Tensor whole = loss_of(ids);
  whole.backward();
  CHECK(r.loss == Approx(whole.item()).epsilon(1e-13));
  const std::vector<double> expected = net.out.weight.grad().to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
}

TEST_CASE("A batch must be staged and divide into equal micro-batches", "[trainer]") {
  Net net;
  nn::SGD optimizer(net.parameters(), {});
  const nn::Batch batch = batch_of({5, 5, 5, 5, 5, 5});
  const auto refusal = [&](int64_t micro_batches, bool stage) {
    return error_of<Error>([&] {
      nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = micro_batches});
      trainer.step([&] {
        return net.loss(stage ? trainer.stage_batch(0, [&](int64_t) { return batch; }) : batch);
      });
    });
  };
  CHECK(refusal(2, false) ==
        "[train] step 1: with micro-batches, the loss must get its batch from "
        "Trainer::stage() or stage_batch()");
  CHECK(refusal(4, true) ==
        "[train] step 1: a batch of 6 rows cannot be divided into 4 micro-batches");
  CHECK_THAT(refusal(3, true), Containing("must be a power of two"));
}

TEST_CASE("Every micro-batch begins with the buffers of the step", "[trainer]") {
  struct Counting : nn::Module {
    const Tensor weight = parameter("weight", ones({1})), calls = buffer("calls", zeros({1}));
  } net;
  nn::SGD optimizer(net.parameters(), {});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 4});
  const nn::StepResult r = trainer.step([&] {
    trainer.stage(0, [](int64_t) { return Tensors{zeros({4, 1})}; });
    net.calls.add_(1);
    return sum(net.weight * net.calls.clone());
  });
  CHECK(r.loss == 1);
  CHECK(net.calls.item() == 1);
}

TEST_CASE("Micro-batches and what follows a step draw different random numbers", "[trainer]") {
  nn::Linear net({.in = 1, .out = 1});
  nn::SGD optimizer(net.parameters(), {});
  nn::Trainer trainer(net, optimizer, {.steps = 2, .micro_batches = 2});
  std::set<double> drawn;
  const auto is_new = [&] { return drawn.insert(rand({}, {.dtype = f64}).item()).second; };
  for (int step = 0; step < 2; ++step) {
    trainer.step([&] {
      const Tensors x = trainer.stage(0, [](int64_t) { return Tensors{zeros({2, 1})}; });
      CHECK(is_new());
      return sum(net(x[0]));
    });
    CHECK(is_new());
  }
  CHECK(drawn.size() == 2 * 3);
}

TEST_CASE("Gradients of micro-batches are summed in f32 in a bf16 model", "[trainer]") {
  // 256 + 8 · 0.25: a bf16 sum would lose each of the eight.
  struct Scale : nn::Module {
    const Tensor weight = parameter("weight", ones({1}));
  } net;
  net.to(bf16);
  nn::SGD optimizer(net.parameters(), {.lr = 0});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 16});
  std::vector<double> rows(16, 0.0);
  rows[0] = 256 * 16;
  for (size_t i = 1; i <= 8; ++i) rows[i] = 0.25 * 16;
  const Tensor x = tensor(rows, {16, 1}).to(bf16);
  trainer.step(
      [&] { return mean(net.weight * trainer.stage(0, [&](int64_t) { return Tensors{x}; })[0]); });
  CHECK(net.weight.grad().to_vector<double>()[0] == 258);
}
