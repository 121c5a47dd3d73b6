#include "nn/attention/left_padding.h"

#include <algorithm>
#include <utility>

#include "core/device_table.h"
#include "ops/create.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

// Returns the number of keys of sequence b that are padding.
int64_t padding_keys(const AttentionInputs& inputs, int64_t b) {
  const int64_t n = inputs.forward.left_padding[size_t(b)] - inputs.first_position;
  return std::clamp<int64_t>(n, 0, inputs.n_keys());
}

// Returns the mask of sequence b without its first keys and queries.
AttentionMask mask_of(const AttentionInputs& inputs, int64_t b, int64_t query, int64_t key) {
  AttentionMask mask = inputs.options.mask;
  // Sizes that are broadcast remain, and so do wrong ones, which the op reports.
  const auto cut = [](Tensor& x, int64_t d, int64_t size, int64_t begin, int64_t end = INT64_MAX) {
    if (x.defined() && x.dim() >= -d && x.size(d) == size) x = x.slice(d, begin, end);
  };
  for (Tensor* x : {&mask.segments, &mask.global_tokens}) {
    cut(*x, -2, inputs.q.size(0), b, b + 1);
    cut(*x, -1, inputs.n_keys(), key);
  }
  cut(mask.hidden, -4, inputs.q.size(0), b, b + 1);
  cut(mask.hidden, -2, inputs.n_queries(), query);
  cut(mask.hidden, -1, inputs.n_keys(), key);
  return mask;
}

// Returns the inputs of sequence b, without its padding. Query i is at key i + N − M.
AttentionInputs sequence_of(const AttentionInputs& inputs, int64_t b) {
  const int64_t key = padding_keys(inputs, b), n = inputs.n_keys(), m = inputs.n_queries();
  const int64_t query = std::max<int64_t>(key - (n - m), 0);
  AttentionInputs one = inputs;
  one.q = inputs.q.slice(0, b, b + 1).slice(2, query);
  one.k = inputs.k.slice(0, b, b + 1).slice(2, key);
  one.v = inputs.v.slice(0, b, b + 1).slice(2, key);
  one.options.mask = mask_of(inputs, b, query, key);
  if (Tensor& sinks = one.options.sinks; sinks.defined() && sinks.dim() == 3)
    sinks = sinks.slice(0, b, b + 1).slice(2, query);
  if (const Tensor& x = inputs.x; x.defined())  // the last positions: with a cache, the new ones
    one.x = x.slice(0, b, b + 1).slice(1, std::max<int64_t>(key - (n - x.size(1)), 0));
  one.first_position =
      std::max<int64_t>(inputs.first_position - inputs.forward.left_padding[size_t(b)], 0);
  one.forward.left_padding.clear();
  // The sequences before this one may have begun the entry in the cache.
  one.continued = inputs.continued || (inputs.encoding_state && *inputs.encoding_state);
  return one;
}

// Concatenates tensors of sequences along the batch, each with zeros before it along `dim` up to
// `shape`, the shape of one. A sequence that is only padding has an undefined tensor.
Tensor join(const Tensors& sequences, int64_t dim, Shape shape, const TensorOptions& options) {
  const int64_t n = shape[dim];
  Tensors rows;
  for (const Tensor& x : sequences) {
    shape[dim] = n - (x.defined() ? x.size(dim) : 0);
    const Tensor before = zeros(shape, options);
    rows.push_back(!x.defined() ? before : shape[dim] == 0 ? x : cat({before, x}, dim));
  }
  return cat(rows, 0);
}

}  // namespace

void check_padding(const char* op, const std::vector<int64_t>& padding, int64_t batch,
                   const AttentionMask& mask) {
  if (padding.empty()) return;
  check(int64_t(padding.size()) == batch, op, "padding of ", int64_t(padding.size()),
        " sequences in a batch of ", batch, "; must have one entry for each sequence");
  check(!mask.key_padding.defined(), op,
        "both ForwardContext::left_padding and key_padding are set; accepted: one of them");
}

Tensor padding_mask(const std::vector<int64_t>& left_padding, int64_t first, int64_t n,
                    Device device) {
  const auto batch = int64_t(left_padding.size());
  const auto hidden_of = [&](int64_t b) {
    return std::clamp<int64_t>(left_padding[size_t(b)] - first, 0, n);
  };
  bool any = false;
  for (int64_t b = 0; b < batch; ++b) any = any || hidden_of(b) > 0;
  if (!any) return {};
  const auto make = [&] {
    Tensor hidden = zeros({batch, n}, {.dtype = boolean});
    for (int64_t b = 0; b < batch; ++b)
      std::fill_n(hidden.data<bool>() + b * n, hidden_of(b), true);
    return hidden;
  };
  return device_table(device, make, "padding_mask", n, first, left_padding);
}

AttentionMask convolution_mask(const char* op, const Tensor& x, const AttentionMask& mask,
                               const ForwardContext& forward, const KeyValueCache* cache) {
  check_padding(op, forward.left_padding, x.size(0), mask);
  const Tensor& segments = mask.segments.defined() ? mask.segments : forward.segments;
  const bool padded = !forward.left_padding.empty() || mask.key_padding.defined();
  const char* const other = forward.sequence_group            ? "sequence parallelism"
                            : !mask.causal && mask.block == 0 ? "a mask that is not causal"
                            : segments.defined() && cache     ? "packed segments in a cache"
                            : segments.defined() && padded    ? "packed segments and padding"
                                                              : nullptr;
  check(
      !other, op, "short convolutions with ", other ? other : "",
      "; accepted: a causal mask in one process, with packed segments, or with padding or a cache");
  const int64_t m = x.size(1), seen = cache ? cache->end() : 0;
  AttentionMask visible{.segments = segments};
  if (!forward.left_padding.empty())
    visible.key_padding = padding_mask(forward.left_padding, seen, m, x.device());
  if (const Tensor& padding = mask.key_padding; padding.defined()) {
    const int64_t n = (cache ? cache->length() : 0) + m;
    check(padding.shape() == Shape{x.size(0), n}, op, "key_padding ", padding,
          "; must be bool or u8 [", x.size(0), ", ", n,
          "], with one column for each cached and each new position");
    visible.key_padding = padding.slice(1, n - m);
  }
  return visible;
}

void hide_padding(AttentionInputs& inputs) {
  const Tensor hidden = padding_mask(inputs.forward.left_padding, inputs.first_position,
                                     inputs.n_keys(), inputs.q.device());
  if (hidden.defined()) inputs.options.mask.key_padding = hidden;
}

void encode_one_by_one(AttentionInputs& inputs, const PositionalEncoding& encoding) {
  Tensors queries(size_t(inputs.q.size(0))), keys(queries.size());
  AttentionOptions options = inputs.options;
  for (size_t b = 0; b < queries.size(); ++b) {
    AttentionInputs one = sequence_of(inputs, int64_t(b));
    if (one.n_keys() == 0) continue;
    encoding.apply(one);
    queries[b] = one.q;
    keys[b] = one.k;
    options = one.options;
  }
  options.mask = inputs.options.mask;
  options.sinks = inputs.options.sinks;
  inputs.options = std::move(options);
  const Tensor &q = inputs.q, &k = inputs.k;
  const int64_t d =
      encoding.encoded_dim({.n_heads = q.size(1), .d_key = q.size(3), .d_value = inputs.v.size(3)});
  inputs.q = join(queries, 2, {1, q.size(1), q.size(2), d}, options_of(q));
  inputs.k = join(keys, 2, {1, k.size(1), k.size(2), d}, options_of(k));
}

Tensor one_by_one(const AttentionInputs& inputs,
                  const std::function<Tensor(AttentionInputs)>& attend) {
  Tensors all(size_t(inputs.q.size(0)));
  for (size_t b = 0; b < all.size(); ++b) {
    AttentionInputs one = sequence_of(inputs, int64_t(b));
    if (one.n_queries() > 0) all[b] = attend(std::move(one));
  }
  const int64_t features = inputs.q.size(1) * inputs.v.size(3);
  return join(all, 1, {1, inputs.n_queries(), features}, options_of(inputs.q));
}

}  // namespace stretto::nn
