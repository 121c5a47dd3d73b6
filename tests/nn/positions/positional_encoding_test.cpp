#include "nn/positions/positional_encoding.h"

#include "nn/attention/attention.h"
#include "nn/positions/relative_table.h"
#include "nn/transformer.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;

namespace {

struct Two : nn::Module {
  explicit Two(nn::MakePositionalEncoding position)
      : options{.d_model = 8, .n_heads = 2, .position = nn::shared_by_layers(position)} {}
  Tensor operator()(const Tensor& x) const { return b(a(x, {.causal = true}), {.causal = true}); }
  const nn::MultiHeadAttention::Options options;
  nn::MultiHeadAttention a{*this, "a", options}, b{*this, "b", options};
};

// Constructs its layers from its options, as models do.
struct Layers : nn::Module {
  using Options = nn::LayerOptions;
  explicit Layers(Options o) : options(std::move(o)) {}
  Tensor operator()(const Tensor& x) const {
    return layers[1](layers[0](x, {.causal = true}), {.causal = true});
  }
  const Options options;
  nn::List<nn::TransformerLayer> layers{*this, "layers", 2, options};
};

void share_nothing(const nn::Module& one, const nn::Module& other) {
  CHECK(one.parameter_count() == other.parameter_count());
  for (const Tensor& p : one.parameters())
    for (const Tensor& q : other.parameters()) CHECK_FALSE(p.same(q));
}

}  // namespace

TEST_CASE("shared_by_layers: one position is owned by the first attention and used by all") {
  const Two model(nn::music_relative({.max_length = 4}));
  std::vector<std::string> tables;
  Tensor table;
  for (const auto& [name, tensor] : model.named_parameters())
    if (name.find("position") != std::string::npos) {
      tables.push_back(name);
      table = tensor;
    }
  CHECK(tables == std::vector<std::string>{"a.position.table"});
  CHECK(model.describe().find("position: shared MusicRelative(max_length 4)") != std::string::npos);

  // Both attentions use it: the gradient differs from that of the second one only.
  const Tensor x = fixed_noise({1, 4, 8}, 1, f32);
  sum(model(x)).backward();
  const Tensor both = table.grad();
  table.set_grad({});
  sum(model.b(model.a(x, {.causal = true}).detach(), {.causal = true})).backward();
  REQUIRE(table.grad().defined());
  CHECK(testing::worst_error(both, table.grad()) > 1e-6);
}

TEST_CASE(
    "shared_by_layers: two models share nothing, whether built separately or from the same "
    "options") {
  struct Same : nn::Module {
    explicit Same(const nn::MultiHeadAttention::Options& o) : a(*this, "a", o), b(*this, "b", o) {}
    nn::MultiHeadAttention a, b;
  };
  const Two one(nn::music_relative({.max_length = 4})),
      separate(nn::music_relative({.max_length = 4}));
  const Same same(one.options), again(one.options);
  for (const nn::Module* other :
       {(const nn::Module*)&separate, (const nn::Module*)&same, (const nn::Module*)&again})
    share_nothing(one, *other);
  share_nothing(same, again);
  CHECK_FALSE(nn::shared_by_layers({}));
}

TEST_CASE("shared_by_layers: a clone has its own position") {
  nn::LayerOptions layer{
      .d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 8}};
  layer.attention.position = nn::shared_by_layers(nn::music_relative({.max_length = 4}));
  auto first = std::make_unique<Layers>(layer);
  const auto copy = nn::clone(*first);
  share_nothing(*first, *copy);
  const Tensor x = fixed_noise({1, 4, 8}, 1, f32), y = (*first)(x);
  first.reset();
  CHECK(testing::same_bits((*copy)(x), y));
}
