#include "nn/models/sequence_to_sequence.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/models/generation.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "tests/cuda/traffic.h"
#include "tests/reference/sequence_to_sequence.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using nn::NormPlace;
using nn::SequenceToSequence;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

SequenceToSequence::Options tiny() {
  return {.source_vocabulary = 7,
          .target_vocabulary = 9,
          .n_encoder_layers = 2,
          .n_decoder_layers = 3,
          .layer = {.d_model = 6,
                    .attention = {.n_heads = 2, .bias = false},
                    .feed_forward = {.d_hidden = 10},
                    .norm = nn::NormPlace::post,
                    .dropout = 0.1},
          .input = {.sinusoid = nn::Sinusoid::interleaved}};
}

// A T5 of that size.
SequenceToSequence::Options tiny_t5(nn::T5Version version) {
  SequenceToSequence::Options o = nn::t5_options(9, version);
  o.layer.d_model = 6, o.n_encoder_layers = 2, o.n_decoder_layers = 3,
  o.layer.attention.n_heads = 2, o.layer.attention.position = nn::no_position();
  o.layer.attention.d_key = o.layer.attention.d_value = 4, o.layer.feed_forward.d_hidden = 10;
  return o;
}

// music_relative in encoder and decoder.
SequenceToSequence::Options with_tables(SequenceToSequence::Options o) {
  o.encoder_position = nn::music_relative(
      {.max_length = 4, .bidirectional = true, .out_of_range = OutOfRange::clip});
  o.decoder_position = nn::music_relative({.max_length = 5});
  return o;
}

// One table per stack.
void share_positions(SequenceToSequence::Options& o) {
  for (nn::MakePositionalEncoding* position : {&o.encoder_position, &o.decoder_position})
    *position = nn::shared_by_layers(*position);
}

std::unique_ptr<SequenceToSequence> make(const SequenceToSequence::Options& options) {
  manual_seed(41);
  auto model = std::make_unique<SequenceToSequence>(options);
  model->to(f64);
  model->eval();
  // Norms and biases that are not the identity, so that leaving one out is detected.
  for (const auto& [name, p] : model->named_parameters())
    if (p.dim() == 1) p.detach().add_(fixed_noise(p.shape(), name.size()), 0.5);
  return model;
}

Tensor some_tokens(int64_t b, int64_t l, uint64_t stream, int64_t below = 7) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < b * l; ++i)
    ids.push_back(random_bits({.seed = 5, .stream = stream}, uint64_t(i)) % below);
  return tensor(ids, {b, l});
}

Tensor padding(int64_t n, std::initializer_list<int64_t> lengths) {
  Tensor mask = zeros({int64_t(lengths.size()), n}, {.dtype = boolean});
  int64_t row = 0;
  for (const int64_t length : lengths) mask[row++].slice(0, length).fill_(1);
  return mask;
}

std::vector<std::string> names(const nn::Module& m) {
  std::vector<std::string> list;
  for (const auto& [name, tensor] : m.named_parameters()) list.push_back(name);
  return list;
}

int64_t count(const std::vector<std::string>& list, const std::string& part) {
  return std::count_if(list.begin(), list.end(), [&](const std::string& name) {
    return name.find(part) != std::string::npos;
  });
}

}  // namespace

TEST_CASE("SequenceToSequence: it has as many parameters as the paper's base model") {
  // Vaswani et al. 2017, table 3: "65 × 10⁶". One table of about 37,000 tokens (§5.1) in three
  // places (§3.4), no biases in attention.
  constexpr int64_t d = 512, hidden = 2048, vocabulary = 37000;
  constexpr int64_t attention = 4 * d * d, norm = 2 * d;
  constexpr int64_t feed_forward = d * hidden + hidden + hidden * d + d;
  constexpr int64_t encoder = 6 * (attention + feed_forward + 2 * norm);
  constexpr int64_t decoder = 6 * (2 * attention + feed_forward + 3 * norm);
  static_assert(vocabulary * d == 18'944'000 && encoder == 18'902'016 && decoder == 25'199'616);
  const SequenceToSequence base({.source_vocabulary = vocabulary,
                                 .target_vocabulary = vocabulary,
                                 .layer = {.d_model = 512,
                                           .attention = {.n_heads = 8, .bias = false},
                                           .feed_forward = {.d_hidden = 2048},
                                           .norm = nn::NormPlace::post,
                                           .dropout = 0.1},
                                 .input = {.sinusoid = nn::Sinusoid::interleaved},
                                 .shared_embedding = true,
                                 .tied = true});
  CHECK(base.parameter_count() == 63'045'632);
  CHECK(base.parameter_count() == vocabulary * d + encoder + decoder);
  CHECK(base.label() == "SequenceToSequence(6 + 6 layers)");
}

TEST_CASE("SequenceToSequence: it has as many parameters as T5 small") {
  // The published checkpoints have 60,506,624 and 76,961,152, of which 2 · 32 · H are the position
  // biases. Counted with a small vocabulary, because each token adds a row to every table.
  SequenceToSequence::Options o = nn::t5_options(128);
  CHECK(SequenceToSequence(o).parameter_count() + (32128 - 128) * 512 == 60'506'624);
  o = nn::t5_options(128, nn::T5Version::v1_1);
  CHECK(SequenceToSequence(o).parameter_count() + 2 * (32128 - 128) * 512 == 76'961'152);
}

TEST_CASE("SequenceToSequence: names and shapes of its parameters") {
  SequenceToSequence::Options o = with_tables(tiny());
  o.output_bias = true;
  const auto list = names(*make(o));
  CHECK(list.front() == "source_embedding.weight");
  for (const char* name :
       {"target_embedding.weight", "out.weight", "out.bias",
        "encoder.layers.1.self_attention.q.weight",
        "encoder.layers.1.self_attention.position.table", "encoder.layers.0.norm2.bias",
        "decoder.layers.2.cross_attention.out.weight", "decoder.layers.2.norm3.weight",
        "decoder.layers.0.feed_forward.linear2.bias"})
    CHECK(std::count(list.begin(), list.end(), name) == 1);
  CHECK(count(list, "self_attention.q.bias") == 0);
  CHECK(count(list, "position.table") == 2 + 3);
  CHECK(count(list, "coder.norm.") == 0);

  share_positions(o);
  o.layer.norm = NormPlace::pre;
  o.target_vocabulary = 7;
  o.shared_embedding = o.tied = true;
  o.layer.attention.bias = true;
  o.layer.feed_forward.bias = false;
  const auto other = names(*make(o));
  CHECK(count(other, "embedding") == 1);
  CHECK(count(other, "out.") == count(other, "attention.out."));
  CHECK(count(other, "encoder.layers.0.self_attention.position.table") == 1);
  CHECK(count(other, "decoder.layers.0.self_attention.position.table") == 1);
  CHECK(count(other, "position.table") == 2);
  CHECK(count(other, "coder.norm.") == 4);
  CHECK(count(other, "self_attention.q.bias") == 5);
  CHECK(count(other, "linear1.bias") == 0);

  o.layer.norm = NormPlace::post;  // as PyTorch's nn.Transformer
  o.final_norm = true;
  CHECK(count(names(*make(o)), "coder.norm.") == 4);
  CHECK(count(names(*make(tiny_t5(nn::T5Version::v1_1))), "bias") == 0);
}

TEST_CASE("SequenceToSequence equals the paper's formulas") {
  SequenceToSequence::Options wide = tiny();
  wide.layer.attention.d_key = 5, wide.layer.attention.d_value = 2,
  wide.layer.attention.bias = true, wide.output_bias = true;
  wide.layer.norm = NormPlace::pre, wide.source_step = 3;
  SequenceToSequence::Options shared = tiny();
  shared.target_vocabulary = 7, shared.shared_embedding = true, shared.tied = true;
  shared.input.sinusoid = {}, shared.final_norm = true;
  shared.layer.attention.position = nn::no_position();
  for (const auto& options :
       {tiny(), wide, shared, tiny_t5(nn::T5Version::v1_0), tiny_t5(nn::T5Version::v1_1)}) {
    const auto model = make(options);
    for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {5, 3}, {4, 8}}) {
      const Tensor source = some_tokens(2, n, 1), target = some_tokens(2, m, 2);
      const Tensor logits = (*model)(source, target);
      CHECK(logits.shape() == Shape{2, m, options.target_vocabulary});
      for (int64_t b = 0; b < 2; ++b)
        CHECK(worst_error(logits[b], reference::tensor(reference::transformer(
                                         *model, source[b].to_vector<int64_t>(),
                                         target[b].to_vector<int64_t>()))) < 1e-12);
    }
  }
}

TEST_CASE("SequenceToSequence: padding in the source changes nothing") {
  for (const auto& options : {tiny(), with_tables(tiny())}) {
    const auto model = make(options);
    NoGrad guard;
    const Tensor source = some_tokens(3, 9, 1), target = some_tokens(3, 4, 2);
    const Tensor mask = padding(9, {5, 9, 1});
    const Tensor y = (*model)(source, target, mask);
    for (const auto& [row, length] : {std::pair<int64_t, int64_t>{0, 5}, {1, 9}, {2, 1}})
      CHECK(worst_error(y.slice(0, row, row + 1),
                        (*model)(source.slice(0, row, row + 1).slice(1, 0, length),
                                 target.slice(0, row, row + 1))) < 1e-12);
    source[0].slice(0, 5).fill_(3);
    source[2].slice(0, 1).fill_(6);
    CHECK(same_bits((*model)(source, target, mask), y));
    CHECK(!same_bits((*model)(source, target), y));
  }
}

TEST_CASE("SequenceToSequence: the encoder is bidirectional, the decoder causal") {
  for (const auto& options : {tiny(), with_tables(tiny()), tiny_t5(nn::T5Version::v1_0)}) {
    const auto model = make(options);
    NoGrad guard;
    const Tensor source = some_tokens(1, 6, 1), target = some_tokens(1, 6, 2);
    const Tensor context = model->encode(source), y = model->decode(target, context);
    target.slice(1, 4).fill_(0);
    CHECK(same_bits(model->decode(target, context).slice(1, 0, 4), y.slice(1, 0, 4)));
    CHECK(!same_bits(model->decode(target, context), y));
    source.slice(1, 5).fill_(0);
    CHECK(!same_bits(model->encode(source).slice(1, 0, 1), context.slice(1, 0, 1)));
  }
}

TEST_CASE("SequenceToSequence: with a cache, in chunks, equals one pass") {
  SequenceToSequence::Options none = tiny();
  none.input.sinusoid = {};
  none.layer.attention.position = nn::no_position();
  SequenceToSequence::Options relative = with_tables(none);
  relative.layer.norm = NormPlace::pre;
  SequenceToSequence::Options shared = with_tables(tiny());
  share_positions(shared);
  for (const auto& options : {none, tiny(), relative, shared, tiny_t5(nn::T5Version::v1_1)}) {
    const auto model = make(options);
    NoGrad guard;
    const Tensor source = some_tokens(2, 5, 1), target = some_tokens(2, 11, 2);
    const Tensor mask = padding(5, {3, 5}), context = model->encode(source, mask);
    const Tensor whole = model->decode(target, context, mask);
    SequenceToSequence::Cache cache;
    Tensors parts{model->decode(target.slice(1, 0, 3), context, mask, &cache)};
    for (int64_t i = 3; i < 11; ++i)  // the cache has the source and the tokens before
      parts.push_back(model->decode(target.slice(1, i, i + 1), {}, {}, &cache));
    CHECK(worst_error(cat(parts, 1), whole) < 1e-12);
    CHECK(cache.position == 11);
    CHECK(cache.layers.size() == 3);
    CHECK(cache.layers[2].self.length() == 11);
    CHECK(cache.layers[2].cross.length() == 5);
  }
}

TEST_CASE("SequenceToSequence: a limited cache drops old target positions, not the source") {
  const auto model = make(tiny());
  NoGrad guard;
  const Tensor source = some_tokens(1, 5, 1), target = some_tokens(1, 6, 2);
  const Tensor context = model->encode(source);
  SequenceToSequence::Cache all = model->make_cache(), limited = model->make_cache(2);
  for (int64_t i = 0; i < 6; ++i) {
    const Tensor token = target.slice(1, i, i + 1);
    const Tensor y = model->decode(token, context, {}, &all);
    // A query sees itself and the two tokens before.
    CHECK((worst_error(model->decode(token, context, {}, &limited), y) < 1e-12) == (i < 3));
  }
  CHECK(limited.layers[0].self.length() == 2);
  CHECK(limited.layers[0].cross.length() == 5);
}

TEST_CASE("SequenceToSequence: rows of a cache can be dropped, repeated and reordered") {
  const auto model = make(with_tables(tiny()));
  NoGrad guard;
  const Tensor source = some_tokens(3, 5, 1), first = some_tokens(3, 4, 2);
  const Tensor mask = padding(5, {3, 5, 2}), rows = tensor<int64_t>({2, 0, 2, 2});
  SequenceToSequence::Cache cache;
  cache.reorder(rows);  // the cache is still empty
  model->decode(first, model->encode(source, mask), mask, &cache);
  cache.reorder(rows);
  const Tensor next = some_tokens(4, 2, 3);
  const Tensor y = model->decode(next, {}, {}, &cache);
  const auto picked = [&](const Tensor& x) { return index_select(x, 0, rows); };
  const Tensor whole =
      (*model)(picked(source), cat({picked(first), next}, 1), picked(mask)).slice(1, 4);
  CHECK(worst_error(y, whole) < 1e-12);
  CHECK(!same_bits(y[2], y[3]));
}

TEST_CASE("SequenceToSequence: gradients of every parameter") {
  SequenceToSequence::Options o = tiny_t5(nn::T5Version::v1_1);
  o.layer.d_model = 4, o.n_encoder_layers = 1, o.n_decoder_layers = 2;
  o.layer.attention.d_key = o.layer.attention.d_value = 2, o.layer.feed_forward.d_hidden = 3,
  o.source_vocabulary = o.target_vocabulary = 4;
  SequenceToSequence::Options base = o;
  base.layer.norm = NormPlace::post, base.layer.norm_kind = nn::NormKind::layer,
  base.layer.feed_forward.gated = false;
  base.layer.feed_forward.activation = nn::Activation::silu,
  base.layer.attention.bias = base.layer.feed_forward.bias = true;
  base.input.sinusoid = nn::Sinusoid::interleaved, base.tied = base.input.scale = true;
  base.layer.attention.scale = {}, base.n_decoder_layers = 1;
  o = with_tables(o);
  const Tensor source = some_tokens(2, 3, 1, 4), target = some_tokens(2, 3, 2, 4);
  const Tensor mask = padding(3, {3, 2});
  for (const auto& options : {base, o}) {
    const auto model = make(options);
    const Tensors parameters = model->parameters();
    testing::check_gradients(
        [&](const Tensors& in) {
          // gradcheck changes copies of its inputs; the model sees them through its own handles.
          if (!in[0].same(parameters[0]))
            for (size_t i = 0; i < parameters.size(); ++i) parameters[i].set_data(in[i].detach());
          return (*model)(source, target, mask);
        },
        parameters, false);
  }
}

TEST_CASE("SequenceToSequence learns to reverse its source") {
  STRETTO_NOT_ON_MACHINE();
  constexpr int64_t length = 6, symbols = 5, start = symbols, batch = 16;
  manual_seed(3);
  SequenceToSequence model({.source_vocabulary = symbols,
                            .target_vocabulary = symbols + 1,
                            .n_encoder_layers = 1,
                            .n_decoder_layers = 1,
                            .layer = {.d_model = 32,
                                      .attention = {.n_heads = 4, .bias = false},
                                      .feed_forward = {.d_hidden = 64}},
                            .input = {.sinusoid = nn::Sinusoid::interleaved}});
  nn::AdamW optimizer(model.parameters(), {.lr = 3e-3});
  // A uniform guess costs ln 5 = 1.61 nats; without the source, no model is better.
  const auto loss_of = [&](const Tensor& source) {
    Tensors reversed;
    for (int64_t i = length; i-- > 0;) reversed.push_back(source.slice(1, i, i + 1));
    const Tensor target = cat(reversed, 1);
    const Tensor input =
        cat({full({source.size(0), 1}, start, {.dtype = i64}), target.slice(1, 0, length - 1)}, 1);
    return cross_entropy(model(source, input), target);
  };
  for (int step = 0; step < 300; ++step) {
    optimizer.zero_grad();
    loss_of(randint(0, symbols, {batch, length})).backward();
    optimizer.step();
  }
  NoGrad guard;
  CHECK(loss_of(randint(0, symbols, {64, length})).item() < 0.2);
}

TEST_CASE("SequenceToSequence: dropout acts only in training, at the places of its options") {
  SequenceToSequence::Options o = tiny();
  o.layer.dropout = 0.3;
  const auto draws = [](SequenceToSequence& model) {
    const uint64_t before = random_state().next_stream;
    model(some_tokens(1, 3, 1), some_tokens(1, 2, 2));
    return random_state().next_stream - before;
  };
  const auto model = make(o);
  CHECK(draws(*model) == 0);
  model->train();
  CHECK(draws(*model) == 2 + 2 * 3 + 3 * 4);  // inputs, branches and hidden units of the layers
  o.layer.attention.dropout = 0.1;
  o.final_dropout = true;
  const auto more = make(o);
  more->train();
  CHECK(draws(*more) == 2 + 2 * 4 + 3 * 6 + 2);
}

TEST_CASE("SequenceToSequence: a clone has its own parameters, also of a shared position") {
  SequenceToSequence::Options o = with_tables(tiny());
  share_positions(o);
  const auto model = make(o);
  const auto copy = nn::clone(*model);
  CHECK(names(*copy) == names(*model));
  const Tensor source = some_tokens(1, 4, 1), target = some_tokens(1, 5, 2);
  const Tensor y = (*copy)(source, target);
  CHECK(same_bits((*model)(source, target), y));
  NoGrad guard;
  for (const Tensor& p : model->parameters()) p.fill_(0.25);
  CHECK(same_bits((*copy)(source, target), y));
}

TEST_CASE("t5_initialize: standard deviations are right within 5 standard errors") {
  SequenceToSequence::Options o = nn::t5_options(300, nn::T5Version::v1_1);
  o.layer.attention.position = nn::no_position();
  o.layer.d_model = 48, o.layer.attention.n_heads = 2, o.layer.attention.d_key = 40,
  o.layer.attention.d_value = 24, o.layer.feed_forward.d_hidden = 64;
  o.n_encoder_layers = o.n_decoder_layers = 1;
  manual_seed(2);
  const SequenceToSequence model(o);
  nn::t5_initialize(model);
  const auto check_std = [](const Tensor& x, double std) {
    double total = 0;
    for (const double v : x.to_vector<double>()) total += v * v;
    const auto n = double(x.numel());
    CHECK(std::fabs(total / n / (std * std) - 1) < 5 * std::sqrt(2 / n));
  };
  check_std(model.source_embedding.weight, 1);
  check_std(model.out->weight, 1);
  const auto check_layer = [&](const auto& layer, const nn::MultiHeadAttention& attention) {
    check_std(attention.q.weight, 1 / std::sqrt(48.0 * 40));
    check_std(attention.k.weight, 1 / std::sqrt(48.0));
    check_std(attention.v.weight, 1 / std::sqrt(48.0));
    check_std(attention.out.weight, 1 / std::sqrt(2.0 * 24));
    check_std(layer.feed_forward().linear1.weight, 1 / std::sqrt(48.0));
    check_std(layer.feed_forward().up->weight, 1 / std::sqrt(48.0));
    check_std(layer.feed_forward().linear2.weight, 1 / std::sqrt(64.0));
  };
  check_layer(model.encoder.layers[0], model.encoder.layers[0].self_attention());
  check_layer(model.decoder.layers[0], model.decoder.layers[0].self_attention());
  check_layer(model.decoder.layers[0], model.decoder.layers[0].cross_attention);
}

TEST_CASE("SequenceToSequence: generate() is a loop of decode() with a cache") {
  const auto model = make(tiny());
  std::vector<int64_t> want{1};
  const NoGrad guard;
  const Tensor context = model->encode(tensor({2, 5, 3}).view({1, 3}));
  while (want.size() < 6)
    want.push_back(argmax(model->decode(tensor(want, {1, int64_t(want.size())}), context)[0][-1])
                       .item<int64_t>());
  want.erase(want.begin());
  CHECK(nn::generate(*model, {2, 5, 3}, {1}, {.max_tokens = 5, .sampling = {.temperature = 0}}) ==
        want);
}

TEST_CASE("SequenceToSequence: errors") {
  const auto refused = [](auto change, const std::string& message) {
    SequenceToSequence::Options o = tiny();
    change(o);
    CHECK_THROWS_WITH(SequenceToSequence(o), Containing("[SequenceToSequence] " + message));
  };
  refused([](auto& o) { o.source_vocabulary = 0; },
          "sizes must be at least 1: source_vocabulary 0, target_vocabulary 9, layer.d_model 6");
  refused([](auto& o) { o.n_decoder_layers = 0; }, "sizes must be at least 1: source_vocabulary 7");
  refused([](auto& o) { o.shared_embedding = true; },
          "shared_embedding needs one vocabulary; source_vocabulary is 7, target_vocabulary 9");
  refused([](auto& o) { o.source_step = 0; }, "source_step 0; must be at least 1");
  const auto model = make(tiny());
  CHECK_THROWS_WITH(model->encode(some_tokens(1, 4, 1)[0]),
                    "[InputEmbedding] tokens i64 [4]; must be i64 or i32 [B, L]");
  CHECK_THROWS_WITH(model->decode(zeros({2, 3, 1}), model->encode(some_tokens(1, 4, 1))),
                    "[InputEmbedding] tokens f32 [2, 3, 1]; must be i64 or i32 [B, L]");
  SequenceToSequence::Cache cache;
  for (SequenceToSequence::Cache* none : {&cache, static_cast<SequenceToSequence::Cache*>(nullptr)})
    CHECK_THROWS_WITH(
        model->decode(some_tokens(1, 2, 1), {}, {}, none),
        "[SequenceToSequence] the context is undefined, which is accepted only with a cache that "
        "earlier calls have filled");
}
