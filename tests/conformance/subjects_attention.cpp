// Subjects that act on the scores: attention by its options, and by positional encodings of nn/.
#include <algorithm>
#include <cmath>

#include "nn/positions/relative_bias.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/conformance/families.h"
#include "tests/support/stand_in.h"

namespace stretto::conformance {
using nn::AttentionInputs;

namespace {

// Adds the terms of a subject to attention inputs, from the case's tensors and config.
using Complete = void (*)(const Tensors& x, const Config& config, AttentionInputs& inputs);

// Checks that the sizes in a config are those of the tensors.
void check_sizes(const Tensors& x, const Config& config) {
  const Tensor &q = x["in.q"], &k = x["in.k"], &v = x["in.v"];
  for (const char* name : {"in.q", "in.k", "in.v"})
    check(x[name].dim() == 4, "conformance", name, " is ", x[name], "; must have 4 dimensions");
  conformance::check_sizes(config, {{"B", q.size(0)},
                                    {"H", q.size(1)},
                                    {"M", q.size(2)},
                                    {"L", q.size(2)},
                                    {"N", k.size(2)},
                                    {"L", k.size(2)},
                                    {"key_heads", k.size(1)},
                                    {"D", q.size(3)},
                                    {"D", k.size(3)},
                                    {"Dv", v.size(3)},
                                    {"mem", k.size(2) - q.size(2)}});
}

}  // namespace

AttentionInputs plain_call(const Tensors& x, const Config& config) {
  check_sizes(x, config);
  AttentionInputs inputs{x["in.q"], x["in.k"], x["in.v"], {}};
  inputs.options.mask.causal = config.flag("causal", false);
  inputs.options.mask.window = config.integer("window", 0);
  if (config.flag("key_padding", x.has("in.key_padding"))) {
    check_shape(x, "in.key_padding", {inputs.q.size(0), inputs.n_keys()});
    inputs.options.mask.key_padding = mask(x, "in.key_padding");
  }
  return inputs;
}

nn::HeadShape heads_of(const AttentionInputs& inputs) {
  return {.n_heads = inputs.q.size(1),
          .d_key = inputs.q.size(3),
          .d_value = inputs.v.size(3),
          .d_model = inputs.q.size(1) * inputs.q.size(3)};
}

namespace {

void dot(const Tensors&, const Config&, AttentionInputs&) {}

// ------------------------------------------------------------------- Shaw et al.

void shaw(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const int64_t clip = config.integer("clip");
  auto table = [&](const char* name, int64_t d) -> RelativeTable {
    const Tensor& rows = x[name];
    check(rows.dim() == 2 && rows.size(0) % 2 == 1 && rows.size(0) / 2 == clip && rows.size(1) == d,
          "conformance", name, " is ", rows, "; must be [2·", clip, " + 1, ", d, "]");
    return {rows.unsqueeze(0), clip, OutOfRange::clip};
  };
  inputs.options.relative_keys = table("param.rel_k", inputs.k.size(3));
  if (config.flag("values", x.has("param.rel_v")))
    inputs.options.relative_values = table("param.rel_v", inputs.v.size(3));
}

void shaw_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  shaw(x, config, inputs);
  const AttentionOptions by_hand = inputs.options;
  nn::Module owner;
  nn::ShawRelative position(owner, heads_of(inputs),
                            {.max_distance = by_hand.relative_keys.zero_row,
                             .values = by_hand.relative_values.defined(),
                             .shared_by_heads = true});
  testing::stand_in(by_hand.relative_keys.rows, position.keys);
  if (position.values.defined()) testing::stand_in(by_hand.relative_values.rows, position.values);
  inputs.options.relative_keys = inputs.options.relative_values = {};
  position.apply(inputs);
}

// ------------------------------------------------------------------- Music Transformer

nn::MusicRelative::Options music_options(const Tensors& x, const Config& config,
                                         const AttentionInputs& inputs) {
  const Tensor& rel = x["param.rel"];
  check(rel.dim() == 3 && rel.size(1) >= 1, "conformance", "param.rel is ", rel,
        "; must be [H or 1, R, D]");
  nn::MusicRelative::Options o{.max_length = rel.size(1),
                               .shared_by_heads = config.flag("shared", rel.size(0) == 1),
                               .bidirectional = config.flag("two_sided", false),
                               .out_of_range = config.choice("beyond", {"zero", "clip"}) == "clip"
                                                   ? OutOfRange::clip
                                                   : OutOfRange::zero};
  if (o.bidirectional) o.max_length = (rel.size(1) + 1) / 2;
  o.max_length = config.integer("Lmax", o.max_length);
  check(o.max_length == (o.bidirectional ? (rel.size(1) + 1) / 2 : rel.size(1)), "conformance",
        "config: Lmax is ", o.max_length, " for param.rel ", rel);
  check_shape(x, "param.rel",
              {o.shared_by_heads ? 1 : inputs.q.size(1),
               o.bidirectional ? 2 * o.max_length - 1 : o.max_length, inputs.q.size(3)});
  return o;
}

void skewed(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const nn::MusicRelative::Options o = music_options(x, config, inputs);
  inputs.options.mask.causal = !o.bidirectional;
  inputs.options.relative_keys = {x["param.rel"], o.max_length - 1, o.out_of_range};
}

void music_relative(const Tensors& x, const nn::MusicRelative::Options& o,
                    AttentionInputs& inputs) {
  nn::Module owner;
  nn::MusicRelative position(owner, heads_of(inputs), o);
  connect(position.table, x, "param.rel");
  position.apply(inputs);
}

void skewed_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const nn::MusicRelative::Options o = music_options(x, config, inputs);
  inputs.options.mask.causal = !o.bidirectional;
  music_relative(x, o, inputs);
}

void local_options(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const int64_t block = config.integer("block");
  const Tensor& rel = x["param.rel"];
  check(block >= 1 && rel.dim() == 3 && rel.size(1) % 2 == 0 && rel.size(1) / 2 == block,
        "conformance", "config: block is ", block, " for param.rel ", rel,
        "; must be [H, 2·block, D]");
  inputs.options.mask.block = block;
}

void skewed_local(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  local_options(x, config, inputs);
  inputs.options.relative_keys = {x["param.rel"], 2 * inputs.options.mask.block - 1};
}

void skewed_local_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  local_options(x, config, inputs);
  music_relative(x,
                 {.max_length = 2 * inputs.options.mask.block,
                  .shared_by_heads = x["param.rel"].size(0) == 1 && inputs.q.size(1) > 1},
                 inputs);
}

// ------------------------------------------------------------------- Transformer-XL

void transformer_xl(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const int64_t heads = inputs.q.size(1), n = inputs.k.size(2), d = inputs.q.size(3);
  check_shape(x, "in.r", {heads, n, d});
  check_shape(x, "param.u", {heads, d});
  check_shape(x, "param.v", {heads, d});
  inputs.options.mask.causal = true;
  if (config.flag("same_length", false)) inputs.options.mask.window = n - inputs.q.size(2) + 1;
  if (n > 0) {
    inputs.options.relative_query = inputs.q + x["param.v"].unsqueeze(1);
    inputs.options.relative_keys = {x["in.r"], n - 1};
  }
  inputs.q = inputs.q + x["param.u"].unsqueeze(1);
}

// ------------------------------------------------------------------- Inkling

nn::InklingRelative::Options inkling_options(const Tensors& x, const Config& config,
                                             AttentionInputs& inputs) {
  const Tensor& proj = x["param.proj"];
  check(proj.dim() == 2, "conformance", "param.proj is ", proj, "; must be [P, extent]");
  check(x["in.x"].dim() == 3, "conformance", "in.x is ", x["in.x"], "; must be [B, M, d_model]");
  check_shape(x, "in.x", {inputs.q.size(0), inputs.n_queries(), x["in.x"].size(2)});
  check_shape(x, "param.r", {inputs.q.size(1) * proj.size(0), x["in.x"].size(2)});
  inputs.options.mask.causal = true;
  inputs.options.scale = 1 / double(inputs.q.size(3));
  return {.dim = proj.size(0),
          .extent = proj.size(1),
          .clip = config.number("clip", 0),
          .log_floor = config.integer("log_floor", 0),
          .log_strength = config.number("log_strength", 0.1)};
}

// The rows of the table, in ascending order of relative positions.
Tensor inkling_rows(const Tensors& x) {
  return flip(x["param.proj"].transpose(0, 1), 0).unsqueeze(0);
}

void inkling(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const nn::InklingRelative::Options o = inkling_options(x, config, inputs);
  const int64_t m = inputs.n_queries(), first = inputs.n_keys() - m;
  Tensor p = matmul(x["in.x"], x["param.r"].transpose(0, 1));
  p = p.reshape({inputs.q.size(0), m, inputs.q.size(1), o.dim});
  if (o.clip > 0) {
    p = p * x["param.factors"];
    p = p * minimum(o.clip / (sqrt(sum(p * p, {3}, true)) + 1e-6), 1);
  }
  p = p.transpose(1, 2) * double(inputs.q.size(3));
  if (o.log_floor > 0) {
    std::vector<double> factors;
    for (int64_t i = first; i < first + m; ++i)
      factors.push_back(1 + o.log_strength *
                                std::log(std::max(double(i + 1) / double(o.log_floor), 1.0)));
    const Tensor factor = tensor(factors, {m, 1}).to(p.dtype()).to(p.device());
    p = p * factor;
    inputs.q = inputs.q * factor;
  }
  inputs.options.relative_query = p;
  inputs.options.relative_keys = {inkling_rows(x), o.extent - 1};
}

void inkling_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  const nn::InklingRelative::Options o = inkling_options(x, config, inputs);
  nn::HeadShape shape = heads_of(inputs);
  shape.d_model = x["in.x"].size(2);
  nn::Module owner;
  nn::InklingRelative position(owner, shape, o);
  connect(position.r.weight, x, "param.r");
  if (o.clip > 0) connect(position.factors, x, "param.factors");
  testing::stand_in(inkling_rows(x), position.table);
  inputs.x = x["in.x"];
  position.apply(inputs);
}

// ------------------------------------------------------------------- a bias per relative position

void t5_call(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  check_shape(x, "param.bias", {config.integer("num_buckets", 32), inputs.q.size(1)});
  inputs.options.scale = 1;
}

void t5(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  t5_call(x, config, inputs);
  inputs.options.relative_bias =
      nn::t5_bias(x["param.bias"], inputs.n_queries(), inputs.n_keys(),
                  config.integer("max_distance", 128), !inputs.options.mask.causal);
}

void t5_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  t5_call(x, config, inputs);
  nn::Module owner;
  nn::T5Bias position(
      owner, heads_of(inputs),
      {.buckets = x["param.bias"].size(0), .max_distance = config.integer("max_distance", 128)});
  connect(position.table, x, "param.bias");
  position.apply(inputs);
}

void alibi(const Tensors&, const Config&, AttentionInputs& inputs) {
  inputs.options.relative_bias =
      nn::alibi_bias(nn::alibi_slopes(inputs.q.size(1)), inputs.n_queries(), inputs.n_keys(),
                     options_of(inputs.q));
}

void alibi_module(const Tensors&, const Config&, AttentionInputs& inputs) {
  nn::Module owner;
  nn::Alibi(owner, heads_of(inputs), {}).apply(inputs);
}

void kerple_call(const Tensors& x, AttentionInputs& inputs) {
  for (const char* name : {"param.p", "param.a"}) check_shape(x, name, {inputs.q.size(1)});
  inputs.options.mask.causal = true;
}

void kerple(const Tensors& x, const Config&, AttentionInputs& inputs) {
  kerple_call(x, inputs);
  inputs.options.relative_bias = nn::kerple_bias(x["param.p"], x["param.a"], 1, inputs.n_keys());
}

void kerple_module(const Tensors& x, const Config& config, AttentionInputs& inputs) {
  kerple_call(x, inputs);
  // The module keeps its parameters above a bound, which the subject does not have.
  for (const char* name : {"param.p", "param.a"})
    for (const double value : x[name].to_vector<double>())
      if (!(value > 0.01)) return kerple(x, config, inputs);
  nn::Module owner;
  nn::Kerple position(owner, heads_of(inputs), {});
  connect(position.p, x, "param.p");
  connect(position.a, x, "param.a");
  position.apply(inputs);
}

// ------------------------------------------------------------------- rotation

RotaryOptions rotary_options(const Config& config) {
  return {.base = config.number("base", 10000),
          .pairing = config.choice("pairing", {"half", "interleaved"}) == "half"
                         ? RotaryPairing::half
                         : RotaryPairing::interleaved};
}

void rope(const Tensors&, const Config& config, AttentionInputs& inputs) {
  const RotaryOptions o = rotary_options(config);
  inputs.q = rotate(inputs.q, inputs.n_keys() - inputs.n_queries(), o);
  inputs.k = rotate(inputs.k, 0, o);
}

void rope_module(const Tensors&, const Config& config, AttentionInputs& inputs) {
  nn::Module owner;
  nn::Rotary(owner, heads_of(inputs), rotary_options(config)).apply(inputs);
}

// ------------------------------------------------------------------- candidates

Candidate attention_by(const std::string& name, Implementation implementation, Complete complete) {
  return {name, [implementation, complete](const Tensors& x, const Config& config) {
            AttentionInputs inputs = plain_call(x, config);
            inputs.options.implementation = implementation;
            complete(x, config, inputs);
            return only("out.y", attention(inputs.q, inputs.k, inputs.v, inputs.options));
          }};
}

// By options, and by a positional encoding if one exists; each with every implementation.
std::vector<Candidate> all_of(Complete by_options, Complete by_position = nullptr) {
  std::vector<Candidate> all;
  for (const auto& [name, implementation] : attention_implementations)
    all.push_back(attention_by(name, implementation, by_options));
  for (const auto& [name, implementation] : attention_implementations)
    if (by_position)
      all.push_back(attention_by(str("position, ", name), implementation, by_position));
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
      {"attention.inkling", all_of(inkling, inkling_module)},
      {"attention.t5", all_of(t5, t5_module)},
      {"attention.alibi", all_of(alibi, alibi_module)},
      {"attention.kerple", all_of(kerple, kerple_module)},
      {"attention.rope", all_of(rope, rope_module)},
  };
}

}  // namespace stretto::conformance
