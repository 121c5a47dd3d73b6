// Attention, linear attention and tables of positions, for Python.
#include "ops/attention/attention.h"

#include "core/parallel.h"
#include "nn/positions/relative_bias.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/spe/spe.h"
#include "python/call.h"

namespace stretto::python {
namespace {

AttentionMask mask_of(Arguments& a) {
  return {.causal = a.get<bool>("causal"),
          .window = a.get<int64_t>("window"),
          .block = a.get<int64_t>("block"),
          .key_padding = a.tensor("key_padding"),
          .window_after = a.get<int64_t>("window_after"),
          .segments = a.tensor("segments"),
          .prefix_lengths = a.tensor("prefix_lengths"),
          .global_tokens = a.tensor("global_tokens"),
          .hidden = a.tensor("hidden")};
}

Implementation implementation_of(Arguments& a) {
  return a.choice<Implementation>("implementation", {{"automatic", Implementation::automatic},
                                                     {"composed", Implementation::composed},
                                                     {"fused", Implementation::fused}});
}

std::optional<RandomKey> key_of(Arguments& a, const std::string& name) {
  const auto& items = a.json(name).items;
  if (a.json(name).is_null()) return {};
  if (items.size() != 2) a.wrong(name, "[seed, stream], two integers");
  return RandomKey{uint64_t(items[0].integer), uint64_t(items[1].integer)};
}

RelativeTable table_of(Arguments& a, const std::string& name) {
  return {
      .rows = a.tensor(name),
      .zero_row = a.get<int64_t>(name + ".zero_row", -1),
      .out_of_range = a.choice<OutOfRange>(
          name + ".out_of_range",
          {{"zero", OutOfRange::zero}, {"clip", OutOfRange::clip}, {"error", OutOfRange::error}})};
}

AttentionOperands attention_operands(Arguments& a) {
  return {.q = a.tensor("q"),
          .k = a.tensor("k"),
          .v = a.tensor("v"),
          .options = {.mask = mask_of(a),
                      .scale = a.get<std::optional<double>>("scale"),
                      .soft_cap = a.get<double>("soft_cap"),
                      .relative_query = a.tensor("relative_query"),
                      .relative_keys = table_of(a, "relative_keys"),
                      .relative_values = table_of(a, "relative_values"),
                      .relative_bias = table_of(a, "relative_bias"),
                      .bias = a.tensor("bias"),
                      .sinks = a.tensor("sinks"),
                      .dropout = a.get<double>("dropout"),
                      .dropout_key = key_of(a, "dropout_key"),
                      .implementation = implementation_of(a)}};
}

Returned call_attention(Arguments& a) {
  const auto [q, k, v, options] = attention_operands(a);
  return {{attention(q, k, v, options)}};
}

Returned call_attention_with_lse(Arguments& a) {
  const auto [q, k, v, options] = attention_operands(a);
  const AttentionWithLse result = attention_with_lse(q, k, v, options);
  return {{result.out, result.lse}};
}

Returned call_attention_weights(Arguments& a) {
  const auto [q, k, v, options] = attention_operands(a);
  return {{attention_weights(q, k, options)}};
}

Returned call_attention_scores(Arguments& a) {
  const auto [q, k, v, options] = attention_operands(a);
  return {{attention_scores(q, k, options)}};
}

Returned call_linear_attention(Arguments& a) {
  const LinearAttentionOptions options{.mask = mask_of(a),
                                       .eps = a.get<double>("eps"),
                                       .chunk = a.get<int64_t>("chunk", 32),
                                       .implementation = implementation_of(a)};
  return {{linear_attention(a.tensor("q"), a.tensor("k"), a.tensor("v"), options)}};
}

Returned call_gated_linear_attention(Arguments& a) {
  GatedLinearAttentionOptions options{.log_decay = a.tensor("log_decay"),
                                      .beta = a.tensor("beta"),
                                      .mask = mask_of(a),
                                      .scale = a.get<std::optional<double>>("scale"),
                                      .chunk = a.get<int64_t>("chunk", 64),
                                      .implementation = implementation_of(a)};
  options.mask.causal = true;
  return {{gated_linear_attention(a.tensor("q"), a.tensor("k"), a.tensor("v"), options)}};
}

Returned call_t5_bias(Arguments& a) {
  const RelativeTable table =
      nn::t5_bias(a.tensor("table"), a.get<int64_t>("n_queries"), a.get<int64_t>("n_keys"),
                  a.get<int64_t>("max_distance"), a.get<bool>("bidirectional"));
  return {{table.rows}, std::to_string(table.zero_row)};
}

// Returns given noise, or that of a key, which is by default the next one of the random state.
SpeNoise noise_of(Arguments& a, const std::string& prefix, int64_t realizations) {
  if (const Tensor given = a.tensor(prefix + "noise"); given.defined()) return given;
  const std::optional<RandomKey> key = key_of(a, prefix + "key");
  return {key ? *key : next_random_key(), realizations};
}

SpeCode code_of(Arguments& a) {
  const bool is_given = a.tensor("noise").defined();
  const SpeNoise noise = noise_of(a, "", is_given ? 0 : a.get<int64_t>("realizations", 64));
  if (const Tensor freqs = a.tensor("freqs"); freqs.defined())
    return SpeCode::sine(freqs, a.tensor("offsets"), a.tensor("gains"), noise);
  Shape shape;
  for (const auto& size : a.json("shape").items) shape.push_back(size.integer);
  return SpeCode::conv(a.tensor("filter_q"), a.tensor("filter_k"), noise, shape);
}

Returned call_spe(Arguments& a) {
  const SpeCode code = code_of(a);
  SpeOptions options{.first = a.get<int64_t>("first"), .implementation = implementation_of(a)};
  if (const Tensor gate = a.tensor("gate"); gate.defined())
    options.gate = {gate, noise_of(a, "gate_", code.realizations())};
  const SpePair encoded = spe(a.tensor("q"), a.tensor("k"), code, options);
  return {{encoded.q, encoded.k}};
}

Returned call_set_num_threads(Arguments& a) {
  set_num_threads(int(std::clamp<int64_t>(a.get<int64_t>("n"), 0, 1000)));  // rejects both ends
  return {};
}

Returned call_num_threads(Arguments&) { return {{}, std::to_string(num_threads())}; }

Returned call_manual_seed(Arguments& a) {
  manual_seed(uint64_t(a.get<int64_t>("seed")));
  return {};
}

}  // namespace

const Functions attention_functions{{"attention", call_attention},
                                    {"attention_with_lse", call_attention_with_lse},
                                    {"attention_weights", call_attention_weights},
                                    {"attention_scores", call_attention_scores},
                                    {"linear_attention", call_linear_attention},
                                    {"gated_linear_attention", call_gated_linear_attention},
                                    {"t5_bias", call_t5_bias},
                                    {"spe", call_spe},
                                    {"set_num_threads", call_set_num_threads},
                                    {"num_threads", call_num_threads},
                                    {"manual_seed", call_manual_seed}};

}  // namespace stretto::python
