// A step is the mean over all that it scores, however its batch is cut: micro-batches, parts.
#include <cmath>

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
    return cross_entropy(out(tokens(b.inputs)), b.targets, {.ignore_index = nn::not_scored});
  }
};

// Rows of which so many targets are scored.
nn::Batch batch_of(const std::vector<int64_t>& scored) {
  const int64_t rows = int64_t(scored.size());
  nn::Batch b{randint(0, vocabulary, {rows, length}), randint(0, vocabulary, {rows, length})};
  for (int64_t r = 0; r < rows; ++r)
    b.targets[r].slice(0, scored[size_t(r)]).fill_(double(nn::not_scored));
  return b;
}

nn::Batch rows_of(const nn::Batch& b, int64_t begin, int64_t end) {
  return {b.inputs.slice(0, begin, end), b.targets.slice(0, begin, end)};
}

struct Outcome {
  double loss, norm;
  std::vector<double> gradient, weights;
};

// One step over `batch`, by parts, or by micro-batches that end at `ends`.
Outcome step(const nn::Batch& batch, int64_t parts, std::vector<int64_t> ends, bool fed = true) {
  Net net;
  net.to(f64);
  nn::AdamW optimizer(net.parameters(), {.lr = 0.1, .weight_decay = 0.1});
  nn::Trainer trainer(net, optimizer,
                      {.steps = 1, .micro_batches = int64_t(ends.size()), .parts = parts});
  ends.insert(ends.begin(), 0);
  int64_t next = 0;
  const nn::StepResult r = trainer.step([&] {
    const int64_t i = parts > 1 ? 0 : next++;
    const auto make = [&](int64_t at) {
      return rows_of(batch, ends[size_t(at)], ends[size_t(at) + 1]);
    };
    return net.loss(fed ? trainer.fed_batch(i, make) : make(i));
  });
  Outcome got{r.loss, r.gradient_norm, {}, {}};
  for (const Tensor& p : net.parameters()) {
    for (const double x : p.grad().to_vector<double>()) got.gradient.push_back(x);
    for (const double x : p.to_vector<double>()) got.weights.push_back(x);
  }
  return got;
}

// Both are sums of at most 25 terms of at most 1 in f64.
void check_equal(const Outcome& got, const Outcome& expected) {
  CHECK(got.loss == Approx(expected.loss).epsilon(1e-13).margin(1e-13));
  CHECK(got.norm == Approx(expected.norm).epsilon(1e-13).margin(1e-13));
  REQUIRE(got.gradient.size() == expected.gradient.size());
  for (size_t i = 0; i < got.gradient.size(); ++i)
    CHECK(got.gradient[i] == Approx(expected.gradient[i]).epsilon(0).margin(1e-14));
}

}  // namespace

TEST_CASE("A step is the mean over its scored targets, however it is cut", "[trainer]") {
  manual_seed(4);
  const RandomState begin = random_state();
  const auto compared = [&](const std::vector<int64_t>& scored, std::vector<int64_t> ends) {
    set_random_state(begin);
    const nn::Batch batch = batch_of(scored);
    const RandomState ready = random_state();
    const int64_t rows = int64_t(scored.size());
    const Outcome whole = step(batch, 1, {rows});
    set_random_state(ready);
    check_equal(step(batch, 1, std::move(ends)), whole);
    set_random_state(ready);
    check_equal(step(batch, 2, {rows}), whole);
    return whole;
  };
  compared({3, 0, 5, 5, 5, 5, 2, 0}, {2, 8});        // 3 and 22
  compared({0, 0, 0, 0, 1, 5, 5, 5}, {4, 8});        // nothing, and 16
  compared({5, 5, 0, 0}, {2, 3, 4});                 // 10, nothing, nothing
  compared({1, 2, 3, 4, 5, 5}, {1, 2, 3, 4, 5, 6});  // one by one
  // A step that scores nothing has a gradient of zeros, by which AdamW decays.
  const Outcome nothing = compared({0, 0, 0, 0}, {1, 4});
  CHECK(nothing.loss == 0);
  CHECK(nothing.norm == 0);
}

TEST_CASE("A step that scores nothing changes weights alike, however it is cut", "[trainer]") {
  manual_seed(5);
  const nn::Batch batch = batch_of({0, 0, 0, 0});
  const RandomState ready = random_state();
  const Outcome whole = step(batch, 1, {4});
  set_random_state(ready);
  CHECK(step(batch, 1, {2, 4}).weights == whole.weights);
  set_random_state(ready);
  CHECK(step(batch, 2, {4}).weights == whole.weights);
}

TEST_CASE("The mean of nothing, 0 / 0, counts as nothing", "[trainer]") {
  if (default_device().is_cuda()) STRETTO_SKIP("on a GPU the host does not wait for a loss");
  for (const int64_t parts : {1, 2}) {
    Net net;
    net.to(f64);
    nn::SGD optimizer(net.parameters(), {.lr = 0.1});
    nn::Trainer trainer(net, optimizer,
                        {.steps = 1, .micro_batches = parts == 1 ? 2 : 1, .parts = parts});
    const nn::Batch whole = batch_of({0, 4});
    int64_t next = 0;
    const nn::StepResult r = trainer.step([&] {
      const nn::Batch b = trainer.fed_batch(
          next, [&](int64_t i) { return parts == 1 ? rows_of(whole, i, i + 1) : whole; });
      if (parts == 1) ++next;
      const Tensor scored = ne(b.targets, double(nn::not_scored)).to(f64);
      const Tensor losses = sum(square(net.out(net.tokens(b.inputs))), {-1});
      return sum(losses * scored) / sum(scored);
    });
    const Tensor row = net.out(net.tokens(whole.inputs[1].slice(0, 0, 4)));
    CHECK(r.loss > 0);
    CHECK(std::isfinite(r.gradient_norm));
    CHECK(r.gradient_norm > 0);
    CHECK(row.dim() == 2);
  }
}

TEST_CASE("Rows of micro-batches without scored targets count the same", "[trainer]") {
  Net net;
  net.to(f64);
  nn::SGD optimizer(net.parameters(), {.lr = 0});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 2});
  const Tensor ids = randint(0, vocabulary, {4, length});
  const auto loss_of = [&](const Tensor& x) { return mean(square(net.out(net.tokens(x)))); };
  int64_t next = 0;
  const nn::StepResult r = trainer.step([&] {
    const Tensors x = trainer.fed(
        next++, [&](int64_t i) { return Tensors{i == 0 ? ids.slice(0, 0, 1) : ids.slice(0, 1)}; });
    return loss_of(x[0]);
  });
  const std::vector<double> got = net.out.weight.grad().to_vector<double>();
  net.zero_grad();
  const Tensor whole = loss_of(ids);
  whole.backward();
  CHECK(r.loss == Approx(whole.item()).epsilon(1e-13));
  const std::vector<double> expected = net.out.weight.grad().to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i)
    CHECK(got[i] == Approx(expected[i]).epsilon(1e-12).margin(1e-13));
}

TEST_CASE("All micro-batches of a step have a count, or none", "[trainer]") {
  Net net;
  nn::SGD optimizer(net.parameters(), {});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 2});
  const nn::Batch batch = batch_of({5, 5});
  int64_t next = 0;
  CHECK(
      error_of<Error>([&] {
        trainer.step([&] {
          const Tensor logits = net.out(net.tokens(batch.inputs));
          return next++ == 0 ? net.loss(batch) : mean(logits);
        });
      }) ==
      "[train] step 1: [train] 1 of 2 micro-batches have a number of scored targets; take all from "
      "Trainer::fed or fed_batch");
}

TEST_CASE("The means of losses say how much micro-batches count", "[trainer]") {
  manual_seed(4);
  const nn::Batch batch = batch_of({3, 0, 5, 5, 5, 5, 2, 0});
  const RandomState ready = random_state();
  const Outcome whole = step(batch, 1, {8});
  set_random_state(ready);
  check_equal(step(batch, 1, {2, 8}, false), whole);

  // Of several means it must be said, unless it makes no difference; on a GPU they weigh alike.
  if (default_device().is_cuda()) return;
  Net net;
  nn::SGD optimizer(net.parameters(), {});
  nn::Trainer trainer(net, optimizer, {.steps = 1, .micro_batches = 2});
  const auto steps = [&](const nn::Batch& first, const nn::Batch& second) {
    int64_t next = 0;
    trainer.step([&] {
      const nn::Batch& b = next++ == 0 ? first : second;
      const Tensor first_mean = net.loss(b);
      return first_mean + mse_loss(net.out(net.tokens(b.inputs)), zeros({2, length, vocabulary}));
    });
  };
  steps(batch_of({5, 4}), batch_of({4, 5}));
  CHECK(
      error_of<Error>([&] {
        steps(batch_of({5, 4}), batch_of({4, 4}));
      }) ==
      "[train] step 2: [train] losses of micro-batches are sums of means over 9, 70, … and 8, 70, "
      "… targets; take the batches from Trainer::fed, which is told what counts");
}
