#include "nn/models/transformer_xl.h"

#include <algorithm>
#include <cmath>

#include "autograd/recompute.h"
#include "core/all_or_nothing.h"
#include "nn/distributed/process_group.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "TransformerXL";

TransformerXL::Options completed(TransformerXL::Options o) {
  LayerOptions& l = o.layer;
  check(o.vocabulary >= 1 && l.d_model >= 1 && o.n_layers >= 1 && l.attention.n_heads >= 1 &&
            l.feed_forward.d_hidden >= 1,
        op, "sizes must be at least 1: vocabulary ", o.vocabulary, ", layer.d_model ", l.d_model,
        ", n_layers ", o.n_layers, ", layer.attention.n_heads ", l.attention.n_heads,
        ", layer.feed_forward.d_hidden ", l.feed_forward.d_hidden);
  check(l.attention.d_key > 0 || l.d_model % l.attention.n_heads == 0, op, "layer.d_model ",
        l.d_model, " is not a multiple of layer.attention.n_heads ", l.attention.n_heads,
        "; set layer.attention.d_key and layer.attention.d_value");
  if (l.attention.d_key == 0) l.attention.d_key = l.d_model / l.attention.n_heads;
  return o;
}

void check_lengths(const TransformerXL::Lengths& l) {
  check(l.memory >= 0 && l.extended >= 0 && l.clamp >= 0, op,
        "lengths must not be negative: memory ", l.memory, ", extended ", l.extended, ", clamp ",
        l.clamp);
  check(
      l.memory > 0 || l.same_length != TransformerXL::SameLength::original, op,
      "SameLength::original with memory 0 leaves no key to attend to; use a memory of at least 1");
}

// Initializes weights as the authors' code does (train.py, weights_init): N(0, std), norms around
// 1, biases 0. Other positional encodings and kernels keep their own initialization.
void init_below(Module& module, double std) {
  for (const auto& [name, child] : module.children()) {
    if (auto* linear = dynamic_cast<Linear*>(child)) {
      normal_(linear->weight, 0, std);
      if (linear->bias.defined()) constant_(linear->bias, 0);
    } else if (auto* norm = dynamic_cast<Norm*>(child)) {
      normal_(norm->weight, 1, std);
    } else if (auto* position = dynamic_cast<RelativeSinusoid*>(child)) {
      normal_(position->r.weight, 0, std);
      if (position->options.u.defined()) continue;
      normal_(position->u, 0, std);
      normal_(position->v, 0, std);
    } else if (!dynamic_cast<PositionalEncoding*>(child) &&
               !dynamic_cast<AttentionKernel*>(child)) {
      init_below(*child, std);
    }
  }
}

}  // namespace

AdaptiveOptions TransformerXL::embedding_options(const Options& o) {
  return {.vocabulary = o.vocabulary,
          .d_model = o.layer.d_model,
          .d_embedding = o.d_embedding,
          .cutoffs = o.cutoffs,
          .div = o.div,
          .std = o.init_std};
}

Tensor TransformerXL::shared_bias(std::string name) {
  if (!sinusoidal() || !options.tied_biases) return {};
  const Tensor value = empty({options.layer.attention.n_heads, options.layer.attention.d_key});
  normal_(value, 0, options.init_std);
  return parameter(std::move(name), value);
}

bool TransformerXL::sinusoidal() const {
  return !options.layer.attention.position && !options.input.sinusoid &&
         options.input.learned_length == 0;
}

LayerOptions TransformerXL::layer_options() const {
  LayerOptions layer = options.layer;
  if (sinusoidal()) layer.attention.position = relative_sinusoid({.u = u, .v = v});
  return layer;
}

TransformerXL::TransformerXL(Options o) : options(completed(std::move(o))) { make(); }

TransformerXL::TransformerXL(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(completed(std::move(o))) {
  make();
}

void TransformerXL::make() {
  check_lengths(lengths);
  init_below(layers, options.init_std);
  positions.reset_parameters();
}

std::string TransformerXL::label() const {
  return str("TransformerXL(", options.n_layers, " layers, memory ", lengths.memory, ")");
}

void TransformerXL::copy_settings(const Module& from) {
  lengths = static_cast<const TransformerXL&>(from).lengths;
}

AttentionMask TransformerXL::visible() const {
  AttentionMask visible{.causal = true};
  if (lengths.same_length == SameLength::on)
    visible.window = std::min(lengths.memory, INT64_MAX - 1) + 1;
  if (lengths.same_length == SameLength::original) visible.window = lengths.memory;
  return visible;
}

Tensor TransformerXL::embed(const Tensor& tokens, const ForwardContext& forward) const {
  const Tensor x = embedding(tokens);
  return positions(options.input.scale ? x * std::sqrt(double(options.layer.d_model)) : x, forward);
}

Tensor TransformerXL::rows(int64_t n_keys, const AttentionMask& visible,
                           const ForwardContext& forward) const {
  if (!sinusoidal()) return {};
  int64_t n = n_keys;
  if (visible.window > 0) n = std::min(n, visible.window);
  if (lengths.clamp > 0 && lengths.clamp < n) n = lengths.clamp + 1;
  return dropout(rows_(n - 1, 0, options.layer.d_model, options_of(embedding.weights[0])), forward);
}

void TransformerXL::Memory::reorder(const Tensor& rows) {
  all_or_nothing(*this, [&](Memory& after) {
    for (Tensor& layer : after.layers) layer = index_select(layer, 0, rows);
    if (context.defined()) after.context = index_select(context, 0, rows);
  });
}

void TransformerXL::check_memory(const Tensor& tokens, const Memory& memory) const {
  const int64_t batch = tokens.size(0);
  check(memory.model == 0 || memory.model == serial(), op,
        "the memory was filled by the model with serial number ", memory.model,
        ", but this one has ", serial(),
        "; accepted: a memory that this model has filled, or an empty one");
  check(memory.layers.empty() || int64_t(memory.layers.size()) == options.n_layers, op,
        "the memory has ", int64_t(memory.layers.size()), " layers, the model ", options.n_layers);
  const Tensor& like = embedding.weights[0];
  for (const Tensor& m : memory.layers) {
    check(m.defined() && m.dim() == 3 && m.size(1) == memory.length() &&
              m.size(2) == options.layer.d_model && m.dtype() == like.dtype() &&
              m.device() == like.device(),
          op, "a layer's memory is ", m, "; must be [B, ", memory.length(), ", ",
          options.layer.d_model, "] of ", like.dtype(), " on ", like.device(), " like the model");
    check(m.size(0) == batch, op, "the memory is of ", m.size(0), " streams, tokens ", tokens,
          " of ", batch, "; every batch of streams needs its own Memory");
  }
  check(!memory.context.defined() || (memory.context.dim() == 2 && memory.context.size(0) == batch),
        op, "the memory's extended context is ", memory.context, "; must be [", batch, ", e]");
}

void TransformerXL::check_tokens(const Tensor& tokens) const {
  check(tokens.dim() == 2 && tokens.size(1) >= 1, op, "tokens ", tokens,
        "; must be i64 or i32 [B, T] with T at least 1");
  check_lengths(lengths);
}

Tensor TransformerXL::hidden(const Tensor& tokens, const ForwardContext& forward) const {
  check_tokens(tokens);
  check(forward.padding.empty() && !forward.prefix_lengths.defined(), op,
        "does not support padding and prefix_lengths; use nn::LanguageModel with a relative "
        "sinusoid, or leave both empty");
  Memory none;
  return advance(tokens, none, false, forward);
}

Tensor TransformerXL::hidden(const Tensor& tokens, Memory* memory,
                             ProcessGroup* sequence_group) const {
  if (memory) check_not_recomputed(op, "a memory");
  check_tokens(tokens);
  check(
      !memory || lengths.memory > 0 || lengths.extended > 0, op,
      "lengths.memory is 0, so a Memory cannot be used; set it in the options or in the model, or "
      "call without a Memory");
  return all_or_nothing(memory, [&](Memory* after) {
    Memory none;
    return advance(tokens, after ? *after : none, after != nullptr,
                   begin_forward(sequence_group, tokens.size(1)));
  });
}

Tensor TransformerXL::advance(const Tensor& tokens, Memory& seen, bool remember,
                              ForwardContext forward) const {
  check(!forward.sequence_group || !remember, op,
        "a Memory cannot be used under sequence parallelism; call without a Memory");
  check_memory(tokens, seen);
  const int64_t batch = tokens.size(0),
                repeated = seen.context.defined() ? seen.context.size(1) : 0;
  if (remember && seen.layers.empty()) {
    const int64_t m = options.zero_start ? lengths.memory : 0;
    seen.layers.assign(size_t(options.n_layers),
                       zeros({batch, m, options.layer.d_model}, options_of(embedding.weights[0])));
  }
  const Tensor input = repeated > 0 ? cat({seen.context, tokens.to(i64)}, 1) : tokens;
  const int64_t n = input.size(1), m = seen.length();
  const int64_t kept_as_tokens = std::min(lengths.extended, n);
  const int64_t end = m + n - kept_as_tokens, begin = std::max<int64_t>(end - lengths.memory, 0);

  const AttentionMask mask = visible();
  const int64_t processes = forward.sequence_group ? forward.sequence_group->size() : 1;
  forward.shared_table = rows((m + n) * processes, mask, forward);
  Tensor x = embed(input, forward);
  forward.first_position += seen.first;
  for (int64_t i = 0; i < options.n_layers; ++i) {
    Tensor memory_of_layer;
    if (remember) {
      NoGrad guard;
      memory_of_layer = seen.layers[size_t(i)];
      const Tensor all = m > 0 && begin < m ? cat({memory_of_layer, x.detach()}, 1) : x.detach();
      const int64_t from = all.size(1) - (m + n);  // ≤ 0
      seen.layers[size_t(i)] = all.slice(1, begin + from, end + from).clone();
    }
    x = layers[i](x, memory_of_layer, mask, forward);
  }
  if (remember) {
    seen.context =
        kept_as_tokens > 0 ? input.slice(1, n - kept_as_tokens).to(i64).clone() : Tensor();
    seen.first += begin;
    seen.model = serial();
  }
  return dropout(repeated > 0 ? x.slice(1, repeated) : x, forward);
}

Tensor TransformerXL::nll(const Tensor& tokens, const Tensor& targets, Memory* memory,
                          ProcessGroup* sequence_group) const {
  check(targets.shape() == tokens.shape(), op, "targets are ", targets, ", tokens ", tokens,
        "; their shapes must be equal");
  return all_or_nothing(memory, [&](Memory* after) {
    return output.nll(hidden(tokens, after, sequence_group), targets);
  });
}

Tensor TransformerXL::nll(const Tensor& tokens, const Tensor& targets,
                          const ForwardContext& forward) const {
  check(targets.shape() == tokens.shape(), op, "targets are ", targets, ", tokens ", tokens,
        "; their shapes must be equal");
  return output.nll(hidden(tokens, forward), targets);
}

Tensor TransformerXL::log_probabilities(const Tensor& tokens, Memory* memory) const {
  return all_or_nothing(
      memory, [&](Memory* after) { return output.log_probabilities(hidden(tokens, after)); });
}

TransformerXL::Options transformer_xl(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .layer = {.d_model = 512,
                    .attention = {.n_heads = 8, .bias = false},
                    .feed_forward = {.d_hidden = 2048},
                    .norm = NormPlace::post,
                    .dropout = 0.1}};
}

}  // namespace stretto::nn
