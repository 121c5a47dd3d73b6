#include "nn/models/language_model.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/init.h"
#include "nn/models/generation.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/module_gradcheck.h"

using namespace stretto;
using nn::LanguageModel;
using nn::NormPlace;
using nn::Sinusoid;
using testing::same_bits;
using testing::worst_error;

namespace {

LanguageModel::Options tiny(int64_t length = 6) {
  return {.vocabulary = 11,
          .n_layers = 2,
          .layer = {.d_model = 8,
                    .attention = {.n_heads = 2,
                                  .bias = false,
                                  .position = nn::music_relative({.max_length = length})},
                    .feed_forward = {.d_hidden = 12},
                    .dropout = 0.1}};
}

std::unique_ptr<LanguageModel> make(const LanguageModel::Options& options) {
  manual_seed(31);
  auto model = std::make_unique<LanguageModel>(options);
  model->to(f64);
  model->eval();
  return model;
}

Tensor some_tokens(int64_t b, int64_t l) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < b * l; ++i)
    ids.push_back(random_bits({.seed = 9, .stream = 0}, uint64_t(i)) % 11);
  return tensor(ids, {b, l});
}

}  // namespace

TEST_CASE("LanguageModel: it has as many parameters as Magenta's and the paper's piano models") {
  // relative-attention notes, D2: t_rel_len2048_h384_att512_fs1024_n8, and the paper's Table 3.
  LanguageModel::Options o{
      .vocabulary = 310,
      .n_layers = 8,
      .layer = {.d_model = 384,
                .attention = {.n_heads = 8,
                              .d_key = 64,
                              .d_value = 48,
                              .bias = false,
                              .position = nn::music_relative({.max_length = 1024})},
                .feed_forward = {.d_hidden = 1024}},
      .input = {.sinusoid = Sinusoid::tensor2tensor}};
  CHECK(LanguageModel(o).parameter_count() == 16'253'184);
  o.layer.d_model = 256;
  o.n_layers = 6;
  o.layer.feed_forward.d_hidden = 2048;
  o.layer.attention.d_value = 32;
  const LanguageModel paper(o);
  CHECK(paper.parameter_count() == 11'975'680);
  CHECK(paper.layers[0].parameter_count() == 1'969'408);
}

TEST_CASE(
    "music_performer has the parameters and the initialization of the published pop piano model") {
  LanguageModel::Options o = nn::music_performer(333);
  o.input.sinusoid = Sinusoid::interleaved;
  CHECK(nn::count_parameters<LanguageModel>(o) == 75'998'541);
  o.vocabulary = 794;
  CHECK(nn::count_parameters<LanguageModel>(o) == 76'471'066);

  o.n_layers = 1;
  manual_seed(3);
  const LanguageModel model(o);
  const auto deviation = [](const Tensor& x, double middle) {
    return std::sqrt(mean(square(x - middle)).item());
  };
  for (const auto& [name, x] : model.named_parameters()) {
    INFO(name);
    // 4 standard errors of a normal's standard deviation.
    const double tolerance = 0.01 * 4 / std::sqrt(2.0 * double(x.numel()));
    const bool norm = name.find("norm") != name.npos;
    if (name.ends_with("bias"))
      CHECK(max(abs(x)).item() == 0);
    else
      CHECK(std::abs(deviation(x, norm ? 1 : 0) - 0.01) < tolerance);
  }
}

TEST_CASE("LanguageModel: names and shapes of its parameters") {
  const auto model = make(tiny());
  std::vector<std::string> names;
  for (const auto& [name, p] : model->named_parameters()) names.push_back(name);
  CHECK(names.size() == 1 + 2 * 13 + 3);
  CHECK(names[0] == "embedding.weight");
  CHECK(names[1] == "layers.0.self_attention.q.weight");
  CHECK(names[5] == "layers.0.self_attention.position.table");
  CHECK(names[13] == "layers.0.norm2.bias");
  CHECK(names[14] == "layers.1.self_attention.q.weight");
  CHECK(names[27] == "norm.weight");
  CHECK(names[29] == "out.weight");
  CHECK(model->label() == "LanguageModel(2 layers)");
  LanguageModel::Options o = tiny();
  o.layer.attention.position = nn::no_position();
  CHECK(make(o)->parameter_count() == model->parameter_count() - 2 * 2 * 6 * 4);
}

TEST_CASE("LanguageModel equals embed, layers, norm, project") {
  const Tensor tokens = some_tokens(2, 9);
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post})
    for (const bool tied : {false, true})
      for (const bool sinusoid : {false, true}) {
        LanguageModel::Options o = tiny();
        o.layer.norm = norm;
        o.tied = tied;
        if (sinusoid) o.input.sinusoid = Sinusoid::tensor2tensor;
        if (tied) o.block = 2;
        const auto m = make(o);
        Tensor x = embedding(m->embedding.weight, tokens) * std::sqrt(8.0);
        if (sinusoid) x = x + nn::sinusoids(9, 8, Sinusoid::tensor2tensor, 0, 1, {.dtype = f64});
        for (int64_t i = 0; i < 2; ++i) x = m->layers[i](x, {.causal = true, .block = o.block});
        if (norm == NormPlace::pre) x = (*m->norm)(x);
        const Tensor y = linear(x, tied ? m->embedding.weight : m->out->weight);
        CHECK((*m)(tokens).shape() == Shape{2, 9, 11});
        CHECK(same_bits((*m)(tokens), y));
        CHECK(m->layers[0].options.norm == norm);
      }
}

TEST_CASE("LanguageModel: embeddings are initialized with standard deviation d_model^-1/2") {
  manual_seed(3);
  const LanguageModel m(
      {.vocabulary = 400,
       .n_layers = 1,
       .layer = {.d_model = 64, .attention = {.n_heads = 8}, .feed_forward = {.d_hidden = 8}},
       .input = {.learned_length = 1}});
  const double v = var(m.embedding.weight).item(), n = 400 * 64;
  CHECK(std::fabs(v * 64 - 1) < 4 * std::sqrt(2 / n));
}

TEST_CASE("LanguageModel: logits do not depend on later tokens") {
  for (const int64_t block : {0, 4}) {
    LanguageModel::Options o = tiny(8);
    o.block = block;
    const auto m = make(o);
    NoGrad guard;
    const Tensor tokens = some_tokens(2, 15), before = (*m)(tokens);
    tokens.slice(1, 6).fill_(3);
    CHECK(same_bits((*m)(tokens).slice(1, 0, 6), before.slice(1, 0, 6)));
    CHECK(!same_bits((*m)(tokens).slice(1, 6), before.slice(1, 6)));
  }
}

TEST_CASE("LanguageModel: a cache that it creates drops positions that no query sees any more") {
  LanguageModel::Options o = tiny();
  o.layer.attention.position = nn::alibi();
  o.layer.attention.window = 3;
  const auto m = make(o);
  const Tensor tokens = some_tokens(2, 9), whole = (*m)(tokens);
  LanguageModel::Cache cache = m->make_cache(3);
  for (int64_t i = 0; i < 9; ++i)
    CHECK(worst_error((*m)(tokens.slice(1, i, i + 1), &cache), whole.slice(1, i, i + 1)) < 1e-12);
  for (const nn::KeyValueCache& layer : cache.layers) CHECK(layer.length() == 3);
  CHECK(m->make_cache().layers.size() == size_t(o.n_layers));
  CHECK_THROWS_WITH(m->make_cache(-1), Containing("a cache limited to -1 positions"));
}

TEST_CASE("LanguageModel: with a cache equals one pass, also past the end of the table") {
  const int64_t l = 25;
  const Tensor tokens = some_tokens(2, l);
  std::vector<LanguageModel::Options> all(7, tiny());
  const nn::MakePositionalEncoding clipped =
      nn::music_relative({.max_length = 6, .out_of_range = OutOfRange::clip});
  all[1].layer.attention.position = clipped;
  all[2] = tiny(40);
  all[3].layer.attention.position = {};
  all[3].input.sinusoid = Sinusoid::interleaved;
  all[4].block = 4;
  all[5].block = 5;
  all[5].layer.attention.position = clipped;
  all[5].input.sinusoid = Sinusoid::tensor2tensor;
  all[6].layer.norm = NormPlace::post;
  all[6].layer.attention.d_key = 5;
  all[6].layer.attention.d_value = 3;
  all[6].layer.attention.position = nn::music_relative({.max_length = 6, .shared_by_heads = true});
  all[6].tied = true;
  NoGrad guard;
  for (const LanguageModel::Options& o : all) {
    const auto m = make(o);
    const Tensor want = (*m)(tokens);
    for (const std::vector<int64_t>& chunks :
         {std::vector<int64_t>(size_t(l), 1), {6, 1, 1, 8, 9}, {25}}) {
      LanguageModel::Cache cache;
      Tensors parts;
      for (const int64_t n : chunks) {
        const int64_t at = cache.position;
        parts.push_back((*m)(tokens.slice(1, at, at + n), &cache));
      }
      CHECK(cache.position == l);
      CHECK(cache.layers[1].length() == l);
      CHECK(worst_error(cat(parts, 1), want) < 1e-12);
    }
  }
}

TEST_CASE("LanguageModel::attention_scores match the first layer's weights") {
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    LanguageModel::Options o = tiny(8);
    o.layer.norm = norm;
    const auto m = make(o);
    const Tensor tokens = some_tokens(2, 10);
    const Tensor scores = m->attention_scores(tokens);
    CHECK(scores.shape() == Shape{2, 2, 10, 10});
    CHECK_FALSE(scores.requires_grad());
    CHECK(testing::same_bits(softmax(scores, -1), m->attention_weights(tokens)[0]));
  }
}

TEST_CASE("LanguageModel::attention_weights are those that its layers use") {
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post}) {
    LanguageModel::Options o = tiny(8);
    o.vary_layer = [norm](int64_t, nn::LayerOptions& layer) { layer.norm = norm; };
    o.block = norm == NormPlace::pre ? 0 : 4;
    const auto m = make(o);
    CHECK(m->norm.has_value() == (norm == NormPlace::pre));
    const Tensor tokens = some_tokens(2, 10);
    const auto weights = m->attention_weights(tokens);
    REQUIRE(weights.size() == 2);
    Tensor x = m->embedding(tokens);
    for (int64_t i = 0; i < 2; ++i) {
      const Tensor& w = weights[size_t(i)];
      REQUIRE(w.shape() == Shape{2, 2, 10, 10});
      CHECK_FALSE(w.requires_grad());
      const Tensor totals = sum(w, {-1});
      CHECK(worst_error(totals, ones(totals.shape(), {.dtype = f64})) < 1e-14);
      CHECK(w[0][0][3][4].item() == 0);
      // The layer's output, computed from these weights.
      const nn::TransformerLayer& layer = m->layers[i];
      const Tensor seen = norm == NormPlace::pre ? layer.norm1(x) : x;
      const Tensor v = layer.self_attention().v(seen).reshape({2, 10, 2, 4}).transpose(1, 2);
      const Tensor y = layer.self_attention().out(matmul(w, v).transpose(1, 2).reshape({2, 10, 8}));
      const AttentionMask visible{.causal = true, .block = o.block};
      CHECK(worst_error(y, layer.self_attention()(seen, visible)) < 1e-13);
      x = layer(x, visible);
      if (i == 0) CHECK(same_bits(softmax(m->attention_scores(tokens), -1), w));
    }
  }
}

TEST_CASE("LanguageModel: dropout acts only in training") {
  LanguageModel::Options o = tiny();
  o.layer.dropout = 0.3;
  o.layer.attention.dropout = 0.2;
  const auto m = make(o);
  const Tensor tokens = some_tokens(2, 7);
  CHECK(same_bits((*m)(tokens), (*m)(tokens)));
  m->train();
  const uint64_t before = random_state().next_stream;
  const Tensor y = (*m)(tokens);
  CHECK(random_state().next_stream - before == 1 + 2 * 4);  // input, and four per layer
  CHECK(!same_bits(y, (*m)(tokens)));
}

TEST_CASE("LanguageModel: every parameter gets its gradient, in every setting") {
  for (const NormPlace norm : {NormPlace::pre, NormPlace::post})
    for (const bool tied : {false, true})
      for (const bool relative : {false, true})
        for (const bool absolute : {false, true}) {
          LanguageModel::Options o = tiny();
          o.layer.norm = norm;
          o.tied = tied;
          if (!relative) o.layer.attention.position = nn::no_position();
          if (absolute) o.input.sinusoid = Sinusoid::interleaved;

          const auto m = make(o);
          INFO((tied ? "tied " : "")
               << (relative ? "relative " : "") << (absolute ? "absolute" : ""));
          testing::check_parameter_gradients(
              *m, [&] { return cross_entropy((*m)(some_tokens(2, 9)), some_tokens(2, 9)); });
        }
}

TEST_CASE("LanguageModel: errors") {
  CHECK_THROWS_WITH(LanguageModel({}), Containing("[LanguageModel] sizes must be at least 1: "
                                                  "vocabulary 0"));
  CHECK_THROWS_WITH(make(tiny(0)), Containing("[MusicRelative] max_length 0"));
  const auto m = make(tiny());
  CHECK_THROWS_WITH((*m)(zeros({5}, {.dtype = i64})),
                    "[InputEmbedding] tokens i64 [5]; must be i64 or i32 [B, L]");
  CHECK_THROWS_WITH((*m)(full({1, 2}, 11, {.dtype = i64})).to_vector<float>(),
                    Containing("[embedding]"));
  CHECK_THROWS_WITH((*m)(zeros({1, 2})), Containing("[embedding]"));
  LanguageModel::Options o = tiny(4);
  o.input.learned_length = 4;
  CHECK_THROWS_WITH((*make(o))(some_tokens(1, 5)),
                    "[AbsolutePosition] positions 0 to 4 are needed, but only 4 are learned");
  CHECK_THROWS_WITH(
      (*make(o))(some_tokens(1, 2), nn::ForwardContext{.first_position = INT64_MAX - 1}),
      Containing("but only 4 are learned"));
  o.input.learned_length = -1;
  CHECK_THROWS_WITH(LanguageModel(o), Containing("learned_length -1"));
  o.input.learned_length = 0;
  o.layer.attention.position =
      nn::music_relative({.max_length = 4, .out_of_range = OutOfRange::error});
  CHECK_NOTHROW((*make(o))(some_tokens(1, 4)));
  CHECK_THROWS_WITH((*make(o))(some_tokens(1, 5)), Containing("key table reaches from -3 to 0"));
}

TEST_CASE("a tiny LanguageModel learns a periodic sequence and continues it") {
  // Period 5 with a repeated token: the next token depends on more than the token before.
  const std::vector<int64_t> theme{3, 1, 3, 0, 2};
  std::vector<int64_t> sequence;
  for (size_t i = 0; i < 41; ++i) sequence.push_back(theme[i % 5]);
  for (const int64_t block : {0, 8}) {
    manual_seed(5);
    LanguageModel model(
        {.vocabulary = 4,
         .n_layers = 2,
         .layer = {.d_model = 16,
                   .attention = {.n_heads = 2,
                                 .bias = false,
                                 .position = nn::music_relative({.max_length = 16})},
                   .feed_forward = {.d_hidden = 32}},
         .block = block});
    nn::Adam optimizer(model.parameters(), {.lr = 1e-2});
    const Tensor all = tensor(sequence, {1, 41});
    double loss = 0;
    for (int step = 0; step < 60; ++step) {
      optimizer.zero_grad();
      const Tensor l = cross_entropy(model(all.slice(1, 0, 40)), all.slice(1, 1));
      l.backward();
      optimizer.step();
      loss = l.item();
    }
    CHECK(loss < 0.1);
    model.eval();
    LanguageModel::Cache cache;
    const auto tokens =
        nn::generate([&](const Tensor& t) { return model(t, &cache); }, {3, 1, 3, 0, 2, 3},
                     {.max_tokens = 24, .sampling = {.temperature = 0}});
    for (size_t i = 0; i < tokens.size(); ++i) CHECK(tokens[i] == theme[(i + 6) % 5]);
  }
}

TEST_CASE("LanguageModel: an option normalizes its input") {
  LanguageModel::Options options = tiny();
  options.input = {.learned_length = 9, .norm = true};
  options.layer.norm_kind = nn::NormKind::rms;
  const auto model = make(options);
  const Tensor tokens = some_tokens(2, 5);
  const nn::AbsolutePosition& positions = model->embedding.positions;
  REQUIRE(positions.norm);
  CHECK(positions.norm->label() == "RMSNorm(8)");
  CHECK(model->get_parameter("embedding.positions.norm.weight").same(positions.norm->weight));
  const Tensor sum = model->embedding.lookup(tokens) + positions.table.slice(0, 0, 5);
  CHECK(same_bits(model->embedding(tokens), (*positions.norm)(sum)));
}

TEST_CASE("LanguageModel: parallel branches, norms of queries, a window") {
  for (const nn::Residual residual : {nn::Residual::parallel, nn::Residual::parallel_one_norm}) {
    LanguageModel::Options options = tiny();
    options.layer.residual = residual;
    options.layer.attention.qk_norm = nn::NormOptions{};
    options.layer.attention.window = 3;
    const auto model = make(options);
    const Tensor tokens = some_tokens(2, 8), once = (*model)(tokens);
    LanguageModel::Cache cache;
    Tensors parts;
    for (int64_t i = 0; i < 8; ++i) parts.push_back((*model)(tokens.slice(1, i, i + 1), &cache));
    CHECK(worst_error(cat(parts, 1), once) < 1e-12);
    CHECK(model->attention_weights(tokens)[1].size(3) == 8);
    CHECK(model->attention_weights(tokens)[1][0][0][7][4].item() == 0);
    CHECK(model->attention_weights(tokens)[1][0][0][7][5].item() > 0);
  }
}

TEST_CASE("LanguageModel: factors, output norms, norms of all heads, with a cache") {
  LanguageModel::Options options = tiny();
  options.layer.norm = NormPlace::output;
  options.layer.branch_scale = 0.4;
  const nn::MultiHeadAttention::Options& a = options.layer.attention;
  const int64_t d_key = a.d_key > 0 ? a.d_key : options.layer.d_model / a.n_heads;
  options.layer.attention.qk_norm = nn::NormOptions{.dim = a.n_heads * d_key};
  options.layer.attention.sinks = true;
  options.layer.feed_forward.gated = true;
  options.layer.feed_forward.clamped = nn::ClampedSwiGlu{};
  options.input.factor = 0.7;
  options.logit_scale = 0.2;
  const auto model = make(options);
  const Tensor tokens = some_tokens(2, 8), once = (*model)(tokens);
  Tensor x = embedding(model->embedding.weight, tokens) * (0.7 * std::sqrt(8.0));
  for (int64_t i = 0; i < 2; ++i) x = model->layers[i](x, {.causal = true});
  REQUIRE(model->norm);
  CHECK(worst_error(once, (*model->out)((*model->norm)(x)) * 0.2) < 1e-12);
  LanguageModel::Cache cache;
  Tensors parts;
  for (int64_t i = 0; i < 8; ++i) parts.push_back((*model)(tokens.slice(1, i, i + 1), &cache));
  CHECK(worst_error(cat(parts, 1), once) < 1e-12);
  CHECK(model->attention_weights(tokens)[1].size(3) == 8);
  testing::check_parameter_gradients(
      *model, [&] { return cross_entropy((*model)(tokens), some_tokens(2, 8)); });
  options.logit_scale = HUGE_VAL;
  CHECK_THROWS_WITH(make(options), "[LanguageModel] logit_scale inf; must be finite");
  options.logit_scale = 2;
  options.adaptive = nn::AdaptiveOptions{};
  CHECK_THROWS_WITH(make(options), Containing("does not support soft_cap and logit_scale"));
}

TEST_CASE("LanguageModel: n_logits leaves out the last tokens") {
  LanguageModel::Options options = tiny();
  const auto all = make(options);
  options.n_logits = options.vocabulary - 2;
  const auto model = make(options);  // with the same weights
  const Tensor tokens = some_tokens(2, 8), want = (*all)(tokens).slice(-1, 0, options.n_logits);
  CHECK(worst_error((*model)(tokens), want) < 1e-12);
  const Tensor targets = zeros({2, 8}, {.dtype = i64});
  CHECK(worst_error(mean(model->nll(tokens, targets)), cross_entropy(want, targets)) < 1e-12);
  options.n_logits = options.vocabulary + 1;
  CHECK_THROWS_WITH(make(options), Containing("tokens; must be 0 (all) or at most the vocabulary"));
}

TEST_CASE("A language model with a prefix is a prefix-LM, also in generation", "[models]") {
  LanguageModel::Options o = tiny();
  o.layer.attention.position = nn::music_relative({.max_length = 12, .bidirectional = true});
  const auto model = make(o);
  const Tensor tokens = some_tokens(2, 8);
  nn::ForwardContext forward = nn::begin_forward();
  forward.prefix_lengths = tensor<int64_t>({5, 5});
  const Tensor y = (*model)(tokens, forward), causal = (*model)(tokens);
  CHECK(worst_error(y.slice(1, 0, 1), causal.slice(1, 0, 1)) > 1e-6);
  // Tokens of the prefix see each other; the others see only earlier ones.
  Tensor other = tokens.clone();
  other.slice(1, 4, 5).fill_(0);
  const Tensor changed = (*model)(other, forward);
  CHECK(worst_error(changed.slice(1, 0, 1), y.slice(1, 0, 1)) > 1e-6);
  other = tokens.clone();
  other.slice(1, 7, 8).fill_(0);
  CHECK(same_bits((*model)(other, forward).slice(1, 0, 7), y.slice(1, 0, 7)));
  // The prompt is the prefix.
  LanguageModel::Cache cache;
  Tensors rows{(*model)(tokens.slice(1, 0, 5), forward, &cache)};
  for (int64_t i = 5; i < 8; ++i) rows.push_back((*model)(tokens.slice(1, i, i + 1), &cache));
  CHECK(worst_error(cat(rows, 1), y) < 1e-13);
  CHECK(cache.position == 8);
}
