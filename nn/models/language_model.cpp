#include "nn/models/language_model.h"

#include <algorithm>
#include <cmath>

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "nn/attention/linear_attention.h"
#include "nn/distributed/process_group.h"
#include "nn/init.h"
#include "nn/positions/relative_table.h"
#include "nn/positions/rotary.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "LanguageModel";

void check_options(const MemoryOptions& m) {
  check(m.length >= 0 && m.extended >= 0 && m.clamp >= 0, op,
        "options of a memory must not be negative: length ", m.length, ", extended ", m.extended,
        ", clamp ", m.clamp);
  check(m.length > 0 || m.same_length != SameLength::original, op,
        "SameLength::original with a memory of length 0 leaves no key to attend to; use a length "
        "of at least 1");
}

LanguageModel::Options completed(LanguageModel::Options o) {
  const LayerOptions& layer = o.layer;
  check(o.vocabulary >= 1 && o.n_layers >= 1 && layer.d_model >= 1 &&
            layer.attention.n_heads >= 1 &&
            (layer.feed_forward.d_hidden >= 1 || layer.feed_forward.network),
        op, "sizes must be at least 1: vocabulary ", o.vocabulary, ", n_layers ", o.n_layers,
        ", layer.d_model ", layer.d_model, ", layer.attention.n_heads ", layer.attention.n_heads,
        ", layer.feed_forward.d_hidden ", layer.feed_forward.d_hidden);
  check(o.soft_cap >= 0 && std::isfinite(o.soft_cap), op, "soft_cap ", o.soft_cap,
        "; must be 0 (none) or more");
  check(std::isfinite(o.logit_scale), op, "logit_scale ", o.logit_scale, "; must be finite");
  check(o.n_logits >= 0 && o.n_logits <= o.vocabulary && (o.n_logits == 0 || !o.adaptive), op,
        "n_logits ", o.n_logits, " of ", o.vocabulary,
        " tokens; must be 0 (all) or at most the vocabulary, and 0 with `adaptive`");
  check(o.depth_block >= 0, op, "depth_block ", o.depth_block, "; must be 0 (none) or more");
  check(o.init_std >= 0, op, "init_std ", o.init_std, "; cannot be negative");
  check_options(o.memory);
  if (!o.adaptive) return o;
  check(o.soft_cap == 0 && o.logit_scale == 1, op,
        "adaptive softmax does not support soft_cap and logit_scale; must be 0 and 1");
  o.adaptive->vocabulary = o.vocabulary;
  o.adaptive->d_model = layer.d_model;
  if (o.init_std > 0) o.adaptive->std = o.init_std;
  return o;
}

// Returns rows begin … end − 1 of [memory; x], in storage of their own.
Tensor rows_of(const Tensor& memory, const Tensor& x, int64_t begin, int64_t end) {
  NoGrad guard;
  const int64_t m = memory.size(1), from = begin < m ? 0 : m;
  const Tensor rows = m > 0 && begin < m ? cat({memory, x.detach()}, 1) : x.detach();
  return rows.slice(1, begin - from, end - from).clone();
}

}  // namespace

InputEmbedding::Options LanguageModel::input_options(const Options& o) {
  return {.vocabulary = o.vocabulary,
          .d_model = o.layer.d_model,
          .input = o.input,
          .dropout = o.layer.dropout,
          .std = 1 / std::sqrt(double(o.layer.d_model)),
          .norm = o.layer.norms(),
          .drawn = false,
          .adaptive = o.adaptive};
}

bool LanguageModel::sinusoidal() const {
  return options.shared_sinusoids && !options.layer.attention.position && !options.input.sinusoid &&
         options.input.learned_length == 0;
}

Tensor LanguageModel::shared_bias(std::string name) {
  if (!sinusoidal() || !options.tied_biases) return {};
  const int64_t d_model = options.layer.d_model;
  const MultiHeadAttention::Options& attention = options.layer.attention;
  check(attention.d_key > 0 || d_model % attention.n_heads == 0, op, "layer.d_model ", d_model,
        " is not a multiple of layer.attention.n_heads ", attention.n_heads,
        "; set layer.attention.d_key and layer.attention.d_value");
  const Tensor value = empty(
      {attention.n_heads, attention.d_key > 0 ? attention.d_key : d_model / attention.n_heads});
  normal_(value, 0, options.init_std);
  return parameter(std::move(name), value);
}

LayerOptions LanguageModel::options_of_layer(int64_t i) const {
  LayerOptions layer = options.layer;
  if (sinusoidal())
    layer.attention.position = relative_sinusoid({.clamp = options.memory.clamp, .u = u, .v = v});
  if (options.vary_layer) options.vary_layer(i, layer);
  layer.depth = options.depth_block == 0       ? DepthPlace::none
                : i == 0                       ? DepthPlace::first
                : i % options.depth_block == 0 ? DepthPlace::begins
                                               : DepthPlace::inside;
  return layer;
}

LanguageModel::LanguageModel(Options o) : options(completed(std::move(o))) { make(); }

LanguageModel::LanguageModel(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(completed(std::move(o))) {
  make();
}

void LanguageModel::make() {
  const LayerOptions& layer = options.layer;
  check_position(op, layers, options.input.sinusoid || options.input.learned_length > 0,
                 ".input.sinusoid or .input.learned_length");
  if (sinusoidal() || options.output_dropout)
    dropout.emplace(*this, "dropout", Dropout::Options{layer.dropout});
  if (options.final_norm.value_or(layers[options.n_layers - 1].options.norm != NormPlace::post))
    norm.emplace(*this, "norm", layer.norms());
  if (options.adaptive)
    output.emplace(
        *this, "output",
        AdaptiveSoftmax::Options{*options.adaptive, options.tied, options.tied_projections},
        &embedding.tables);
  else if (!options.tied)
    out.emplace(*this, "out",
                Linear::Options{layer.d_model, options.vocabulary, options.output_bias});
  if (!options.adaptive) embedding.positions.reset_parameters();
  if (options.init_std > 0) init_normal(options.init_std);
  if (options.adaptive) embedding.positions.reset_parameters();
}

// Adaptive tables, u and v have their initial values already.
void LanguageModel::init_normal(double std) {
  Tensors of_mixers;
  for (const TransformerLayer& layer : layers)
    if (!dynamic_cast<MultiHeadAttention*>(layer.mixer.get()))
      for (const Tensor& x : layer.mixer->parameters()) of_mixers.push_back(x);
  for (const auto& [name, x] : named_parameters()) {
    if (std::any_of(of_mixers.begin(), of_mixers.end(),
                    [&x = x](const Tensor& y) { return y.same(x); }))
      continue;
    const auto has = [&name = name](const char* part) { return name.find(part) != name.npos; };
    if (options.adaptive && !name.starts_with("layers.")) continue;
    if ((has(".position.") && !sinusoidal()) || has(".kernel.")) continue;
    if (name.ends_with("bias") || name.ends_with("_query"))
      constant_(x, 0);
    else
      normal_(x, has("norm") || has("factors") ? 1 : 0, std);
  }
}

std::string LanguageModel::label() const {
  return str("LanguageModel(", options.n_layers, " layers)");
}

Tensor LanguageModel::operator()(const Tensor& tokens, Cache* cache,
                                 ProcessGroup* sequence_group) const {
  return all_or_nothing(
      cache, [&](Cache* after) { return logits(hidden(tokens, after, sequence_group)); });
}

Tensor LanguageModel::operator()(const Tensor& tokens, const ForwardContext& forward,
                                 Cache* cache) const {
  return all_or_nothing(cache,
                        [&](Cache* after) { return logits(hidden(tokens, forward, after)); });
}

Tensor LanguageModel::hidden(const Tensor& tokens, Cache* cache,
                             ProcessGroup* sequence_group) const {
  const int64_t n = tokens.dim() == 2 ? tokens.size(1) : 0;
  return hidden(tokens, begin_forward(sequence_group, n), cache);
}

Tensor LanguageModel::hidden(const Tensor& tokens, const ForwardContext& context,
                             Cache* cache) const {
  return all_or_nothing(cache, [&](Cache* after) {
    const bool remembers = after && after->memory;
    const MemoryOptions& memory = remembers ? *after->memory : options.memory;
    ForwardContext forward = context;
    if (after) {
      forward.first_position = after->position;
      forward.left_padding = after->left_padding;
    }
    const Tensor input = remembers ? begin_with_memory(tokens, *after, forward) : tokens;
    if (after && !remembers) for_layers(op, after->layers, options.n_layers);
    const int64_t n = input.dim() == 2 ? input.size(1) : 0, seen = after ? after->length() : 0;
    const AttentionMask mask = visible(memory);
    if (sinusoidal()) forward.shared_table = sinusoid_rows(seen + n, memory, forward);
    ResidualStream x(embedding(input, forward));
    if (remembers) forward.first_position -= seen;  // of the memory's first row
    const int64_t repeated = n - tokens.size(1);
    const int64_t kept_as_tokens = remembers ? std::min(memory.extended, n) : 0;
    const int64_t end = seen + n - kept_as_tokens,
                  begin = std::max<int64_t>(end - memory.length, 0);
    for (int64_t i = 0; i < options.n_layers; ++i) {
      if (!remembers) {
        layers[i](x, mask, after ? &after->layers[size_t(i)] : nullptr, forward);
        continue;
      }
      const Tensor earlier = after->inputs[size_t(i)];
      after->inputs[size_t(i)] = rows_of(earlier, x.value(), begin, end);
      layers[i](x, earlier, mask, forward);
    }
    if (remembers) {
      after->context =
          kept_as_tokens > 0 ? input.slice(1, n - kept_as_tokens).to(i64).clone() : Tensor();
      after->model = serial();
    }
    if (after) after->position += tokens.size(1);
    if (output_query.defined()) x = ResidualStream(x.over_depth(output_query)[0]);
    const int64_t left_out = after && after->last_logits_only ? n - 1 : repeated;
    if (left_out > 0) x = ResidualStream(x.value().slice(1, left_out));
    const Tensor y = norm ? x.normed(*norm) : x.value();
    return options.output_dropout ? (*dropout)(y, forward) : y;
  });
}

AttentionMask LanguageModel::visible(const MemoryOptions& memory) const {
  check_options(memory);
  AttentionMask mask{.causal = true, .block = options.block};
  if (memory.same_length == SameLength::on)
    mask.window = std::min(memory.length, INT64_MAX - 1) + 1;
  if (memory.same_length == SameLength::original) mask.window = memory.length;
  return mask;
}

// Returns the sinusoids of the distances that occur among n keys.
Tensor LanguageModel::sinusoid_rows(int64_t n_keys, const MemoryOptions& memory,
                                    const ForwardContext& forward) const {
  int64_t n = n_keys * (forward.sequence_group ? forward.sequence_group->size() : 1);
  const int64_t window = visible(memory).window;
  if (window > 0) n = std::min(n, window);
  if (memory.clamp > 0 && memory.clamp < n) n = memory.clamp + 1;
  const Tensor rows = sinusoids_(std::max<int64_t>(n - 1, 0), 0, options.layer.d_model,
                                 options_of(embedding.weight));
  return (*dropout)(rows, forward);
}

void LanguageModel::check_memory(const Tensor& tokens, const Cache& memory,
                                 const ForwardContext& forward) const {
  check_not_recomputed(op, "a memory");
  check(tokens.dim() == 2 && tokens.size(1) >= 1, op, "tokens ", tokens,
        "; must be i64 or i32 [B, L] with L at least 1");
  const char* const other = forward.sequence_group             ? "sequence parallelism"
                            : !forward.left_padding.empty()    ? "padding"
                            : forward.segments.defined()       ? "packed segments"
                            : forward.prefix_lengths.defined() ? "prefix_lengths"
                            : options.depth_block > 0          ? "attention over depth"
                                                               : nullptr;
  check(!other, op, "a memory does not support ", other ? other : "",
        "; call without a memory, or, for prompts of unequal length, use make_cache()");
  const MemoryOptions& kept = *memory.memory;
  check(
      options.input.traits().memory || (kept.length == 0 && kept.extended == 0), op,
      "a memory does not support absolute positions (input.sinusoid, input.learned_length), which "
      "grow without limit in a stream of segments; use relative positions");
  check(memory.model == 0 || memory.model == serial(), op,
        "the memory was filled by the model with serial number ", memory.model,
        ", but this one has ", serial(),
        "; accepted: a memory that this model has filled, or an empty one");
  check(memory.inputs.empty() || int64_t(memory.inputs.size()) == options.n_layers, op,
        "the memory has ", int64_t(memory.inputs.size()), " layers, the model ", options.n_layers);
  const int64_t batch = tokens.size(0), n = memory.length(), d_model = options.layer.d_model;
  const Tensor& like = embedding.weight;
  for (const Tensor& m : memory.inputs) {
    check(m.defined() && m.dim() == 3 && m.size(1) == n && m.size(2) == d_model &&
              m.dtype() == like.dtype() && m.device() == like.device(),
          op, "a layer's memory is ", m, "; must be [B, ", n, ", ", d_model, "] of ", like.dtype(),
          " on ", like.device(), " like the model");
    check(m.size(0) == batch, op, "the memory is of ", m.size(0), " streams, tokens ", tokens,
          " of ", batch, "; every batch of streams needs its own memory");
  }
  check(!memory.context.defined() || (memory.context.dim() == 2 && memory.context.size(0) == batch),
        op, "the memory's extended context is ", memory.context, "; must be [", batch, ", e]");
}

// Starts a memory if it is empty. Returns the tokens to process, with the extended context.
Tensor LanguageModel::begin_with_memory(const Tensor& tokens, Cache& memory,
                                        ForwardContext& forward) const {
  check_memory(tokens, memory, forward);
  if (memory.inputs.empty()) {
    const int64_t rows = memory.memory->zero_start ? memory.memory->length : 0;
    memory.inputs.assign(
        size_t(options.n_layers),
        zeros({tokens.size(0), rows, options.layer.d_model}, options_of(embedding.weight)));
    memory.position += rows;
    forward.first_position += rows;
  }
  if (!memory.context.defined()) return tokens;
  forward.first_position -= memory.context.size(1);
  return cat({memory.context, tokens.to(i64)}, 1);
}

Tensor LanguageModel::logits(const Tensor& hidden) const {
  if (output) return output->log_probabilities(hidden);
  Tensor x = out ? (*out)(hidden) : linear(hidden, embedding.weight);
  if (options.n_logits > 0) x = x.slice(-1, 0, options.n_logits).contiguous();
  if (options.logit_scale != 1) x = x * options.logit_scale;
  if (options.soft_cap == 0) return x;
  return tanh(x * (1 / options.soft_cap)) * options.soft_cap;
}

Tensor LanguageModel::loss(const Tensor& hidden, const Tensor& targets,
                           LinearCrossEntropyOptions o) const {
  if (output || options.n_logits > 0 || (out && out->lora()))
    return cross_entropy(logits(hidden), targets,
                         {o.ignore_index, o.label_smoothing, o.reduction, {}});
  o.logit_scale = options.logit_scale;
  o.soft_cap = options.soft_cap;
  return linear_cross_entropy(hidden, out ? out->weight : embedding.weight,
                              out ? out->bias : Tensor(), targets, o);
}

Tensor LanguageModel::nll(const Tensor& tokens, const Tensor& targets, Cache* cache,
                          ProcessGroup* sequence_group) const {
  const int64_t n = tokens.dim() == 2 ? tokens.size(1) : 0;
  return nll(tokens, targets, begin_forward(sequence_group, n), cache);
}

Tensor LanguageModel::nll(const Tensor& tokens, const Tensor& targets,
                          const ForwardContext& forward, Cache* cache) const {
  check(targets.shape() == tokens.shape(), op, "targets are ", targets, ", tokens ", tokens,
        "; their shapes must be equal");
  return all_or_nothing(cache, [&](Cache* after) {
    const Tensor x = hidden(tokens, forward, after);
    return output ? output->nll(x, targets) : loss(x, targets, {.reduction = Reduction::none});
  });
}

int64_t LanguageModel::Cache::length() const {
  if (memory) return inputs.empty() ? 0 : inputs[0].size(1);
  return layers.empty() ? 0 : layers[0].length();
}

void LanguageModel::Cache::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](Cache& after) {
    for (KeyValueCache& layer : after.layers) layer.reorder(rows);
    for (Tensor& x : after.inputs) x = index_select(x, 0, rows);
    if (context.defined()) after.context = index_select(context, 0, rows);
    if (left_padding.empty()) return;
    after.left_padding.clear();
    for (const int64_t row : rows.to_vector<int64_t>()) {
      check(row >= 0 && row < int64_t(left_padding.size()), op, "row ", row, " of ",
            int64_t(left_padding.size()));
      after.left_padding.push_back(left_padding[size_t(row)]);
    }
    if (after.left_padding.empty()) return;
    const int64_t unused = *std::min_element(after.left_padding.begin(), after.left_padding.end());
    for (KeyValueCache& layer : after.layers) layer.drop_before(unused);
  });
}

LanguageModel::Cache LanguageModel::make_cache(int64_t limit, int64_t kept) const {
  Cache cache;
  for (int64_t i = 0; i < options.n_layers; ++i)
    cache.layers.push_back(layers[i].mixer->make_cache(limit, kept));
  return cache;
}

LanguageModel::Cache LanguageModel::make_memory(MemoryOptions memory) const {
  check_options(memory);
  check(memory.length > 0 || memory.extended > 0, op,
        "a memory of length 0; must be at least 1, or call without a memory");
  return {.memory = memory};
}

Tensor LanguageModel::attention_scores(const Tensor& tokens) const {
  NoGrad guard;
  ResidualStream x(embedding(tokens));
  return layers[0].self_attention().scores(layers[0].mixer_input(x), visible(options.memory));
}

std::vector<Tensor> LanguageModel::attention_weights(const Tensor& tokens) const {
  NoGrad guard;
  const ForwardContext forward = begin_forward();
  const AttentionMask mask = visible(options.memory);
  std::vector<Tensor> weights;
  ResidualStream x(embedding(tokens, forward));
  for (const TransformerLayer& layer : layers) {
    ResidualStream before = x;
    weights.push_back(layer.self_attention().weights(layer.mixer_input(before), mask));
    layer(x, mask, nullptr, forward);
  }
  return weights;
}

LanguageModel::Options music_transformer(int64_t vocabulary, int64_t length) {
  return {.vocabulary = vocabulary,
          .layer = {.d_model = 256,
                    .attention = {.n_heads = 8,
                                  .bias = false,
                                  .position = music_relative({.max_length = length})},
                    .feed_forward = {.d_hidden = 1024},
                    .dropout = 0.1}};
}

LanguageModel::Options music_performer(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 24,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8,
                                  .kernel = linear_kernel(
                                      favor({.features = 128, .kind = FavorKind::hyperbolic}),
                                      {.eps = 1e-6})},
                    .feed_forward = {.d_hidden = 2048},
                    .norm = NormPlace::post,
                    .dropout = 0.1},
          .input = {.dropout_before_position = true},
          .output_bias = true,
          .init_std = 0.01};
}

LanguageModel::Options llama(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 32,
          .layer = {.d_model = 4096,
                    .attention = {.n_heads = 32, .bias = false, .position = rotary()},
                    .feed_forward = {.d_hidden = 11008,
                                     .activation = Activation::silu,
                                     .bias = false,
                                     .gated = true},
                    .norm_kind = NormKind::rms,
                    .norm_eps = 1e-6},
          .input = {.scale = false},
          .init_std = 0.02};
}

}  // namespace stretto::nn
