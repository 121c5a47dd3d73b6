// Linear attention as a kernel: in MultiHeadAttention, with positions, and with a state.
#include "autograd/tape.h"
#include "nn/attention/linear_attention.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "nn/transformer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/linear_attention.h"
#include "tests/reference/rotary.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/implementations.h"
#include "tests/support/module_gradcheck.h"
#include "tests/support/position_check.h"

using namespace stretto;
using nn::KeyValueCache;
using nn::MultiHeadAttention;
using testing::fixed_noise;
using testing::in_pieces;
using testing::same_bits;
using testing::worst_error;

namespace {

struct NamedMap {
  const char* name;
  nn::MakeFeatureMap make;
};

std::vector<NamedMap> maps() {
  return {{"elu + 1", nn::elu_plus_one()},
          {"relu", nn::relu_plus()},
          {"positive", nn::favor({.features = 16})},
          {"hyperbolic", nn::favor({.features = 16, .kind = nn::FavorKind::hyperbolic})},
          {"generalized", nn::favor({.features = 16, .kind = nn::FavorKind::generalized})}};
}

// In f64, in evaluation mode, with a fixed seed; two query heads share a key head, and values have
// a smaller dimension.
std::unique_ptr<MultiHeadAttention> make(const nn::MakeFeatureMap& map,
                                         nn::LinearKernelOptions options = {},
                                         const nn::MakePositionalEncoding& position = {}) {
  manual_seed(11);
  auto layer = std::make_unique<MultiHeadAttention>(
      MultiHeadAttention::Options{.d_model = 8,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .d_key = 6,
                                  .d_value = 3,
                                  .position = position,
                                  .kernel = nn::linear_kernel(map, options)});
  layer->to(f64);
  layer->eval();
  return layer;
}

}  // namespace

TEST_CASE("LinearKernel equals the feature map followed by linear attention") {
  const Tensor x = fixed_noise({2, 9, 8}, 1), context = fixed_noise({2, 12, 8}, 2);
  Tensor padding = zeros({2, 12}, {.dtype = boolean});
  padding[1].slice(0, 4, 7).fill_(1);
  for (const Implementation implementation : testing::implementations())
    for (const bool rotated : {false, true}) {
      const auto layer =
          make(nn::elu_plus_one(), {.eps = 1e-3, .chunk = 4, .implementation = implementation},
               rotated ? nn::rotary() : nn::MakePositionalEncoding());
      const AttentionMask visible{.causal = true, .key_padding = padding};
      nn::AttentionInputs inputs = layer->project(x, context, visible);
      if (rotated) {
        inputs.q = reference::rotated(inputs.q, 3, {});
        inputs.k = reference::rotated(inputs.k, 0, {});
      }
      const Tensor heads = reference::linear_attention(
          reference::elu_plus_one(inputs.q), reference::elu_plus_one(inputs.k), inputs.v,
          {.mask = {.causal = true, .key_padding = padding}, .eps = 1e-3});
      const Tensor want = layer->out(heads.transpose(1, 2).flatten(2));
      CHECK(worst_error((*layer)(x, context, visible), want) < 1e-13);
    }
}

TEST_CASE("LinearKernel: token by token equals one pass") {
  NoGrad guard;
  const int64_t l = 23;
  const Tensor x = fixed_noise({2, l, 8}, 1), other = fixed_noise({2, l, 8}, 2);
  const AttentionMask causal{.causal = true};
  const std::vector<int64_t> steps(size_t(l), 1);
  for (const NamedMap& map : maps())
    for (const auto& position : {nn::MakePositionalEncoding(), nn::rotary()}) {
      INFO(map.name);
      const auto layer = make(map.make, {.chunk = 4}, position);
      const Tensor y = (*layer)(x, causal);
      for (const auto& pieces : {steps, {7, 1, 1, 5, 9}, {1, 22}})
        CHECK(worst_error(in_pieces(*layer, x, causal, pieces), y) < 1e-12);
      for (const int64_t t : {1, 9, 22}) {
        const Tensor changed = cat({x.slice(1, 0, t), other.slice(1, t)}, 1);
        CHECK(same_bits((*layer)(changed, causal).slice(1, 0, t), y.slice(1, 0, t)));
      }
    }
}

TEST_CASE("LinearKernel: its cache is a state that does not grow") {
  NoGrad guard;
  const auto layer = make(nn::favor({.features = 16}), {}, nn::rotary());
  const Tensor x = fixed_noise({2, 300, 8}, 1);
  KeyValueCache cache;
  auto live_after = [&](int64_t at) {
    (*layer)(x.slice(1, at, at + 1), {.causal = true}, &cache);
    release_cached_memory();  // and the cached tables of a GPU
    return memory_stats().live;
  };
  live_after(0);
  const int64_t live = live_after(1);
  for (int64_t at = 2; at < 300; ++at) CHECK(live_after(at) == live);
  CHECK(cache.length() == 300);
  CHECK(!cache.k.defined());
  CHECK(cache.state.sums.shape() == Shape{2, 2, 16, 4});
  CHECK(cache.state.sums.storage().bytes == 2 * 2 * 16 * 4 * 8);
}

TEST_CASE("LinearKernel: a cache supports padding and reorder()") {
  NoGrad guard;
  const auto layer = make(nn::elu_plus_one());
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  Tensor padding = zeros({2, 9}, {.dtype = boolean});
  padding[0].slice(0, 0, 3).fill_(1);
  const Tensor y = (*layer)(x, {.causal = true, .key_padding = padding});
  KeyValueCache cache;
  Tensors parts;
  for (const auto& [begin, end] : {std::pair{0, 4}, {4, 5}, {5, 9}})
    parts.push_back((*layer)(x.slice(1, begin, end),
                             {.causal = true, .key_padding = padding.slice(1, 0, end)}, &cache));
  CHECK(worst_error(cat(parts, 1), y) < 1e-13);
  CHECK_THROWS_WITH((*layer)(x, {.causal = true, .key_padding = padding}, &cache),
                    "[MultiHeadAttention] key_padding bool [2, 9]; must be bool or u8 [2, 18], "
                    "with one column for each cached and each new position");

  KeyValueCache swapped;
  (*layer)(x.slice(1, 0, 6), {.causal = true}, &swapped);
  const Tensor order = tensor<int64_t>({1, 0, 1});
  swapped.reorder(order);
  const Tensor rest = index_select(x, 0, order).slice(1, 6);
  const Tensor want = index_select((*layer)(x, {.causal = true}), 0, order).slice(1, 6);
  CHECK(worst_error((*layer)(rest, {.causal = true}, &swapped), want) < 1e-13);
}

TEST_CASE("LinearKernel: a cache can hold a context") {
  NoGrad guard;
  const auto layer = make(nn::elu_plus_one());
  const Tensor x = fixed_noise({2, 5, 8}, 1), context = fixed_noise({2, 7, 8}, 2);
  const Tensor y = (*layer)(x, context, {});
  KeyValueCache cache;
  for (int64_t at = 0; at < 5; ++at)
    CHECK(worst_error((*layer)(x.slice(1, at, at + 1), context, {}, &cache),
                      y.slice(1, at, at + 1)) < 1e-13);
}

TEST_CASE("LinearKernel: weights() returns the normalized products of the features") {
  const auto layer = make(nn::relu_plus(), {.chunk = 4});
  const Tensor x = fixed_noise({2, 9, 8}, 1), w = layer->weights(x, {.causal = true});
  CHECK(w.shape() == Shape{2, 4, 9, 9});
  CHECK(worst_error(sum(w, {-1}), ones({2, 4, 9}, {.dtype = f64})) < 1e-13);
  const nn::AttentionInputs inputs = layer->project(x, x, {.causal = true});
  const Tensor q = reference::relu_plus(inputs.q, 1e-3), k = reference::relu_plus(inputs.k, 1e-3);
  for (int64_t i : {0, 5})
    for (int64_t j = 0; j < 9; ++j) {
      double total = 0;
      auto product = [&](int64_t key) { return sum(q[1][2][i] * k[1][1][key]).item(); };
      for (int64_t seen = 0; seen <= i; ++seen) total += product(seen);
      CHECK(w[1][2][i][j].item() == Approx(j <= i ? product(j) / total : 0).epsilon(1e-12));
    }
}

TEST_CASE("LinearKernel: gradients reach every parameter") {
  for (const NamedMap& map : maps()) {
    INFO(map.name);
    const auto layer = make(map.make, {.eps = 1e-3, .chunk = 3}, nn::rotary());
    const Tensor x = fixed_noise({2, 7, 8}, 1);
    const auto loss = [&] {
      const Tensor y = (*layer)(x, {.causal = true});
      return sum(y * fixed_noise(y.shape(), 2));
    };
    testing::check_parameter_gradients(*layer, loss, 1e-7);  // relu has kinks
  }
}

TEST_CASE("LinearKernel: features are redrawn in training, but not while a state is continued") {
  manual_seed(2);
  nn::TransformerLayer layer(
      {.d_model = 8,
       .attention = {.n_heads = 2,
                     .kernel = nn::linear_kernel(nn::favor({.features = 8, .redraw = 1}))},
       .feed_forward = {.d_hidden = 16}});
  const Tensor x = fixed_noise({1, 6, 8}, 1, f32);
  const Tensor first = layer(x, {.causal = true});
  CHECK(!same_bits(layer(x, {.causal = true}), first));
  KeyValueCache cache;
  layer(x.slice(1, 0, 3), {.causal = true}, &cache);
  const Tensor projection = layer.named_buffers()[0].tensor, before = projection.clone();
  CHECK(layer.named_buffers()[0].name == "self_attention.kernel.feature_map.projection");
  layer(x.slice(1, 3), {.causal = true}, &cache);
  CHECK(same_bits(projection, before));
  layer.eval();
  const Tensor y = layer(x, {.causal = true});
  CHECK(same_bits(layer(x, {.causal = true}), y));
  const auto copy = nn::clone(layer);
  CHECK(same_bits((*copy)(x, {.causal = true}), y));
}

TEST_CASE("LinearKernel: bf16 is computed in f32") {
  const auto layer = make(nn::favor({.features = 64}));
  layer->to(f32);
  const Tensor x = fixed_noise({1, 20, 8}, 1, bf16);
  const Tensor want = (*layer)(x.to(f32), {.causal = true});
  layer->to(bf16);
  const Tensor y = (*layer)(x, {.causal = true});
  CHECK(y.dtype() == bf16);
  CHECK(worst_error(y, want) < 6e-2);  // parameters and projections are rounded
}

TEST_CASE("LinearKernel: masks and terms that act on scores are an error") {
  const Tensor x = fixed_noise({1, 6, 8}, 1);
  const std::string rest =
      ", but linear attention has no scores; accepted: causal, key_padding, and encodings of q "
      "and k, RoPE (nn/positions/rotary.h) and SPE (nn/positions/spe.h); or use "
      "softmax_kernel()";
  auto error = [&](const MultiHeadAttention& layer, const AttentionMask& visible,
                   const std::string& what) {
    CHECK_THROWS_WITH(layer(x, visible), "[LinearKernel] the inputs have " + what + rest);
  };
  const auto elu = nn::elu_plus_one();
  error(*make(elu), {.causal = true, .window = 3}, "window");
  error(*make(elu), {.block = 3}, "block");
  MultiHeadAttention scaled({.d_model = 8, .scale = 1, .kernel = nn::linear_kernel()});
  scaled.to(f64);
  error(scaled, {}, "a scale of the scores");
  MultiHeadAttention dropping({.d_model = 8, .dropout = 0.1, .kernel = nn::linear_kernel()});
  dropping.to(f64);
  error(dropping, {}, "dropout of the weights");
  dropping.eval();
  CHECK_NOTHROW(dropping(x));
  nn::Module owner;
  const nn::LinearKernel kernel(owner, {.n_heads = 1, .d_key = 8}, elu, {});
  nn::AttentionInputs inputs{x.unsqueeze(1), x.unsqueeze(1), x.unsqueeze(1), {}};
  inputs.options.bias = zeros({6, 6}, {.dtype = f64});
  CHECK_THROWS_WITH(kernel(inputs), Containing("the inputs have bias"));
  inputs.options.bias = {};
  inputs.options.relative_values = {zeros({1, 3, 8}, {.dtype = f64}), 1};
  CHECK_THROWS_WITH(kernel(inputs), Containing("the inputs have relative_values"));
  inputs.options.relative_values = {};
  inputs.options.relative_query = inputs.q;
  CHECK_THROWS_WITH(kernel.weights(inputs), Containing("the inputs have relative_query"));

  for (const nn::MakePositionalEncoding& position :
       {nn::music_relative({.max_length = 6}), nn::alibi(), nn::rotary({.xpos = true})})
    CHECK_THROWS_WITH(make(elu, {}, position),
                      Containing(" acts on scores, which LinearKernel does not have; accepted: "));
  KeyValueCache limited{.limit = 4};
  CHECK_THROWS_WITH((*make(elu))(x, {.causal = true}, &limited),
                    "[MultiHeadAttention] a cache limited to 4 positions cannot be used with a "
                    "recurrent state, whose size is constant; use limit 0");
  CHECK_THROWS_WITH(make(nn::MakeFeatureMap()),
                    "[LinearKernel] needs a feature map: elu_plus_one(), relu_plus() or favor()");
}
