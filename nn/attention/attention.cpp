#include "nn/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "autograd/recompute.h"
#include "core/all_or_nothing.h"
#include "nn/attention/left_padding.h"
#include "nn/distributed/sequence.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "MultiHeadAttention";

void check_not_sequence_parallel(const char* what, const ForwardContext& forward) {
  check(!forward.sequence_group, op, what,
        " cannot be used under sequence parallelism; pass a ForwardContext without sequence_group");
}

// Blocks begin at position 0, but a mask counts them from the first key. If a limited
// cache or a memory has dropped keys, the keys before the first whole block are removed:
// no query attends to them.
void align_to_block(AttentionInputs& inputs) {
  const int64_t block = inputs.options.mask.block, n = inputs.n_keys(), m = inputs.n_queries();
  if (block == 0 || inputs.forward.sequence_group || inputs.first_position == 0 || m == 0) return;
  const int64_t query = inputs.first_position + n - m;
  const int64_t first_needed = std::max<int64_t>(query / block - 1, 0) * block;
  check(first_needed >= inputs.first_position, op, "the keys begin at position ",
        inputs.first_position, ", but with blocks of ", block, " the query at position ", query,
        " attends to keys from position ", first_needed,
        "; use a cache or memory of at least two blocks less one position");
  const int64_t left_out = (block - inputs.first_position % block) % block;
  if (left_out == 0) return;
  inputs.k = inputs.k.slice(2, left_out);
  inputs.v = inputs.v.slice(2, left_out);
  AttentionMask& mask = inputs.options.mask;
  for (Tensor* x : {&mask.key_padding, &mask.segments, &mask.hidden, &inputs.options.bias})
    if (x->defined() && x->size(-1) == n) *x = x->slice(-1, left_out);
  inputs.first_position += left_out;
}

// Throws unless new keys or values have the shape of the cached ones, except for the number of
// positions.
void check_extends(const char* what, const Tensor& cached, const Tensor& more) {
  const auto of_one = [](Shape shape) {
    shape[2] = 1;
    return shape;
  };
  check(cached.dim() == 4 && of_one(cached.shape()) == of_one(more.shape()) &&
            cached.dtype() == more.dtype() && cached.device() == more.device(),
        op, "the cached ", what, " are ", cached, " on ", cached.device(), ", the new ones ", more,
        " on ", more.device(), "; only the number of positions may differ");
}

// True if the positions of packed sequences restart at each segment.
bool restarts_at_segments(const MultiHeadAttentionOptions& o, const PositionalEncoding* position) {
  const KernelTraits& kernel = o.kernel.traits;
  return !position || dynamic_cast<const NoPosition*>(position) ||
         (o.position.traits.relative && (!kernel.recurrent || kernel.keeps_rotary_relative));
}

}  // namespace

const char* score_term(const AttentionOptions& o) {
  const Tensors tensors = AttentionOperands{.options = o}.tensors();
  for (size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].defined()) return AttentionOperands::names[i];
  if (o.dropout > 0) return "dropout of the weights";
  if (o.soft_cap > 0) return "a soft cap of the scores";
  return nullptr;
}

Tensor AttentionKernel::weights(const AttentionInputs&) const {
  fail("AttentionKernel", label(), " has no weights; override weights()");
}

Tensor SoftmaxKernel::weights(const AttentionInputs& inputs) const {
  return attention_weights(inputs.q, inputs.k, inputs.options);
}

Tensor SoftmaxKernel::operator()(const AttentionInputs& inputs) const {
  AttentionOptions options = inputs.options;
  options.implementation = implementation;
  if (ProcessGroup* group = inputs.forward.sequence_group)
    return sequence_parallel_attention(inputs.q, inputs.k, inputs.v, options, *group);
  return attention(inputs.q, inputs.k, inputs.v, options);
}

MakeKernel softmax_kernel(Implementation implementation) {
  return kernel<SoftmaxKernel>(implementation);
}

MultiHeadAttention::Options MultiHeadAttention::completed(Options o) {
  check(o.d_model >= 1 && o.n_heads >= 1, op, "d_model ", o.d_model, ", n_heads ", o.n_heads,
        "; must be at least 1");
  check((o.d_key > 0 && o.d_value > 0) || o.d_model % o.n_heads == 0, op, "d_model ", o.d_model,
        " is not a multiple of n_heads ", o.n_heads, "; set d_key and d_value");
  if (o.d_key == 0) o.d_key = o.d_model / o.n_heads;
  if (o.d_value == 0) o.d_value = o.d_model / o.n_heads;
  if (o.n_kv_heads == 0) o.n_kv_heads = o.n_heads;
  check(o.n_heads % o.n_kv_heads == 0, op, "n_heads ", o.n_heads,
        " is not a multiple of n_kv_heads ", o.n_kv_heads);
  if (!o.kernel) o.kernel = softmax_kernel();
  if (o.n_value_heads == 0) o.n_value_heads = o.n_kv_heads;
  check(
      o.n_value_heads == o.n_kv_heads ||
          (o.kernel.traits.value_heads && o.n_value_heads % o.n_heads == 0 && o.n_value_heads > 0),
      op, "n_value_heads ", o.n_value_heads, " for n_kv_heads ", o.n_kv_heads,
      "; must be equal, or a multiple of n_heads with gated_linear_kernel()");
  if (!o.position) o.position.traits = NoPosition::traits();
  check(
      o.taps >= 0 && (o.taps == 0 || !o.kernel.traits.recurrent), op, "taps ", o.taps,
      "; must be 0 (none), or positive with softmax_kernel(); kernels with a recurrent state have "
      "an option of their own");
  check(o.taps > 0 || (!o.scaled_taps && !o.dynamic_taps), op,
        "scaled_taps or dynamic_taps without taps; set taps");
  check(o.qk_clip >= 0 && std::isfinite(o.qk_clip) && (o.qk_clip == 0 || !o.qk_norm), op,
        "qk_clip ", o.qk_clip, o.qk_norm ? " with qk_norm" : "",
        "; must be 0 (none) or more and finite, and 0 with qk_norm");
  check(!o.sinks || !o.query_sinks, op, "sinks and query_sinks are both set; choose one");
  check(o.window >= 0, op, "window ", o.window, "; must be 0 (none) or more");
  check(o.window_after >= 0, op, "window_after ", o.window_after, "; must be 0 (none) or more");
  if (o.qk_norm) {
    int64_t& dim = o.qk_norm->dim;
    check(dim == 0 || dim == o.d_key || dim == o.n_heads * o.d_key, op, "qk_norm of ", dim,
          " features; must be 0 or d_key, ", o.d_key, ", or that of all heads, ",
          o.n_heads * o.d_key);
    if (dim == 0) dim = o.d_key;
  }
  return o;
}

MultiHeadAttention::MultiHeadAttention(Options o) : options(completed(std::move(o))) { make(); }

MultiHeadAttention::MultiHeadAttention(Module& parent, std::string name, Options o)
    : Mixer(parent, std::move(name)), options(completed(std::move(o))) {
  make();
}

void MultiHeadAttention::make() {
  if (options.qk_norm) {
    q_norm.emplace(*this, "q_norm", *options.qk_norm);
    Norm::Options of_keys = *options.qk_norm;
    if (of_keys.dim != options.d_key) of_keys.dim = options.n_kv_heads * options.d_key;
    k_norm.emplace(*this, "k_norm", of_keys);
  }
  if (options.taps > 0) {
    const auto of_heads = [&](int64_t n, int64_t d) {
      return ShortConvolution::Options{.features = n * d,
                                       .taps = options.taps,
                                       .residual = true,
                                       .scaled = options.scaled_taps,
                                       .groups = options.dynamic_taps ? n : 0,
                                       .d_input = options.dynamic_taps ? options.d_model : 0};
    };
    k_convolution.emplace(*this, "k_convolution", of_heads(options.n_kv_heads, options.d_key));
    v_convolution.emplace(*this, "v_convolution", of_heads(options.n_value_heads, options.d_value));
  }
  if (options.query_sinks)
    query_sinks.emplace(*this, "query_sinks",
                        Linear::Options{options.d_model, options.n_heads, false});
  if (options.gate != AttentionGate::none) {
    const int64_t d = options.gate == AttentionGate::per_head ? 1 : options.d_value;
    gate.emplace(*this, "gate", projection(shape().n_output_heads() * d, {}));
  }
  HeadShape encoded = shape();
  if (options.position) {
    position_ = options.position(*this, encoded);
    encoded.d_key = position_->encoded_dim(encoded);
  }
  kernel_ = options.kernel(*this, encoded);
  if (options.position.traits.scores && options.kernel.traits.recurrent)
    fail(op, position_->label(), " acts on scores, which ", kernel_->label(),
         " does not have; accepted: encodings of q and k, RoPE (nn/positions/rotary.h) and SPE "
         "(nn/positions/spe.h), none, or softmax_kernel()");
  pack_parameters({q.weight, k.weight, v.weight});
  if (q.bias.defined() && k.bias.defined() && v.bias.defined())
    pack_parameters({q.bias, k.bias, v.bias});
}

MixerTraits MultiHeadAttention::traits() const {
  return {
      .ordered = options.position || options.kernel.traits.ordered,
      .bidirectional = options.position.traits.bidirectional && options.taps == 0,
      .cache = true,
      .key_padding = true,
      .segments = options.kernel.traits.segments && restarts_at_segments(options, position_.get())};
}

std::string MultiHeadAttention::label() const {
  return str("MultiHeadAttention(", options.n_heads, " heads)");
}

AttentionMask MultiHeadAttention::with_window(AttentionMask mask) const {
  const auto limit = [](int64_t& window, int64_t option) {
    if (option > 0) window = window > 0 ? std::min(window, option) : option;
  };
  limit(mask.window_after, options.window_after);
  if (options.window == 0) return mask;
  check(mask.causal || mask.block > 0 || options.window_after > 0, op, "window ", options.window,
        " needs a causal mask: without one a query would attend to all later keys; use a causal "
        "mask, or set AttentionMask::window instead");
  limit(mask.window, options.window);
  return mask;
}

// Adds the segments of the context to the mask of self-attention.
void MultiHeadAttention::hide_other_segments(AttentionInputs& inputs) const {
  const Tensor& segments = inputs.forward.segments;
  AttentionMask& mask = inputs.options.mask;
  if (!segments.defined() || mask.segments.defined()) return;
  const char* const other = inputs.encoding_state || inputs.state  ? "a cache"
                            : !inputs.forward.left_padding.empty() ? "padding"
                            : inputs.forward.sequence_group        ? "sequence parallelism"
                            : mask.block > 0                       ? "blocks"
                                                                   : nullptr;
  check(!other, op, "packed segments with ", other ? other : "", "; use one of them");
  check(inputs.n_queries() == inputs.n_keys(), op, "packed segments with ", inputs.n_queries(),
        " queries and ", inputs.n_keys(), " keys; accepted: self-attention without a memory");
  check(
      restarts_at_segments(options, position_.get()), op, "packed segments with ",
      position_ ? position_->label() : "", " and ", kernel_->label(),
      ", whose positions do not restart at each segment; use a relative positional encoding, with "
      "softmax or retention, or none");
  mask.segments = segments;
}

// Adds the prefix of the context to a causal mask of self-attention. In later calls with the cache
// all queries come after the prefix, so that the causal mask shows it. Lengths are checked on the
// CPU only: reading them from a GPU would wait for it.
void MultiHeadAttention::show_prefix(AttentionInputs& inputs, KeyValueCache* cache) const {
  AttentionMask& mask = inputs.options.mask;
  Tensor& prefix = mask.prefix_lengths;
  if (!prefix.defined() && mask.causal) prefix = inputs.forward.prefix_lengths;
  inputs.after_prefix = cache && inputs.continued && cache->prefix_lengths.defined();
  if (!prefix.defined()) return;
  check(inputs.forward.left_padding.empty(), op, "prefix_lengths with padding; use one of them");
  if (!cache || inputs.n_queries() == 0) return;
  const std::vector<int64_t> lengths =
      prefix.device().is_cpu() ? prefix.to(i64).to_vector<int64_t>() : std::vector<int64_t>();
  if (inputs.continued) {
    const Tensor& first = cache->prefix_lengths;
    check(first.defined(), op,
          "prefix_lengths for a cache that began without them; accepted: prefix_lengths in the "
          "first call");
    check(lengths.empty() || lengths == first.to(i64).to_vector<int64_t>(), op,
          "prefix_lengths that differ from those of the first call; accepted: the same, or none");
    prefix = {};
    return;
  }
  const int64_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  check(longest <= inputs.n_queries(), op, "a prefix of ", longest,
        " positions, but the first call ", "with a cache has ", inputs.n_queries(),
        "; accepted: a first call with the whole prefix");
  cache->prefix_lengths = prefix;
}

void MultiHeadAttention::apply_position(AttentionInputs& inputs) const {
  if (!position_) return;
  const PositionTraits& traits = options.position.traits;
  const bool causal = inputs.options.mask.is_causal();
  if (!(causal ? traits.causal : traits.bidirectional))
    fail(op, position_->label(), causal ? " with" : " without",
         " a causal mask; accepted: ", causal ? "bidirectional attention" : "a causal mask",
         ", or another positional encoding");
  position_->apply(inputs);
}

Tensor MultiHeadAttention::attend(AttentionInputs inputs) const {
  check(inputs.forward.left_padding.empty() && !inputs.forward.prefix_lengths.defined(), op,
        "attend() with padding or prefix_lengths of a ForwardContext; accepted: key_padding or "
        "prefix_lengths of the mask");
  hide_other_segments(inputs);
  return out(attend_heads(std::move(inputs), false, 0));
}

KeyValueCache MultiHeadAttention::make_cache(int64_t limit, int64_t kept) const {
  check(limit >= 0, op, "a cache limited to ", limit, " positions; must be 0 (no limit) or more");
  KeyValueCache cache{.limit = limit, .kept = kept};
  check_limit(cache);
  return cache;
}

void MultiHeadAttention::check_limit(const KeyValueCache& cache) const {
  check(cache.limit == 0 || !options.kernel.traits.recurrent, op, "a cache limited to ",
        cache.limit,
        " positions cannot be used with a recurrent state, whose size is constant; use limit 0");
  check(cache.kept == 0 || (cache.kept > 0 && cache.kept < cache.limit), op, "a cache that keeps ",
        cache.kept, " first positions of a limit of ", cache.limit,
        "; accepted: fewer than the limit");
  check(cache.kept == 0 || options.position.traits.relative, op,
        "a cache that keeps the first positions with ", position_ ? position_->label() : "",
        ", which is not relative; accepted: a relative positional encoding, or none");
}

// With `only_new_keys` the positional encoding is applied to the keys of this call only.
void MultiHeadAttention::continue_from(AttentionInputs& inputs, KeyValueCache& cache,
                                       bool only_new_keys) const {
  inputs.encoding_state = &cache.position;
  inputs.first_position = cache.dropped + (only_new_keys ? cache.length() : 0);
  inputs.continued = cache.length() > 0;
  if (!options.kernel.traits.recurrent) return;
  inputs.state = &cache.state;
  Tensor& padding = inputs.options.mask.key_padding;
  if (!padding.defined()) return;
  const Shape all{inputs.k.size(0), inputs.first_position + inputs.n_keys()};
  check(padding.shape() == all, op, "key_padding ", padding, "; must be bool or u8 ", all,
        ", with one column for each cached and each new position");
  padding = padding.slice(1, inputs.first_position);
}

// A kernel with a recurrent state adds the keys to its state itself.
void MultiHeadAttention::append_to_cache(AttentionInputs& inputs, KeyValueCache& cache) const {
  if (options.kernel.traits.recurrent) return;
  if (cache.k.defined()) {
    check_extends("keys", cache.k, inputs.k);
    check_extends("values", cache.v, inputs.v);
  }
  cache.append(inputs.k, inputs.v);
  inputs.k = cache.k;
  inputs.v = cache.v;
  inputs.first_position = cache.kept > 0 ? 0 : cache.dropped;
  cache.trim();
}

// The positional encoding is applied once:
// - before the new keys are appended, to them only, if the encoding of a key depends on nothing but
//   the key and its position (RoPE, SPE), or if the kernel has a recurrent state;
// - after they are appended, to all keys, otherwise (tables and biases).
Tensor MultiHeadAttention::operator()(const Tensor& x, const AttentionMask& mask,
                                      KeyValueCache* cache, const ForwardContext& forward) const {
  check(!cache || cache->limit == 0 || mask.block == 0, op,
        "a limited cache does not support blocks; use a window instead of blocks, or a cache "
        "without a limit");
  if (cache) check_not_recomputed(op, "a cache"), check_not_sequence_parallel("a cache", forward);
  if (cache) check_limit(*cache);
  check(
      !cache || cache->kept == 0 || (forward.left_padding.empty() && with_window(mask).window == 0),
      op,
      "a cache that keeps the first positions does not support a window or left padding; its "
      "limit is the window");
  const bool kept = cache && cache->kept > 0;
  const bool encodes =
      options.kernel.traits.recurrent || (!kept && options.position.traits.caches_encoded_keys);
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    if (after) claim(op, *after, *this);
    AttentionInputs inputs = project(x, x, mask, forward, after);
    if (after) continue_from(inputs, *after, encodes);
    check_padding(op, forward.left_padding, x.size(0), mask);
    hide_other_segments(inputs);
    show_prefix(inputs, after);
    if (encodes && encodes_one_by_one(inputs))
      encode_one_by_one(inputs, *position_);
    else if (encodes)
      apply_position(inputs);
    if (after) append_to_cache(inputs, *after);
    const int64_t limit = after ? after->limit : 0;
    const bool blocks = inputs.options.mask.block > 0 && !inputs.forward.left_padding.empty();
    if (blocks || (!encodes && encodes_one_by_one(inputs)))
      return out(one_by_one(inputs, [&](AttentionInputs sequence) {
        return attend_heads(std::move(sequence), encodes, limit);
      }));
    hide_padding(inputs);
    return out(attend_heads(std::move(inputs), encodes, limit));
  });
}

// True if sequences with different padding need different terms.
bool MultiHeadAttention::encodes_one_by_one(const AttentionInputs& inputs) const {
  return !inputs.forward.left_padding.empty() && position_ &&
         (!options.position.traits.relative || options.kernel.traits.recurrent);
}

// Attention after projection and cache → [B, M, H·Dv].
Tensor MultiHeadAttention::attend_heads(AttentionInputs inputs, bool encoded, int64_t limit) const {
  if (!encoded) apply_position(inputs);
  const int64_t block = std::min(inputs.options.mask.block, INT64_MAX / 2);  // no overflow below
  check(limit == 0 || limit >= 2 * block - 1, op, "a cache limited to ", limit,
        " positions is too short for blocks of ", inputs.options.mask.block,
        ", because a query attends to two blocks; accepted: at least ", 2 * block - 1,
        " positions, or no limit");
  align_to_block(inputs);
  const Tensor y = (*kernel_)(inputs);
  return gate ? gated(y, inputs) : join_heads(y);
}

// Multiplies the heads' output [B, H, M, Dv] by the gate → [B, M, H·Dv].
Tensor MultiHeadAttention::gated(const Tensor& y, const AttentionInputs& inputs) const {
  const Tensor& x = inputs.x;
  check(
      x.defined() && x.size(1) >= y.size(2), op,
      "an output gate in cross-attention; accepted: self-attention, whose input the gate projects");
  const Tensor factors = sigmoid((*gate)(x.slice(1, x.size(1) - y.size(2))));
  const int64_t d = factors.size(2) / y.size(1);
  return (y.transpose(1, 2) * factors.reshape({y.size(0), y.size(2), y.size(1), d})).flatten(2);
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& context,
                                      const AttentionMask& mask, KeyValueCache* cache,
                                      const ForwardContext& forward) const {
  if (cache) check_not_recomputed(op, "a cache");
  check_not_sequence_parallel("cross-attention", forward);
  check(!forward.segments.defined(), op,
        "packed segments in cross-attention; accepted: AttentionMask::hidden");
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    const bool cached = after && after->k.defined();
    if (after) claim(op, *after, *this);
    AttentionInputs inputs = project(x, cached ? x.slice(1, 0, 0) : context, mask, forward);
    inputs.first_position = 0;
    inputs.x = {};
    if (after) {
      inputs.encoding_state = &after->position;
      inputs.continued = cached;
      if (cached) {
        check_extends("keys", after->k, inputs.k);
        check_extends("values", after->v, inputs.v);
      } else {
        after->append(inputs.k, inputs.v);
      }
      inputs.k = after->k;
      inputs.v = after->v;
    }
    return out(attend_heads(std::move(inputs), false, 0));
  });
}

Tensor MultiHeadAttention::weights(const Tensor& x, const AttentionMask& mask) const {
  AttentionInputs c = project(x, x, mask);
  apply_position(c);
  return kernel_->weights(c);
}

Tensor MultiHeadAttention::scores(const Tensor& x, const AttentionMask& mask) const {
  AttentionInputs c = project(x, x, mask);
  apply_position(c);
  return attention_scores(c.q, c.k, c.options);
}

}  // namespace stretto::nn
