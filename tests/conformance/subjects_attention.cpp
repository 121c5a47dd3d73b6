// Everything that acts on the scores: attention by its options, and by the positions of nn/.
#include <algorithm>
#include <cmath>

#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "tests/conformance/families.h"
#include "tests/support/stand_in.h"

namespace stretto::conformance {
using nn::AttentionCall;

namespace {

// Adds what a subject is to a call of plain attention, from the case's tensors and config.
using Complete = void (*)(const Tensors& x, const Config& config, AttentionCall& call);

// The sizes that a config tells must be those of the tensors.
void check_sizes(const Tensors& x, const Config& config) {
  const Tensor &q = x["in.q"], &k = x["in.k"], &v = x["in.v"];
  for (const char* name : {"in.q", "in.k", "in.v"})
    check(x[name].dim() == 4, "conformance", name, " is ", x[name], "; must have 4 dimensions");
  const std::pair<const char*, int64_t> sizes[] = {{"B", q.size(0)},
                                                   {"H", q.size(1)},
                                                   {"M", q.size(2)},
                                                   {"L", q.size(2)},
                                                   {"N", k.size(2)},
                                                   {"L", k.size(2)},
                                                   {"key_heads", k.size(1)},
                                                   {"D", q.size(3)},
                                                   {"D", k.size(3)},
                                                   {"Dv", v.size(3)},
                                                   {"mem", k.size(2) - q.size(2)}};
  for (const auto& [key, size] : sizes)
    check(config.integer(key, size) == size, "conformance", "config: ", key, " is ",
          config.integer(key, size), ", by the tensors it is ", size);
}

}  // namespace

AttentionCall plain_call(const Tensors& x, const Config& config) {
  check_sizes(x, config);
  AttentionCall call{x["in.q"], x["in.k"], x["in.v"], {}};
  call.options.mask.causal = config.flag("causal", false);
  call.options.mask.window = config.integer("window", 0);
  if (config.flag("key_padding", x.has("in.key_padding"))) {
    check_shape(x, "in.key_padding", {call.q.size(0), call.n_keys()});
    call.options.mask.key_padding = mask(x, "in.key_padding");
  }
  return call;
}

nn::HeadShape heads_of(const AttentionCall& call) {
  return {.n_heads = call.q.size(1),
          .d_key = call.q.size(3),
          .d_value = call.v.size(3),
          .d_model = call.q.size(1) * call.q.size(3)};
}

namespace {

void dot(const Tensors&, const Config&, AttentionCall&) {}

// ------------------------------------------------------------------- Shaw et al.

void shaw(const Tensors& x, const Config& config, AttentionCall& call) {
  const int64_t clip = config.integer("clip");
  auto table = [&](const char* name, int64_t d) -> RelativeTable {
    const Tensor& rows = x[name];
    check(rows.dim() == 2 && rows.size(0) % 2 == 1 && rows.size(0) / 2 == clip && rows.size(1) == d,
          "conformance", name, " is ", rows, "; must be [2·", clip, " + 1, ", d, "]");
    return {rows.unsqueeze(0), clip, Beyond::clip};
  };
  call.options.keys = table("param.rel_k", call.k.size(3));
  if (config.flag("values", x.has("param.rel_v")))
    call.options.values = table("param.rel_v", call.v.size(3));
}

void shaw_module(const Tensors& x, const Config& config, AttentionCall& call) {
  shaw(x, config, call);
  const AttentionOptions by_hand = call.options;
  nn::Module owner;
  nn::ShawRelative position(
      owner, heads_of(call),
      {.clip = by_hand.keys.zero_row, .values = by_hand.values.defined(), .shared_by_heads = true});
  testing::stand_in(by_hand.keys.rows, position.keys);
  if (position.values.defined()) testing::stand_in(by_hand.values.rows, position.values);
  call.options.keys = call.options.values = {};
  position.apply(call);
}

// ------------------------------------------------------------------- Music Transformer

nn::MusicRelative::Options music_options(const Tensors& x, const Config& config,
                                         const AttentionCall& call) {
  const Tensor& rel = x["param.rel"];
  check(rel.dim() == 3 && rel.size(1) >= 1, "conformance", "param.rel is ", rel,
        "; must be [H or 1, R, D]");
  nn::MusicRelative::Options o{
      .length = rel.size(1),
      .shared_by_heads = config.flag("shared", rel.size(0) == 1),
      .two_sided = config.flag("two_sided", false),
      .beyond = config.choice("beyond", {"zero", "clip"}) == "clip" ? Beyond::clip : Beyond::zero};
  if (o.two_sided) o.length = (rel.size(1) + 1) / 2;
  o.length = config.integer("Lmax", o.length);
  check(o.length == (o.two_sided ? (rel.size(1) + 1) / 2 : rel.size(1)), "conformance",
        "config: Lmax is ", o.length, " for param.rel ", rel);
  check_shape(x, "param.rel",
              {o.shared_by_heads ? 1 : call.q.size(1), o.two_sided ? 2 * o.length - 1 : o.length,
               call.q.size(3)});
  return o;
}

void skewed(const Tensors& x, const Config& config, AttentionCall& call) {
  const nn::MusicRelative::Options o = music_options(x, config, call);
  call.options.mask.causal = !o.two_sided;
  call.options.keys = {x["param.rel"], o.length - 1, o.beyond};
}

void music_relative(const Tensors& x, const nn::MusicRelative::Options& o, AttentionCall& call) {
  nn::Module owner;
  nn::MusicRelative position(owner, heads_of(call), o);
  connect(position.table, x, "param.rel");
  position.apply(call);
}

void skewed_module(const Tensors& x, const Config& config, AttentionCall& call) {
  const nn::MusicRelative::Options o = music_options(x, config, call);
  call.options.mask.causal = !o.two_sided;
  music_relative(x, o, call);
}

void local_options(const Tensors& x, const Config& config, AttentionCall& call) {
  const int64_t block = config.integer("block");
  const Tensor& rel = x["param.rel"];
  check(block >= 1 && rel.dim() == 3 && rel.size(1) % 2 == 0 && rel.size(1) / 2 == block,
        "conformance", "config: block is ", block, " for param.rel ", rel,
        "; must be [H, 2·block, D]");
  call.options.mask.block = block;
}

void skewed_local(const Tensors& x, const Config& config, AttentionCall& call) {
  local_options(x, config, call);
  call.options.keys = {x["param.rel"], 2 * call.options.mask.block - 1};
}

void skewed_local_module(const Tensors& x, const Config& config, AttentionCall& call) {
  local_options(x, config, call);
  music_relative(x,
                 {.length = 2 * call.options.mask.block,
                  .shared_by_heads = x["param.rel"].size(0) == 1 && call.q.size(1) > 1},
                 call);
}

// ------------------------------------------------------------------- Transformer-XL

void transformer_xl(const Tensors& x, const Config& config, AttentionCall& call) {
  const int64_t heads = call.q.size(1), n = call.k.size(2), d = call.q.size(3);
  check_shape(x, "in.r", {heads, n, d});
  check_shape(x, "param.u", {heads, d});
  check_shape(x, "param.v", {heads, d});
  call.options.mask.causal = true;
  if (config.flag("same_length", false)) call.options.mask.window = n - call.q.size(2) + 1;
  if (n > 0) {
    call.options.position_query = call.q + x["param.v"].unsqueeze(1);
    call.options.keys = {x["in.r"], n - 1};
  }
  call.q = call.q + x["param.u"].unsqueeze(1);
}

// ------------------------------------------------------------------- a bias per lag

void t5_call(const Tensors& x, const Config& config, AttentionCall& call) {
  check_shape(x, "param.bias", {config.integer("num_buckets", 32), call.q.size(1)});
  call.options.scale = 1;
}

void t5(const Tensors& x, const Config& config, AttentionCall& call) {
  t5_call(x, config, call);
  call.options.lag_bias =
      nn::t5_bias(x["param.bias"], call.n_queries(), call.n_keys(),
                  config.integer("max_distance", 128), !call.options.mask.causal);
}

void t5_module(const Tensors& x, const Config& config, AttentionCall& call) {
  t5_call(x, config, call);
  nn::Module owner;
  nn::T5Bias position(
      owner, heads_of(call),
      {.buckets = x["param.bias"].size(0), .max_distance = config.integer("max_distance", 128)});
  connect(position.table, x, "param.bias");
  position.apply(call);
}

void alibi(const Tensors&, const Config&, AttentionCall& call) {
  call.options.lag_bias = nn::alibi_bias(nn::alibi_slopes(call.q.size(1)), call.n_queries(),
                                         call.n_keys(), options_of(call.q));
}

void alibi_module(const Tensors&, const Config&, AttentionCall& call) {
  nn::Module owner;
  nn::Alibi(owner, heads_of(call), {}).apply(call);
}

void kerple_call(const Tensors& x, AttentionCall& call) {
  for (const char* name : {"param.p", "param.a"}) check_shape(x, name, {call.q.size(1)});
  call.options.mask.causal = true;
}

void kerple(const Tensors& x, const Config&, AttentionCall& call) {
  kerple_call(x, call);
  call.options.lag_bias = nn::kerple_bias(x["param.p"], x["param.a"], 1, call.n_keys());
}

void kerple_module(const Tensors& x, const Config& config, AttentionCall& call) {
  kerple_call(x, call);
  // The module keeps its parameters above a bound; the subject knows none.
  for (const char* name : {"param.p", "param.a"})
    for (const double value : x[name].to_vector<double>())
      if (!(value > 0.01)) return kerple(x, config, call);
  nn::Module owner;
  nn::Kerple position(owner, heads_of(call), {});
  connect(position.p, x, "param.p");
  connect(position.a, x, "param.a");
  position.apply(call);
}

// ------------------------------------------------------------------- rotation

RotaryOptions rotary_options(const Config& config) {
  return {.base = config.number("base", 10000),
          .pairing = config.choice("pairing", {"half", "interleaved"}) == "half"
                         ? RotaryPairing::half
                         : RotaryPairing::interleaved};
}

void rope(const Tensors&, const Config& config, AttentionCall& call) {
  const RotaryOptions o = rotary_options(config);
  call.q = rotate(call.q, call.n_keys() - call.n_queries(), o);
  call.k = rotate(call.k, 0, o);
}

void rope_module(const Tensors&, const Config& config, AttentionCall& call) {
  nn::Module owner;
  nn::Rotary(owner, heads_of(call), rotary_options(config)).apply(call);
}

// ------------------------------------------------------------------- the map

Implementation attention_by(const std::string& name, Form form, Complete complete) {
  return {name, [form, complete](const Tensors& x, const Config& config) {
            AttentionCall call = plain_call(x, config);
            call.options.form = form;
            complete(x, config, call);
            return only("out.y", attention(call.q, call.k, call.v, call.options));
          }};
}

// By options, and by a position where one exists; each in every form.
std::vector<Implementation> all_of(Complete by_options, Complete by_position = nullptr) {
  std::vector<Implementation> all;
  for (const auto& [name, form] : attention_forms)
    all.push_back(attention_by(name, form, by_options));
  for (const auto& [name, form] : attention_forms)
    if (by_position) all.push_back(attention_by(str("position, ", name), form, by_position));
  return all;
}

}  // namespace

Subjects attention_subjects() {
  return {
      {"attention.dot", all_of(dot)},
      {"attention.shaw", all_of(shaw, shaw_module)},
      {"attention.skewed", all_of(skewed, skewed_module)},
      {"attention.skewed_local", all_of(skewed_local, skewed_local_module)},
      {"attention.xl", all_of(transformer_xl)},
      {"attention.t5", all_of(t5, t5_module)},
      {"attention.alibi", all_of(alibi, alibi_module)},
      {"attention.kerple", all_of(kerple, kerple_module)},
      {"attention.rope", all_of(rope, rope_module)},
  };
}

}  // namespace stretto::conformance
