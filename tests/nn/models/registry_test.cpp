// Positional encodings and kernels by name: every valid pair in every kind of model, and errors for
// the others. With a GPU, each also trains there as on the CPU, and again with captured steps.
#include "nn/models/registry.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "autograd/tape.h"
#include "core/random.h"
#include "core/storage.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/linear_attention.h"
#include "nn/models/classifier.h"
#include "nn/models/language_model.h"
#include "nn/models/sequence_to_sequence.h"
#include "nn/optim/optim.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/fire.h"
#include "nn/positions/plane.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_sinusoid.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/stack.h"
#include "nn/training/captured_step.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/cuda/traffic.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;

namespace {

constexpr int64_t length = 12;

// GELU, because rounding errors may decide on which side of its kink a ReLU is.
nn::LayerOptions layer(const nn::KernelEntry& kernel) {
  return {.d_model = 16,
          .attention = {.n_heads = 2, .kernel = kernel.make({.features = 8, .redraw = 3})},
          .feed_forward = {.d_hidden = 24, .activation = nn::Activation::gelu}};
}

nn::PositionSettings settings(bool bidirectional) {
  return {.length = length,
          .bidirectional = bidirectional,
          .plane = bidirectional ? Shape{3, 4} : Shape{},
          .realizations = 6,
          .sines = 2,
          .taps = 4};
}

Device device = cpu;    // of the models and tokens
bool captured = false;  // whether steps are replayed

// Returns the losses of four steps, which must be finite and change. On a GPU a step uploads
// nothing except tokens, and downloads only the loss and the report of wrong indices.
template <class Model, class Loss>
std::vector<double> train(Model& model, Loss&& loss) {
  model.to(device);
  nn::Adam optimizer(model.parameters(), {.lr = 0.01});
  std::vector<double> losses;
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor l = loss();
    l.backward();
    optimizer.step();
    return l.detach();
  };
  nn::CapturedStep recorded(device, step, 1);
  int64_t in_use = 0;
  for (int i = 0; i < 4; ++i) {
    const auto before = testing::traffic();
    losses.push_back((captured ? recorded() : step()).item());
    CHECK(std::isfinite(losses.back()));
    if (i == 2) CHECK(memory_stats(device).live == in_use);  // a step's memory is released
    in_use = memory_stats(device).live;
    if (i != 2 || !before || captured || device.is_cpu()) continue;
    const testing::Traffic of_step = *testing::traffic() - *before;
    CHECK(of_step.uploads == 0);
    CHECK(of_step.downloads <= 2);
    CHECK(of_step.synchronizations == 1);
  }
  CHECK(losses[2] != losses[0]);
  for (const Tensor& p : model.parameters())
    for (const double value : p.to_vector<double>()) REQUIRE(std::isfinite(value));
  return losses;
}

Tensor tokens(int64_t batch, int64_t n) { return randint(0, 9, {batch, n}).to(device); }

// Calls f for each valid pair; for the others the error must give the reason and the valid names.
template <class F>
int pairs(bool bidirectional, F&& f) {
  int allowed = 0;
  for (const nn::PositionEntry& position : nn::positions())
    for (const nn::KernelEntry& kernel : nn::kernels()) {
      INFO(position.name << ", " << kernel.name);
      const nn::PositionSettings s = settings(bidirectional);
      const std::string why = nn::refusal(position.name, kernel.name, s, layer(kernel));
      const nn::PositionTraits p = position.traits(s);
      const bool fits =
          (!p.scores || !kernel.traits().recurrent) && (bidirectional ? p.bidirectional : p.causal);
      CHECK(why.empty() == fits);
      if (!fits) {
        CHECK_THAT(why, Containing(position.name + " "));
        CHECK_THAT(why, Containing("; accepted here: none, sinusoid, learned"));
        CHECK(why.find(position.name + ",", why.find(';')) == std::string::npos);
        continue;
      }
      manual_seed(1);
      const std::vector<double> losses = f(position, kernel, s);
      ++allowed;
      if (!cuda_available()) continue;
      device = "cuda";
      manual_seed(1);
      const std::vector<double> gpu_losses = f(position, kernel, s);
      captured = true;
      manual_seed(1);
      const std::vector<double> replays = f(position, kernel, s);
      captured = false;
      device = cpu;
      CHECK(replays == gpu_losses);
      for (size_t i = 0; i < 3; ++i)  // rounding errors grow from step to step
        CHECK(std::abs(gpu_losses[i] - losses[i]) <= 1e-5 * std::max(losses[i], 1.0));
    }
  return allowed;
}

}  // namespace

TEST_CASE("A prefix of the whole length is attention without a mask, with every position") {
  const NoGrad guard;
  for (const nn::PositionEntry& p : nn::positions()) {
    if (p.add || !p.traits().causal || !p.traits().bidirectional) continue;
    INFO(p.name);
    nn::LayerOptions options{
        .d_model = 16, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 24}};
    nn::InputOptions input;
    nn::add_position(p.name, settings(true), options, input);
    manual_seed(3);
    nn::Encoder encoder({.n_layers = 1, .layer = options});
    encoder.to(f64);
    const Tensor x = randn({2, length, 16}, RandomKey{1, 2}, {.dtype = f64});
    const auto output = [&](const AttentionMask& mask, bool prefix) {
      manual_seed(4);  // of SPE's noise
      nn::ForwardContext forward = nn::begin_forward();
      if (prefix) forward.prefix_lengths = full({2}, length, {.dtype = i64});
      return encoder(x, mask, forward);
    };
    const Tensor difference = output({.causal = true}, true) - output({}, false);
    CHECK(max(abs(difference)).item() < 1e-12);
  }
}

TEST_CASE("registry: every position and kernel trains a language model") {
  const int allowed = pairs(false, [](const auto& position, const auto& kernel, const auto& s) {
    nn::LanguageModel::Options o{.vocabulary = 9, .n_layers = 2, .layer = layer(kernel)};
    nn::add_position(position.name, s, o.layer, o.input);
    nn::LanguageModel model(o);
    const Tensor x = tokens(2, length), y = tokens(2, length);
    return train(model, [&] { return cross_entropy(model(x), y); });
  });
  CHECK(allowed > 50);
}

TEST_CASE("registry: every position and kernel trains an encoder") {
  const int allowed = pairs(true, [](const auto& position, const auto& kernel, const auto& s) {
    nn::SequenceClassifier::Options o{
        .vocabulary = 9, .layer = layer(kernel), .pooling = nn::Pooling::mean};
    nn::add_position(position.name, s, o.layer, o.input);
    nn::SequenceClassifier model(o);
    const Tensor x = tokens(2, length), y = randint(0, 2, {2}).to(device);
    return train(model, [&] { return cross_entropy(model(x), y); });
  });
  CHECK(allowed > 50);
}

TEST_CASE("registry: every position and kernel trains an encoder and decoder") {
  const int allowed = pairs(false, [](const auto& position, const auto& kernel, const auto& s) {
    nn::SequenceToSequence::Options o{.source_vocabulary = 9,
                                      .target_vocabulary = 9,
                                      .n_encoder_layers = 1,
                                      .n_decoder_layers = 2,
                                      .layer = layer(kernel)};
    nn::add_position(position.name, s, o.layer, o.input);
    if (!position.traits().bidirectional) {
      o.encoder_position = nn::no_position();
    } else {
      nn::LayerOptions encoder = o.layer;
      nn::PositionSettings both = s;
      both.bidirectional = true;
      nn::add_position(position.name, both, encoder, o.input);
      o.encoder_position = encoder.attention.position;
    }
    nn::SequenceToSequence model(o);
    const Tensor source = tokens(2, 7), x = tokens(2, length), y = tokens(2, length);
    return train(model, [&] { return cross_entropy(model(source, x), y); });
  });
  CHECK(allowed > 50);
}

TEST_CASE("registry: a name builds the model of one call of its factory") {
  const int64_t n = length;
  const std::map<std::string, nn::MakePositionalEncoding> factories{
      {"none", nn::no_position()},
      {"music", nn::music_relative({.max_length = n})},
      {"music-local", nn::music_relative({.max_length = n, .block = n / 2})},
      {"shaw", nn::shaw_relative()},
      {"shaw-keys", nn::shaw_relative({.values = false})},
      {"inkling", nn::inkling_relative({.extent = n})},
      {"xl", nn::relative_sinusoid()},
      {"t5", nn::t5_bias()},
      {"alibi", nn::alibi()},
      {"kerple", nn::kerple()},
      {"kerple-power", nn::kerple({.kind = nn::Kerple::Kind::power})},
      {"fire", nn::fire({.threshold = double(n)})},
      {"rope", nn::rotary()},
      {"xpos", nn::rotary({.xpos = true})},
      {"bert", nn::bert_relative({.max_length = n, .keys_too = true})},
      {"deberta", nn::disentangled({.max_distance = n})},
      {"swin", nn::swin_bias({.height = 3, .width = 4})},
      {"grid", nn::grid_relative({.height = 3, .width = 4})},
      {"rope-2d", nn::rotary_2d({.height = 3, .width = 4})},
      {"sine", nn::sine_spe()},
      {"sine-ungated", nn::sine_spe({.gated = false})},
      {"conv", nn::conv_spe()},
      {"conv-ungated", nn::conv_spe({.gated = false})}};
  const std::map<std::string, nn::MakeKernel> kernels{
      {"softmax", nn::softmax_kernel()},
      {"performer", nn::linear_kernel(nn::favor())},
      {"performer-hyperbolic", nn::linear_kernel(nn::favor({.kind = nn::FavorKind::hyperbolic}))},
      {"linear-elu", nn::linear_kernel()},
      {"linear-relu", nn::linear_kernel(nn::relu_plus())},
      {"retention", nn::retention_kernel()},
      {"gla", nn::gla_kernel()},
      {"delta", nn::delta_kernel()},
      {"gated-delta", nn::gated_delta_kernel()},
      {"kda", nn::kda_kernel()}};
  const auto equal = [](const nn::LayerOptions& a, const nn::LayerOptions& b, bool causal) {
    const auto build = [&](const nn::LayerOptions& layer) {
      manual_seed(1);
      nn::Encoder model({.n_layers = 2, .layer = layer});
      model.eval();
      manual_seed(2);
      const Tensor y = model(randn({1, length, 16}), {.causal = causal});
      std::vector<std::pair<std::string, Tensor>> all{{"", y}};
      for (const auto& [name, tensor] : model.named_parameters()) all.emplace_back(name, tensor);
      return all;
    };
    const auto x = build(a), y = build(b);
    return std::equal(x.begin(), x.end(), y.begin(), y.end(), [](const auto& p, const auto& q) {
      return p.first == q.first && testing::same_bits(p.second, q.second);
    });
  };
  const nn::LayerOptions plain{
      .d_model = 16, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 24}};
  std::vector<std::string> differing;
  for (const nn::PositionEntry& p : nn::positions()) {
    if (p.add) continue;
    INFO(p.name);
    const bool causal = p.traits().causal;
    nn::LayerOptions named = plain, made = named;
    named.attention.position =
        p.make({.length = n, .bidirectional = !causal, .plane = causal ? Shape{} : Shape{3, 4}});
    made.attention.position = factories.at(p.name);
    if (!equal(named, made, causal)) differing.push_back(p.name);
  }
  for (const nn::KernelEntry& k : nn::kernels()) {
    INFO(k.name);
    nn::LayerOptions named = plain, made = named;
    named.attention.kernel = k.make({});
    made.attention.kernel = kernels.at(k.name);
    if (!equal(named, made, true)) differing.push_back(k.name);
  }
  for (const std::string& name : differing) FAIL_CHECK(name);
}

TEST_CASE("registry: two positions can be combined with a plus") {
  nn::LayerOptions l = layer(nn::find_kernel("softmax"));
  nn::InputOptions input;
  nn::add_position("sinusoid+music", settings(false), l, input);
  CHECK(input.sinusoid == nn::Sinusoid::interleaved);
  CHECK(l.attention.position);
  CHECK(nn::refusal("learned+rope", "performer", settings(false), l).empty());
  CHECK_THAT(nn::refusal("learned+music", "performer", settings(false), l),
             Containing("music acts on scores, which performer attention does not have"));
  for (const std::string wrong : {"music+sinusoid", "sinusoid+learned", "music+rope"})
    CHECK_THROWS_WITH(nn::add_position(wrong, settings(false), l, input),
                      Containing("needs an encoding of the input (sinusoid, learned)"));
}

TEST_CASE("registry: an unknown name is an error that names it") {
  CHECK_THROWS_WITH(
      nn::find_position("spiral"),
      Containing("[position] spiral: accepted values are none, sinusoid, learned, music"));
  CHECK_THROWS_WITH(nn::find_kernel("fast"),
                    "[kernel] fast: accepted values are softmax, performer, "
                    "performer-hyperbolic, linear-elu, linear-relu, retention, gla, delta, "
                    "gated-delta, kda");
  nn::LayerOptions odd = layer(nn::find_kernel("softmax"));
  odd.attention.d_key = 5;
  CHECK_THAT(
      nn::refusal("rope", "softmax", settings(false), odd),
      Containing(
          "rope rotates pairs of features, but the head dimension is 5; accepted here: none"));
  CHECK_THAT(nn::refusal("grid", "softmax", {.bidirectional = true}, odd),
             Containing("grid is for tokens in a plane"));
  nn::InputOptions input;
  CHECK_THROWS_WITH(nn::add_position("grid", {.plane = {4, 4}}, odd, input),
                    Containing("[position] grid is for bidirectional attention only; ") &&
                        Containing(" (PositionSettings: bidirectional false, plane [4, 4])"));
}
