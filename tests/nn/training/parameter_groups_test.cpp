// Parameter groups by name patterns.
#include "nn/training/parameter_groups.h"

#include "nn/models/language_model.h"
#include "tests/support/catch.h"

using namespace stretto;  // NOLINT
using Names = std::vector<std::string>;

namespace {

// The names of the parameters of a group.
Names names(const nn::Module& model, const nn::ParameterGroup& group) {
  Names all;
  for (const Tensor& p : group.parameters)
    for (const nn::NamedTensor& n : model.named_parameters())
      if (n.tensor.same(p)) all.push_back(n.name);
  return all;
}

struct Part : nn::Module {
  using Module::Module;
  Tensor weight = parameter("weight", ones({2, 2}));
  Tensor bias = parameter("bias", ones({2}));
};

struct Net : nn::Module {
  Part embedding{*this, "embedding"};
  Part one{*this, "1"}, two{*this, "12"};
  Part head{*this, "head"};
};

}  // namespace

TEST_CASE("parameters are in the group of the first rule that they match", "[groups]") {
  Net net;
  const auto groups = nn::parameter_groups(net, {{"head.*", {.lr_scale = 10}},
                                                 {"*.bias", {.weight_decay = 0.5}},
                                                 {"{}.weight", {.use_muon = false}}});
  REQUIRE(groups.size() == 4);
  CHECK(names(net, groups[0]) == Names{"head.weight", "head.bias"});
  CHECK(groups[0].lr_scale == 10);
  CHECK_FALSE(groups[0].weight_decay.has_value());
  CHECK(names(net, groups[1]) == Names{"embedding.bias", "1.bias", "12.bias"});
  CHECK(groups[1].weight_decay == 0.5);
  CHECK(names(net, groups[2]) == Names{"1.weight", "12.weight"});
  CHECK_FALSE(groups[2].use_muon);
  CHECK(groups[1].use_muon);
  CHECK(names(net, groups[3]) == Names{"embedding.weight"});
  CHECK(groups[3].lr_scale == 1);

  // One group without rules; no group for a rule whose parameters are all in earlier groups.
  CHECK(nn::parameter_groups(net).size() == 1);
  CHECK(nn::parameter_groups(net)[0].parameters.size() == 8);
  CHECK(nn::parameter_groups(net, {{"*", {}}, {"head.*", {}}}).size() == 1);

  CHECK_THROWS_WITH(nn::parameter_groups(net, {{"heads.*", {}}}),
                    "[parameter_groups] no parameter of Net matches \"heads.*\"; a similar name is "
                    "head.weight; describe() lists all names");
  CHECK_THROWS_WITH(nn::parameter_groups(net, {{"*", {.parameters = {net.head.bias}}}}),
                    "[parameter_groups] the rule \"*\" has parameters; its pattern must choose "
                    "them");
}

TEST_CASE("norms and biases have no decay", "[groups]") {
  nn::LanguageModel model({.vocabulary = 5,
                           .n_layers = 2,
                           .layer = {.d_model = 4,
                                     .attention = {.n_heads = 2, .position = nn::no_position()},
                                     .feed_forward = {.d_hidden = 8}}});
  const auto groups = nn::no_decay_for_norms_and_biases(nn::parameter_groups(
      model, {{"embedding.*", {.lr_scale = 0.1}}, {"layers.0.*", {.lr_scale = 2}}}));
  REQUIRE(groups.size() == 5);  // the embedding has no bias
  size_t count = 0;
  for (const nn::ParameterGroup& group : groups) {
    count += group.parameters.size();
    for (const Tensor& p : group.parameters) CHECK((p.dim() < 2) == (group.weight_decay == 0.0));
  }
  CHECK(count == model.parameters().size());
  CHECK(groups[0].lr_scale == 0.1);
  CHECK(groups[1].lr_scale == 2);
  CHECK(groups[2].lr_scale == 2);
  CHECK(groups[2].weight_decay == 0.0);
  CHECK(nn::AdamW(groups, {}).parameters().size() == count);
}
