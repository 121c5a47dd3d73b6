#include "nn/position.h"

#include "nn/attention.h"
#include "nn/relative_table.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;

namespace {

struct Two : nn::Module {
  explicit Two(nn::MakePosition position)
      : options{.d_model = 8, .n_heads = 2, .position = nn::shared_by_layers(position)} {}
  Tensor operator()(const Tensor& x) const { return b(a(x, {.causal = true}), {.causal = true}); }
  const nn::MultiHeadAttention::Options options;
  nn::MultiHeadAttention a{*this, "a", options}, b{*this, "b", options};
};

}  // namespace

TEST_CASE("shared_by_layers: one position, owned by the first attention") {
  const Two model(nn::music_relative({.length = 4}));
  std::vector<std::string> tables;
  Tensor table;
  for (const auto& [name, tensor] : model.named_parameters())
    if (name.find("position") != std::string::npos) {
      tables.push_back(name);
      table = tensor;
    }
  CHECK(tables == std::vector<std::string>{"a.position.table"});
  CHECK(model.describe().find("position: shared MusicRelative(length 4)") != std::string::npos);

  // Both attentions use it: with the second alone the gradient is another.
  const Tensor x = fixed_noise({1, 4, 8}, 1, f32);
  sum(model(x)).backward();
  const Tensor both = table.grad();
  table.set_grad({});
  sum(model.b(model.a(x, {.causal = true}).detach(), {.causal = true})).backward();
  REQUIRE(table.grad().defined());
  CHECK(testing::worst_error(both, table.grad()) > 1e-6);
}

TEST_CASE("shared_by_layers: two models made apart share nothing") {
  const Two one(nn::music_relative({.length = 4})), other(nn::music_relative({.length = 4}));
  CHECK(one.parameter_count() == other.parameter_count());
  for (const auto& p : one.parameters())
    for (const auto& q : other.parameters()) CHECK_FALSE(p.same(q));
  CHECK_FALSE(nn::shared_by_layers({}));
}
