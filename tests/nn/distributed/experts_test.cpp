// Experts under data parallelism, where processes are threads, and in checkpoints.
#include <memory>
#include <vector>

#include "autograd/tape.h"
#include "nn/distributed/gradient_reducer.h"
#include "nn/models/language_model.h"
#include "nn/models/moe.h"
#include "nn/optim/optim.h"
#include "nn/positions/rotary.h"
#include "nn/training/checkpoint.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/process_threads.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::each_of;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr int64_t n_experts = 5, d_model = 5, half = 12;

// Experts whose tokens the largest features choose: feature e leads to expert e.
struct Model : nn::Module {
  nn::MoE moe{*this,
              {.d_model = d_model, .d_hidden = 7},
              {.n_experts = n_experts,
               .score = nn::RouterScore::sigmoid,
               .d_shared = 3,
               .selection_bias = true}};
  Model() {
    to(f64);
    const NoGrad guard;
    moe.router.weight.copy_(eye(d_model, {.dtype = f64}));
  }
};

std::unique_ptr<Model> make() {
  manual_seed(5);
  return std::make_unique<Model>();
}

// Two halves. Tokens of the first choose experts 0, 1 and 2, those of the second 2 and 3.
Tensor inputs() {
  manual_seed(6);
  Tensor x = 0.3 * randn({2 * half, d_model}, {.dtype = f64});
  for (int64_t t = 0; t < 2 * half; ++t) {
    const int64_t first = t < half ? t % 3 : 2, second = t < half ? (t + 1) % 3 : 3;
    for (const int64_t feature : {first, second}) x[t][feature].add_(2);
  }
  return x;
}

// The gradients and the bias of a process after three steps.
struct Outcome {
  Tensors gradients;
  Tensor bias;
  std::vector<double> first_load;
};

Outcome train(Model& model, const Tensor& x, nn::ProcessGroup* group) {
  Outcome got;
  nn::SGD optimizer(model.parameters(), {.lr = 1e-3});
  std::unique_ptr<nn::GradientReducer> sums;
  if (group) sums = std::make_unique<nn::GradientReducer>(model.parameters(), 2, *group);
  for (int step = 0; step < 3; ++step) {
    if (sums) sums->begin_micro_batch();
    optimizer.zero_grad();
    sum(model.moe(x).square()).backward();
    if (sums) sums->end_micro_batch(), sums->finish();
    if (step == 0) got.first_load = model.moe.load();
    got.gradients.clear();
    for (const Tensor& p : model.parameters()) got.gradients.push_back(p.grad().clone());
    optimizer.step();
    model.moe.update_selection_bias(0.01, group);
  }
  got.bias = model.moe.selection_bias.clone();
  return got;
}

nn::LanguageModel::Options language_model() {
  return {.vocabulary = 7,
          .n_layers = 2,
          .layer = {.d_model = 8,
                    .attention = {.n_heads = 2, .position = nn::rotary()},
                    .feed_forward = {.d_hidden = 6,
                                     .network = nn::moe({.n_experts = 4,
                                                         .score = nn::RouterScore::sigmoid,
                                                         .selection_bias = true})}}};
}

// A run of a language model with experts; part by part, each with a model from the last checkpoint.
std::vector<nn::NamedTensor> trained(const std::string& path, DType dtype,
                                     const std::vector<int64_t>& ends) {
  std::vector<nn::NamedTensor> state;
  int64_t step = 0;
  for (const int64_t end : ends) {
    manual_seed(uint64_t(10 + step));  // 10, and for a resumed model another
    nn::LanguageModel model(language_model());
    model.to(dtype);
    nn::AdamW optimizer(model.parameters(), {.lr = 0.01});
    if (step > 0) step = nn::load_checkpoint(path, model, &optimizer).step;
    for (; step < end; ++step) {
      const Tensor tokens = (arange(24) * double(1 + step) % 7).reshape({2, 12});
      optimizer.zero_grad();
      mean(model.nll(tokens.slice(1, 0, 11), tokens.slice(1, 1, 12))).backward();
      optimizer.step();
      model.apply([](nn::Module& m) {
        if (const auto* const moe = dynamic_cast<nn::MoE*>(&m)) moe->update_selection_bias(0.02);
      });
    }
    nn::save_checkpoint(path, model, &optimizer, {.step = step});
    state = model.named_tensors();
  }
  return state;
}

}  // namespace

TEST_CASE("Experts of two processes with half of the batch are those of one with all of it",
          "[moe][distributed]") {
  const Tensor x = inputs();
  const auto alone = make();
  const Outcome want = train(*alone, x, nullptr);
  CHECK(want.first_load == std::vector<double>{8, 8, 20, 12, 0});
  CHECK(want.bias.to_vector<float>()[4] > 0.02f);

  const std::vector<std::unique_ptr<Model>> models = [] {
    std::vector<std::unique_ptr<Model>> two;
    for (int rank = 0; rank < 2; ++rank) two.push_back(make());
    return two;
  }();
  std::vector<Outcome> got(2);
  each_of(2, [&](nn::ProcessGroup& group) {
    const int64_t rank = group.rank();
    got[size_t(rank)] =
        train(*models[size_t(rank)], x.slice(0, rank * half, (rank + 1) * half), &group);
  });
  CHECK(got[0].first_load == std::vector<double>{8, 8, 8, 0, 0});  // of experts without tokens
  CHECK(got[1].first_load == std::vector<double>{0, 0, 12, 12, 0});
  const std::vector<nn::NamedTensor> names = alone->named_parameters();
  for (size_t rank = 0; rank < 2; ++rank) {
    CHECK(same_bits(got[rank].bias, want.bias));
    for (size_t i = 0; i < names.size(); ++i) {
      INFO("process " << rank << ", " << names[i].name);
      CHECK(same_bits(got[rank].gradients[i], got[0].gradients[i]));
      CHECK(worst_error(got[rank].gradients[i], want.gradients[i]) < 1e-12);
      CHECK(worst_error(models[rank]->parameters()[i], names[i].tensor) < 1e-12);
    }
  }
}

TEST_CASE("A model with experts and selection bias resumes bit for bit", "[moe]") {
  for (const DType dtype : {f32, bf16}) {
    const testing::TempDir folder;
    const auto one = trained(folder.str() + "/a", dtype, {6});
    const auto two = trained(folder.str() + "/b", dtype, {3, 6});
    REQUIRE(one.size() == two.size());
    int biases = 0;
    for (size_t i = 0; i < one.size(); ++i) {
      INFO(one[i].name);
      CHECK(same_bits(one[i].tensor, two[i].tensor));
      if (!one[i].name.ends_with("selection_bias")) continue;
      ++biases;
      CHECK(one[i].tensor.dtype() == f32);
      CHECK(max(abs(one[i].tensor)).item() > 0.03);
    }
    CHECK(biases == 2);
  }
}
