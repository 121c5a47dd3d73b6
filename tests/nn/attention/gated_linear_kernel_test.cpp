// Layers with linear attention with decay: RetNet, Lightning, GLA, DeltaNet, Gated DeltaNet, KDA,
// Mamba-2.
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/mamba2.h"
#include "nn/gradcheck.h"
#include "nn/models/gated_layers.h"
#include "nn/models/language_model.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/gated_layers.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::worst_error;

namespace {

struct Named {
  const char* name;
  nn::GatedLinearKernelOptions options;
  int64_t value_heads = 0;
};

std::vector<Named> presets() {
  using nn::OutputGate;
  using nn::StateDecay;
  return {{"retention", {.decay = StateDecay::retention, .norm = nn::NormKind::layer}},
          {"lightning",
           {.decay = StateDecay::slopes, .rate = 0.5, .silu = true, .gate = OutputGate::sigmoid}},
          {"gla", {.decay = StateDecay::feature, .gate_rank = 3}},
          {"delta", {.delta = true, .taps = 4, .gate = OutputGate::none}},
          {"gated delta", {.decay = StateDecay::token, .delta = true, .taps = 3}},
          {"delta without a convolution", {.delta = true}},
          {"Qwen3-Next", {.decay = StateDecay::token, .delta = true, .taps = 3}, 4},
          {"OLMo hybrid",
           {.decay = StateDecay::token, .delta = true, .negative_eigenvalues = true, .taps = 2}},
          {"kda",
           {.decay = StateDecay::kda,
            .delta = true,
            .taps = 4,
            .gate = OutputGate::low_rank,
            .gate_rank = 0}},
          {"kda with more value heads",
           {.decay = StateDecay::kda,
            .delta = true,
            .silu = true,
            .gate = OutputGate::low_rank,
            .gate_rank = 2},
           4}};
}

nn::MultiHeadAttentionOptions layer(const Named& preset, int64_t kv_heads = 2) {
  return {.d_model = 8,
          .n_heads = 2,
          .n_kv_heads = kv_heads,
          .n_value_heads = preset.value_heads,
          .d_value = 6,
          .bias = false,
          .kernel = nn::gated_linear_kernel(preset.options)};
}

Tensor input(int64_t n, uint64_t stream = 1) { return fixed_noise({2, n, 8}, stream); }

}  // namespace

TEST_CASE("GatedLinearKernel agrees with the reference") {
  for (const Named& preset : presets())
    for (const int64_t kv_heads : {1, 2}) {
      INFO(preset.name << ", " << kv_heads << " key heads");
      manual_seed(3);
      nn::MultiHeadAttention attention(layer(preset, kv_heads));
      attention.to(f64);
      const NoGrad guard;
      const Tensor x = input(13).to(f64);
      const Tensor want = reference::gated_linear_layer(attention, preset.options, x);
      // Fixed decays are rounded to f32: an error of 2^−24 · 13 |log α|.
      CHECK(worst_error(attention(x, {.causal = true}), want) <
            (attention.named_buffers().empty() ? 1e-12 : 1e-6));
    }
}

TEST_CASE("Lightning Attention has the slopes of ALiBi for every number of heads") {
  for (const int64_t heads : {1, 6, 8, 12, 20, 24}) {
    const nn::MultiHeadAttention attention(
        {.d_model = 4 * heads, .n_heads = heads, .kernel = nn::lightning_kernel(0.5)});
    const std::vector<double> slopes = nn::alibi_slopes(heads),
                              decays = attention.named_buffers()[0].tensor.to_vector<double>();
    REQUIRE(decays.size() == slopes.size());
    for (size_t h = 0; h < slopes.size(); ++h) CHECK(decays[h] == double(float(-0.5 * slopes[h])));
  }
}

TEST_CASE("the gates of Kimi Delta Attention are of rank Dv") {
  const nn::MultiHeadAttention layer(
      {.d_model = 8, .n_heads = 2, .d_value = 3, .kernel = nn::kda_kernel()});
  const auto shape = [&](const char* name) { return layer.get_parameter(name).shape(); };
  CHECK(shape("kernel.decay.weight") == Shape{3, 8});
  CHECK(shape("kernel.decay_up.weight") == Shape{8, 3});
  CHECK(shape("kernel.decay_bias") == Shape{8});
  CHECK(shape("kernel.decay_rate") == Shape{2});
  CHECK(shape("kernel.gate.weight") == Shape{3, 8});
  CHECK(shape("kernel.gate_up.weight") == Shape{6, 3});
  CHECK(layer.named_parameters().size() == 17);  // no further biases
}

TEST_CASE("GatedLinearKernel: gradients of all parameters") {
  for (const Named& preset : presets()) {
    INFO(preset.name);
    manual_seed(4);
    nn::MultiHeadAttention attention(layer(preset));
    attention.to(f64);
    const Tensor weights = fixed_noise({2, 5, 8}, 2);
    CHECK_NOTHROW(nn::gradcheck(
        attention, [&] { return sum(attention(input(5), {.causal = true}) * weights); }));
  }
}

TEST_CASE("GatedLinearKernel: decoding equals the full pass") {
  const NoGrad guard;
  for (const Named& preset : presets())
    for (const bool rope : {false, true}) {
      INFO(preset.name);
      manual_seed(5);
      nn::MultiHeadAttentionOptions o = layer(preset);
      if (rope) o.position = nn::rotary();
      nn::MultiHeadAttention attention(o);
      attention.to(f64);
      const Tensor x = input(19);
      const Tensor want = attention(x, {.causal = true});
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>(19, 1), {7, 1, 2, 9}, {2, 17}}) {
        nn::KeyValueCache cache;
        Tensors parts;
        int64_t at = 0;
        for (const int64_t n : sizes) {
          parts.push_back(attention(x.slice(1, at, at + n), {.causal = true}, &cache));
          at += n;
        }
        CHECK(worst_error(cat(parts, 1), want) < 1e-12);
        cache.reorder(tensor<int64_t>({1, 0}));
        const Tensor next = input(1, 7);
        nn::KeyValueCache whole;
        const Tensor swapped =
            index_select(cat({x, index_select(next, 0, tensor<int64_t>({1, 0}))}, 1), 0,
                         tensor<int64_t>({1, 0}));
        CHECK(worst_error(attention(next, {.causal = true}, &cache),
                          attention(swapped, {.causal = true}).slice(1, 19)) < 1e-12);
      }
    }
}

TEST_CASE("GatedLinearKernel: left padding, segments and reversed sequences") {
  const NoGrad guard;
  for (const Named& preset : presets()) {
    INFO(preset.name);
    manual_seed(6);
    nn::MultiHeadAttention attention(layer(preset));
    attention.to(f64);
    const Tensor x = input(11);
    const Tensor padded = attention(x, {.causal = true}, nullptr, {.left_padding = {4, 0}});
    const Tensor alone = attention(x.slice(0, 0, 1).slice(1, 4), {.causal = true});
    CHECK(worst_error(padded.slice(0, 0, 1).slice(1, 4), alone) < 1e-12);

    const Tensor ids = tensor<int64_t>({5, 5, 5, 5, 2, 2, 2, 9, 9, 9, 9}).expand({2, 11});
    Tensors parts;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 4}, {4, 7}, {7, 11}})
      parts.push_back(attention(x.slice(1, from, to), {.causal = true}));
    CHECK(worst_error(attention(x, {.causal = true, .segments = ids}), cat(parts, 1)) < 1e-12);
    // Fewer positions than taps.
    parts = {attention(x.slice(1, 3, 4), {.causal = true}),
             attention(x.slice(1, 4, 5), {.causal = true})};
    const Tensor two =
        attention(x.slice(1, 3, 5), {.causal = true, .segments = ids.slice(1, 3, 5)});
    CHECK(worst_error(two, cat(parts, 1)) < 1e-12);

    // Without a causal mask: symmetric, unless the convolution has a direction.
    const Tensor y = attention(x);
    CHECK(y.shape() == x.shape());
    if (preset.options.taps == 0) CHECK(worst_error(flip(attention(flip(x, 1)), 1), y) < 1e-12);
  }
}

TEST_CASE("GatedLinearKernel: the last queries alone, as with a memory, equal those of all") {
  const NoGrad guard;
  const Tensor x = input(11);
  Tensor padding = zeros({2, 11}, {.dtype = boolean});
  padding.slice(1, 6, 8).fill_(1);
  const Tensor ids = tensor<int64_t>({5, 5, 5, 5, 2, 2, 2, 9, 9, 9, 9}).expand({2, 11});
  const AttentionMask masks[] = {{}, {.causal = true}, {.key_padding = padding}, {.segments = ids}};
  for (const Named& preset : presets()) {
    if (preset.options.taps > 0) continue;  // an error
    INFO(preset.name);
    manual_seed(6);
    nn::MultiHeadAttention attention(layer(preset));
    attention.to(f64);
    for (const AttentionMask& mask : masks)
      for (const int64_t m : {0, 1, 4, 11}) {
        const nn::AttentionInputs last = attention.project(x.slice(1, 11 - m), x, mask);
        CHECK(worst_error(attention.attend(last), attention(x, mask).slice(1, 11 - m)) < 1e-12);
      }
  }
}

TEST_CASE("GatedLinearKernel: the weights times the values are the output before the norm") {
  const NoGrad guard;
  manual_seed(7);
  nn::MultiHeadAttention attention(layer(presets()[0]));
  const Tensor w = attention.weights(input(6).to(f32), {.causal = true});
  CHECK(w.shape() == Shape{2, 2, 6, 6});
  CHECK(max(abs(triu(w, 1))).item() == 0);
  CHECK(max(abs(w)).item() > 0);
}

TEST_CASE("GatedLinearKernel: bf16 modules keep fixed decays in f32") {
  const NoGrad guard;
  for (const Named& preset : presets()) {
    INFO(preset.name);
    manual_seed(8);
    nn::MultiHeadAttention attention(layer(preset));
    attention.to(bf16);
    for (const nn::NamedTensor& buffer : attention.named_buffers())
      CHECK(buffer.tensor.dtype() == f32);
    const Tensor x = input(12).to(bf16);
    const Tensor got = attention(x, {.causal = true});
    CHECK(got.dtype() == bf16);
    attention.to(f32);  // the same rounded parameters
    // At most 10 steps from the input to the output round to bf16, by 2^−9 each, and q and k enter
    // the products together.
    CHECK(worst_error(got, attention(x.to(f32), {.causal = true})) < 2 * 10 * 0x1p-9);
  }
}

TEST_CASE("GatedLinearKernel: errors name what is accepted") {
  nn::MultiHeadAttention attention(layer(presets()[4]));
  const Tensor x = input(5).to(f32);
  CHECK_THROWS_WITH(attention(x, {.causal = true, .window = 2}),
                    "[GatedLinearKernel] the inputs have window, but linear attention has no "
                    "scores; accepted: causal, key_padding, segments, a scale, and encodings of q "
                    "and k (RoPE, SPE)");
  CHECK_THROWS_WITH(attention(x, x, {.causal = true}),
                    Containing("[GatedLinearKernel] cross-attention; accepted: self-attention"));
  CHECK_THROWS_WITH(
      attention.attend(attention.project(x.slice(1, 2), x, {.causal = true})),
      Containing("3 queries for 5 keys; a short convolution needs a query for each key"));
  nn::KeyValueCache cache;
  CHECK_THROWS_WITH(attention(x, {}, &cache),
                    Containing("a cache without a causal mask; accepted: a causal mask"));
  CHECK(cache.length() == 0);

  nn::MultiHeadAttentionOptions o{.d_model = 8, .n_heads = 2, .n_value_heads = 4};
  const std::string accepted =
      " for n_kv_heads 2; must be equal, or a multiple of n_heads with gated_linear_kernel()";
  CHECK_THROWS_WITH(nn::MultiHeadAttention(o), "[MultiHeadAttention] n_value_heads 4" + accepted);
  o.kernel = nn::kda_kernel();
  for (const int64_t n : {-2, 1, 3}) {
    o.n_value_heads = n;
    CHECK_THROWS_WITH(nn::MultiHeadAttention(o),
                      str("[MultiHeadAttention] n_value_heads ", n, accepted));
  }
  o.kernel = nn::gated_linear_kernel({.gate_rank = -1});
  o.n_value_heads = 0;
  CHECK_THROWS_WITH(nn::MultiHeadAttention(o), Containing("gate_rank -1; must be 0 (Dv) or more"));
}

TEST_CASE("ShortConvolution: in pieces and with a bias") {
  const NoGrad guard;
  struct Holder : nn::Module {
    nn::ShortConvolution convolution{
        *this, "convolution", {.features = 8, .taps = 4, .bias = true}};
  } holder;
  holder.to(f64);
  holder.convolution.bias.copy_(fixed_noise({8}, 2));
  const Tensor x = input(9);
  const Tensor want =
      reference::short_convolution(x, holder.convolution.weight, holder.convolution.bias);
  CHECK(worst_error(holder.convolution(x), want) < 1e-14);
  Tensor history;
  Tensors parts;
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {1, 3}, {3, 8}, {8, 9}})
    parts.push_back(holder.convolution(x.slice(1, from, to), {}, &history));
  CHECK(worst_error(cat(parts, 1), want) < 1e-14);
}

TEST_CASE("Mamba2 agrees with the reference, in one pass and in pieces") {
  const NoGrad guard;
  manual_seed(9);
  nn::Mamba2 mixer({.d_model = 8, .d_head = 4, .d_state = 5, .n_groups = 2, .taps = 4});
  mixer.to(f64);
  mixer.skip.copy_(fixed_noise({4}, 3));
  mixer.norm.copy_(fixed_noise({16}, 4));
  const Tensor x = input(17);
  const Tensor want = reference::mamba2(mixer, x);
  CHECK(worst_error(mixer(x, {.causal = true}), want) < 1e-12);
  nn::KeyValueCache cache;
  Tensors parts;
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 6}, {6, 7}, {7, 17}})
    parts.push_back(mixer(x.slice(1, from, to), {.causal = true}, &cache));
  CHECK(worst_error(cat(parts, 1), want) < 1e-12);
  CHECK(cache.length() == 17);
  CHECK_THROWS_WITH(nn::Mamba2({.d_model = 8, .d_head = 3}),
                    Containing("[Mamba2] 16 values (expand · d_model) in heads of 3"));
}

TEST_CASE("Mamba2: gradients of all parameters") {
  manual_seed(10);
  nn::Mamba2 mixer({.d_model = 8, .d_head = 8, .d_state = 3, .taps = 2});
  mixer.to(f64);
  const Tensor weights = fixed_noise({2, 4, 8}, 2);
  CHECK_NOTHROW(
      nn::gradcheck(mixer, [&] { return sum(mixer(input(4), {.causal = true}) * weights); }));
}

TEST_CASE("gated layers: a language model generates what one pass computes") {
  const NoGrad guard;
  for (const nn::LayerOptions& o : {nn::retnet_layer(16, 2), nn::gla_layer(16, 2),
                                    nn::gated_deltanet_layer(16, 2), nn::kda_layer(16, 2)}) {
    manual_seed(11);
    nn::LanguageModel model({.vocabulary = 11, .n_layers = 2, .layer = o});
    model.to(f64);
    const Tensor tokens = randint(0, 11, {2, 12});
    const Tensor want = model(tokens);
    nn::LanguageModel::Cache cache;
    Tensors parts;
    for (int64_t t = 0; t < 12; ++t) parts.push_back(model(tokens.slice(1, t, t + 1), &cache));
    CHECK(worst_error(cat(parts, 1), want) < 1e-12);
  }
}
