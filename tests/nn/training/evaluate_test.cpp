// Evaluation mode for a scope, and the mean loss over batches.
#include "nn/training/evaluate.h"

#include <cmath>

#include "nn/data/crops.h"
#include "nn/dropout.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT

namespace {

struct Bigrams : nn::Module {
  nn::Embedding table{*this, "table", {.count = 5, .dim = 5}};
  nn::Dropout dropout{*this, "dropout", {.p = 0.5}};
  Tensor operator()(const Tensor& tokens) const { return dropout(table(tokens)); }
};

nn::Batch batch(const std::vector<int64_t>& inputs, const std::vector<int64_t>& targets) {
  const Shape shape{1, int64_t(inputs.size())};
  return {tensor(inputs, shape), tensor(targets, shape)};
}

}  // namespace

TEST_CASE("EvalMode restores every module's mode, also after an exception", "[evaluate]") {
  Bigrams model;
  model.dropout.eval();
  try {
    const nn::EvalMode guard(model);
    CHECK_FALSE(model.training());
    CHECK_FALSE(model.table.training());
    CHECK_FALSE(grad_enabled());
    throw std::string("stopped");
  } catch (const std::string&) {
  }
  CHECK(grad_enabled());
  CHECK(model.training());
  CHECK(model.table.training());
  CHECK_FALSE(model.dropout.training());
}

TEST_CASE("mean_loss is the mean over all scored tokens of all batches", "[evaluate]") {
  manual_seed(2);
  Bigrams model;
  const std::vector<nn::Batch> batches{batch({0, 1, 2}, {1, nn::ignore_index, 3}), batch({4}, {0})};
  const std::vector<double> table = model.table.weight.to_vector<double>();
  double sum = 0;
  for (const auto& [input, target] : {std::pair(0, 1), {2, 3}, {4, 0}}) {
    double total = 0;
    for (int i = 0; i < 5; ++i) total += std::exp(table[size_t(5 * input + i)]);
    sum += std::log(total) - table[size_t(5 * input + target)];
  }
  CHECK(nn::mean_loss(model, batches) == Approx(sum / 3).epsilon(1e-6));
  CHECK(nn::mean_loss(model, batches) == nn::mean_loss(model, batches));  // no dropout
  CHECK(model.training());
  CHECK(std::isnan(nn::mean_loss(model, std::vector<nn::Batch>{})));
  CHECK_THROWS_WITH(nn::LossSum().add(ones({2}), zeros({3}, {.dtype = i64})),
                    "[LossSum] losses f32 [2], targets i64 [3]; shapes must be equal");
}

TEST_CASE("mean_loss of logits that see only the inputs refuses padding and segments",
          "[evaluate]") {
  Bigrams model;
  const auto logits = [&](const Tensor& tokens) { return model(tokens); };
  nn::Batch padded = batch({0, 1}, {1, 2}), packed = padded;
  padded.padding = zeros({1, 2}, {.dtype = boolean});
  packed.segments = zeros({1, 2}, {.dtype = i64});
  for (const nn::Batch& each : {padded, packed})
    CHECK_THROWS_WITH(
        nn::mean_loss(model, std::function<Tensor(const Tensor&)>(logits),
                      [&](const std::function<void(const nn::Batch&)>& score) { score(each); }),
        Containing("pass a function of the batch"));
}

TEST_CASE("mean_loss of a loss of one's own weighs batches by their scored targets", "[evaluate]") {
  manual_seed(2);
  Bigrams model;
  const std::vector<nn::Batch> batches{batch({0, 1, 2}, {1, nn::ignore_index, 3}), batch({4}, {0})};
  const double expected = nn::mean_loss(model, batches);
  int64_t calls = 0;
  const auto loss = [&](const nn::Batch& b) {
    ++calls;
    CHECK_FALSE(model.training());
    return cross_entropy(model(b.inputs), b.targets);
  };
  CHECK(nn::mean_loss(model, batches, loss) == Approx(expected).epsilon(1e-6));
  CHECK(calls == 2);
  CHECK(model.training());
  CHECK(std::isnan(nn::mean_loss(model, {}, loss)));

  // A sum and a number of any kind.
  CHECK(nn::mean_loss(model, 3, [](int64_t i) {
          return nn::LossSum{.loss = double(10 * i), .tokens = i};
        }) == 10);
}

namespace {

// Scores depend on the number of tokens that are not padding.
struct Lengths : nn::Module {
  nn::Embedding table{*this, "table", {.count = 5, .dim = 3}};
  Tensor operator()(const Tensor& tokens, const Tensor& padding) const {
    const Tensor there = 1.0 - padding.to(f32);
    return sum(table(tokens) * there.reshape({tokens.size(0), tokens.size(1), 1}), {1});
  }
  Tensor operator()(const Tensor& tokens) const {
    return (*this)(tokens, zeros(tokens.shape(), {.dtype = boolean}));
  }
};

}  // namespace

TEST_CASE("mean_loss passes the padding of a batch to the model", "[evaluate]") {
  manual_seed(2);
  Lengths model;
  const std::vector<std::vector<int64_t>> rows{{1, 2, 3}, {4}};
  const std::vector<int64_t> classes{2, 0};
  const nn::Batch both = nn::classification_batch(rows, classes);
  double sum = 0;
  for (size_t i = 0; i < 2; ++i)
    sum += nn::mean_loss(model,
                         std::vector<nn::Batch>{nn::classification_batch({rows[i]}, {classes[i]})});
  CHECK(nn::mean_loss(model, std::vector<nn::Batch>{both}) == Approx(sum / 2).epsilon(1e-6));
  Bigrams blind;
  CHECK_THROWS_WITH(nn::mean_loss(blind, std::vector<nn::Batch>{both}),
                    "[mean_loss] a batch has padding, and the model cannot be called with inputs "
                    "and padding; pass a function of the batch that computes the logits");
}

TEST_CASE("Module::device() returns the device of the parameters", "[evaluate]") {
  CHECK(Bigrams().device() == default_device());
  CHECK(nn::Dropout({.p = 0.5}).device() == cpu);
}
