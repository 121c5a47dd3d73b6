// Sequence parallelism of models, with threads as processes: losses and gradients are the same as
// with one process.
#include <cmath>

#include "autograd/tape.h"
#include "nn/attention/linear_attention.h"
#include "nn/data/batch.h"
#include "nn/distributed/data_parallel_step.h"
#include "nn/distributed/gradient_reducer.h"
#include "nn/models/language_model.h"
#include "nn/models/transformer_xl.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/fire.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/positions/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/process_threads.h"

using namespace stretto;
using namespace stretto::nn;
using namespace stretto::testing;

namespace {

constexpr int64_t rows = 4, length = 16, vocabulary = 7;

LayerOptions layer(MakePositionalEncoding position, MakeKernel kernel = {}) {
  return {.d_model = 8,
          .attention = {.n_heads = 2, .position = std::move(position), .kernel = std::move(kernel)},
          .feed_forward = {.d_hidden = 12}};
}

LanguageModel::Options language(LayerOptions o, InputOptions input = {}) {
  return {.vocabulary = vocabulary, .n_layers = 2, .layer = std::move(o), .input = input};
}

Tensor tokens(int64_t first) {
  std::vector<int64_t> all;
  for (int64_t i = first; i < first + rows * length; ++i) all.push_back(i * i * 3 % vocabulary);
  return tensor(all, {rows, length});
}

// The second half of a row is not scored, so one rank has nothing to predict.
Tensor targets() {
  Tensor all = tokens(1);
  all[1].slice(0, length / 2).fill_(double(ignore_index));
  return all;
}

Tensor mean_nll(const LanguageModel& model, const Tensor& in, const Tensor& labels,
                ProcessGroup* group) {
  if (model.options.adaptive) return mean(model.nll(in, labels, nullptr, group));
  return cross_entropy(model(in, nullptr, group), labels, {.ignore_index = ignore_index});
}
// Returns the loss, then the gradient of each parameter.
template <class Model>
std::vector<std::vector<double>> step_of(Model& model, ProcessGroup& group, int64_t micro_batches,
                                         int64_t sequence_size, const Tensor& labels) {
  DataParallelStep step(model, model.parameters(), micro_batches, group, sequence_size);
  std::vector<std::vector<double>> all;
  const Tensor loss = step(0, [&] {
    const Tensors cut = step.stage(
        0,
        [&](int64_t) {
          return Tensors{tokens(0), labels};
        },
        1);
    return mean_nll(model, cut[0], cut[1], step.sequence_group());
  });
  all.push_back({loss.item()});
  for (const Tensor& p : model.parameters()) all.push_back(p.grad().to_vector<double>());
  return all;
}

template <class Model>
void check_model(const typename Model::Options& options, const Tensor& labels = tokens(1)) {
  manual_seed(3);
  Model model(options);
  model.to(f64);
  model.eval();
  Post post;
  Threads one(post, 0, 1);
  const auto expected = step_of(model, one, 2, 1, labels);
  struct Run {
    int processes;
    int64_t sequence_size;
  };
  for (const Run run : {Run{2, 2}, Run{4, 2}, Run{4, 4}}) {
    std::vector<std::unique_ptr<Model>> models;
    for (int i = 0; i < run.processes; ++i) models.push_back(clone(model));
    std::vector<std::vector<std::vector<double>>> got(size_t(run.processes));
    // The threads share one random state, which evaluation does not use.
    each_of(run.processes, [&](ProcessGroup& group) {
      const auto rank = size_t(group.rank());
      got[rank] = step_of(*models[rank], group, 2, run.sequence_size, labels);
    });
    for (const auto& of_one : got) {
      REQUIRE(of_one.size() == expected.size());
      double most = 0, error = 0;
      for (size_t i = 0; i < expected.size(); ++i)
        for (size_t k = 0; k < expected[i].size(); ++k) {
          most = std::max(most, std::abs(expected[i][k]));
          error = std::max(error, std::abs(expected[i][k] - of_one[i][k]));
        }
      INFO(run.processes << " processes, " << run.sequence_size << " to a sequence");
      CHECK(most > 0.01);
      CHECK(error < 1e-12);
    }
  }
}

// A custom positional encoding, written with the helpers of positional_encoding.h.
struct Fading : PositionalEncoding {
  Fading(Module& parent, HeadShape shape)
      : PositionalEncoding(parent), slope(parameter("slope", full({shape.n_heads, 1}, 0.1))) {}
  void apply(AttentionInputs& inputs) const override {
    inputs.options.relative_bias = {.rows = -slope * abs(relative_positions(inputs)),
                                    .zero_row = relative_range(inputs).past,
                                    .out_of_range = OutOfRange::error};
  }
  const Tensor slope;
};

}  // namespace

TEST_CASE("Language models with softmax attention are the same under sequence parallelism",
          "[distributed][sequence]") {
  const auto check = [](MakePositionalEncoding position, InputOptions input = {}) {
    check_model<LanguageModel>(language(layer(std::move(position)), input));
  };
  check({}, {.sinusoid = Sinusoid::interleaved});
  check({}, {.learned_length = length});
  check(music_relative({.max_length = length}));
  check(shaw_relative({.max_distance = 3}));
  check(relative_sinusoid({.clamp = 9}));
  check(rotary());
  check(rotary({.xpos = true}));
  check(alibi());
  check(positional_encoding<Fading>());
  check(kerple());
  check(t5_bias(T5Bias::Options{.buckets = 8, .max_distance = 12}));
  check(music_relative({.max_length = 8, .block = 4}));
  check(fire({.hidden = 4, .threshold = 5}));
  check(bert_relative({.max_length = length}));
  check(disentangled({.max_distance = 12, .buckets = 4}));
  check(shared_by_layers(fire({.hidden = 4, .threshold = 5})));
}

TEST_CASE("Language models with linear attention are the same under sequence parallelism",
          "[distributed][sequence]") {
  for (const SpeShare shared : {SpeShare::nothing, SpeShare::draws}) {
    check_model<LanguageModel>(language(
        layer(sine_spe({.realizations = 6, .sines = 3, .shared = shared}), linear_kernel())));
    check_model<LanguageModel>(language(
        layer(conv_spe({.realizations = 6, .taps = {5}, .shared = shared}), linear_kernel())));
  }
  check_model<LanguageModel>(language(layer(rotary(), linear_kernel(favor({.features = 8})))));
}

TEST_CASE("Transformer-XL without memory is the same under sequence parallelism",
          "[distributed][sequence]") {
  LanguageModel::Options o = transformer_xl(vocabulary);
  o.n_layers = 2;
  o.layer = layer({});
  check_model<LanguageModel>(o);
  o.input.learned_length = length;
  check_model<LanguageModel>(o);
  o.layer.attention.position = fire({.hidden = 4, .threshold = 5});
  check_model<LanguageModel>(o);
}

TEST_CASE("A rank may have nothing to predict", "[distributed][sequence]") {
  check_model<LanguageModel>(language(layer(music_relative({.max_length = length}))), targets());
}

TEST_CASE("Caches, memories and bidirectional attention are errors under sequence parallelism",
          "[distributed][sequence]") {
  manual_seed(3);
  LanguageModel model(language(layer(no_position())));
  each_of(2, [&](ProcessGroup& group) {
    if (group.rank() > 0) return;
    LanguageModel::Cache cache;
    CHECK_THROWS_WITH(model(tokens(0), &cache, &group), Containing("a cache"));
    LanguageModel::Cache memory = model.make_memory({.length = 4});
    CHECK_THROWS_WITH(model.nll(tokens(0), tokens(1), &memory, &group),
                      Containing("a memory does not support sequence parallelism"));
    const ForwardContext forward = begin_forward(&group, 4);
    const Tensor x = zeros({1, 4, 8});
    for (const MakePositionalEncoding& position : {MakePositionalEncoding{}, fire()}) {
      const MultiHeadAttention attention({.d_model = 8, .position = position});
      CHECK_THROWS_WITH(attention(x, {}, nullptr, forward), Containing("causal"));
      CHECK_THROWS_WITH(attention(x, x, {.causal = true}, nullptr, forward),
                        Containing("cross-attention"));
    }
    CHECK_THROWS_WITH(subgroup(group, 4), Containing("divides the number of processes"));
  });
  Post post;
  Threads eight(post, 0, 8);
  CHECK_THROWS_WITH(GradientReducer({}, 2, eight, 2), Containing("2 per sequence"));
}

TEST_CASE("Ranks that share a sequence have different dropout masks", "[distributed][sequence]") {
  std::vector<std::vector<float>> kept(2), fed(2);
  Post post;
  for (int rank = 0; rank < 2; ++rank) {
    Threads group(post, rank, 2);
    manual_seed(5);
    const ForwardContext forward = begin_forward(&group, 64);
    CHECK(forward.first_position == 64 * rank);
    kept[size_t(rank)] = Dropout({0.5})(ones({64}), forward).to_vector<float>();
    const FeedForward feed_forward({.d_model = 8, .d_hidden = 64, .dropout = 0.5});
    fed[size_t(rank)] = feed_forward(ones({8}), forward).to_vector<float>();
  }
  CHECK(kept[0] != kept[1]);
  CHECK(fed[0] != fed[1]);
  manual_seed(5);
  CHECK(Dropout({0.5})(ones({64})).to_vector<float>() == kept[0]);
}

TEST_CASE("A loss whose model does not get Trainer::sequence_group() is an error",
          "[distributed][sequence]") {
  manual_seed(3);
  LanguageModel model(language(layer(no_position())));
  each_of(2, [&](ProcessGroup& group) {
    const auto own = clone(model);
    DataParallelStep step(*own, own->parameters(), 2, group, 2);
    const auto make = [](int64_t) { return Tensors{tokens(0), tokens(1)}; };
    CHECK_THROWS_WITH(step(0,
                           [&] {
                             const Tensors cut = step.stage(0, make, 1);
                             return mean_nll(*own, cut[0], cut[1], nullptr);
                           }),
                      Containing("must pass Trainer::sequence_group() to its model"));
  });
}
