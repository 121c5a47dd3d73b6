// The traits of positional encodings and kernels: what they allow works, what they exclude fails, and
// the tables of the documentation agree with them.
#include <fstream>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/random.h"
#include "nn/models/language_model.h"
#include "nn/models/registry.h"
#include "nn/stack.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/find_upwards.h"

using namespace stretto;

namespace {

constexpr int64_t length = 12;

nn::PositionSettings settings(bool bidirectional) {
  return {.length = length,
          .bidirectional = bidirectional,
          .max_distance = 3,
          .plane = {3, 4},
          .realizations = 6,
          .sines = 2,
          .taps = 4};
}

nn::PositionSettings settings_of(const nn::PositionEntry& p, bool bidirectional) {
  nn::PositionSettings s = settings(bidirectional);
  if (p.name == "bert") s.max_distance = length;
  return s;
}

template <class F>
bool works(F&& f) {
  try {
    f();
    return true;
  } catch (const Error&) {
    return false;
  }
}

nn::LayerOptions layer_of(const nn::PositionEntry& p, const nn::KernelEntry& k, bool bidirectional,
                          nn::InputOptions& input) {
  nn::LayerOptions layer{.d_model = 16,
                         .attention = {.n_heads = 2, .kernel = k.make({.features = 8})},
                         .feed_forward = {.d_hidden = 12}};
  if (p.make)
    layer.attention.position = p.make(settings_of(p, bidirectional));
  else
    p.add(settings_of(p, bidirectional), input);
  return layer;
}

// One layer with its absolute positions.
struct Tiny : nn::Module {
  Tiny(const nn::LayerOptions& layer, const nn::InputOptions& input)
      : positions(*this, "positions", {.d_model = 16, .input = input}),
        encoder(*this, "encoder", {.n_layers = 1, .layer = layer}) {
    to(f64);
    eval();
  }
  Tensor operator()(const Tensor& x, bool causal) const {
    return encoder(positions(x), {.causal = causal});
  }
  // Token by token with a cache.
  Tensor one_by_one(const Tensor& x) const {
    nn::KeyValueCache cache;
    const auto& attention = encoder.layers[0].self_attention();
    Tensors all;
    for (int64_t i = 0; i < x.size(1); ++i)
      all.push_back(attention(positions(x.slice(1, i, i + 1), {.first_position = i}),
                              {.causal = true}, &cache));
    return cat(all, 1);
  }
  nn::AbsolutePosition positions;
  nn::Encoder encoder;
};

// True if a LanguageModel gives the same result for a whole text and for segments with a memory.
bool remembers(const nn::LayerOptions& layer, const nn::InputOptions& input, bool recurrent,
               bool blocks) {
  nn::LanguageModel model(
      {.vocabulary = 9,
       .n_layers = 1,
       .layer = layer,
       .input = input,
       .memory = {.length = recurrent ? length : 4,
                  .same_length = recurrent || blocks ? nn::SameLength::off : nn::SameLength::on}});
  model.to(f64);
  model.eval();
  const Tensor tokens = randint(0, 9, {2, length});
  nn::LanguageModel::Cache memory = model.make_memory();
  Tensors parts;
  for (int64_t at = 0; at < length; at += 4)  // not at the start of blocks
    parts.push_back(model.hidden(tokens.slice(1, at, at + 4), &memory));
  return testing::worst_error(cat(parts, 1), model.hidden(tokens)) < 1e-12;
}

}  // namespace

TEST_CASE("traits: every position and kernel works exactly where its traits allow it") {
  const NoGrad guard;
  for (const nn::PositionEntry& p : nn::positions())
    for (const nn::KernelEntry& k : nn::kernels()) {
      INFO(p.name << ", " << k.name);
      const nn::KernelTraits kernel = k.traits();
      const nn::PositionTraits position = p.traits(settings(false));
      const bool fits = !position.scores || !kernel.recurrent;
      const Tensor x = randn({2, length, 16}, RandomKey{1, 2}, {.dtype = f64});
      for (const bool bidirectional : {false, true}) {
        manual_seed(1);
        nn::InputOptions input;
        const nn::LayerOptions layer = layer_of(p, k, bidirectional, input);
        CHECK(works([&] { Tiny(layer, input)(x, !bidirectional); }) ==
              (fits && (bidirectional ? position.bidirectional : position.causal)));
      }
      nn::InputOptions input;
      const nn::LayerOptions layer = layer_of(p, k, false, input);
      bool cached = false, remembered = false;
      works([&] {
        const Tiny tiny(layer, input);
        const auto& attention = tiny.encoder.layers[0].self_attention();
        cached = testing::worst_error(tiny.one_by_one(x),
                                      attention(tiny.positions(x), {.causal = true})) < 1e-12;
      });
      CHECK(cached == (fits && position.causal));
      works(
          [&] { remembered = remembers(layer, input, kernel.recurrent, p.name == "music-local"); });
      CHECK(remembered == (fits && position.memory && kernel.memory));
    }
}

TEST_CASE("traits: the terms, sizes and lengths of every position are those of its traits") {
  const NoGrad guard;
  const nn::KernelEntry& softmax = nn::find_kernel("softmax");
  for (const nn::PositionEntry& p : nn::positions()) {
    INFO(p.name);
    const bool bidirectional = !p.traits().causal;
    const nn::PositionTraits t = p.traits(settings_of(p, bidirectional));
    nn::InputOptions input;
    nn::LayerOptions layer = layer_of(p, softmax, bidirectional, input);
    const auto runs = [&](int64_t n) {
      return works([&] { Tiny(layer, input)(randn({1, n, 16}, {.dtype = f64}), !bidirectional); });
    };
    CHECK(runs(length));
    CHECK(runs(length + 1) == (t.max_positions > length));
    CHECK(runs(length - 1) == !t.plane);
    if (p.add) continue;
    layer.attention.d_model = 16;
    for (int64_t d = 1; d <= 8; ++d) {
      layer.attention.d_key = d;
      CHECK(works([&] { nn::MultiHeadAttention make(layer.attention); }) == (d % t.multiple == 0));
    }
    layer.attention.d_key = 0;
    manual_seed(1);
    nn::MultiHeadAttention attention(layer.attention);
    attention.to(f64);
    attention.eval();
    const nn::PositionalEncoding* encoding = nullptr;
    for (const auto& [name, child] : attention.children())
      if (const auto* found = dynamic_cast<const nn::PositionalEncoding*>(child)) encoding = found;
    const Tensor x = randn({1, length, 16}, {.dtype = f64});
    const auto applied = [&](int64_t first) {
      const Tensor keys = x.slice(1, first);
      nn::AttentionInputs inputs = attention.project(keys, keys, {.causal = !bidirectional});
      std::shared_ptr<const nn::EncodingState> state;
      inputs.encoding_state = &state;
      inputs.first_position = first;
      encoding->apply(inputs);
      return inputs;
    };
    const nn::AttentionInputs all = applied(0);
    // The factors of xPos are a term of the scores too.
    CHECK((nn::score_term(all.options) != nullptr || p.name == "xpos") == t.scores);
    CHECK(all.options.bias.defined() == t.dense);
    const Tensor plain = attention.project(x, x, {}).k;
    if (t.plane) continue;
    if (all.k.shape() != plain.shape() || testing::worst_error(all.k, plain) > 1e-6)
      CHECK((testing::worst_error(applied(5).k, all.k.slice(2, 5)) < 1e-12) ==
            t.caches_encoded_keys);
    else
      CHECK(!t.caches_encoded_keys);
    const auto from = [&](int64_t first) {
      nn::AttentionInputs inputs = attention.project(x, x, {.causal = true});
      inputs.first_position = first;
      return attention.attend(inputs);
    };
    bool relative = false;
    works([&] { relative = testing::worst_error(from(7), from(0)) < 1e-12; });
    CHECK(relative == t.relative);
  }
}

TEST_CASE(
    "traits: a kernel without a recurrent state has attention weights to drop and keys to cache") {
  const NoGrad guard;
  for (const nn::KernelEntry& k : nn::kernels()) {
    INFO(k.name);
    nn::MultiHeadAttention attention(
        {.d_model = 16, .n_heads = 2, .dropout = 0.5, .kernel = k.make({.features = 8})});
    const Tensor x = randn({1, 4, 16});
    CHECK(works([&] { attention(x, {.causal = true}); }) == !k.traits().recurrent);
    attention.eval();
    nn::KeyValueCache cache;
    attention(x, {.causal = true}, &cache);
    CHECK(cache.k.defined() == !k.traits().recurrent);
  }
}

TEST_CASE("traits: the tables of the documentation agree with them") {
  // Returns the cells of the rows below a table header that begins with `first`.
  const auto table = [](const char* path, const std::string& first) {
    std::ifstream file(testing::find_upwards(path));
    std::vector<std::vector<std::string>> rows;
    std::string line;
    while (std::getline(file, line) && line.rfind("| `" + first + "` |", 0) != 0) {
    }
    std::getline(file, line);  // | --- |
    while (std::getline(file, line) && line.rfind("| ", 0) == 0) {
      std::vector<std::string> cells;
      for (size_t from = 2, to; (to = line.find(" |", from)) != std::string::npos; from = to + 3)
        cells.push_back(line.substr(from, to - from));
      rows.push_back(cells);
    }
    return rows;
  };
  const auto yes = [](bool is) { return std::string(is ? "yes" : "–"); };
  std::vector<std::vector<std::string>> rows = table("docs/positions.md", "--position");
  REQUIRE(rows.size() == nn::positions().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const nn::PositionEntry& p = nn::positions()[i];
    const nn::PositionTraits t = p.traits();
    INFO(p.name);
    REQUIRE(rows[i].size() == 8);
    CHECK(rows[i][0] == "`" + p.name + "`");
    CHECK(rows[i][2] == yes(t.causal));
    CHECK(rows[i][3] == yes(t.bidirectional));
    CHECK(rows[i][4] == (t.memory ? "yes" : t.causal ? "cache" : "–"));
    CHECK(rows[i][5] == (t.dense ? "except its bias" : "yes"));
    CHECK(rows[i][6] == yes(!t.scores));
    CHECK(rows[i][7].starts_with("error") == (t.max_positions < INT64_MAX));
  }
  rows = table("docs/attention.md", "--attention");
  REQUIRE(rows.size() == nn::kernels().size());
  for (size_t i = 0; i < rows.size(); ++i) {
    const nn::KernelEntry& k = nn::kernels()[i];
    const nn::KernelTraits t = k.traits();
    INFO(k.name);
    REQUIRE(rows[i].size() == 6);
    CHECK(rows[i][0] == "`" + k.name + "`");
    CHECK(rows[i][2] == yes(!t.recurrent));
    CHECK(rows[i][3] == yes(t.memory));
    CHECK(rows[i][4] == yes(t.segments));
    CHECK(rows[i][5] == yes(t.sequence_parallel));
  }
}
