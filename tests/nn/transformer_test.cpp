#include "nn/transformer.h"

#include "autograd/tape.h"
#include "nn/gradcheck.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using nn::DecoderLayer;
using nn::LayerOptions;
using nn::NormPlace;
using nn::TransformerLayer;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

template <class Layer>
std::unique_ptr<Layer> make(const LayerOptions& options) {
  manual_seed(21);
  auto layer = std::make_unique<Layer>(options);
  layer->to(f64);
  layer->eval();
  // Norms that are not the identity, so that leaving one out is detected.
  for (const auto& [name, p] : layer->named_parameters())
    if (name.rfind("norm", 0) == 0)
      p.detach().add_(fixed_noise(p.shape(), p.numel() + name[4]), 0.5);
  return layer;
}

std::vector<std::string> names(const nn::Module& m) {
  std::vector<std::string> list;
  for (const auto& [name, tensor] : m.named_parameters()) list.push_back(name);
  return list;
}

const LayerOptions base{
    .d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 12}};

}  // namespace

TEST_CASE("TransformerLayer: names and shapes of its parameters") {
  LayerOptions options = base;
  options.attention.position = nn::music_relative({.max_length = 5});
  options.attention.d_key = 3;
  const auto layer = make<TransformerLayer>(options);
  CHECK(names(*layer) ==
        std::vector<std::string>{
            "self_attention.q.weight", "self_attention.q.bias", "self_attention.k.weight",
            "self_attention.k.bias", "self_attention.v.weight", "self_attention.v.bias",
            "self_attention.out.weight", "self_attention.out.bias", "self_attention.position.table",
            "norm1.weight", "norm1.bias", "feed_forward.linear1.weight",
            "feed_forward.linear1.bias", "feed_forward.linear2.weight", "feed_forward.linear2.bias",
            "norm2.weight", "norm2.bias"});
  CHECK(layer->parameter_count() ==
        2 * (8 * 6 + 6) + 2 * (8 * 8 + 8) + 2 * 5 * 3 + (8 * 12 + 12) + (12 * 8 + 8) + 4 * 8);
  CHECK(layer->label() == "TransformerLayer(pre-norm)");
  options.norm = NormPlace::post;
  options.attention.bias = false;
  CHECK(make<TransformerLayer>(options)->label() == "TransformerLayer(post-norm)");
  CHECK(make<TransformerLayer>(options)->parameter_count() ==
        layer->parameter_count() - 2 * 6 - 2 * 8);
}

TEST_CASE("TransformerLayer: pre-norm and post-norm equal their formulas") {
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  const AttentionMask causal{.causal = true};
  LayerOptions options = base;
  options.norm_eps = 1e-3;
  options.feed_forward.activation = nn::Activation::gelu;
  options.norm = NormPlace::pre;
  {
    const auto m = make<TransformerLayer>(options);
    CHECK(m->norm1.options.eps == 1e-3);
    CHECK(m->norm2->options.eps == 1e-3);
    const Tensor y = x + m->self_attention()(m->norm1(x), causal);
    const Tensor z = y + m->feed_forward()((*m->norm2)(y));
    CHECK(same_bits((*m)(x, causal), z));
    const Tensor hidden = gelu(m->feed_forward().linear1((*m->norm2)(y)));
    CHECK(same_bits((*m)(x, causal), y + m->feed_forward().linear2(hidden)));
  }
  options.norm = NormPlace::post;
  {
    const auto m = make<TransformerLayer>(options);
    const Tensor y = m->norm1(x + m->self_attention()(x, causal));
    CHECK(same_bits((*m)(x, causal), (*m->norm2)(y + m->feed_forward()(y))));
  }
}

TEST_CASE("TransformerLayer: with a causal mask, outputs do not depend on later tokens") {
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post})
    for (const AttentionMask& visible :
         {AttentionMask{.causal = true}, AttentionMask{.block = 3}}) {
      LayerOptions options = base;
      options.norm = norm;
      options.attention.position = nn::music_relative({.max_length = 6, .bidirectional = true});
      const auto m = make<TransformerLayer>(options);
      NoGrad guard;
      const Tensor x = fixed_noise({2, 11, 8}, 1), y = (*m)(x, visible);
      x.slice(1, 7).fill_(5);
      CHECK(same_bits((*m)(x, visible).slice(1, 0, 7), y.slice(1, 0, 7)));
      CHECK(!same_bits((*m)(x).slice(1, 0, 7), y.slice(1, 0, 7)));
    }
}

TEST_CASE("TransformerLayer: padded positions change nothing") {
  const auto m = make<TransformerLayer>(base);
  NoGrad guard;
  const Tensor x = fixed_noise({2, 6, 8}, 1);
  Tensor padding = zeros({2, 6}, {.dtype = boolean});
  padding[0].slice(0, 4).fill_(1);
  const Tensor y = (*m)(x, {.key_padding = padding});
  CHECK(worst_error(y[0].slice(0, 0, 4), (*m)(x.slice(0, 0, 1).slice(1, 0, 4))[0]) < 1e-14);
  x[0].slice(0, 4).fill_(9);
  CHECK(same_bits((*m)(x, {.key_padding = padding})[0].slice(0, 0, 4), y[0].slice(0, 0, 4)));
  CHECK(same_bits((*m)(x, {.key_padding = padding})[1], y[1]));
}

TEST_CASE("TransformerLayer: with a cache, in chunks, equals one pass") {
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    LayerOptions options = base;
    options.norm = norm;
    options.attention.n_kv_heads = 1;
    options.attention.position =
        nn::music_relative({.max_length = 5, .out_of_range = OutOfRange::clip});
    const auto m = make<TransformerLayer>(options);
    const Tensor x = fixed_noise({2, 12, 8}, 1);
    nn::KeyValueCache cache;
    Tensors parts;
    for (const auto& [from, to] : std::vector<std::pair<int64_t, int64_t>>{{0, 5}, {5, 6}, {6, 12}})
      parts.push_back((*m)(x.slice(1, from, to), {.causal = true}, &cache));
    CHECK(worst_error(cat(parts, 1), (*m)(x, {.causal = true})) < 1e-12);
  }
}

TEST_CASE("DecoderLayer: names and shapes of its parameters") {
  LayerOptions options = base;
  options.attention.position = nn::music_relative({.max_length = 5});
  const auto m = make<DecoderLayer>(options);
  const auto list = names(*m);
  // Cross-attention has no positional encoding.
  CHECK(std::count(list.begin(), list.end(), "self_attention.position.table") == 1);
  CHECK(std::count(list.begin(), list.end(), "cross_attention.position.table") == 0);
  CHECK(std::count(list.begin(), list.end(), "cross_attention.q.weight") == 1);
  CHECK(list.back() == "norm3.bias");
  CHECK(m->parameter_count() ==
        2 * 4 * (64 + 8) + 2 * 5 * 4 + (8 * 12 + 12) + (12 * 8 + 8) + 3 * 2 * 8);
  CHECK(m->label() == "DecoderLayer(pre-norm)");
}

TEST_CASE("DecoderLayer: pre-norm and post-norm equal their formulas") {
  const Tensor x = fixed_noise({2, 5, 8}, 1), context = fixed_noise({2, 9, 8}, 2);
  Tensor padding = zeros({2, 9}, {.dtype = boolean}), own = zeros({2, 5}, {.dtype = boolean});
  padding[1].slice(0, 3).fill_(1);
  own[0].slice(0, 4).fill_(1);
  const AttentionMask self{.causal = true, .key_padding = own}, cross{.key_padding = padding};
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    LayerOptions options = base;
    options.norm = norm;
    options.attention.position = nn::music_relative({.max_length = 3});
    const auto m = make<DecoderLayer>(options);
    Tensor y = x;
    if (norm == NormPlace::pre) {
      y = y + m->self_attention()(m->norm1(y), self);
      y = y + m->cross_attention(m->norm2(y), context, cross);
      y = y + m->feed_forward()(m->norm3(y));
    } else {
      y = m->norm1(y + m->self_attention()(y, self));
      y = m->norm2(y + m->cross_attention(y, context, cross));
      y = m->norm3(y + m->feed_forward()(y));
    }
    CHECK(same_bits((*m)(x, context, self, cross), y));
  }
}

TEST_CASE("DecoderLayer: it is causal by default, and padded context is hidden") {
  const auto m = make<DecoderLayer>(base);
  NoGrad guard;
  const Tensor x = fixed_noise({2, 6, 8}, 1), context = fixed_noise({2, 4, 8}, 2);
  const Tensor y = (*m)(x, context);
  x.slice(1, 3).fill_(4);
  CHECK(same_bits((*m)(x, context).slice(1, 0, 3), y.slice(1, 0, 3)));
  Tensor padding = zeros({2, 4}, {.dtype = boolean});
  padding.slice(1, 2).fill_(1);
  const Tensor z = (*m)(x, context, {.causal = true}, {.key_padding = padding});
  CHECK(worst_error((*m)(x, context.slice(1, 0, 2)), z) < 1e-14);
  context.slice(1, 2).fill_(7);
  CHECK(same_bits((*m)(x, context, {.causal = true}, {.key_padding = padding}), z));
}

TEST_CASE("DecoderLayer: with a cache, token by token, equals one pass") {
  LayerOptions options = base;
  options.attention.position = nn::music_relative({.max_length = 4});
  const auto m = make<DecoderLayer>(options);
  const Tensor x = fixed_noise({2, 9, 8}, 1), context = fixed_noise({2, 4, 8}, 2);
  nn::DecoderCache cache;
  Tensors parts;
  for (int64_t i = 0; i < 9; ++i)
    parts.push_back((*m)(x.slice(1, i, i + 1), context, {.causal = true}, {}, &cache));
  CHECK(worst_error(cat(parts, 1), (*m)(x, context)) < 1e-12);
}

TEST_CASE("DecoderLayer: the cache holds the projected context, computed once") {
  const auto m = make<DecoderLayer>(base);
  NoGrad guard;
  const Tensor x = fixed_noise({2, 3, 8}, 1), context = fixed_noise({2, 4, 8}, 2);
  const Tensor y = (*m)(x, context);
  nn::DecoderCache cache;
  Tensors parts{(*m)(x.slice(1, 0, 1), context, {.causal = true}, {}, &cache)};
  CHECK(cache.self.length() == 1);
  CHECK(same_bits(cache.cross.k.transpose(1, 2).flatten(2), m->cross_attention.k(context)));
  CHECK(same_bits(cache.cross.v.transpose(1, 2).flatten(2), m->cross_attention.v(context)));
  parts.push_back((*m)(x.slice(1, 1), {}, {.causal = true}, {}, &cache));
  CHECK(worst_error(cat(parts, 1), y) < 1e-12);

  cache.reorder(tensor<int64_t>({1, 1, 0}));
  CHECK(cache.self.k.shape() == Shape{3, 2, 3, 4});
  CHECK(same_bits(cache.self.v[0], cache.self.v[1]));
  CHECK(same_bits(cache.cross.k[2].transpose(0, 1).flatten(1), m->cross_attention.k(context)[0]));
}

TEST_CASE("layers: norm kind, gate, biases and scale reach every submodule") {
  LayerOptions options = base;
  options.norm_kind = nn::NormKind::rms;
  options.norm_eps = 1e-6;
  options.feed_forward.gated = true;
  options.attention.bias = options.feed_forward.bias = false;
  options.attention.scale = 0.7;
  const auto m = make<DecoderLayer>(options);
  CHECK(m->parameter_count() == 2 * 4 * 64 + 3 * 8 * 12 + 3 * 8);
  CHECK(m->norm3.label() == "RMSNorm(8)");
  CHECK(m->norm2.options.eps == 1e-6);
  CHECK(m->self_attention().options.scale == 0.7);
  CHECK(m->cross_attention.options.scale == 0.7);
  CHECK(m->feed_forward().up);
  options.norm_kind = nn::NormKind::layer;
  options.norm_bias = false;
  CHECK(make<TransformerLayer>(options)->parameter_count() == 4 * 64 + 3 * 8 * 12 + 2 * 8);
}

TEST_CASE("layers drop only in training, with a new mask for every branch") {
  LayerOptions options = base;
  options.dropout = 0.4;
  options.attention.dropout = 0.3;
  const auto e = make<TransformerLayer>(options);
  const auto d = make<DecoderLayer>(options);
  CHECK(e->self_attention().options.dropout == 0.3);
  CHECK(e->feed_forward().options.dropout == 0.4);
  CHECK(d->cross_attention.options.dropout == 0.3);
  options.feed_forward.dropout = 0;
  CHECK(make<TransformerLayer>(options)->feed_forward().options.dropout == 0);
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  auto draws = [](auto&& f) {
    const uint64_t before = random_state().next_stream;
    f();
    return random_state().next_stream - before;
  };
  auto encode = [&] { (*e)(x); };
  auto decode = [&] { (*d)(x, x); };
  CHECK(draws(encode) == 0);
  CHECK(draws(decode) == 0);
  CHECK(same_bits((*e)(x), (*e)(x)));
  e->train();
  d->train();
  CHECK(draws(encode) == 4);  // weights, branch, hidden units, branch
  CHECK(draws(decode) == 6);
  CHECK(!same_bits((*e)(x), (*e)(x)));
  manual_seed(8);
  const Tensor y = (*e)(x);
  manual_seed(8);
  CHECK(same_bits((*e)(x), y));
}

TEST_CASE("layers: the input and every parameter have gradients") {
  LayerOptions options = base;
  options.attention.position =
      nn::music_relative({.max_length = 3, .out_of_range = OutOfRange::clip});
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    options.norm = norm;
    const auto m = make<DecoderLayer>(options);
    const Tensor x = fixed_noise({1, 4, 8}, 1).set_requires_grad();
    const Tensor context = fixed_noise({1, 3, 8}, 2).set_requires_grad();
    const Tensor y = (*m)(x, context);
    sum(y * fixed_noise(y.shape(), 3)).backward();
    for (const auto& [name, p] : m->named_parameters()) {
      INFO(name);
      REQUIRE(p.grad().defined());
      if (name.find("k.bias") == std::string::npos) CHECK(max(abs(p.grad())).item() > 1e-7);
    }
    testing::check_gradients([&](const Tensors& in) { return (*m)(in[0], in[1]); }, {x, context},
                             false);
  }
}

TEST_CASE("TransformerLayer: parallel branches equal their formulas") {
  const Tensor x = fixed_noise({2, 7, 8}, 1);
  const AttentionMask causal{.causal = true};
  LayerOptions options = base;
  options.residual = nn::Residual::parallel;
  {
    const auto m = make<TransformerLayer>(options);
    const Tensor attended = m->self_attention()(m->norm1(x), causal);
    CHECK(same_bits((*m)(x, causal), x + attended + m->feed_forward()((*m->norm2)(x))));
  }
  options.residual = nn::Residual::parallel_one_norm;
  {
    const auto m = make<TransformerLayer>(options);
    CHECK(m->norm2 == nullptr);
    const Tensor normed = m->norm1(x);
    const Tensor y = x + m->self_attention()(normed, causal) + m->feed_forward()(normed);
    CHECK(same_bits((*m)(x, causal), y));
    const std::vector<std::string> all = names(*m);
    CHECK(std::count(all.begin(), all.end(), "norm2.weight") == 0);
    CHECK(nn::clone(*m)->parameter_count() == m->parameter_count());
    nn::KeyValueCache cache;
    Tensors parts;
    for (int64_t i = 0; i < 7; ++i) parts.push_back((*m)(x.slice(1, i, i + 1), causal, &cache));
    CHECK(worst_error(cat(parts, 1), y) < 1e-12);
  }
  CHECK_THROWS_WITH(make<DecoderLayer>(options),
                    "[DecoderLayer] parallel branches do not support cross-attention; use "
                    "Residual::sequential, or TransformerLayer as LanguageModel does");
  options.norm = NormPlace::post;
  CHECK_THROWS_WITH(
      make<TransformerLayer>(options),
      "[TransformerLayer] parallel branches do not support NormPlace::post, sandwich and output; "
      "use NormPlace::pre or Residual::sequential");
}

TEST_CASE("sandwich norms normalize input and output of each branch", "[transformer]") {
  LayerOptions options{.d_model = 8,
                       .attention = {.n_heads = 2},
                       .feed_forward = {.d_hidden = 12},
                       .norm = NormPlace::sandwich};
  manual_seed(3);
  TransformerLayer layer(options);
  layer.to(f64);
  const Tensor x = randn({2, 5, 8}, {.dtype = f64});
  const AttentionMask causal{.causal = true};
  const Tensor y = x + (*layer.norm1_out)(layer.self_attention()(layer.norm1(x), causal));
  const Tensor z = y + (*layer.norm2_out)(layer.feed_forward()((*layer.norm2)(y)));
  CHECK(worst_error(layer(x, causal), z) < 1e-12);
  nn::gradcheck(layer, [&] { return mean(square(layer(x, causal))); });
  CHECK_THROWS_WITH(make<DecoderLayer>(options),
                    "[DecoderLayer] NormPlace::sandwich and output are for TransformerLayer; use "
                    "NormPlace::pre or post");
}

TEST_CASE("output norms normalize the output of each branch", "[transformer]") {
  LayerOptions options{.d_model = 8,
                       .attention = {.n_heads = 2},
                       .feed_forward = {.d_hidden = 12},
                       .norm = NormPlace::output};
  manual_seed(3);
  TransformerLayer layer(options);
  layer.to(f64);
  const Tensor x = randn({2, 5, 8}, {.dtype = f64}), memory = randn({2, 3, 8}, {.dtype = f64});
  const AttentionMask causal{.causal = true};
  const auto rest = [&](const Tensor& attended) {
    const Tensor y = x + layer.norm1(attended);
    return y + (*layer.norm2)(layer.feed_forward()(y));
  };
  CHECK(layer.label() == "TransformerLayer(output norm)");
  CHECK(worst_error(layer(x, causal), rest(layer.self_attention()(x, causal))) < 1e-12);
  const Tensor all = layer.self_attention()(cat({memory, x}, 1), causal).slice(1, 3);
  CHECK(worst_error(layer(x, memory, causal), rest(all)) < 1e-12);
  nn::gradcheck(layer, [&] { return mean(square(layer(x, causal))); });
  CHECK_THROWS_WITH(make<DecoderLayer>(options),
                    Containing("NormPlace::sandwich and output are for TransformerLayer"));
  options.residual = nn::Residual::parallel;
  CHECK_THROWS_WITH(make<TransformerLayer>(options),
                    Containing("parallel branches do not support NormPlace::post, sandwich"));
}

TEST_CASE("branch_scale multiplies the branches", "[transformer]") {
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  const AttentionMask causal{.causal = true};
  for (const NormPlace norm :
       {NormPlace::pre, NormPlace::post, NormPlace::sandwich, NormPlace::output})
    for (const nn::Residual residual : {nn::Residual::sequential, nn::Residual::parallel}) {
      if (residual == nn::Residual::parallel && norm != NormPlace::pre) continue;
      LayerOptions options = base;
      options.norm = norm;
      options.residual = residual;
      options.branch_scale = 0.3;
      const auto layer = make<TransformerLayer>(options);
      const auto branch = [&](const auto& f, const Tensor& y, const nn::Norm& in,
                              const nn::Norm* out) -> Tensor {
        if (norm == NormPlace::post) return in(y + 0.3 * f(y));
        if (norm == NormPlace::output) return y + 0.3 * in(f(y));
        const Tensor z = f(in(y));
        return y + 0.3 * (out ? (*out)(z) : z);
      };
      const auto attend = [&](const Tensor& y) { return layer->self_attention()(y, causal); };
      const auto feed = [&](const Tensor& y) { return layer->feed_forward()(y); };
      const Tensor y = branch(attend, x, layer->norm1, layer->norm1_out.get());
      const Tensor want = residual == nn::Residual::parallel
                              ? y + branch(feed, x, *layer->norm2, nullptr) - x
                              : branch(feed, y, *layer->norm2, layer->norm2_out.get());
      CHECK(worst_error((*layer)(x, causal), want) < 1e-12);
      nn::gradcheck(*layer, [&] { return mean(square((*layer)(x, causal))); });
    }
  LayerOptions options = base;
  options.branch_scale = 2;
  CHECK_THROWS_WITH(make<DecoderLayer>(options),
                    "[DecoderLayer] branch_scale 2 is for TransformerLayer; accepted: 1");
  options.branch_scale = HUGE_VAL;
  CHECK_THROWS_WITH(make<TransformerLayer>(options),
                    "[TransformerLayer] branch_scale inf; must be finite");
}

TEST_CASE("queries and keys of all heads are normalized together", "[transformer]") {
  nn::MultiHeadAttention::Options o{
      .d_model = 8, .n_heads = 4, .n_kv_heads = 2, .d_key = 6, .d_value = 3};
  o.qk_norm = nn::NormOptions{.dim = 24, .eps = 0.01, .kind = nn::NormKind::rms};
  manual_seed(3);
  nn::MultiHeadAttention layer(o);
  layer.to(f64);
  CHECK(layer.q_norm->label() == "RMSNorm(24)");
  CHECK(layer.k_norm->label() == "RMSNorm(12)");
  testing::stand_in(fixed_noise({24}, 7), layer.q_norm->weight);
  testing::stand_in(fixed_noise({12}, 8), layer.k_norm->weight);
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  const nn::AttentionInputs inputs = layer.project(x, x, {});
  const auto normed = [&](const nn::Linear& projection, const Tensor& weight, int64_t heads) {
    const Tensor y = projection(x);
    const Tensor z = y / sqrt(mean(y * y, {2}, true) + 0.01) * weight;
    return z.reshape({2, 5, heads, 6}).transpose(1, 2);
  };
  CHECK(worst_error(inputs.q, normed(layer.q, layer.q_norm->weight, 4)) < 1e-14);
  CHECK(worst_error(inputs.k, normed(layer.k, layer.k_norm->weight, 2)) < 1e-14);
  nn::gradcheck(layer, [&] { return mean(square(layer(x, {.causal = true}))); });
}

TEST_CASE("layers: attention options apply to self-attention and not to cross-attention") {
  LayerOptions options = base;
  options.norm_kind = nn::NormKind::rms;
  options.attention.qk_norm = nn::NormOptions{.kind = nn::NormKind::rms};
  options.attention.window = 3;
  options.attention.v_bias = options.attention.out_bias = false;
  const auto m = make<DecoderLayer>(options);
  CHECK(m->self_attention().options.window == 3);
  CHECK(m->cross_attention.options.window == 0);
  for (const nn::MultiHeadAttention* a : {&m->self_attention(), &m->cross_attention}) {
    CHECK(a->q_norm->label() == "RMSNorm(4)");
    CHECK(a->q_norm->options.eps == 1e-6);
    CHECK(a->k.bias.defined());
    CHECK_FALSE(a->v.bias.defined());
    CHECK_FALSE(a->out.bias.defined());
  }
  const Tensor x = fixed_noise({1, 4, 8}, 1);
  CHECK_NOTHROW((*m)(x, fixed_noise({1, 6, 8}, 2)));
  options.attention.d_model = 12;
  CHECK_THROWS_WITH(
      make<TransformerLayer>(options),
      "[TransformerLayer] d_model of attention or feed_forward is 12, d_model of the layer 8; "
      "must be 0 or the same");
}
