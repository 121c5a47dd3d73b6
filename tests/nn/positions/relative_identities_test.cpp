// Properties of every positional encoding with a table: decoding step by step, causality,
// independence of batch entries, which rows get a gradient; and identities between the schemes.
#include <cmath>
#include <functional>
#include <set>

#include "autograd/tape.h"
#include "nn/attention/attention.h"
#include "nn/init.h"
#include "nn/positions/disentangled.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr Implementation implementations[] = {Implementation::automatic, Implementation::composed};
constexpr int64_t d_model = 12, n_heads = 4;

/// The rows of a parameter that a query and a key use, from the key's relative position.
using RowsOf = std::function<std::vector<int64_t>(int64_t r)>;

struct Scheme {
  std::string name;
  nn::MakePositionalEncoding position;
  AttentionMask visible;
  std::vector<std::pair<std::string, RowsOf>> tables;  // by the name of the parameter
  int64_t n_kv_heads = 0;
  bool causal() const { return visible.causal; }
};

RowsOf one_row(std::function<int64_t(int64_t)> row) {
  return [row](int64_t r) { return std::vector<int64_t>{row(r)}; };
}

Scheme music(const std::string& name, const nn::MusicRelative::Options& o, AttentionMask visible,
             int64_t n_kv_heads = 0) {
  const int64_t rows = o.bidirectional ? 2 * o.max_length - 1 : o.max_length;
  auto row = [=](int64_t r) {
    const int64_t at = r + o.max_length - 1;
    return o.out_of_range == OutOfRange::clip ? std::clamp<int64_t>(at, 0, rows - 1) : at;
  };
  return {name, nn::music_relative(o), visible, {{"position.table", one_row(row)}}, n_kv_heads};
}

Scheme shaw(const std::string& name, const nn::ShawRelative::Options& o, AttentionMask visible) {
  const RowsOf row =
      one_row([k = o.max_distance](int64_t r) { return std::clamp<int64_t>(r, -k, k) + k; });
  Scheme s{name, nn::shaw_relative(o), visible, {{"position.keys", row}}};
  if (o.values) s.tables.push_back({"position.values", row});
  return s;
}

Scheme bert(const std::string& name, const nn::BertRelative::Options& o, AttentionMask visible,
            int64_t n_kv_heads = 0) {
  const RowsOf row = one_row([p = o.max_length](int64_t r) { return r + p - 1; });
  return {name, nn::bert_relative(o), visible, {{"position.table", row}}, n_kv_heads};
}

Scheme deberta(const std::string& name, const nn::Disentangled::Options& o, AttentionMask visible) {
  const int64_t k = o.buckets > 0 ? o.buckets : o.max_distance;
  auto delta = [=](int64_t d) {
    if (o.buckets > 0) d = nn::log_bucket(d, o.buckets, o.max_distance);
    return std::clamp<int64_t>(d + k, 0, 2 * k - 1);
  };
  auto rows = [=](int64_t r) {
    std::vector<int64_t> both;
    if (o.content_to_position) both.push_back(delta(-r));
    if (o.position_to_content) both.push_back(delta(r));
    return both;
  };
  return {name, nn::disentangled(o), visible, {{"position.rows", rows}}};
}

const std::vector<Scheme>& schemes() {
  const AttentionMask causal{.causal = true}, window{.causal = true, .window = 6};
  const AttentionMask local{.causal = true, .block = 4}, band{.window = 6};
  static const std::vector<Scheme> all{
      music("music", {.max_length = 9}, causal),
      music("music, shared heads", {.max_length = 9, .shared_by_heads = true}, causal),
      music("music, clip", {.max_length = 9, .out_of_range = OutOfRange::clip}, causal, 2),
      music("music, error", {.max_length = 80, .out_of_range = OutOfRange::error}, causal),
      music("music, window", {.max_length = 9}, window),
      music("music, local", {.max_length = 8, .out_of_range = OutOfRange::error}, local),
      music("music, local, longer table", {.max_length = 16}, local),
      music("music, bidirectional", {.max_length = 9, .bidirectional = true}, {}),
      music("music, bidirectional, clip",
            {.max_length = 9,
             .shared_by_heads = true,
             .bidirectional = true,
             .out_of_range = OutOfRange::clip},
            {}),
      music("music, bidirectional, causal", {.max_length = 9, .bidirectional = true}, causal),
      shaw("shaw, decoder", {.max_distance = 8}, causal),
      shaw("shaw, decoder, keys, shared heads",
           {.max_distance = 8, .values = false, .shared_by_heads = true}, causal),
      shaw("shaw, decoder, window", {.max_distance = 8}, window),
      shaw("shaw, encoder", {.max_distance = 8}, {}),
      shaw("shaw, encoder, window", {.max_distance = 8, .shared_by_heads = true}, band),
      shaw("shaw, encoder, keys", {.max_distance = 8, .values = false}, {}),
      bert("bert, decoder", {.max_length = 80}, causal),
      bert("bert, decoder, keys too", {.max_length = 80, .keys_too = true}, causal, 2),
      bert("bert, encoder, keys too", {.max_length = 80, .keys_too = true}, {}),
      deberta("deberta v1", {.max_distance = 9, .buckets = 0}, {}),
      deberta("deberta v2", {.max_distance = 20, .buckets = 6}, {}),
      deberta("deberta v2, one term",
              {.max_distance = 20, .buckets = 6, .position_to_content = false}, {}),
      deberta("deberta v2, decoder", {.max_distance = 20, .buckets = 6}, causal),
  };
  return all;
}

// The head dimension of wt103's model, another one for values, and tables as large as the rest.
std::unique_ptr<nn::MultiHeadAttention> make(const Scheme& s, Implementation implementation) {
  manual_seed(5);
  auto layer = std::make_unique<nn::MultiHeadAttention>(
      nn::MultiHeadAttention::Options{.d_model = d_model,
                                      .n_heads = n_heads,
                                      .n_kv_heads = s.n_kv_heads,
                                      .d_key = 41,
                                      .d_value = 6,
                                      .position = s.position,
                                      .kernel = nn::softmax_kernel(implementation)});
  layer->to(f64);
  for (const auto& [name, p] : layer->named_parameters())
    if (name.starts_with("position.")) nn::normal_(p, 0, 0.5);
  return layer;
}

Tensor parameter(const nn::Module& m, const std::string& name) {
  for (const auto& p : m.named_parameters())
    if (p.name == name) return p.tensor;
  FAIL("no parameter " << name);
  return {};
}

// Returns a table [R, d_model] as a table of one head.
Tensor by_heads(const Tensor& table) { return table.dim() == 2 ? table.unsqueeze(0) : table; }

double largest(const Tensor& x) { return max(abs(x)).item(); }

template <class F>
void for_all(F f) {
  for (const Scheme& s : schemes())
    for (const Implementation implementation : implementations) {
      INFO(s.name << (implementation == Implementation::composed ? ", composed" : ""));
      f(s, *make(s, implementation));
    }
}

}  // namespace

TEST_CASE("relative tables: the last queries alone equal those of the full pass") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 70, d_model}, 1);
  for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
    const Tensor full = layer(x, s.visible);
    for (const int64_t m : {1, 2, 7, 64, 65, 69})
      CHECK(worst_error(layer(x.slice(1, 70 - m), x, s.visible), full.slice(1, 70 - m)) < 1e-12);
  });
}

TEST_CASE("relative tables: decoding step by step equals the full pass") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 70, d_model}, 1);
  for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
    if (!s.causal()) return;
    const Tensor full = layer(x, s.visible);
    for (const std::vector<int64_t>& steps :
         {std::vector<int64_t>(70, 1), {7, 1, 1, 3, 30, 1, 27}}) {
      nn::KeyValueCache cache;
      Tensors parts;
      int64_t at = 0;
      for (const int64_t n : steps) {
        parts.push_back(layer(x.slice(1, at, at + n), s.visible, &cache));
        at += n;
      }
      REQUIRE(at == 70);
      CHECK(worst_error(cat(parts, 1), full) < 1e-12);
    }
  });
}

TEST_CASE("relative tables: decoding with a cache cut to the window is the same") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 30, d_model}, 1);
  for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
    if (!s.causal() || s.visible.window == 0) return;
    nn::KeyValueCache cache{.limit = s.visible.window};
    Tensors parts;
    for (int64_t t = 0; t < 30; ++t)
      parts.push_back(layer(x.slice(1, t, t + 1), s.visible, &cache));
    CHECK(cache.length() == s.visible.window);
    CHECK(worst_error(cat(parts, 1), layer(x, s.visible)) < 1e-12);
  });
}

TEST_CASE("relative tables: later tokens change nothing, bit for bit") {
  NoGrad guard;
  const Tensor x = fixed_noise({2, 70, d_model}, 1);
  for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
    const Tensor before = layer(x, s.visible);
    for (const int64_t t : {1, 33, 64, 69}) {
      const Tensor changed = cat({x.slice(1, 0, t), fixed_noise({2, 70 - t, d_model}, 2) * 3}, 1);
      const Tensor after = layer(changed, s.visible);
      CHECK(same_bits(after.slice(1, 0, t), before.slice(1, 0, t)) == s.causal());
      CHECK(!same_bits(after.slice(1, t), before.slice(1, t)));
    }
  });
}

TEST_CASE("relative tables: batch entries are independent of each other") {
  NoGrad guard;
  const Tensor x = fixed_noise({3, 20, d_model}, 1);
  const Tensor padding = zeros({3, 20}, {.dtype = boolean});
  padding.slice(1, 18).fill_(1);
  for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
    AttentionMask visible = s.visible;
    visible.key_padding = padding.clone();
    const Tensor before = layer(x, visible);
    Tensor changed = x.clone();
    changed[1].copy_(fixed_noise({20, d_model}, 2));
    visible.key_padding[1].slice(0, 9).fill_(1);
    const Tensor after = layer(changed, visible);
    for (const int64_t other : {0, 2}) CHECK(same_bits(after[other], before[other]));
    CHECK(!same_bits(after[1], before[1]));
    // And each has the result that it has alone.
    visible.key_padding = padding.slice(0, 2);
    CHECK(worst_error(layer(x.slice(0, 2), visible)[0], before[2]) < 1e-13);
  });
}

TEST_CASE("relative tables: unused rows have a gradient of exactly zero") {
  for (const int64_t l : {1, 5, 8, 9, 10, 33}) {
    const Tensor x = fixed_noise({2, l, d_model}, 1), w = fixed_noise({2, l, d_model}, 2);
    for_all([&](const Scheme& s, const nn::MultiHeadAttention& layer) {
      const Tensor y = layer(x, s.visible);
      const Tensor mask = attention_mask(
          l, l, {.causal = s.visible.causal, .window = s.visible.window, .block = s.visible.block});
      for (const auto& [name, rows_of] : s.tables) {
        INFO(name << ", L " << l);
        std::set<int64_t> used;
        for (int64_t i = 0; i < l; ++i)
          for (int64_t j = 0; j < l; ++j)
            if (!mask.defined() || mask[i][j].item() == 0)
              for (const int64_t row : rows_of(j - i)) used.insert(row);
        const Tensor g =
            by_heads(grad({y}, {parameter(layer, name)}, {w}, {.retain_graph = true})[0]);
        for (int64_t h = 0; h < g.size(0); ++h)
          for (int64_t row = 0; row < g.size(1); ++row) {
            INFO("row " << row);
            const double size = largest(g[h][row]);
            if (!used.contains(row)) CHECK(size == 0);
            // A single key has weight 1 whatever its score.
            if (used.contains(row) && (l > 1 || name == "position.values")) CHECK(size > 1e-9);
          }
      }
    });
  }
}

TEST_CASE("relative tables: outer rows collect the gradients of all rows beyond them") {
  const AttentionMask causal{.causal = true};
  const int64_t l = 33;
  using Pair = std::pair<Scheme, Scheme>;  // a short table, and one that covers all positions
  const Pair pairs[] = {
      {music("zero", {.max_length = 9}, causal), music("", {.max_length = 33}, causal)},
      {music("clip", {.max_length = 9, .out_of_range = OutOfRange::clip}, causal),
       music("", {.max_length = 33}, causal)},
      {music("zero, bidirectional", {.max_length = 9, .bidirectional = true}, {}),
       music("", {.max_length = 33, .bidirectional = true}, {})},
      {music("clip, bidirectional",
             {.max_length = 9, .bidirectional = true, .out_of_range = OutOfRange::clip}, {}),
       music("", {.max_length = 33, .bidirectional = true}, {})},
      {music("clip to one row", {.max_length = 1, .out_of_range = OutOfRange::clip}, causal),
       music("", {.max_length = 40}, causal)},
      {shaw("shaw, encoder", {.max_distance = 3}, {}), shaw("", {.max_distance = 32}, {})},
      {shaw("shaw, decoder", {.max_distance = 3, .shared_by_heads = true}, causal),
       shaw("", {.max_distance = 32, .shared_by_heads = true}, causal)},
      {shaw("shaw, clip 0", {.max_distance = 0}, {}), shaw("", {.max_distance = 50}, {})},
      {deberta("deberta v1", {.max_distance = 5, .buckets = 0, .position_to_content = false}, {}),
       deberta("", {.max_distance = 33, .buckets = 0, .position_to_content = false}, {})},
      {deberta("deberta v2", {.max_distance = 20, .buckets = 6, .content_to_position = false}, {}),
       deberta("", {.max_distance = 33, .buckets = 0, .content_to_position = false}, {})}};
  const Tensor x = fixed_noise({2, l, d_model}, 1), w = fixed_noise({2, l, d_model}, 2);
  for (const auto& [ending, complete] : pairs)
    for (const Implementation implementation : implementations) {
      INFO(ending.name << (implementation == Implementation::composed ? ", composed" : ""));
      const auto a = make(ending, implementation), b = make(complete, implementation);
      for (size_t t = 0; t < ending.tables.size(); ++t) {
        const auto& [name, row_a] = ending.tables[t];
        const Tensor from = by_heads(parameter(*a, name).detach());
        const Tensor to = by_heads(parameter(*b, name).detach());
        for (int64_t r = -(l - 1); r <= (ending.causal() ? 0 : l - 1); ++r) {
          const int64_t source = row_a(r)[0], row = complete.tables[t].second(r)[0];
          const Tensor value = to.select(1, row);
          source < 0 || source >= from.size(1) ? Tensor(value).zero_()
                                               : Tensor(value).copy_(from.select(1, source));
        }
      }
      for (const char* projection : {"position.k.weight", "position.q.weight", "position.q.bias"})
        for (const auto& p : a->named_parameters())
          if (p.name == projection) parameter(*b, projection).detach().copy_(p.tensor.detach());

      const Tensor y = (*a)(x, ending.visible), z = (*b)(x, complete.visible);
      CHECK(worst_error(y, z) < 1e-12);
      for (size_t t = 0; t < ending.tables.size(); ++t) {
        const auto& [name, row_a] = ending.tables[t];
        INFO(name);
        const BackwardOptions keep{.retain_graph = true};
        const Tensor got = by_heads(grad({y}, {parameter(*a, name)}, {w}, keep)[0]);
        const Tensor parts = by_heads(grad({z}, {parameter(*b, name)}, {w}, keep)[0]);
        Tensor want = zeros_like(got);
        for (int64_t r = -(l - 1); r <= (ending.causal() ? 0 : l - 1); ++r) {
          const int64_t at = row_a(r)[0];
          if (at >= 0 && at < got.size(1))
            want.select(1, at).add_(parts.select(1, complete.tables[t].second(r)[0]));
        }
        CHECK(worst_error(got, want) < 1e-12);
      }
    }
}

TEST_CASE("relative tables: the gradients of a table of keys add up to zero over its rows") {
  // If each key has a row, the same vector added to all rows changes all scores of a query equally.
  // This does not hold for a table that is zero out of range.
  const AttentionMask causal{.causal = true}, local{.causal = true, .block = 4};
  const Scheme complete[] = {
      music("music", {.max_length = 20}, causal),
      music("music, clip",
            {.max_length = 4, .shared_by_heads = true, .out_of_range = OutOfRange::clip}, causal),
      music("music, local", {.max_length = 8}, local),
      music("music, bidirectional", {.max_length = 20, .bidirectional = true}, {}),
      shaw("shaw, encoder", {.max_distance = 3}, {}),
      shaw("shaw, decoder", {.max_distance = 3, .values = false, .shared_by_heads = true}, causal),
      shaw("shaw, clip 0", {.max_distance = 0}, {}),
      bert("bert", {.max_length = 20}, {}),
      deberta("deberta", {.max_distance = 20, .buckets = 6, .position_to_content = false}, {}),
      music("ends", {.max_length = 4}, causal),
      bert("keys too", {.max_length = 20, .keys_too = true}, {})};
  const Tensor x = fixed_noise({2, 20, d_model}, 1), w = fixed_noise({2, 20, d_model}, 2);
  for (const Scheme& s : complete)
    for (const Implementation implementation : implementations) {
      INFO(s.name << (implementation == Implementation::composed ? ", composed" : ""));
      const auto layer = make(s, implementation);
      const Tensor y = (*layer)(x, s.visible);
      const Tensor g = by_heads(grad({y}, {parameter(*layer, s.tables[0].first)}, {w})[0]);
      const double total = largest(sum(g, {1}));
      if (s.name == "ends" || s.name == "keys too") {
        CHECK(total > 1e-4);
      } else {
        CHECK(total < 1e-12);
      }
    }
}

// ---------------------------------------------------------------------------- between the schemes

namespace {

constexpr nn::HeadShape heads{.n_heads = 3, .d_key = 41, .d_value = 5};
struct Parent : nn::Module {};

// Attention of l positions, or of the last m of them, with this positional encoding.
Tensor attend(const nn::PositionalEncoding& position, int64_t l, AttentionOptions options,
              int64_t m = 0) {
  nn::AttentionInputs inputs{fixed_noise({2, 3, l, 41}, 1), fixed_noise({2, 3, l, 41}, 2),
                             fixed_noise({2, 3, l, 5}, 3), options};
  if (m > 0) inputs.q = inputs.q.slice(2, l - m);
  position.apply(inputs);
  return attention(inputs.q, inputs.k, inputs.v, inputs.options);
}

void fill(const Tensor& table, uint64_t stream) {
  table.detach().copy_(fixed_noise(table.shape(), stream));
}

}  // namespace

TEST_CASE("Shaw's tables without clipping equal the Music Transformer's, causal or not") {
  for (const Implementation implementation : implementations)
    for (const int64_t l : {1, 2, 12, 65}) {
      INFO("L " << l);
      Parent a, b, c;
      const nn::ShawRelative shaw(a, heads, {.max_distance = l - 1, .values = false});
      const nn::MusicRelative both(b, heads, {.max_length = l, .bidirectional = true});
      const nn::MusicRelative past(c, heads, {.max_length = l});
      for (Parent* p : {&a, &b, &c}) p->to(f64);
      fill(shaw.keys, 4);
      both.table.detach().copy_(shaw.keys.detach());
      past.table.detach().copy_(shaw.keys.detach().slice(1, 0, l));
      CHECK(worst_error(attend(shaw, l, {.implementation = implementation}),
                        attend(both, l, {.implementation = implementation})) < 1e-14);
      for (const int64_t m : {l, (l + 1) / 2})
        CHECK(worst_error(
                  attend(shaw, l, {.mask = {.causal = true}, .implementation = implementation}, m),
                  attend(past, l, {.mask = {.causal = true}, .implementation = implementation},
                         m)) < 1e-14);
    }
}

TEST_CASE("local attention with blocks as long as the sequence is global attention") {
  for (const Implementation implementation : implementations)
    for (const int64_t l : {1, 7, 65})
      for (const int64_t block : {l, l + 1, 2 * l}) {
        Parent a, b;
        const nn::MusicRelative local(a, heads, {.max_length = 2 * block});
        const nn::MusicRelative global(b, heads, {.max_length = l});
        a.to(f64);
        b.to(f64);
        fill(local.table, 4);
        global.table.detach().copy_(local.table.detach().slice(1, 2 * block - l));
        CHECK(worst_error(
                  attend(local, l, {.mask = {.block = block}, .implementation = implementation}),
                  attend(global, l, {.mask = {.causal = true}, .implementation = implementation})) <
              1e-14);
      }
}

TEST_CASE(
    "equal rows of Shaw's tables change nothing as keys, and add their row to the output as "
    "values") {
  for (const Implementation implementation : implementations)
    for (const bool causal : {false, true})
      for (const int64_t clip : {0, 2, 30}) {
        Parent parent;
        const nn::ShawRelative shaw(parent, heads, {.max_distance = clip});
        parent.to(f64);
        const Tensor key = fixed_noise({3, 1, 41}, 4), value = fixed_noise({3, 1, 5}, 5);
        shaw.keys.detach().copy_(key.expand(shaw.keys.shape()));
        shaw.values.detach().copy_(value.expand(shaw.values.shape()));
        const Tensor y =
            attend(shaw, 20, {.mask = {.causal = causal}, .implementation = implementation});
        const Tensor plain =
            attention(fixed_noise({2, 3, 20, 41}, 1), fixed_noise({2, 3, 20, 41}, 2),
                      fixed_noise({2, 3, 20, 5}, 3),
                      {.mask = {.causal = causal}, .implementation = implementation});
        CHECK(worst_error(y, plain + value) < 1e-13);
      }
}

TEST_CASE("BERT's embeddings on the side of the keys mirror and transpose those of the queries") {
  // If q and k are exchanged, score(i, j) becomes score(j, i), and relative positions change sign.
  Parent a, b;
  const nn::BertRelative position(a, heads, {.max_length = 12, .keys_too = true});
  const nn::BertRelative mirrored(b, heads, {.max_length = 12, .keys_too = true});
  a.to(f64);
  b.to(f64);
  fill(position.table, 4);
  mirrored.table.detach().copy_(flip(position.table.detach(), 1));
  const Tensor q = fixed_noise({2, 3, 12, 41}, 1), k = fixed_noise({2, 3, 12, 41}, 2);
  auto scores = [](const nn::PositionalEncoding& p, const Tensor& x, const Tensor& y) {
    nn::AttentionInputs inputs{x, y, y, {}};
    p.apply(inputs);
    // The weights determine only differences of scores within a row.
    const Tensor logs = log(attention_weights(inputs.q, inputs.k, inputs.options));
    const Tensor rows = logs - mean(logs, {-1}, true);
    return rows - mean(rows, {-2}, true);
  };
  CHECK(worst_error(scores(position, q, k), scores(mirrored, k, q).transpose(-1, -2)) < 1e-12);
}
