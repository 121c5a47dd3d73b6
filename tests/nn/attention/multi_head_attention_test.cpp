#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "nn/attention/linear_attention.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"
#include "tests/support/module_gradcheck.h"
#include "tests/support/stand_in.h"

using namespace stretto;
using nn::KeyValueCache;
using nn::MultiHeadAttention;
using testing::check_parameter_gradients;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

std::vector<std::string> names(const nn::Module& m) {
  std::vector<std::string> list;
  for (const auto& [name, tensor] : m.named_parameters())
    list.push_back(str(name, " ", tensor.shape()));
  return list;
}

// In f64, in evaluation mode, with a fixed seed.
std::unique_ptr<MultiHeadAttention> make(MultiHeadAttention::Options options) {
  manual_seed(11);
  auto layer = std::make_unique<MultiHeadAttention>(std::move(options));
  layer->to(f64);
  layer->eval();
  return layer;
}

// The layer step by step: project, split heads, attend by loops, join heads, project.
Tensor by_hand(const MultiHeadAttention& m, const Tensor& x, const Tensor& context,
               const AttentionOptions& o) {
  auto heads = [](const Tensor& t, int64_t n) {
    const int64_t size = t.size(2) / n;
    Tensors list;
    for (int64_t h = 0; h < n; ++h) list.push_back(t.slice(2, h * size, (h + 1) * size));
    return stack(list, 1);
  };
  const Tensor y =
      reference::attention(heads(linear(x, m.q.weight, m.q.bias), m.options.n_heads),
                           heads(linear(context, m.k.weight, m.k.bias), m.options.n_kv_heads),
                           heads(linear(context, m.v.weight, m.v.bias), m.options.n_kv_heads), o);
  Tensors list;
  for (int64_t h = 0; h < m.options.n_heads; ++h) list.push_back(y.select(1, h));
  return linear(cat(list, 2), m.out.weight, m.out.bias);
}

RelativeTable table_of(const MultiHeadAttention& m, int64_t length, OutOfRange out_of_range) {
  for (const auto& [name, tensor] : m.named_parameters())
    if (name == "position.table") return {tensor.detach(), length - 1, out_of_range};
  return {};
}

}  // namespace

TEST_CASE("MultiHeadAttention: names and shapes of its parameters") {
  const auto plain = make({.d_model = 12, .n_heads = 3});
  CHECK(names(*plain) == std::vector<std::string>{"q.weight [12, 12]", "q.bias [12]",
                                                  "k.weight [12, 12]", "k.bias [12]",
                                                  "v.weight [12, 12]", "v.bias [12]",
                                                  "out.weight [12, 12]", "out.bias [12]"});
  CHECK(plain->parameter_count() == 4 * (144 + 12));
  CHECK(plain->label() == "MultiHeadAttention(3 heads)");
  const auto full = make({.d_model = 10,
                          .n_heads = 4,
                          .n_kv_heads = 2,
                          .d_key = 3,
                          .d_value = 5,
                          .bias = false,
                          .position = nn::music_relative({.max_length = 7})});
  CHECK(names(*full) == std::vector<std::string>{"q.weight [12, 10]", "k.weight [6, 10]",
                                                 "v.weight [10, 10]", "out.weight [10, 20]",
                                                 "position.table [4, 7, 3]"});
}

TEST_CASE("MultiHeadAttention equals project, attend, join, project") {
  const Tensor x = fixed_noise({2, 9, 12}, 1);
  struct Case {
    MultiHeadAttention::Options options;
    AttentionMask visible;
    int64_t length;
  };
  const Tensor padding = tensor(std::vector<uint8_t>{0, 1, 0, 0, 0, 0, 1, 1, 0,  //
                                                     0, 0, 0, 0, 0, 0, 0, 0, 0},
                                {2, 9});
  const Case cases[] = {
      {{.d_model = 12, .n_heads = 3}, {}, 0},
      {{.d_model = 12, .n_heads = 3}, {.causal = true, .key_padding = padding}, 0},
      {{.d_model = 12,
        .n_heads = 4,
        .n_kv_heads = 2,
        .d_key = 5,
        .d_value = 2,
        .bias = false,
        .position = nn::music_relative({.max_length = 4})},
       {.causal = true},
       4},
      {{.d_model = 12, .n_heads = 2, .position = nn::music_relative({.max_length = 6})},
       {.block = 3},
       6},
      {{.d_model = 12, .n_heads = 2, .position = nn::music_relative({.max_length = 6})},
       {.causal = true, .window = 4},
       6}};
  for (const Case& c : cases)
    for (const Implementation implementation : testing::implementations()) {
      MultiHeadAttention::Options options = c.options;
      options.kernel = nn::softmax_kernel(implementation);
      const auto layer = make(options);
      const AttentionOptions o{.mask = c.visible,
                               .relative_keys = table_of(*layer, c.length, OutOfRange::zero)};
      CHECK(worst_error((*layer)(x, c.visible), by_hand(*layer, x, x, o)) < 1e-13);
      const Tensor w = layer->weights(x, c.visible);
      CHECK(w.shape() == Shape{2, options.n_heads, 9, 9});
      const Tensor totals = sum(w, {-1});
      CHECK(worst_error(totals, ones(totals.shape(), {.dtype = f64})) < 1e-14);
    }
}

TEST_CASE("MultiHeadAttention accepts a context of another length") {
  const auto layer = make({.d_model = 6, .n_heads = 2});
  const Tensor x = fixed_noise({2, 3, 6}, 1), context = fixed_noise({2, 7, 6}, 2);
  Tensor padding = zeros({2, 7}, {.dtype = boolean});
  padding[1].slice(0, 4).fill_(1);
  CHECK(worst_error((*layer)(x, context, {.key_padding = padding}),
                    by_hand(*layer, x, context, {.mask = {.key_padding = padding}})) < 1e-14);
  // Padded context has no effect.
  const Tensor y = (*layer)(x, context, {.key_padding = padding});
  context[1].slice(0, 4).fill_(99);
  CHECK(same_bits((*layer)(x, context, {.key_padding = padding}), y));
}

TEST_CASE("MultiHeadAttention::weights returns the weights that attention uses") {
  const auto layer = make({.d_model = 4,
                           .n_heads = 2,
                           .d_key = 3,
                           .d_value = 2,
                           .position = nn::music_relative({.max_length = 5})});
  const Tensor x = fixed_noise({1, 8, 4}, 1), w = layer->weights(x, {.causal = true});
  const Tensor v = layer->v(x).reshape({1, 8, 2, 2}).transpose(1, 2);
  const Tensor joined = matmul(w, v).transpose(1, 2).reshape({1, 8, 4});
  CHECK(worst_error(layer->out(joined), (*layer)(x, {.causal = true})) < 1e-14);
}

TEST_CASE("MultiHeadAttention: generation with a cache equals one pass") {
  struct Case {
    MultiHeadAttention::Options options;
    AttentionMask visible;
  };
  const int64_t l = 23, d = 8;
  const auto zero = nn::music_relative({.max_length = 6});
  const auto clip = nn::music_relative({.max_length = 6, .out_of_range = OutOfRange::clip});
  const auto whole = nn::music_relative({.max_length = l, .shared_by_heads = true});
  const Case cases[] = {
      {{.d_model = d, .n_heads = 2}, {.causal = true}},
      {{.d_model = d, .n_heads = 2, .position = whole}, {.causal = true}},
      {{.d_model = d, .n_heads = 2, .position = zero}, {.causal = true}},
      {{.d_model = d, .n_heads = 2, .position = clip}, {.causal = true}},
      {{.d_model = d, .n_heads = 4, .n_kv_heads = 2, .d_key = 3, .d_value = 5, .position = zero},
       {.causal = true}},
      {{.d_model = d, .n_heads = 2, .position = zero}, {.block = 3}},
      {{.d_model = d, .n_heads = 2, .position = clip}, {.block = 4}},
      {{.d_model = d, .n_heads = 2, .position = zero}, {.causal = true, .window = 5}}};
  NoGrad guard;
  const Tensor x = fixed_noise({2, l, d}, 1);
  for (const Case& c : cases)
    for (const Implementation implementation : testing::implementations())
      for (const std::vector<int64_t>& chunks :
           {std::vector<int64_t>(size_t(l), 1), {7, 1, 1, 5, 9}, {23}, {1, 22}}) {
        MultiHeadAttention::Options options = c.options;
        options.kernel = nn::softmax_kernel(implementation);
        const auto layer = make(options);
        KeyValueCache cache;
        Tensors parts;
        int64_t at = 0;
        for (const int64_t n : chunks) {
          parts.push_back((*layer)(x.slice(1, at, at + n), c.visible, &cache));
          at += n;
        }
        CHECK(cache.length() == l);
        CHECK(worst_error(cat(parts, 1), (*layer)(x, c.visible)) < 1e-12);
      }
}

TEST_CASE("MultiHeadAttention: keys that begin inside a block keep their padding") {
  const auto layer = make({.d_model = 8, .n_heads = 2});
  const Tensor x = fixed_noise({2, 9, 8}, 1), padding = zeros({2, 9}, {.dtype = boolean});
  padding.slice(1, 4, 5).fill_(1);
  const Tensor want = (*layer)(x, {.block = 3, .key_padding = padding}).slice(1, 7);
  const AttentionMask mask{.block = 3, .key_padding = padding.slice(1, 1)};
  const auto inputs = layer->project(x.slice(1, 7), x.slice(1, 1), mask, {.first_position = 1});
  CHECK(worst_error(layer->attend(inputs), want) < 1e-12);
}

TEST_CASE("MultiHeadAttention: a limited cache is enough for a window of that size") {
  const auto layer =
      make({.d_model = 8, .n_heads = 2, .position = nn::music_relative({.max_length = 4})});
  const Tensor x = fixed_noise({1, 20, 8}, 1);
  const AttentionMask visible{.causal = true, .window = 6};
  KeyValueCache cache{.limit = 5};
  Tensors parts;
  for (int64_t at = 0; at < 20; at += 2) {
    parts.push_back((*layer)(x.slice(1, at, at + 2), visible, &cache));
    CHECK(cache.length() <= 5);
  }
  CHECK(worst_error(cat(parts, 1), (*layer)(x, visible)) < 1e-13);

  // Blocks are counted from the first position, which a limited cache has dropped.
  CHECK_THROWS_WITH((*layer)(x, {.block = 4}, &cache),
                    "[MultiHeadAttention] a limited cache does not support blocks; use a window "
                    "instead of blocks, or a cache without a limit");
}

TEST_CASE("MultiHeadAttention: dropout acts only in training") {
  manual_seed(1);
  MultiHeadAttention layer({.d_model = 8, .n_heads = 2, .dropout = 0.5});
  const Tensor x = fixed_noise({2, 6, 8}, 1, f32);
  manual_seed(5);
  const Tensor first = layer(x), second = layer(x);
  CHECK(!same_bits(first, second));
  manual_seed(5);
  CHECK(same_bits(layer(x), first));
  layer.eval();
  const RandomState before = random_state();
  const Tensor y = layer(x);
  CHECK(same_bits(layer(x), y));
  CHECK(random_state().next_stream == before.next_stream);
  CHECK(!same_bits(y, first));
}

TEST_CASE("MultiHeadAttention: gradients reach every parameter") {
  for (const Implementation implementation : testing::implementations()) {
    const auto m =
        make({.d_model = 4,
              .n_heads = 2,
              .n_kv_heads = 1,
              .d_key = 3,
              .d_value = 1,
              .position = nn::music_relative({.max_length = 3, .out_of_range = OutOfRange::clip}),
              .kernel = nn::softmax_kernel(implementation)});
    const Tensor x = fixed_noise({2, 5, 4}, 1).set_requires_grad();
    const Tensor y = (*m)(x, {.causal = true});
    sum(y * fixed_noise(y.shape(), 2)).backward();
    for (const auto& [name, p] : m->named_parameters()) {
      INFO(name);
      REQUIRE(p.grad().defined());
      // A bias of the keys adds a constant to all scores of a query.
      if (name != "k.bias") CHECK(max(abs(p.grad())).item() > 1e-6);
    }
    testing::check_gradients([&](const Tensors& in) { return (*m)(in[0], {.causal = true}); }, {x},
                             false);
  }
}

TEST_CASE("a custom positional encoding and a custom kernel work in MultiHeadAttention") {
  struct Shift : nn::PositionalEncoding {
    Shift(nn::Module& parent, nn::HeadShape shape, double by_)
        : PositionalEncoding(parent), weight(parameter("weight", full({shape.n_heads, 1}, by_))) {}
    void apply(nn::AttentionInputs& inputs) const override {
      inputs.options.relative_bias = {weight, 0, OutOfRange::zero};
    }
    Tensor weight;
  };
  struct FirstValue : nn::AttentionKernel {
    FirstValue(nn::Module& parent, nn::HeadShape) : AttentionKernel(parent) {}
    Tensor operator()(const nn::AttentionInputs& inputs) const override {
      return inputs.v.slice(2, 0, 1).expand(
          {inputs.v.size(0), inputs.v.size(1), inputs.n_queries(), -1});
    }
  };
  const Tensor x = fixed_noise({1, 4, 6}, 1);
  // A query's own position gets practically all of the weight.
  const auto own =
      make({.d_model = 6, .n_heads = 2, .position = nn::positional_encoding<Shift>(1000.0)});
  CHECK(names(*own).back() == "position.weight [2, 1]");
  CHECK(worst_error((*own)(x), own->out(own->v(x))) < 1e-14);
  const auto first = make({.d_model = 6, .n_heads = 2, .kernel = nn::kernel<FirstValue>()});
  CHECK(worst_error((*first)(x), first->out(first->v(x.slice(1, 0, 1).expand({1, 4, 6})))) < 1e-14);

  // A kernel with arguments, and the HeadShape that it gets.
  struct Scaled : nn::AttentionKernel {
    Scaled(nn::Module& parent, nn::HeadShape shape_, double by_, int64_t power_)
        : AttentionKernel(parent), shape(shape_), by(std::pow(by_, power_)) {}
    Tensor operator()(const nn::AttentionInputs& inputs) const override { return inputs.v * by; }
    const nn::HeadShape shape;
    const double by;
  };
  const auto scaled =
      make({.d_model = 6, .n_heads = 2, .kernel = nn::kernel<Scaled>(3.0, int64_t(2))});
  CHECK(worst_error((*scaled)(x), scaled->out(scaled->v(x) * 9)) < 1e-14);
  const nn::HeadShape shape{2, 3, 3, 6, 2, 2};  // H, D, Dv, d_model, G, heads of values
  for (const auto& [name, child] : scaled->children())
    if (const auto* kernel = dynamic_cast<const Scaled*>(child)) CHECK(kernel->shape == shape);
}

TEST_CASE("AttentionKernel::weights is an error unless overridden") {
  struct Retention : nn::AttentionKernel {
    using AttentionKernel::AttentionKernel;
    Tensor operator()(const nn::AttentionInputs& inputs) const override { return inputs.v; }
    std::string label() const override { return "Retention"; }
  };
  const nn::MakeKernel make = [](nn::Module& parent, nn::HeadShape) {
    return std::make_unique<Retention>(parent);
  };
  const MultiHeadAttention layer({.d_model = 4, .n_heads = 2, .kernel = make});
  CHECK_THROWS_WITH(layer.weights(fixed_noise({1, 3, 4}, 1, f32)),
                    "[AttentionKernel] Retention has no weights; override weights()");
}

TEST_CASE("MultiHeadAttention: errors") {
  CHECK_THROWS_WITH(MultiHeadAttention({.d_model = 10, .n_heads = 4}),
                    "[MultiHeadAttention] d_model 10 is not a multiple of n_heads 4; set d_key "
                    "and d_value");
  CHECK_THROWS_WITH(MultiHeadAttention({.d_model = 12, .n_heads = 4, .n_kv_heads = 3}),
                    "[MultiHeadAttention] n_heads 4 is not a multiple of n_kv_heads 3");
  CHECK_THROWS_WITH(MultiHeadAttention({}),
                    "[MultiHeadAttention] d_model 0, n_heads 1; must be at least 1");
  CHECK_NOTHROW(MultiHeadAttention({.d_model = 10, .n_heads = 4, .d_key = 3, .d_value = 2}));
  const MultiHeadAttention layer({.d_model = 8, .n_heads = 2});
  CHECK_THROWS_WITH(layer(zeros({2, 3, 7})),
                    "[MultiHeadAttention] input f32 [2, 3, 7]; must be [B, L, 8]");
  CHECK_THROWS_WITH(layer(zeros({3, 8})), Containing("input f32 [3, 8]; must be [B, L, 8]"));
  CHECK_THROWS_WITH(layer(zeros({2, 3, 8}), zeros({2, 3, 6}), {}),
                    Containing("input f32 [2, 3, 6]"));
}

TEST_CASE("MultiHeadAttention: each projection has a bias if its option is set") {
  const MultiHeadAttention::Options base{.d_model = 8, .n_heads = 2};
  const auto biases = [](const MultiHeadAttention& m) {
    std::string text;
    for (const auto* l : {&m.q, &m.k, &m.v, &m.out}) text += l->bias.defined() ? '1' : '0';
    return text;
  };
  MultiHeadAttention::Options qkv = base, not_k = base, only_out = base;
  qkv.out_bias = false;  // as Qwen 2
  not_k.k_bias = false;  // as Whisper
  only_out.bias = false;
  only_out.out_bias = true;
  CHECK(biases(*make(base)) == "1111");
  CHECK(biases(*make(qkv)) == "1110");
  CHECK(biases(*make(not_k)) == "1011");
  CHECK(biases(*make(only_out)) == "0001");
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  for (const auto& o : {qkv, not_k, only_out})
    CHECK(worst_error((*make(o))(x), by_hand(*make(o), x, x, {})) < 1e-12);
}

TEST_CASE("MultiHeadAttention: queries and keys are normalized before the positional encoding") {
  MultiHeadAttention::Options o{
      .d_model = 8, .n_heads = 4, .n_kv_heads = 2, .d_key = 6, .position = nn::rotary()};
  o.qk_norm = nn::Norm::Options{.eps = 0.01, .kind = nn::NormKind::rms};
  const auto layer = make(o);
  for (const nn::Norm* norm : {&*layer->q_norm, &*layer->k_norm}) {
    CHECK(norm->label() == "RMSNorm(6)");
    testing::stand_in(fixed_noise({6}, norm == &*layer->q_norm ? 7 : 8), norm->weight);
  }
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  const nn::AttentionInputs inputs = layer->project(x, x, {});
  const auto normed = [&](const nn::Linear& projection, const Tensor& weight, int64_t heads) {
    Tensor y = projection(x).reshape({2, 5, heads, 6});
    y = y / sqrt(mean(y * y, {3}, true) + 0.01) * weight;
    return y.transpose(1, 2);
  };
  CHECK(worst_error(inputs.q, normed(layer->q, layer->q_norm->weight, 4)) < 1e-14);
  CHECK(worst_error(inputs.k, normed(layer->k, layer->k_norm->weight, 2)) < 1e-14);
  const Tensor y = reference::attention(rotate(inputs.q, 0), rotate(inputs.k, 0), inputs.v,
                                        {.mask = {.causal = true}});
  const Tensor once = (*layer)(x, {.causal = true});
  CHECK(worst_error(once, layer->out(y.transpose(1, 2).flatten(2))) < 1e-12);
  KeyValueCache cache;
  Tensors parts;
  for (int64_t i = 0; i < 5; ++i)
    parts.push_back((*layer)(x.slice(1, i, i + 1), {.causal = true}, &cache));
  CHECK(worst_error(cat(parts, 1), once) < 1e-12);
  o.qk_norm->dim = 8;
  CHECK_THROWS_WITH(MultiHeadAttention(o),
                    Containing("qk_norm of 8 features; must be 0 or d_key, 6, or that of all"));
}

TEST_CASE("MultiHeadAttention: its window option limits attention") {
  MultiHeadAttention::Options o{.d_model = 8, .n_heads = 2};
  const auto open = make(o);
  o.window = 3;
  const auto layer = make(o);
  const Tensor x = fixed_noise({2, 9, 8}, 1);
  const Tensor y = (*layer)(x, {.causal = true});
  CHECK(same_bits(y, (*open)(x, {.causal = true, .window = 3})));
  CHECK(same_bits((*layer)(x, {.causal = true, .window = 5}), y));
  CHECK(same_bits((*layer)(x, {.causal = true, .window = 2}),
                  (*open)(x, {.causal = true, .window = 2})));
  KeyValueCache cache;
  Tensors parts;
  for (int64_t i = 0; i < 9; ++i)
    parts.push_back((*layer)(x.slice(1, i, i + 1), {.causal = true}, &cache));
  CHECK(worst_error(cat(parts, 1), y) < 1e-12);
  CHECK_THROWS_WITH((*layer)(x),
                    "[MultiHeadAttention] window 3 needs a causal mask: without one a query would "
                    "attend to all later keys; use a causal mask, or set AttentionMask::window "
                    "instead");
  o.window = -1;
  CHECK_THROWS_WITH(MultiHeadAttention(o),
                    "[MultiHeadAttention] window -1; must be 0 (none) or more");
}

TEST_CASE("Sinks of a layer are those of attention, have a gradient and decode", "[attention]") {
  const auto layer = make({.d_model = 8, .n_heads = 2, .sinks = true});
  CHECK(names(*layer).back() == "sinks [2]");
  {
    const NoGrad guard;
    layer->sinks.copy_(tensor<double>({0.5, -1.5}));
  }
  const Tensor x = fixed_noise({2, 5, 8}, 1);
  AttentionOptions o{.mask = {.causal = true}, .scale = 0.5};
  o.sinks = layer->sinks.detach();
  const Tensor y = (*layer)(x, {.causal = true});
  CHECK(worst_error(y, by_hand(*layer, x, x, o)) < 1e-14);
  check_parameter_gradients(*layer,
                            [&] { return sum((*layer)(x, {.causal = true}) * y.detach()); });
  KeyValueCache cache;
  Tensors rows;
  for (int64_t i = 0; i < 5; ++i)
    rows.push_back((*layer)(x.slice(1, i, i + 1), {.causal = true}, &cache));
  CHECK(worst_error(cat(rows, 1), y) < 1e-14);
  const auto without_scores =
      make({.d_model = 8, .n_heads = 2, .sinks = true, .kernel = nn::linear_kernel()});
  CHECK_THROWS_WITH((*without_scores)(x), Containing("sinks"));
}

TEST_CASE("A prefix of the forward context is visible in both directions", "[attention]") {
  const auto layer =
      make({.d_model = 8,
            .n_heads = 2,
            .position = nn::music_relative({.max_length = 8, .bidirectional = true})});
  const Tensor x = fixed_noise({2, 6, 8}, 2);
  nn::ForwardContext forward = nn::begin_forward();
  forward.prefix_lengths = tensor<int64_t>({3, 5});
  const AttentionMask causal{.causal = true};
  AttentionMask prefix = causal;
  prefix.prefix_lengths = forward.prefix_lengths;
  const Tensor y = (*layer)(x, causal, nullptr, forward);
  CHECK(same_bits(y, (*layer)(x, prefix)));
  CHECK(worst_error(y.slice(1, 0, 2), (*layer)(x, causal).slice(1, 0, 2)) > 1e-3);
  // Without a causal mask everything is visible already.
  CHECK(same_bits((*layer)(x, {}, nullptr, forward), (*layer)(x)));
  // The call with the whole prefix fills the cache; later calls need no prefix.
  KeyValueCache cache;
  Tensors rows{(*layer)(x.slice(1, 0, 5), causal, &cache, forward)};
  rows.push_back((*layer)(x.slice(1, 5), causal, &cache));
  CHECK(worst_error(cat(rows, 1), y) < 1e-14);
  const nn::ForwardContext padded{.left_padding = {1, 0}, .prefix_lengths = forward.prefix_lengths};
  CHECK_THROWS_WITH((*layer)(x, causal, nullptr, padded),
                    Containing("prefix_lengths with padding"));
  CHECK_THROWS_WITH((*layer)(x, prefix, nullptr, {.left_padding = {1, 0}}),
                    Containing("prefix_lengths with padding"));
  if (default_device().is_cuda()) return;  // lengths on a GPU are not read
  cache = {};
  CHECK_THROWS_WITH((*layer)(x.slice(1, 0, 4), causal, &cache, forward),
                    "[MultiHeadAttention] a prefix of 5 positions, but the first call with a cache "
                    "has 4; accepted: a first call with the whole prefix");
  (*layer)(x.slice(1, 0, 5), causal, &cache);
  CHECK_THROWS_WITH((*layer)(x.slice(1, 5), causal, &cache, forward),
                    "[MultiHeadAttention] prefix_lengths for a cache that began without them; "
                    "accepted: prefix_lengths in the first call");
}

TEST_CASE("A prefix may be repeated when a limited cache has dropped it", "[attention]") {
  const auto layer = make({.d_model = 8, .n_heads = 2, .window = 4});
  const Tensor x = fixed_noise({2, 20, 8}, 2);
  const AttentionMask causal{.causal = true};
  const nn::ForwardContext prefix{.prefix_lengths = tensor<int64_t>({3, 6})};
  KeyValueCache cache = layer->make_cache(4);
  Tensors rows;
  for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 6}, {6, 9}, {9, 10}, {10, 20}})
    rows.push_back((*layer)(x.slice(1, from, to), causal, &cache, prefix));
  CHECK(worst_error(cat(rows, 1), (*layer)(x, causal, nullptr, prefix)) < 1e-14);
  if (default_device().is_cuda()) return;  // lengths on a GPU are not read
  const nn::ForwardContext swapped{.prefix_lengths = tensor<int64_t>({6, 3})};
  const Tensor next = x.slice(1, 0, 1);
  CHECK_THROWS_WITH((*layer)(next, causal, &cache, swapped),
                    Containing("prefix_lengths that differ from those of the first call"));
  cache.reorder(tensor<int64_t>({1, 0}));
  CHECK((*layer)(next, causal, &cache, swapped).defined());
}
