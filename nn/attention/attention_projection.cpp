// The projections of multi-head attention: from a layer's input to queries, keys and values in heads.
#include <tuple>
#include <utility>

#include "nn/attention/attention.h"
#include "nn/attention/left_padding.h"
#include "nn/distributed/sequence.h"
#include "nn/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "MultiHeadAttention";

// Prepends the keys and values of all earlier processes to the keys and values of this process.
void gather_earlier_keys(AttentionInputs& inputs) {
  ProcessGroup* const group = std::exchange(inputs.forward.sequence_group, nullptr);
  std::tie(inputs.k, inputs.v) = gather_left_kv(inputs.k, inputs.v, inputs.options, *group);
  inputs.first_position = 0;
}

}  // namespace

// The inputs of queries, keys and values [B, L, d_model].
Tensors MultiHeadAttention::inputs_of(const Tensor& x, const Tensor& context) const {
  const int64_t width = (options.separate_inputs ? 3 : 1) * options.d_model;
  for (const Tensor* t : {&x, &context})
    check(t->dim() == 3 && t->size(2) == width, op, "input ", *t, "; must be [B, L, ", width, "]");
  if (!options.separate_inputs) return {x, context, context};
  check(x.same(context), op,
        "separate_inputs in cross-attention or with a memory; accepted: self-attention");
  return chunk(x, 3, 2);
}

// q, k and v [B, L, ..].
Tensors MultiHeadAttention::projections(const Tensors& in) const {
  const bool normed = q_norm || q_factors.defined();  // norms need contiguous rows
  if (normed || options.separate_inputs) return {q(in[0]), k(in[1]), v(in[2])};
  if (in[0].same(in[1])) return packed_linear({&q, &k, &v}, in[0]);
  const Tensor query = q(in[0]);
  const Tensors key_and_value = packed_linear({&k, &v}, in[1]);
  return {query, key_and_value[0], key_and_value[1]};
}

AttentionInputs MultiHeadAttention::project(const Tensor& x, const Tensor& context,
                                            const AttentionMask& mask,
                                            const ForwardContext& forward) const {
  return project(x, context, mask, forward, nullptr);
}

AttentionInputs MultiHeadAttention::project(const Tensor& x, const Tensor& context,
                                            const AttentionMask& mask,
                                            const ForwardContext& forward,
                                            KeyValueCache* cache) const {
  const Tensors in = inputs_of(x, context);
  const auto heads = [](const Tensor& t, int64_t n, int64_t d, const std::optional<Norm>& norm) {
    const Shape each{t.size(0), t.size(1), n, d};
    Tensor y = t;
    if (norm && norm->options.dim != d) y = (*norm)(t);  // of all heads together
    y = y.reshape(each);
    if (norm && norm->options.dim == d) y = (*norm)(y);
    return y.transpose(1, 2);
  };
  Tensors rows = projections(in);
  if (options.taps > 0) {
    check(x.same(context), op,
          "short convolutions in cross-attention or with a memory; accepted: self-attention");
    const AttentionMask visible = convolution_mask(op, x, mask, forward, cache);
    rows[1] = (*k_convolution)(rows[1], visible, cache ? &cache->histories.k : nullptr, in[1]);
    rows[2] = (*v_convolution)(rows[2], visible, cache ? &cache->histories.v : nullptr, in[2]);
  }
  AttentionInputs c{heads(rows[0], options.n_heads, options.d_key, q_norm),
                    heads(rows[1], options.n_kv_heads, options.d_key, k_norm),
                    heads(rows[2], options.n_value_heads, options.d_value, {}),
                    {}};
  if (const double limit = options.qk_clip; limit > 0) {
    c.q = clip_norm(c.q * q_factors.unsqueeze(1), limit);
    c.k = clip_norm(c.k, limit);
  }
  if (options.v_norm_eps) c.v = rms_norm(c.v, {}, *options.v_norm_eps);
  rows.clear();  // c has the only handles, so that positions can change them in place
  c.options.mask = with_window(mask);
  c.options.scale = options.scale;
  c.options.soft_cap = options.soft_cap;
  c.options.sinks = query_sinks ? (*query_sinks)(in[0]).transpose(1, 2) : sinks;
  c.options.dropout = dropout_now(*this, options.dropout);
  c.x = options.separate_inputs ? in[0] : context;
  c.forward = forward;
  c.first_position = forward.first_position;
  const bool shared = forward.sequence_group;
  check(!shared || options.kernel.traits.sequence_parallel, op, kernel_->label(),
        " does not support sequence parallelism");
  if (shared && options.position.traits.dense) gather_earlier_keys(c);
  return c;
}

}  // namespace stretto::nn
