// Second derivatives of fused ops, whose recorded backward is that of the composed implementation,
// against central differences of the first derivative, as in op_table_test.cpp.
#include <functional>
#include <string>
#include <vector>

#include "ops/attention/attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/random_features.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

struct Fused {
  std::string name;
  TensorFunction call;
  std::vector<Shape> shapes;  // shapes of its differentiable inputs
};

Tensor some_padding() { return tensor<bool>({false, false, true, false}, {1, 4}); }

std::vector<Fused> attentions() {
  const auto plain = [](const AttentionMask& mask) {
    return [mask](const Tensors& x) {
      return attention(x[0], x[1], x[2], {.mask = mask, .implementation = Implementation::fused});
    };
  };
  const Shape heads{1, 2, 3, 2}, keys{1, 2, 4, 2}, narrow{1, 2, 3, 1};
  return {{"attention", plain({}), {heads, keys, {1, 2, 4, 3}}},
          {"attention, causal, shared keys",
           plain({.causal = true}),
           {heads, {1, 1, 4, 2}, {1, 1, 4, 2}}},
          {"attention, window, padding",
           plain({.window = 2, .key_padding = some_padding()}),
           {heads, keys, keys}},
          {"attention, blocks", plain({.block = 2}), {{1, 1, 5, 2}, {1, 1, 5, 2}, {1, 1, 5, 2}}},
          {"attention, nobody to see",
           plain({.causal = true}),
           {{1, 1, 4, 2}, {1, 1, 2, 2}, {1, 1, 2, 2}}},
          {"attention, tables, dropout",
           [](const Tensors& x) {
             return attention(x[0], x[1], x[2],
                              {.mask = {.causal = true},
                               .relative_keys = {x[3], 1, OutOfRange::clip},
                               .relative_bias = {x[4], 2},
                               .dropout = 0.3,
                               .dropout_key = RandomKey{1, 2},
                               .implementation = Implementation::fused});
           },
           {heads, keys, keys, {1, 2, 2}, {2, 4}}},
          {"attention, position query, scale",
           [](const Tensors& x) {
             return attention(x[0], x[1], x[2],
                              {.scale = 0.7,
                               .relative_query = x[3],
                               .relative_keys = {x[4], 2},
                               .implementation = Implementation::fused});
           },
           {heads, keys, keys, heads, {2, 5, 2}}},
          {"attention, narrow position query",
           [](const Tensors& x) {
             return attention(x[0], x[1], x[2],
                              {.mask = {.causal = true},
                               .relative_query = x[3],
                               .relative_keys = {x[4], 2},
                               .implementation = Implementation::fused});
           },
           {heads, keys, keys, narrow, {2, 3, 1}}},
          {"attention, value table, bias, dropout",
           [](const Tensors& x) {
             return attention(x[0], x[1], x[2],
                              {.mask = {.causal = true},
                               .relative_values = {x[3], 1, OutOfRange::clip},
                               .bias = x[4],
                               .dropout = 0.3,
                               .dropout_key = RandomKey{1, 2},
                               .implementation = Implementation::fused});
           },
           {heads, keys, keys, {1, 2, 2}, {2, 1, 4}}},
          {"attention, tables longer and shorter than the keys",
           [](const Tensors& x) {
             return attention(x[0], x[1], x[2],
                              {.relative_keys = {x[3], 5},
                               .relative_values = {x[4], 0},
                               .bias = x[5],
                               .implementation = Implementation::fused});
           },
           {heads, keys, keys, {1, 9, 2}, {2, 1, 2}, {1, 1, 3, 4}}}};
}

std::vector<Fused> linear_attentions() {
  const auto call = [](LinearAttentionOptions o) {
    o.implementation = Implementation::fused;
    // Features are positive.
    return [o](const Tensors& x) {
      return linear_attention(square(x[0]) + 0.1, square(x[1]) + 0.1, x[2], o);
    };
  };
  return {{"linear_attention", call({}), {{1, 2, 3, 2}, {1, 2, 4, 2}, {1, 2, 4, 3}}},
          {"linear_attention, causal, chunks, shared keys",
           call({.mask = {.causal = true}, .eps = 0.1, .chunk = 2}),
           {{1, 2, 4, 2}, {1, 1, 4, 2}, {1, 1, 4, 2}}},
          {"linear_attention, padding",
           call({.mask = {.key_padding = some_padding()}}),
           {{1, 1, 2, 2}, {1, 1, 4, 2}, {1, 1, 4, 2}}}};
}

std::vector<Fused> random_feature_maps() {
  std::vector<Fused> all;
  const Tensor projection = fixed_noise({4, 3}, 9);
  using Kind = RandomFeatureKind;
  for (const Kind kind : {Kind::positive, Kind::hyperbolic, Kind::trigonometric, Kind::generalized})
    for (const auto stabilizer :
         {FeatureStabilizer::none, FeatureStabilizer::own_max, FeatureStabilizer::bound})
      for (const int64_t length : {1, 2})
        all.push_back({str("random_features, kind ", int(kind), ", stabilizer ", int(stabilizer)),
                       [=](const Tensors& x) {
                         return random_features(x[0], projection,
                                                {.kind = kind,
                                                 .stabilizer = stabilizer,
                                                 .implementation = Implementation::fused});
                       },
                       {{1, 2, length, 3}}});
  return all;
}

}  // namespace

TEST_CASE("fused ops can be differentiated twice", "[ops]") {
  std::vector<Fused> all;
  for (const auto& some : {attentions(), linear_attentions(), random_feature_maps()})
    all.insert(all.end(), some.begin(), some.end());
  for (const Fused& op : all) {
    INFO(op.name);
    Tensors inputs;
    for (size_t i = 0; i < op.shapes.size(); ++i)
      inputs.push_back(fixed_leaf(op.shapes[i], 20 + uint64_t(i)));
    check_gradients(op.call, inputs);
  }
}

TEST_CASE("a fused op whose inputs depend on each other counts each path once", "[ops]") {
  // k is computed from q and v is q itself. A pass that went below the op's inputs would count
  // their gradients twice.
  const auto call = [](Implementation implementation) {
    return [implementation](const Tensors& x) {
      return attention(x[0], sin(x[0]), x[0],
                       {.mask = {.causal = true}, .implementation = implementation});
    };
  };
  const Tensor q = fixed_leaf({1, 2, 3, 2}, 1);
  check_gradients(call(Implementation::fused), {q});
  Tensors third;
  for (const Implementation implementation : {Implementation::fused, Implementation::composed}) {
    Tensor y = sum(square(call(implementation)({q})));
    for (int order = 0; order < 3; ++order)
      y = sum(square(grad({y}, {q}, {}, {.create_graph = true})[0]));
    third.push_back(y);
  }
  CHECK(worst_error(third[0], third[1]) < 1e-9 * std::abs(third[1].item()));
}

TEST_CASE("recorded and plain backward of a fused op give the same gradients", "[ops]") {
  const Tensor q = fixed_leaf({2, 2, 5, 3}, 1), k = fixed_leaf({2, 2, 5, 3}, 2);
  const Tensor y =
      attention(q, k, q, {.mask = {.causal = true}, .implementation = Implementation::fused});
  const Tensor weights = fixed_noise(y.shape(), 3);
  const Tensors plain = grad({y}, {q, k}, {weights}, {.retain_graph = true});
  const Tensors recorded = grad({y}, {q, k}, {weights}, {.create_graph = true});
  for (size_t i = 0; i < 2; ++i) CHECK(worst_error(recorded[i], plain[i]) < 1e-13);
}

}  // namespace stretto::testing
