// Short convolutions of keys and values, and of the branches of a layer.
#include <algorithm>
#include <memory>

#include "autograd/tape.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/attention/latent_attention.h"
#include "nn/models/generation.h"
#include "nn/models/language_model.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::MultiHeadAttention;
using nn::NormPlace;
using nn::ShortConvolution;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

const AttentionMask causal{.causal = true};

// x_t + Σ_j w_j x_{t − T + 1 + j} of each feature, in a loop.
Tensor filtered(const ShortConvolution& f, const Tensor& input) {
  const int64_t batch = input.size(0), n = input.size(1), c = input.size(2), taps = f.options.taps;
  const std::vector<double> x = input.to_vector<double>(), w = f.weight.to_vector<double>();
  std::vector<double> y = x;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t t = 0; t < n; ++t)
      for (int64_t j = 0; j < taps; ++j)
        for (int64_t i = 0; i < c; ++i)
          if (const int64_t at = t - taps + 1 + j; at >= 0)
            y[size_t((b * n + t) * c + i)] +=
                w[size_t(i * taps + j)] * x[size_t((b * n + at) * c + i)];
  return tensor(y, input.shape());
}

template <class M, class Options = typename M::Options>
std::unique_ptr<M> made(const Options& options) {
  manual_seed(3);
  auto module = std::make_unique<M>(options);
  module->to(f64);
  module->eval();
  return module;
}

nn::LayerOptions inkling_layer() {
  return {.d_model = 8,
          .attention = {.n_heads = 4,
                        .n_kv_heads = 2,
                        .d_key = 3,
                        .d_value = 5,
                        .bias = false,
                        .qk_norm = nn::Norm::Options{.kind = nn::NormKind::rms},
                        .taps = 3,
                        .position = nn::inkling_relative({.dim = 2, .extent = 6})},
          .feed_forward = {.d_hidden = 12},
          .branch_taps = 4,
          .network_scale = true};
}

// Three layers: with a window, without one, and with another mixer.
nn::LanguageModel::Options inkling_model(bool mixer) {
  nn::LanguageModel::Options o{
      .vocabulary = 11, .n_layers = mixer ? 3 : 2, .layer = inkling_layer()};
  o.vary_layer = [](int64_t i, nn::LayerOptions& layer) {
    if (i == 0) layer.attention.window = 4;
    if (i == 2) layer.mixer = nn::latent_attention({.n_heads = 2, .d_latent = 5, .d_position = 4});
  };
  return o;
}

}  // namespace

TEST_CASE("short convolutions filter keys and values after their projection", "[convolution]") {
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  for (const bool normed : {false, true}) {
    MultiHeadAttention::Options o{
        .d_model = 8, .n_heads = 4, .n_kv_heads = 2, .d_value = 5, .taps = 3};
    if (normed) o.qk_norm = nn::Norm::Options{.kind = nn::NormKind::rms};
    const auto layer = made<MultiHeadAttention>(o);
    const auto heads = [](const Tensor& y, int64_t n) {
      return y.reshape({2, 7, n, y.size(2) / n}).transpose(1, 2);
    };
    Tensor q = heads(layer->q(x), 4), k = heads(filtered(*layer->k_convolution, layer->k(x)), 2);
    const Tensor v = heads(filtered(*layer->v_convolution, layer->v(x)), 2);
    if (normed) q = (*layer->q_norm)(q), k = (*layer->k_norm)(k);
    const Tensor y = reference::attention(q, k, v, {.mask = causal});
    CHECK(worst_error((*layer)(x, causal), layer->out(y.transpose(1, 2).flatten(2))) < 1e-12);
    testing::check_parameter_gradients(*layer, [&] { return sum(square((*layer)(x, causal))); });
    CHECK((*layer)(zeros({2, 0, 8}, {.dtype = f64}), causal).shape() == Shape{2, 0, 8});
  }
}

TEST_CASE("short convolutions with filters of 0 change nothing", "[convolution]") {
  const NoGrad guard;
  nn::LayerOptions o = inkling_layer();
  const auto layer = made<nn::TransformerLayer>(o);
  o.attention.taps = o.branch_taps = 0;
  o.network_scale = false;
  nn::TransformerLayer plain(o);
  plain.to(f64);
  for (const nn::NamedTensor& n : plain.named_parameters())
    n.tensor.copy_(layer->get_parameter(n.name));
  for (const nn::NamedTensor& n : layer->named_parameters())
    if (n.name.find("convolution") != n.name.npos) n.tensor.fill_(0);
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  CHECK(same_bits((*layer)(x, causal), plain(x, causal)));
}

TEST_CASE("branch_taps and network_scale act on the branches", "[convolution]") {
  const Tensor x = fixed_noise({2, 6, 8}, 1);
  for (const NormPlace norm :
       {NormPlace::pre, NormPlace::post, NormPlace::sandwich, NormPlace::output})
    for (const nn::Residual residual : {nn::Residual::sequential, nn::Residual::parallel}) {
      if (residual == nn::Residual::parallel && norm != NormPlace::pre) continue;
      nn::LayerOptions o = inkling_layer();
      o.norm = norm;
      o.residual = residual;
      const auto layer = made<nn::TransformerLayer>(o);
      CHECK(layer->network_scale.to_vector<double>() == std::vector<double>{1});
      {
        const NoGrad guard;
        layer->network_scale.fill_(1.7);
      }
      const auto branch = [&](const auto& f, const Tensor& y, const nn::Norm& in,
                              const nn::Norm* out) -> Tensor {
        if (norm == NormPlace::post) return in(y + f(y));
        if (norm == NormPlace::output) return y + in(f(y));
        const Tensor z = f(in(y));
        return y + (out ? (*out)(z) : z);
      };
      const auto attend = [&](const Tensor& y) {
        return filtered(*layer->mixer_convolution, layer->self_attention()(y, causal));
      };
      const auto feed = [&](const Tensor& y) {
        return filtered(*layer->network_convolution, layer->feed_forward()(y) * 1.7);
      };
      const Tensor y = branch(attend, x, layer->norm1, layer->norm1_out.get());
      const Tensor want = residual == nn::Residual::parallel
                              ? y + branch(feed, x, *layer->norm2, nullptr) - x
                              : branch(feed, y, *layer->norm2, layer->norm2_out.get());
      CHECK(worst_error((*layer)(x, causal), want) < 1e-12);
      testing::check_parameter_gradients(*layer, [&] { return mean(square((*layer)(x, causal))); });
    }
}

TEST_CASE("short convolutions: chunks, reordered rows and padding equal one pass",
          "[convolution]") {
  const NoGrad guard;
  const auto model = made<nn::LanguageModel>(inkling_model(true));
  const Tensor tokens = randint(0, 11, {3, 17}), want = (*model)(tokens);
  for (int round = 0; round < 4; ++round) {
    nn::LanguageModel::Cache cache;
    Tensor rows = arange(3), continued = tokens;
    for (int64_t at = 0; at < 17;) {
      const int64_t end =
          std::min<int64_t>(17, at + 1 + randint(0, 5, {1}).to_vector<int64_t>()[0]);
      const Tensor y = (*model)(continued.slice(1, at, end), &cache);
      CHECK(worst_error(y, index_select(want, 0, rows).slice(1, at, end)) < 1e-12);
      at = end;
      const Tensor order = randint(0, rows.size(0), {3});
      cache.reorder(order);
      rows = index_select(rows, 0, order);
      continued = index_select(tokens, 0, rows);
    }
  }
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}, {7, 8, 0}};
  const nn::GenerationOptions greedy{.max_tokens = 6, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(*model, prompts, greedy);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(*model, prompts[i], greedy));
}

TEST_CASE("short convolutions: packed documents and key_padding hide others", "[convolution]") {
  const NoGrad guard;
  const auto model = made<nn::LanguageModel>(inkling_model(true));
  nn::ForwardContext forward = nn::begin_forward();
  forward.segments = tensor(std::vector<int64_t>{0, 0, 0, 0, 1, 1, 2, 2, 2}, {1, 9});
  const Tensor row = randint(0, 11, {1, 9}), packed = (*model)(row, forward);
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 4}, {4, 6}, {6, 9}})
    CHECK(worst_error(packed.slice(1, from, to), (*model)(row.slice(1, from, to))) < 1e-12);

  const nn::TransformerLayer& layer = model->layers[0];
  const Tensor x = fixed_noise({1, 9, 8}, 2), want = layer(x.slice(1, 2), causal);
  Tensor padding = zeros({1, 9}, {.dtype = boolean});
  padding.slice(1, 0, 2).fill_(1);
  nn::KeyValueCache cache;
  Tensors parts;
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 1}, {1, 4}, {4, 9}})
    parts.push_back(layer(x.slice(1, from, to),
                          {.causal = true, .key_padding = padding.slice(1, 0, to)}, &cache));
  CHECK(worst_error(cat(parts, 1).slice(1, 2), want) < 1e-12);
  CHECK(worst_error(layer(x, {.causal = true, .key_padding = padding}).slice(1, 2), want) < 1e-12);
}

TEST_CASE("short convolutions: a limited cache is a window", "[convolution]") {
  const NoGrad guard;
  const auto model =
      made<nn::LanguageModel>({.vocabulary = 11, .n_layers = 2, .layer = inkling_layer()});
  nn::LanguageModel::Options o = model->options;
  o.layer.attention.window = 4;
  const auto window = made<nn::LanguageModel>(o);  // with the same weights
  const Tensor tokens = randint(0, 11, {2, 12}), want = (*window)(tokens);
  nn::LanguageModel::Cache cache = model->make_cache(3);
  for (int64_t t = 0; t < 12; ++t)
    CHECK(worst_error((*model)(tokens.slice(1, t, t + 1), &cache), want.slice(1, t, t + 1)) <
          1e-12);
  CHECK(cache.layers[0].end() == 12);
  nn::LanguageModel::Cache kept = model->make_cache(5, 2);
  const Tensor first = (*model)(tokens.slice(1, 0, 5), &kept);
  CHECK(worst_error(first, (*model)(tokens.slice(1, 0, 5))) < 1e-12);
}

TEST_CASE("short convolutions: a failed call leaves the cache unchanged", "[convolution]") {
  const NoGrad guard;
  const auto model = made<nn::LanguageModel>(inkling_model(false));
  const nn::TransformerLayer& layer = model->layers[1];
  const Tensor x = fixed_noise({2, 6, 8}, 1), want = layer(x, causal);
  nn::KeyValueCache cache;
  const Tensor first = layer(x.slice(1, 0, 4), causal, &cache);
  CHECK_THROWS_WITH(layer(x.slice(0, 0, 1), causal, &cache),
                    Containing("[ShortConvolution] history"));
  CHECK_THROWS_AS(layer(x.slice(1, 4), {}, &cache), Error);
  CHECK_THROWS_WITH(model->layers[0](x, causal, &cache), Containing("the cache was filled by"));
  if (default_device().is_cpu())  // a GPU reports a wrong index too late
    CHECK_THROWS_AS(cache.reorder(tensor<int64_t>({0, 2})), Error);
  CHECK(worst_error(cat({first, layer(x.slice(1, 4), causal, &cache)}, 1), want) < 1e-12);
}

TEST_CASE("short convolutions name what they do not support", "[convolution]") {
  const auto model = made<nn::LanguageModel>(inkling_model(false));
  nn::LayerOptions of_branches = inkling_layer();
  of_branches.attention.taps = 0;
  const auto branches = made<nn::TransformerLayer>(of_branches);
  const nn::TransformerLayer& layer = model->layers[1];
  const MultiHeadAttention& attention = layer.self_attention();
  const Tensor x = fixed_noise({1, 4, 8}, 1), other = fixed_noise({1, 6, 8}, 2);
  const std::string accepted =
      "; accepted: a causal mask in one process, with packed segments, or with padding or a cache";
  CHECK_THROWS_WITH(
      attention(x, AttentionMask{}),
      "[MultiHeadAttention] short convolutions with a mask that is not causal" + accepted);
  CHECK_FALSE(attention.traits().bidirectional);
  CHECK_THROWS_WITH(
      (*branches)(x, AttentionMask{}),
      "[TransformerLayer] short convolutions with a mask that is not causal" + accepted);
  AttentionMask packed = causal;
  packed.segments = zeros({1, 4}, {.dtype = i64});
  nn::KeyValueCache cache;
  CHECK_THROWS_WITH(attention(x, packed, &cache), Containing("with packed segments in a cache"));
  packed.key_padding = zeros({1, 4}, {.dtype = boolean});
  CHECK_THROWS_WITH(attention(x, packed), Containing("with packed segments and padding"));
  const Tensor narrow = zeros({1, 3}, {.dtype = boolean});
  CHECK_THROWS_WITH(attention(x, {.causal = true, .key_padding = narrow}),
                    Containing("must be bool or u8 [1, 4], with one column"));
  const std::string cross =
      "[MultiHeadAttention] short convolutions in cross-attention or with a memory; accepted: "
      "self-attention";
  CHECK_THROWS_WITH(attention(x, other, causal), cross);
  CHECK_THROWS_WITH(attention.project(x, other, causal), cross);
  for (const nn::TransformerLayer* l :
       {&layer, static_cast<const nn::TransformerLayer*>(branches.get())})
    CHECK_THROWS_WITH(
        (*l)(x, other, causal, nn::ForwardContext{}),
        "[TransformerLayer] a memory with short convolutions; accepted: a cache, or no "
        "memory");
  nn::LanguageModel::Cache memory = model->make_memory({.length = 3});
  CHECK_THROWS_WITH((*model)(zeros({1, 3}, {.dtype = i64}), &memory), Containing("a memory with"));

  MultiHeadAttention::Options o{.d_model = 8, .n_heads = 2, .taps = -1};
  const std::string taps =
      "; must be 0 (none), or positive with softmax_kernel(); kernels with a recurrent state have "
      "an "
      "option of their own";
  CHECK_THROWS_WITH(MultiHeadAttention(o), "[MultiHeadAttention] taps -1" + taps);
  o.taps = 2;
  o.kernel = nn::retention_kernel();
  CHECK_THROWS_WITH(MultiHeadAttention(o), "[MultiHeadAttention] taps 2" + taps);
  nn::LayerOptions of_layer = inkling_layer();
  const std::string only =
      "; branch_taps must be 0 (none) or more, and both are for TransformerLayer";
  CHECK_THROWS_WITH(nn::DecoderLayer(of_layer),
                    "[DecoderLayer] branch_taps 4 and network_scale" + only);
  of_layer.branch_taps = -2;
  of_layer.network_scale = false;
  CHECK_THROWS_WITH(nn::TransformerLayer(of_layer), "[TransformerLayer] branch_taps -2" + only);
  of_layer.branch_taps = 0;  // a decoder's self-attention may have convolutions
  const nn::DecoderLayer decoder(of_layer);
  CHECK(decoder.self_attention().k_convolution);
  CHECK_FALSE(decoder.cross_attention.k_convolution);
}
