// Mixtures of experts against loops over tokens and experts, for random options.
#include "nn/models/moe.h"

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "nn/data/draws.h"
#include "nn/init.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/reference/moe.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::MoE;
using testing::error_of;
using testing::same_bits;
using testing::worst_error;

namespace {

// An MoE and the module that it is a child of.
struct Made {
  nn::Module parent;
  std::unique_ptr<MoE> moe;
  Made(const nn::FeedForwardOptions& expert, const nn::MoEOptions& options)
      : moe(std::make_unique<MoE>(parent, expert, options)) {
    parent.to(f64);
    parent.eval();
  }
};

nn::MoEOptions some_options(nn::Draws& draws) {
  nn::MoEOptions o{.n_experts = 1 + draws.below(6)};
  o.top_k = 1 + draws.below(o.n_experts);
  o.score = draws.below(2) == 0 ? nn::RouterScore::softmax : nn::RouterScore::sigmoid;
  o.normalize = draws.below(2) == 0;
  o.scale = draws.below(2) == 0 ? 1 : 2.5;
  o.router_bias = draws.below(2) == 0;
  o.d_shared = draws.below(2) * 5;
  o.shared_gate = o.d_shared > 0 && draws.below(2) == 0;
  o.selection_bias = draws.below(2) == 0;
  if (draws.below(2) == 0) {  // groups of two or three experts
    const int64_t size = 2 + draws.below(2);
    o.n_groups = 1 + draws.below(3);
    o.n_experts = o.n_groups * size;
    o.top_groups = 1 + draws.below(o.n_groups);
    o.top_k = 1 + draws.below(size * o.top_groups);
  }
  return o;
}

nn::FeedForwardOptions some_expert(nn::Draws& draws) {
  const bool gated = draws.below(2) == 0;
  return {.d_model = 4,
          .d_hidden = 6,
          .activation = gated ? nn::Activation::silu : nn::Activation::relu,
          .bias = draws.below(2) == 0,
          .gated = gated};
}

}  // namespace

TEST_CASE("experts agree with loops, for random options", "[moe]") {
  const NoGrad guard;
  nn::Draws draws(5, 0);
  for (int round = 0; round < 60; ++round) {
    manual_seed(uint64_t(round));
    const nn::FeedForwardOptions expert = some_expert(draws);
    nn::MoEOptions o = some_options(draws);
    o.n_always = round % 3;
    const Made made(expert, o);
    if (made.moe->selection_bias.defined())
      made.moe->selection_bias.copy_(0.3 * randn({made.moe->options.n_experts}));
    const Tensor x = randn({draws.below(9), 4}, {.dtype = f64});
    const Tensor y = (*made.moe)(x);
    INFO("round " << round << ": " << made.moe->label());
    CHECK(y.shape() == x.shape());
    CHECK(worst_error(y, reference::moe(*made.moe, x)) < 1e-13);
    if (x.size(0) == 0) continue;
    CHECK(same_bits((*made.moe)(x), y));
    const Tensor folded = (*made.moe)(x.unsqueeze(0).transpose(0, 1));  // [T, 1, d]
    CHECK(same_bits(folded.squeeze(1), y));
  }
}

TEST_CASE("gradients of experts, of the router and of the input", "[moe]") {
  nn::Draws draws(6, 0);
  for (int round = 0; round < 12; ++round) {
    manual_seed(uint64_t(round));
    nn::MoEOptions o = some_options(draws);
    o.balance = 0.1;
    o.n_always = round % 2;
    o.n_groups = o.top_groups = 1;
    o.n_experts = std::max<int64_t>(2, std::min<int64_t>(o.n_experts, 3));  // each has tokens
    o.top_k = std::min(o.top_k, o.n_experts);
    Made made(some_expert(draws), o);
    made.parent.train();
    const Tensor x = randn({16, 4}, {.dtype = f64, .requires_grad = true});
    const Tensor weights = randn({16, 4}, {.dtype = f64});
    const auto loss = [&] {
      const nn::ForwardContext forward = nn::begin_forward();
      return forward.total_loss(sum((*made.moe)(x, forward) * weights));
    };
    INFO("round " << round);
    testing::check_parameter_gradients(made.parent, loss, 1e-6);
    loss().backward();
    for (const auto& [name, p] : made.parent.named_parameters())
      CHECK(p.grad().defined());  // of experts without tokens, too
    made.parent.zero_grad();
  }
}

TEST_CASE("an expert without tokens has gradients of 0", "[moe]") {
  Made made({.d_model = 3, .d_hidden = 4}, {.n_experts = 3, .top_k = 1, .selection_bias = true});
  {
    const NoGrad guard;
    made.moe->selection_bias.copy_(tensor({100.0f, 0.0f, 0.0f}));
  }
  const Tensor x = randn({7, 3}, {.dtype = f64});
  sum((*made.moe)(x)).backward();
  CHECK(max(abs(made.moe->experts[0].linear1.weight.grad())).item() > 0);
  CHECK(max(abs(made.moe->experts[1].linear1.weight.grad())).item() == 0);
  CHECK(max(abs(made.moe->experts[2].linear2.bias.grad())).item() == 0);
}

TEST_CASE("the further loss of experts is that of Switch Transformers", "[moe]") {
  for (const int64_t n_always : {0, 1}) {  // it counts the choices among the others
    manual_seed(1);
    Made made({.d_model = 3, .d_hidden = 4},
              {.n_experts = 4, .top_k = 2, .n_always = n_always, .balance = 0.5});
    made.parent.train();
    const Tensor x = randn({6, 3}, {.dtype = f64}),
                 scores = softmax(made.moe->router(x), -1).slice(1, 0, 4);
    const Sorted chosen = topk(scores, 2);
    const nn::ForwardContext forward = nn::begin_forward();
    (*made.moe)(x, forward);
    double want = 0;
    for (int64_t e = 0; e < 4; ++e) {
      const double f = sum(eq(chosen.indices, double(e)).to(f64)).item() / 12;
      want += f * mean(scores.select(1, e)).item();
    }
    CHECK(forward.total_loss(zeros({}, {.dtype = f64})).item() ==
          Approx(0.5 * 4 * want).epsilon(1e-12));
  }
}

TEST_CASE("the bias of the choice balances the experts without a further loss", "[moe]") {
  manual_seed(2);
  Made made({.d_model = 3, .d_hidden = 4}, {.n_experts = 3, .top_k = 1, .selection_bias = true});
  made.parent.train();
  const NoGrad guard;
  nn::constant_(made.moe->router.weight, 0);
  made.moe->selection_bias.copy_(tensor({0.05f, 0.0f, 0.0f}));  // all choose the first expert
  const Tensor x = randn({6, 3}, {.dtype = f64});
  (*made.moe)(x);
  CHECK(made.moe->load() == std::vector<double>{6, 0, 0});
  made.moe->update_selection_bias(0.04);
  const std::vector<double> bias = made.moe->selection_bias.to_vector<double>();
  CHECK(bias[0] == Approx(0.01));
  CHECK(bias[1] == Approx(0.04));
  CHECK(made.moe->load() == std::vector<double>{0, 0, 0});
  (*made.moe)(x);
  CHECK(made.moe->load() == std::vector<double>{0, 6, 0});
  made.parent.eval();
  (*made.moe)(x);
  CHECK(made.moe->load() == std::vector<double>{0, 6, 0});  // counts in training mode only
}

TEST_CASE("recomputed experts count their choices once", "[moe]") {
  manual_seed(5);
  Made made({.d_model = 3, .d_hidden = 4}, {.n_experts = 3, .top_k = 2});
  made.parent.train();
  const Tensor x = randn({6, 3}, {.dtype = f64, .requires_grad = true});
  sum(recompute([&](const Tensors& in) { return (*made.moe)(in[0]); }, {x})).backward();
  const std::vector<double> load = made.moe->load();
  CHECK(load[0] + load[1] + load[2] == 6 * 2);
}

TEST_CASE("experts of each kind are feed-forward networks, with all gradients", "[moe]") {
  const nn::ClampedSwiGlu clamped{.limit = 0.3};
  const nn::CappedSwiGlu capped{.gate = 0.2, .up = 0.3};
  for (const bool bias : {false, true})
    for (nn::FeedForwardOptions o : std::vector<nn::FeedForwardOptions>{
             {.activation = nn::Activation::gelu},
             {.activation = nn::Activation::gelu_tanh, .gated = true},
             {.gated = true, .clamped = clamped},
             {.gated = true, .capped = capped}}) {
      manual_seed(8);
      o.d_model = 3, o.d_hidden = 5, o.bias = bias;
      const Made made(o, {.n_experts = 3, .top_k = 3});
      const nn::List<nn::FeedForward>& experts = made.moe->experts;
      const Tensor x = randn({7, 3}, {.dtype = f64, .requires_grad = true});
      const Tensor scores = softmax(made.moe->router(x), -1);
      Tensor want = zeros({7, 3}, {.dtype = f64});
      for (int64_t e = 0; e < 3; ++e) want = want + scores.slice(1, e, e + 1) * experts[e](x);
      const Tensor got = (*made.moe)(x), g = randn({7, 3}, {.dtype = f64});
      CHECK(worst_error(got, want) < 1e-14);
      Tensors leaves = made.parent.parameters();
      leaves.push_back(x);
      const Tensors a = grad({got}, leaves, {g}), b = grad({want}, leaves, {g});
      for (size_t i = 0; i < a.size(); ++i) CHECK(worst_error(a[i], b[i]) < 1e-13);
    }
}

TEST_CASE("an adapted expert is computed with the adapted weight", "[moe]") {
  const NoGrad guard;
  for (const bool gated : {false, true})
    for (const bool of_up : {false, true}) {
      if (of_up && !gated) continue;
      manual_seed(6);
      const Made made({.d_model = 3, .d_hidden = 4, .gated = gated}, {.n_experts = 3});
      nn::FeedForward& expert = made.moe->experts[1];
      nn::Linear& layer = of_up ? *expert.up : expert.linear2;
      const Tensor x = randn({9, 3}, {.dtype = f64}), before = (*made.moe)(x);
      layer.set_lora({.rank = 2});
      CHECK(worst_error((*made.moe)(x), before) < 1e-14);
      nn::normal_(layer.lora()->b, 0, 1);
      const Tensor adapted = (*made.moe)(x);
      CHECK(worst_error(adapted, before) > 0.01);
      layer.weight.add_(layer.lora()->delta());
      layer.remove_lora();
      CHECK(worst_error((*made.moe)(x), adapted) < 1e-14);
    }
}

TEST_CASE("scores that are all 0 give weights of 0", "[moe]") {
  Made made({.d_model = 3, .d_hidden = 4},
            {.n_experts = 3, .score = nn::RouterScore::sigmoid, .router_bias = true});
  const NoGrad guard;
  nn::constant_(made.moe->router.bias, -2000);
  CHECK(max(abs((*made.moe)(ones({2, 3}, {.dtype = f64})))).item() == 0);
}

TEST_CASE("a language model with experts decodes as in one pass", "[moe]") {
  const NoGrad guard;
  manual_seed(3);
  nn::LanguageModel model(
      {.vocabulary = 11,
       .n_layers = 2,
       .layer = {.d_model = 8,
                 .attention = {.n_heads = 2, .position = nn::rotary()},
                 .feed_forward = {.d_hidden = 12, .network = nn::moe({.n_experts = 5})}}});
  model.to(f64);
  model.eval();
  CHECK(model.get_parameter("layers.1.feed_forward.experts.4.linear2.weight").defined());
  const Tensor tokens = randint(0, 11, {2, 9}), want = model(tokens);
  nn::LanguageModel::Cache cache;
  Tensors parts;
  for (int64_t t = 0; t < 9; ++t) parts.push_back(model(tokens.slice(1, t, t + 1), &cache));
  CHECK(worst_error(cat(parts, 1), want) < 1e-12);

  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4}, {6}};
  const nn::GenerationOptions options{.max_tokens = 5, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(model, prompts, options);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(model, prompts[i], options));
}

TEST_CASE("bf16 experts compute the scores in f32", "[moe]") {
  const NoGrad guard;
  manual_seed(4);
  Made made({.d_model = 16, .d_hidden = 16}, {.n_experts = 4, .selection_bias = true});
  const Tensor x = randn({20, 16}).to(bf16);
  made.parent.to(bf16);
  CHECK(made.moe->selection_bias.dtype() == f32);
  const Tensor y = (*made.moe)(x);
  CHECK(y.dtype() == bf16);
  made.parent.to(f64);
  CHECK(worst_error(y.to(f64), (*made.moe)(x.to(f64))) < 0.05);
}

TEST_CASE("experts with options out of range are errors", "[moe]") {
  const auto refused = [](const nn::MoEOptions& o) {
    return error_of<Error>([&] { Made({.d_model = 3, .d_hidden = 4}, o); });
  };
  CHECK(refused({.n_experts = 2, .top_k = 3}) ==
        "[MoE] n_experts 2, top_k 3; accepted: at least 1 expert, and a top_k of 1 to n_experts");
  CHECK_THAT(refused({.n_experts = 0}), Containing("n_experts 0"));
  CHECK_THAT(refused({.n_experts = 2, .d_shared = -1}), Containing("cannot be negative"));
  CHECK_THAT(refused({.n_experts = 2, .n_always = -1}), Containing("n_always -1"));
  CHECK_THAT(refused({.n_experts = 2, .shared_gate = true}), Containing("set d_shared"));
  CHECK_THAT(refused({.n_experts = 6, .n_groups = 4}),
             Containing("n_groups 4, top_groups 1, n_experts 6, top_k 2; accepted: a divisor of"));
  CHECK_THAT(refused({.n_experts = 6, .n_groups = 3, .top_groups = 4}),
             Containing("top_groups of 1 to n_groups"));
  CHECK_THAT(refused({.n_experts = 6, .top_k = 3, .n_groups = 3}), Containing("at least top_k"));
  CHECK_THAT(
      refused({.n_experts = 3, .top_k = 1, .score = nn::RouterScore::sigmoid, .n_groups = 3}),
      Containing("with sigmoid at least 2 experts in a group"));
  const Made made({.d_model = 3, .d_hidden = 4}, {.n_experts = 2});
  CHECK_THROWS_WITH((*made.moe)(randn({2, 4}, {.dtype = f64})), Containing("must be [.., 3]"));
  CHECK_THROWS_WITH(made.moe->update_selection_bias(0.1),
                    Containing("without MoEOptions::selection_bias"));
}
