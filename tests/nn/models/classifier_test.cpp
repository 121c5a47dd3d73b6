#include "nn/models/classifier.h"

#include <cmath>

#include "nn/init.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/reference/classifier.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::Pooling;
using nn::SequenceClassifier;
using testing::same_bits;
using testing::worst_error;
using Ids = std::vector<int64_t>;

namespace {

SequenceClassifier::Options tiny() {
  return {.vocabulary = 11,
          .n_classes = 3,
          .n_layers = 2,
          .layer = {.d_model = 6,
                    .attention = {.n_heads = 2, .d_key = 2, .d_value = 2, .bias = false},
                    .feed_forward = {.d_hidden = 5, .activation = nn::Activation::gelu_tanh},
                    .dropout = 0.1,
                    .norm_eps = 1e-6},
          .input = {.scale = false, .sinusoid = nn::Sinusoid::interleaved}};
}

nn::InputOptions learned(int64_t length) { return {.scale = false, .learned_length = length}; }

// With parameter values other than 0 and 1.
std::unique_ptr<SequenceClassifier> make(const SequenceClassifier::Options& options) {
  manual_seed(5);
  auto model = std::make_unique<SequenceClassifier>(options);
  model->to(f64);
  model->eval();
  NoGrad guard;
  uint64_t stream = 100;
  for (const Tensor& p : model->parameters())
    if (p.dim() == 1) p.add_(testing::fixed_noise(p.shape(), stream++), 0.3);
  return model;
}

// One model for each pooling and each absolute position.
std::vector<SequenceClassifier::Options> all_kinds() {
  std::vector<SequenceClassifier::Options> all;
  for (const Pooling pooling : {Pooling::cls, Pooling::first, Pooling::mean})
    for (const nn::InputOptions& input :
         {nn::InputOptions{.scale = false}, tiny().input, learned(9)}) {
      all.push_back(tiny());
      all.back().pooling = pooling;
      all.back().input = input;
      all.back().layer.attention.position = nn::no_position();
    }
  return all;
}

Tensor ids(const std::vector<Ids>& rows) {
  Ids flat;
  for (const Ids& row : rows) flat.insert(flat.end(), row.begin(), row.end());
  return tensor(flat, {int64_t(rows.size()), int64_t(rows[0].size())});
}

double deviation(const Tensor& x) {
  double sum = 0;
  const std::vector<double> values = x.to_vector<double>();
  for (double v : values) sum += v * v / double(values.size());
  return std::sqrt(sum);
}

double largest(const Tensor& x) { return max(abs(x.detach())).item(); }

}  // namespace

TEST_CASE("SequenceClassifier: it has as many parameters as the published models") {
  const auto count = [](const SequenceClassifier::Options& o) {
    return nn::count_parameters<SequenceClassifier>(o);
  };
  CHECK(count(nn::lra_listops()) == 19'982'858);
  CHECK(count(nn::lra_text()) == 3'486'722);
  CHECK(count(nn::lra_retrieval()) == 1'087'618);
  SequenceClassifier::Options image = nn::lra_image();
  CHECK(count(image) == 248'458);
  image.input = {.scale = false};
  image.layer.attention.position = nn::no_position();
  CHECK(count(image) == 117'258);
  SequenceClassifier::Options brackets = nn::lra_listops();
  brackets.vocabulary = 17;
  CHECK(count(brackets) == 19'983'370);
}

TEST_CASE("SequenceClassifier: names and shapes of its parameters") {
  SequenceClassifier::Options o = tiny();
  o.input = learned(9);
  o.pairs = true;
  std::vector<std::string> names;
  const auto model = make(o);
  for (const auto& [name, p] : model->named_parameters()) names.push_back(name);
  REQUIRE(names.size() == 1 + 2 * 12 + 2 + 6 + 2);
  CHECK(names[0] == "embedding.weight");
  CHECK(names[1] == "embedding.positions.table");
  CHECK(names[2] == "layers.0.self_attention.q.weight");
  CHECK(names[26] == "norm.weight");
  CHECK(names[28] == "hidden.weight");
  CHECK(names[30] == "hidden2.weight");
  CHECK(names[33] == "out.bias");
  CHECK(names[34] == "cls");
  CHECK(model->label() == "SequenceClassifier(2 layers, 3 classes of pairs)");
  CHECK(make(tiny())->label() == "SequenceClassifier(2 layers, 3 classes)");
}

TEST_CASE("SequenceClassifier agrees with the reference") {
  const std::vector<Ids> rows{{1, 10, 3, 0, 7, 7, 2}, {5, 5, 9, 4, 0, 1, 8}};
  for (const SequenceClassifier::Options& o : all_kinds()) {
    const auto model = make(o);
    const Tensor y = (*model)(ids(rows));
    REQUIRE(y.shape() == Shape{2, 3});
    for (int64_t i = 0; i < 2; ++i) {
      const reference::Matrix want = reference::classify(*model, rows[size_t(i)]);
      CHECK(worst_error(y.slice(0, i, i + 1), reference::tensor(want)) < 1e-12);
    }
    const Tensor one = (*model)(ids({{4}}));  // a sequence of one token
    CHECK(worst_error(one, reference::tensor(reference::classify(*model, {4}))) < 1e-12);
  }
}

TEST_CASE("SequenceClassifier of pairs: lengths may differ, and the order counts") {
  SequenceClassifier::Options o = tiny();
  o.pairs = true;
  o.pooling = Pooling::first;
  const auto model = make(o);
  const Ids a{1, 2, 3, 4, 5}, b{6, 7, 8}, c{9, 9, 9, 1, 0}, d{2, 4, 6};
  const Tensor y = (*model)(ids({a, c}), ids({b, d}));
  REQUIRE(y.shape() == Shape{2, 3});
  CHECK(worst_error(y.slice(0, 0, 1), reference::tensor(reference::classify(*model, a, b))) <
        1e-12);
  CHECK(worst_error(y.slice(0, 1, 2), reference::tensor(reference::classify(*model, c, d))) <
        1e-12);
  CHECK(worst_error((*model)(ids({b, d}), ids({a, c})), y) > 1e-3);
}

TEST_CASE("SequenceClassifier ignores padding, unless an option says otherwise") {
  const Ids shorter{3, 1, 4}, longer{1, 5, 9, 2, 6};
  const Tensor tokens = ids({{3, 1, 4, 0, 0}, longer}), other = ids({{3, 1, 4, 8, 7}, longer});
  const Tensor padding = tensor<uint8_t>({0, 0, 0, 1, 1, 0, 0, 0, 0, 0}).reshape({2, 5});
  for (SequenceClassifier::Options o : all_kinds()) {
    const auto model = make(o);
    const Tensor y = (*model)(nn::TokenBatch(tokens, padding));
    CHECK(same_bits((*model)(tokens, padding), y));
    CHECK(same_bits((*model)(tokens, padding.to(boolean)), y));
    CHECK(
        same_bits(model->encode(tokens, padding), model->encode(nn::TokenBatch(tokens, padding))));
    for (int64_t i = 0; i < 2; ++i) {
      const Ids& row = i == 0 ? shorter : longer;
      CHECK(worst_error(y.slice(0, i, i + 1), reference::tensor(reference::classify(*model, row))) <
            1e-12);
    }
    CHECK(same_bits((*model)(nn::TokenBatch(other, padding)), y));
    CHECK(worst_error((*model)(tokens), y) > 1e-3);

    o.attend_to_padding = true;
    const auto blind = make(o);
    CHECK(same_bits((*blind)(nn::TokenBatch(tokens, padding)), (*blind)(tokens)));
    CHECK(same_bits((*blind)(tokens), (*model)(tokens)));
  }
}

TEST_CASE("SequenceClassifier: the mean over nothing is zero") {
  SequenceClassifier::Options o = tiny();
  o.pooling = Pooling::mean;
  const auto model = make(o);
  const Tensor padding = ones({1, 4}, {.dtype = boolean});
  const Tensor encoded = model->encode(nn::TokenBatch(ids({{1, 2, 3, 4}}), padding));
  CHECK(same_bits(encoded, zeros({1, 6}, {.dtype = f64})));
}

TEST_CASE("SequenceClassifier accepts any positional encoding and kernel") {
  const Tensor tokens = ids({{1, 2, 3, 4, 5}}), swapped = ids({{1, 3, 2, 4, 5}});
  SequenceClassifier::Options o = tiny();
  o.input = {.scale = false};
  o.layer.attention.position = nn::no_position();
  // Without positions, the order of the tokens after the pooled one has no effect.
  CHECK(worst_error((*make(o))(swapped), (*make(o))(tokens)) < 1e-12);
  o.layer.attention.position = nn::rotary();
  CHECK(worst_error((*make(o))(swapped), (*make(o))(tokens)) > 1e-4);
  const Tensor fused = (*make(o))(tokens);
  o.layer.attention.kernel = nn::softmax_kernel(Implementation::composed);
  CHECK(worst_error((*make(o))(tokens), fused) < 1e-12);
}

TEST_CASE("SequenceClassifier: gradients of all parameters") {
  const Tensor tokens = ids({{1, 2, 3, 0}, {7, 7, 10, 4}}), other = ids({{8, 2}, {1, 5}});
  const Tensor padding = tensor<uint8_t>({0, 0, 0, 1, 0, 0, 0, 0}).reshape({2, 4});
  const Tensor labels = tensor<int64_t>({2, 0});
  for (const Pooling pooling : {Pooling::cls, Pooling::mean}) {
    SequenceClassifier::Options o = tiny();
    o.input = learned(4);
    o.pooling = pooling;
    o.layer.feed_forward.d_hidden = 16;  // enough for each ReLU to have active units
    const auto single = make(o);
    testing::check_parameter_gradients(
        *single, [&] { return cross_entropy((*single)(nn::TokenBatch(tokens, padding)), labels); });
    o.pairs = true;
    const auto pairs = make(o);
    testing::check_parameter_gradients(*pairs, [&] {
      return cross_entropy((*pairs)(nn::TokenBatch(tokens, padding), nn::TokenBatch(other)),
                           labels);
    });
  }
}

TEST_CASE("SequenceClassifier: dropout acts at the places of its options") {
  SequenceClassifier::Options o = tiny();
  o.layer.dropout = 0.5;
  o.layer.attention.dropout = 0.25;
  const auto model = make(o);
  CHECK(model->embedding.positions.dropout.options.p == 0.5);
  CHECK(model->layers[1].dropout.options.p == 0.5);
  CHECK(model->layers[1].feed_forward().dropout.options.p == 0.5);
  CHECK(model->layers[1].self_attention().options.dropout == 0.25);
  const Tensor tokens = ids({{1, 2, 3}});
  const Tensor evaluated = (*model)(tokens);
  CHECK(same_bits((*model)(tokens), evaluated));
  model->train();
  CHECK(!same_bits((*model)(tokens), evaluated));
}

TEST_CASE("SequenceClassifier is initialized as in the authors' code") {
  manual_seed(9);
  SequenceClassifier::Options o{
      .vocabulary = 300,
      .n_layers = 1,
      .layer = {.d_model = 128,
                .attention = {.n_heads = 4, .d_key = 16, .d_value = 16, .bias = false},
                .feed_forward = {.d_hidden = 256, .activation = nn::Activation::gelu_tanh},
                .dropout = 0.1,
                .norm_eps = 1e-6},
      .input = {.scale = false, .learned_length = 200},
      .pairs = true};
  const SequenceClassifier m(o);
  // Standard deviations of thousands of samples, within five standard errors.
  const auto check = [](const Tensor& x, double want, double kurtosis = 3) {
    const double error = std::sqrt((kurtosis - 1) / (4 * double(x.numel())));
    CHECK(deviation(x) == Approx(want).epsilon(5 * error));
  };
  check(m.embedding.weight, 1);
  check(m.embedding.positions.table, 0.02);
  // Vectors scaled by √d_model have the same standard deviation in the sum.
  SequenceClassifier::Options scaled = o;
  scaled.input.scale = nn::InputOptions().scale;
  const SequenceClassifier by_default(scaled);
  check(by_default.embedding.weight, 1 / std::sqrt(128.0));
  check(by_default.embedding.lookup(ids({{1, 5, 7, 200, 50, 40, 77, 2, 88, 66}})), 1);
  CHECK(largest(m.cls) == 0);
  const nn::TransformerLayer& layer = m.layers[0];
  for (const nn::Linear* l : {&layer.self_attention().q, &layer.self_attention().out}) {
    check(l->weight, std::sqrt(2.0 / (128 + 64)), 1.8);
    CHECK(largest(l->weight) <= std::sqrt(6.0 / (128 + 64)));
  }
  check(layer.feed_forward().linear1.weight, std::sqrt(2.0 / (128 + 256)), 1.8);
  check(layer.feed_forward().linear1.bias, 1e-6);
  check(layer.feed_forward().linear2.bias, 1e-6);
  check(m.hidden.weight, 1 / std::sqrt(256.0));
  check(m.hidden2->weight, 1 / std::sqrt(256.0));
  CHECK(largest(m.hidden.weight) <= 2 / std::sqrt(256.0) / 0.8796);
  for (const nn::Linear* l : {&m.hidden, &*m.hidden2, &*m.out}) CHECK(largest(l->bias) == 0);
  CHECK(largest(layer.norm1.weight - 1) == 0);
  CHECK(layer.norm2->options.eps == 1e-6);
  CHECK(m.norm.options.eps == 1e-6);
  CHECK(!layer.self_attention().k.bias.defined());
}

TEST_CASE("SequenceClassifier: options that it cannot use are errors") {
  const auto refused = [](auto change) {
    SequenceClassifier::Options o = tiny();
    change(o);
    try {
      SequenceClassifier model(o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  using O = SequenceClassifier::Options;
  CHECK(refused([](O& o) { o.vocabulary = 0; }) ==
        "[SequenceClassifier] sizes must be at least 1: vocabulary 0, n_classes 3, "
        "layer.d_model 6, n_layers 2, layer.feed_forward.d_hidden 5");
  CHECK_THAT(refused([](O& o) { o.pairs = true, o.layer.feed_forward.d_hidden = 1; }),
             Containing("d_hidden 1 (for pairs at least 2)"));

  const auto model = make(tiny());
  const Tensor tokens = ids({{1, 2, 3}});
  CHECK_THROWS_WITH((*model)(tokens[0]),
                    "[SequenceClassifier] tokens i64 [3]; must be i64 or i32 "
                    "[B, L] with L ≥ 1");
  CHECK_THROWS_WITH((*model)(tokens.slice(1, 0, 0)), Containing("with L ≥ 1"));
  CHECK_THROWS_WITH((*model)(nn::TokenBatch(tokens, ones({1, 4}, {.dtype = boolean}))),
                    "[SequenceClassifier] padding bool [1, 4] does not fit tokens i64 [1, 3]");
  CHECK_THROWS_WITH((*model)(tokens, tokens),
                    "[SequenceClassifier] a model of single sequences got a pair; pass one "
                    "sequence, or set Options::pairs");
  CHECK_THROWS_WITH((*model)(tokens, zeros({1, 3})),
                    "[SequenceClassifier] padding f32 [1, 3]; must be bool or u8, true for tokens "
                    "to ignore");
  O o = tiny();
  o.input = learned(2);
  CHECK_THROWS_WITH((*make(o))(tokens),
                    "[AbsolutePosition] positions 0 to 3 are needed, but only 3 are learned");
  o = tiny();
  o.pairs = true;
  const auto pairs = make(o);
  CHECK_THROWS_WITH((*pairs)(tokens),
                    "[SequenceClassifier] a model of pairs got a single sequence; accepted: two "
                    "tensors of ids, or two TokenBatch");
  CHECK_THROWS_WITH((*pairs)(tokens, zeros({1, 3}, {.dtype = boolean})),
                    "[SequenceClassifier] a model of pairs got tokens i64 [1, 3] and bool [1, 3]; "
                    "accepted: two tensors of ids, or two TokenBatch with padding");
  CHECK_THROWS_WITH((*pairs)(tokens, ids({{1}, {2}})),
                    "[SequenceClassifier] pairs of i64 [1, 3] and i64 [2, 1]; both must have "
                    "the same number of rows");
}
