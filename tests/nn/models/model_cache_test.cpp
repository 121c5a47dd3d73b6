// Caches and memories against one pass over the whole sequence, for every positional encoding;
// caches of other models are errors. For a longer run over random models:
//
//   STRETTO_FUZZ_ROUNDS=20000 build/release/tests/stretto_tests --filenames-as-tags
//         "[#model_cache_test][fuzz]"
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "nn/data/draws.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/models/sequence_to_sequence.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using nn::Draws;
using nn::LanguageModel;
using nn::SequenceToSequence;
using testing::worst_error;

namespace {

constexpr int64_t vocabulary = 9;

// Tables that end within a sequence, except where that is an error.
nn::PositionSettings short_reach(int64_t max_distance) {
  return {.length = 32, .max_distance = max_distance, .realizations = 3, .sines = 2, .taps = 3};
}

nn::PositionSettings settings_of(const std::string& position, int64_t max_distance) {
  nn::PositionSettings s = short_reach(max_distance);
  if (position.ends_with("bert")) s.max_distance = 0;  // an error past its table
  return s;
}

template <class Model>
std::unique_ptr<Model> make(const typename Model::Options& options) {
  manual_seed(3);
  auto model = std::make_unique<Model>(options);
  model->to(f64);
  model->eval();
  return model;
}

Tensor some_tokens(Draws& draws, int64_t batch, int64_t length) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < batch * length; ++i) ids.push_back(draws.below(vocabulary));
  return tensor(ids, {batch, length});
}

std::vector<int64_t> cuts(Draws& draws, int64_t length) {
  std::vector<int64_t> pieces;
  for (int64_t left = length; left > 0; left -= pieces.back())
    pieces.push_back(1 + draws.below(std::min<int64_t>(left, 5)));
  return pieces;
}

// call(tokens) for one chunk after the other, concatenated.
template <class Call>
Tensor in_pieces(const Tensor& tokens, const std::vector<int64_t>& pieces, Call&& call) {
  Tensors all;
  int64_t at = 0;
  for (const int64_t n : pieces) {
    all.push_back(call(tokens.slice(1, at, at + n)));
    at += n;
  }
  return cat(all, 1);
}

template <class F>
std::string error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

int64_t rounds(int64_t fallback) {
  const char* text = std::getenv("STRETTO_FUZZ_ROUNDS");
  return text != nullptr ? std::stoll(text) : fallback;
}

// A random positional encoding, kernel and sizes that fit together.
struct RandomModel {
  explicit RandomModel(Draws& d) {
    const auto one_of = [&](const auto& list) {
      return list[size_t(d.below(int64_t(list.size())))];
    };
    do {
      position = one_of(nn::position_names());
      kernel = d.below(2) == 0 ? "softmax" : one_of(nn::kernel_names());
      layer = {.d_model = 8 + 4 * d.below(2), .feed_forward = {.d_hidden = 6}};
      const int64_t group = int64_t(1) << d.below(2);
      layer.attention.n_kv_heads = int64_t(1) << d.below(2);
      layer.attention.n_heads = layer.attention.n_kv_heads * (spe() ? 1 : group);
      layer.attention.d_key = 2 + 2 * d.below(2);
      layer.attention.d_value = 2 + d.below(2);
      layer.norm = d.below(2) == 0 ? nn::NormPlace::pre : nn::NormPlace::post;
      if (d.below(3) == 0) layer.attention.qk_norm = nn::NormOptions{};
      layer.attention.gate = nn::AttentionGate(d.below(3));
      settings = settings_of(position, 2 + d.below(5));
      settings.out_of_range = d.below(2) == 0 ? OutOfRange::zero : OutOfRange::clip;
    } while (!nn::refusal(position, kernel, settings, layer).empty());
    layer.attention.kernel = nn::find_kernel(kernel).make({.features = 4});
    nn::add_position(position, settings, layer, input);
    n_layers = 1 + d.below(3);
  }
  bool softmax() const { return kernel == "softmax"; }
  bool spe() const { return position.starts_with("sine") || position.starts_with("conv"); }
  bool blocks() const { return position == "music-local"; }
  bool added() const { return nn::find_position(position).add != nullptr; }
  std::string text() const {
    return str(position, ", ", kernel, ", layers ", n_layers, ", d_model ", layer.d_model,
               ", heads ", layer.attention.n_heads, "/", layer.attention.n_kv_heads, ", d ",
               layer.attention.d_key, "/", layer.attention.d_value, ", window ",
               layer.attention.window, ", reach ", settings.max_distance);
  }

  std::string position, kernel;
  nn::PositionSettings settings;
  nn::LayerOptions layer;
  nn::InputOptions input;
  int64_t n_layers = 1;
};

// Changes one size that a cache depends on, or the kernel; false if the result is not possible.
bool change_size(Draws& d, RandomModel& m) {
  nn::LayerOptions& l = m.layer;
  switch (d.below(6)) {
    case 0:
      m.n_layers += 1 + d.below(2);
      return true;
    case 1:
      l.attention.n_heads *= 2;
      if (m.spe()) l.attention.n_kv_heads *= 2;
      return true;
    case 2:
      l.attention.n_kv_heads *= 2;
      l.attention.n_heads = std::max(l.attention.n_heads, l.attention.n_kv_heads);
      return true;
    case 3:
      l.attention.d_key += 2;
      return true;
    case 4:
      l.attention.d_value += 1;
      return true;
    default:
      if (l.attention.window > 0) return false;
      m.kernel = m.softmax() ? "linear-elu" : "softmax";
      l.attention.kernel = nn::find_kernel(m.kernel).make({});
      return nn::refusal(m.position, m.kernel, m.settings, l).empty();
  }
}

LanguageModel::Options language_model(const RandomModel& m) {
  return {.vocabulary = vocabulary, .n_layers = m.n_layers, .layer = m.layer, .input = m.input};
}

SequenceToSequence::Options sequence_to_sequence(const RandomModel& m) {
  return {.source_vocabulary = vocabulary,
          .target_vocabulary = vocabulary,
          .n_encoder_layers = 1,
          .n_decoder_layers = m.n_layers,
          .layer = m.layer,
          .encoder_position = nn::no_position(),
          .input = m.input};
}

// Error texts name a device: this replaces "on cpu" by the device of the tests.
std::string where_tests_run(std::string text) {
  const std::string device = str(default_device());
  for (size_t at = 0; (at = text.find(" on cpu", at)) != std::string::npos; at += 4 + device.size())
    text.replace(at + 4, 3, device);
  return text;
}

}  // namespace

TEST_CASE("every position: a cache limited to what queries see gives the result of one pass",
          "[cache]") {
  NoGrad guard;
  Draws draws(1, 0);
  const Tensor tokens = some_tokens(draws, 2, 14);
  const std::vector<int64_t> steps(14, 1);
  int equal = 0;
  for (const nn::PositionEntry& p : nn::positions()) {
    if (!p.traits().causal) continue;
    INFO(p.name);
    LanguageModel::Options o{
        .vocabulary = vocabulary,
        .n_layers = 2,
        .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 6}}};
    if (p.name != "music-local") o.layer.attention.window = 4;
    nn::add_position(p.name, settings_of(p.name, 3), o.layer, o.input);
    const auto model = make<LanguageModel>(o);
    const Tensor once = (*model)(tokens);
    for (const int64_t limit : {3, 4, 9})
      for (const auto& pieces : {steps, {3, 1, 4, 1, 5}}) {
        LanguageModel::Cache cache = model->make_cache(limit);
        const auto run = [&] {
          return in_pieces(tokens, pieces, [&](const Tensor& x) { return (*model)(x, &cache); });
        };
        if (p.name == "music-local" && limit < 5) {
          CHECK_THROWS_WITH(
              run(), str("[MultiHeadAttention] a cache limited to ", limit,
                         " positions is too short for blocks of 3, because a query attends to two "
                         "blocks; accepted: at least 5 positions, or no limit"));
          CHECK(cache.position == 0);
          continue;
        }
        CHECK(worst_error(run(), once) < 1e-12);
        CHECK(cache.layers[0].length() == limit);
        ++equal;
      }
  }
  CHECK(equal > 100);
}

TEST_CASE("attention in blocks refuses a memory that holds less than its queries see", "[cache]") {
  LanguageModel::Options o{
      .vocabulary = vocabulary,
      .n_layers = 2,
      .layer = {.d_model = 8, .attention = {.n_heads = 2}, .feed_forward = {.d_hidden = 6}}};
  nn::add_position("music-local", settings_of("music-local", 3), o.layer, o.input);
  const auto model = make<LanguageModel>(o);
  Draws draws(2, 0);
  const Tensor inputs = some_tokens(draws, 2, 6);
  LanguageModel::Cache memory = model->make_memory({.length = 4});
  model->hidden(inputs.slice(1, 0, 5), &memory);
  CHECK_THROWS_WITH(model->hidden(inputs.slice(1, 5, 6), &memory),
                    "[MultiHeadAttention] the keys begin at position 1, but with blocks of 3 the "
                    "query at position 5 attends to keys from position 0; use a cache or memory "
                    "of at least two blocks less one position");
}

TEST_CASE("a cache of another model is an error that gives the reason", "[cache]") {
  NoGrad guard;
  Draws draws(3, 0);
  const Tensor tokens = some_tokens(draws, 2, 5);
  const nn::LayerOptions layer{.d_model = 8,
                               .attention = {.n_heads = 4,
                                             .n_kv_heads = 2,
                                             .d_key = 2,
                                             .d_value = 2,
                                             .position = nn::no_position()},
                               .feed_forward = {.d_hidden = 6}};
  const auto with = [&](auto change) {
    nn::LayerOptions l = layer;
    change(l);
    return make<LanguageModel>({.vocabulary = vocabulary, .n_layers = 2, .layer = l});
  };
  const auto model = with([](nn::LayerOptions&) {});
  LanguageModel::Cache filled;
  (*model)(tokens, &filled);
  const auto refused = [&](const LanguageModel& other, const Tensor& x, const std::string& text) {
    LanguageModel::Cache cache = filled;
    CHECK_THAT(error_of([&] { other(x, &cache); }), Containing(where_tests_run(text)));
    CHECK(cache.position == 5);
    for (size_t i = 0; i < cache.layers.size(); ++i)
      CHECK(cache.layers[i].k.same(filled.layers[i].k));
  };
  for (const int64_t n : {1, 3})
    refused(*make<LanguageModel>({.vocabulary = vocabulary, .n_layers = n, .layer = layer}), tokens,
            str("[LanguageModel] the cache has 2 layers, the model ", n,
                "; accepted: a cache that this model has filled, or an empty one"));
  const auto others = {with([](nn::LayerOptions&) {}), nn::clone(*model),
                       with([](nn::LayerOptions& l) { l.attention.n_heads = 2; }),
                       with([](nn::LayerOptions& l) {
                         l.attention.kernel = nn::find_kernel("linear-elu").make({});
                       })};
  for (const auto& other : others)
    refused(*other, tokens,
            str("[MultiHeadAttention] the cache was filled by the layer with serial number ",
                model->layers[0].self_attention().serial(), ", but this one has ",
                other->layers[0].self_attention().serial(),
                "; accepted: a cache that this layer of this model has filled, or an empty one"));
  LanguageModel::Cache swapped = filled;
  std::swap(swapped.layers[0], swapped.layers[1]);
  CHECK_THAT(error_of([&] { (*model)(tokens, &swapped); }), Containing("was filled by"));
  refused(*model, tokens.slice(0, 0, 1),
          "[2, 2, 5, 2] on cpu, the new ones f64 [1, 2, 5, 2] on cpu");
  model->to(f32);
  refused(*model, tokens, "f64 [2, 2, 5, 2] on cpu, the new ones f32 [2, 2, 5, 2] on cpu");
}

TEST_CASE("a decoder's cache of another model is an error", "[cache]") {
  NoGrad guard;
  Draws draws(4, 0);
  const Tensor source = some_tokens(draws, 1, 4), target = some_tokens(draws, 1, 3);
  SequenceToSequence::Options o{
      .source_vocabulary = vocabulary,
      .target_vocabulary = vocabulary,
      .n_encoder_layers = 1,
      .n_decoder_layers = 2,
      .layer = {.d_model = 8,
                .attention = {.n_heads = 2, .position = nn::no_position()},
                .feed_forward = {.d_hidden = 6}}};
  const auto model = make<SequenceToSequence>(o);
  SequenceToSequence::Cache filled;
  model->decode(target, model->encode(source), {}, &filled);
  const auto refused = [&](const SequenceToSequence& other, const std::string& text) {
    SequenceToSequence::Cache cache = filled;
    CHECK_THAT(error_of([&] { other.decode(target, {}, {}, &cache); }), Containing(text));
    CHECK(cache.position == 3);
  };
  o.n_decoder_layers = 3;
  refused(*make<SequenceToSequence>(o), "[Decoder] the cache has 2 layers, the model 3");
  o.n_decoder_layers = 2;
  o.layer.attention.n_heads = 4;
  refused(*make<SequenceToSequence>(o), "[MultiHeadAttention] the cache was filled by");
  const nn::MultiHeadAttention& same = model->decoder.layers[0].cross_attention;
  const auto cross = make<nn::MultiHeadAttention>(same.options);
  nn::KeyValueCache cache = filled.layers[0].cross;
  const Tensor x = zeros({1, 2, 8}, {.dtype = f64});
  CHECK_THAT(error_of([&] { (*cross)(x, x, {}, &cache); }),
             Containing(str("the cache was filled by the layer with serial number ", same.serial(),
                            ", but this one has ", cross->serial())));
  cache = filled.layers[0].cross;
  CHECK_NOTHROW(same(x, x, {}, &cache));
  const Tensor two = zeros({2, 2, 8}, {.dtype = f64});
  CHECK_THAT(
      error_of([&] { same(two, two, {}, &cache); }),
      Containing(where_tests_run(
          "the cached keys are f64 [1, 2, 4, 4] on cpu, the new ones f64 [2, 2, 0, 4] on cpu")));
}

TEST_CASE("random language models: caches equal one pass, and caches of other models are errors",
          "[cache][fuzz]") {
  NoGrad guard;
  int64_t changed = 0, limited = 0;
  const int64_t n = rounds(150);
  for (int64_t round = 0; round < n; ++round) {
    Draws d(11, round);
    RandomModel m(d);
    if (m.softmax() && !m.blocks() && d.below(2) == 0) m.layer.attention.window = 1 + d.below(5);
    const auto model = make<LanguageModel>(language_model(m));
    const int64_t limit =
        m.layer.attention.window > 0 && d.below(3) > 0 ? m.layer.attention.window + d.below(3) : 0;
    INFO("round " << round << ": " << m.text() << ", limit " << limit);
    const int64_t length = 3 + d.below(12);
    const Tensor tokens = some_tokens(d, 1 + d.below(2), length);
    const Tensor once = (*model)(tokens);
    LanguageModel::Cache cache = model->make_cache(limit);
    const auto pieces = cuts(d, length);
    const Tensor parts =
        in_pieces(tokens, pieces, [&](const Tensor& x) { return (*model)(x, &cache); });
    REQUIRE(worst_error(parts, once) < 1e-9);
    limited += limit > 0 && limit < length;

    if (!change_size(d, m)) continue;
    ++changed;
    const auto other = make<LanguageModel>(language_model(m));
    LanguageModel::Cache given = cache;
    const Tensor next = tokens.slice(1, 0, 1);
    INFO("then " << m.text());
    REQUIRE_FALSE(error_of([&] { (*other)(next, &given); }).empty());
    REQUIRE(given.position == cache.position);
  }
  CHECK(changed > n / 2);
  CHECK(limited > n / 20);
}

TEST_CASE("random language models: left padding in chunks, with rows that leave and repeat",
          "[cache][fuzz]") {
  NoGrad guard;
  for (int64_t round = 0; round < rounds(150); ++round) {
    Draws d(14, round);
    RandomModel m(d);
    if (m.softmax() && !m.blocks() && d.below(2) == 0) m.layer.attention.window = 1 + d.below(5);
    const auto model = make<LanguageModel>(language_model(m));
    const int64_t window = m.layer.attention.window;
    LanguageModel::Cache cache = model->make_cache(window > 0 ? window + d.below(3) : 0);
    INFO("round " << round << ": " << m.text());
    // Row b is sequence rows[b] of `tokens`; its first padding[b] tokens are ignored.
    const int64_t n = 3 + d.below(12);
    const Tensor tokens = some_tokens(d, 1 + d.below(4), n);
    std::vector<int64_t> rows;
    for (int64_t b = 0; b < tokens.size(0); ++b) {
      rows.push_back(b);
      cache.left_padding.push_back(b == 0 ? 0 : d.below(n));
    }
    std::vector<Tensor> once;
    for (size_t b = 0; b < rows.size(); ++b)
      once.push_back(
          (*model)(tokens.slice(0, rows[b], rows[b] + 1).slice(1, cache.left_padding[b])));
    std::vector<int64_t> padding = cache.left_padding;
    for (const int64_t count : cuts(d, n)) {
      const int64_t at = cache.position, end = at + count;
      Tensor now = index_select(tokens, 0, tensor(rows, {int64_t(rows.size())}));
      const Tensor logits = (*model)(now.slice(1, at, end), &cache);
      for (size_t b = 0; b < rows.size(); ++b) {
        const auto i = size_t(rows[b]);
        const int64_t from = std::clamp(padding[i], at, end);
        const Tensor expected = once[i].slice(1, from - padding[i], end - padding[i]);
        const Tensor found = logits.slice(0, int64_t(b), int64_t(b) + 1).slice(1, from - at);
        if (from < end) REQUIRE(worst_error(found, expected) < 1e-11);
      }
      if (d.below(3) > 0) continue;
      std::vector<int64_t> order, next;
      for (int64_t k = 1 + d.below(4); k > 0; --k) order.push_back(d.below(int64_t(rows.size())));
      for (const int64_t b : order) next.push_back(rows[size_t(b)]);
      cache.reorder(tensor(order, {int64_t(order.size())}));
      rows = next;
    }
  }
}

TEST_CASE("random decoders: caches equal one pass, and caches of other models are errors",
          "[cache][fuzz]") {
  NoGrad guard;
  for (int64_t round = 0; round < rounds(40); ++round) {
    Draws d(12, round);
    RandomModel m(d);
    const auto model = make<SequenceToSequence>(sequence_to_sequence(m));
    INFO("round " << round << ": " << m.text());
    const int64_t batch = 1 + d.below(2), length = 2 + d.below(9);
    const Tensor source = some_tokens(d, batch, 1 + d.below(5)),
                 target = some_tokens(d, batch, length);
    const Tensor context = model->encode(source), once = model->decode(target, context);
    SequenceToSequence::Cache cache;
    const Tensor parts = in_pieces(target, cuts(d, length), [&](const Tensor& x) {
      return model->decode(x, context, {}, &cache);
    });
    REQUIRE(worst_error(parts, once) < 1e-9);
    if (!change_size(d, m)) continue;
    const auto other = make<SequenceToSequence>(sequence_to_sequence(m));
    SequenceToSequence::Cache given = cache;
    INFO("then " << m.text());
    REQUIRE_FALSE(error_of([&] { other->decode(target, {}, {}, &given); }).empty());
    REQUIRE(given.position == cache.position);
  }
}

TEST_CASE("random Transformer-XLs: the result does not depend on where segments begin",
          "[cache][fuzz]") {
  NoGrad guard;
  for (int64_t round = 0; round < rounds(60); ++round) {
    Draws d(13, round);
    RandomModel m(d);
    // A memory has no absolute positions, and no queries of a short convolution.
    if (m.added() || !nn::find_kernel(m.kernel).traits().memory) continue;
    const int64_t length = 4 + d.below(12);
    // Either a window that the memory covers, or a memory of the whole sequence.
    const bool blocks = m.blocks(), all = !m.softmax() || blocks || d.below(2) == 0;
    LanguageModel::Options o{
        .vocabulary = vocabulary,
        .n_layers = m.n_layers,
        .layer = m.layer,
        .input = m.input,
        .memory = {.length = blocks ? 2 * m.settings.max_distance - 1 + d.below(3)
                             : all  ? length
                                    : 1 + d.below(5),
                   .extended = d.below(3),
                   .same_length = all ? nn::SameLength::off : nn::SameLength::on,
                   .zero_start = !all && !m.spe() && d.below(3) == 0}};
    INFO("round " << round << ": " << m.text() << ", memory " << o.memory.length << ", extended "
                  << o.memory.extended << ", zero start " << o.memory.zero_start);
    const auto model = make<LanguageModel>(o);
    const Tensor tokens = some_tokens(d, 1 + d.below(2), length);
    LanguageModel::Cache memory = model->make_memory(), whole = memory;
    Tensor once, parts;
    const std::string why = error_of([&] {
      once = model->hidden(tokens, &whole);
      parts = in_pieces(tokens, cuts(d, length),
                        [&](const Tensor& x) { return model->hidden(x, &memory); });
    });
    REQUIRE(why.empty());
    REQUIRE(worst_error(parts, once) < 1e-9);
  }
}
