#include "nn/attention/latent_attention.h"

#include <algorithm>
#include <cmath>

#include "nn/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "LatentAttention";

// Returns how many heads of queries [B, H, M, D] are computed as queries of one head: a divisor of H up
// to 8, or 1 if M is not 1 or if a term of the scores belongs to a head.
int64_t heads_together(const Shape& shape, const AttentionOptions& o) {
  const AttentionOperands terms{.options = o};
  const Tensors tensors = terms.tensors();
  const bool has_terms =
      std::any_of(tensors.begin(), tensors.end(), [](const Tensor& x) { return x.defined(); });
  if (shape[2] != 1 || has_terms || o.mask.segments.defined()) return 1;
  int64_t together = std::min<int64_t>(shape[1], 8);
  while (shape[1] % together != 0) --together;
  return together;
}

}  // namespace

LatentAttention::Options LatentAttention::checked(Options o) {
  for (const auto& [size, name] : {std::pair{o.d_model, "d_model"},
                                   {o.n_heads, "n_heads"},
                                   {o.d_latent, "d_latent"},
                                   {o.d_content, "d_content"},
                                   {o.d_position, "d_position"},
                                   {o.d_value, "d_value"}})
    check(size >= 1, op, name, ' ', size, "; must be at least 1");
  check(o.d_query_latent >= 0, op, "d_query_latent ", o.d_query_latent,
        "; must be 0 (none) or more");
  if (!o.position) o.position = no_position();
  check(o.position.traits.relative, op,
        "a positional encoding that is not relative; accepted: RoPE, tables and biases of relative "
        "positions, or no_position()");
  return o;
}

LatentAttention::LatentAttention(Options o) : options(checked(std::move(o))) { make(); }

LatentAttention::LatentAttention(Module& parent, std::string name, Options o)
    : Mixer(parent, std::move(name)), options(checked(std::move(o))) {
  make();
}

void LatentAttention::make() {
  if (options.d_query_latent > 0) {
    q_down.emplace(*this, "q_down",
                   Linear::Options{options.d_model, options.d_query_latent, options.bias});
    q_norm.emplace(*this, "q_norm",
                   Norm::Options{.dim = options.d_query_latent,
                                 .eps = options.norm_eps,
                                 .kind = NormKind::rms,
                                 .bias = false});
  }
  position_ = options.position(*this, {.n_heads = options.n_heads,
                                       .d_key = options.d_position,
                                       .d_value = options.d_value,
                                       .d_model = options.d_model,
                                       .n_kv_heads = 1});
}

MixerTraits LatentAttention::traits() const {
  return {.ordered = !dynamic_cast<const NoPosition*>(position_.get()),
          .bidirectional = options.position.traits.bidirectional,
          .cache = true,
          .key_padding = true,
          .cached_padding = true,
          .segments = true};
}

std::string LatentAttention::label() const {
  return str("LatentAttention(", options.n_heads, " heads, latents of ", options.d_latent, ")");
}

// The order with fewer multiplications. Values added by a table have no place among latents.
bool LatentAttention::absorbs(int64_t m, int64_t n, const AttentionOptions& o) const {
  if (o.relative_values.defined()) return false;
  const auto of = [](int64_t a, int64_t b, int64_t c) { return double(a) * double(b) * double(c); };
  const int64_t c = options.d_latent, up = options.d_content + options.d_value;
  return of(m, c, up) + of(m, n, 2 * c + options.d_position) <
         of(n, c, up) + of(m, n, up + options.d_position);
}

// With keys and values of all heads → [B, H, M, Dv]. `content` has the queries [B, H, M, d_content],
// in.q those with position.
Tensor LatentAttention::expanded(const Tensor& content, const Tensor& keys,
                                 const AttentionInputs& in) const {
  const int64_t h = options.n_heads, n = keys.size(2);
  const Tensors own = split(keys, {options.d_latent, options.d_position}, 3);
  const Tensors parts =
      split(split_heads(kv_up(own[0].squeeze(1)), h), {options.d_content, options.d_value}, 3);
  const Tensor position = own[1].expand({keys.size(0), h, n, options.d_position});
  return attention(cat({content, in.q}, 3), cat({parts[0], position}, 3), parts[1], in.options);
}

// With `keys` [B, 1, N, C + P], latents and keys with position, as keys of one head → [B, H, M, Dv].
Tensor LatentAttention::absorbed(const Tensor& content, const Tensor& keys,
                                 const AttentionInputs& in) const {
  const int64_t h = options.n_heads;
  Tensor weight = kv_up.weight;
  if (kv_up.lora()) weight = weight + kv_up.lora()->delta();
  const Tensors parts = split(weight.reshape({h, weight.size(0) / h, options.d_latent}),
                              {options.d_content, options.d_value}, 1);
  Tensor query = cat({matmul(content, parts[0]), in.q}, 3);
  AttentionOptions o = in.options;
  const Shape shape = query.shape();
  const int64_t together = heads_together(shape, o);
  if (together > 1) {  // the heads' only queries become queries of one head: keys are read once
    query = query.reshape({shape[0], h / together, together, shape[3]});
    o.mask.causal = false;  // the last query sees all keys
  }
  const Tensor y = attention(query, keys, keys.slice(3, 0, options.d_latent), o)
                       .reshape({shape[0], h, shape[2], options.d_latent});
  return matmul(y, parts[1].transpose(1, 2));
}

Tensor LatentAttention::mix(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
                            const ForwardContext& forward) const {
  check(x.size(2) == options.d_model, op, "input ", x, "; must be [B, M, ", options.d_model, "]");
  const Tensors queries =
      split(split_heads(q(q_down ? (*q_norm)((*q_down)(x)) : x), options.n_heads),
            {options.d_content, options.d_position}, 3);
  const Tensors down = split(kv_down(x), {options.d_latent, options.d_position}, 2);
  AttentionInputs in{.q = queries[1],
                     .k = down[1].unsqueeze(1),
                     .v = kv_norm(down[0]).unsqueeze(1),
                     .options = {.mask = mask,
                                 .scale = options.scale.value_or(
                                     1 / std::sqrt(double(options.d_content + options.d_position))),
                                 .dropout = dropout_now(*this, options.dropout)},
                     .forward = forward,
                     .first_position = forward.first_position,
                     .x = x};
  const bool encodes_new = !cache || options.position.traits.caches_encoded_keys;
  if (cache) {
    in.encoding_state = &cache->position;
    in.first_position = encodes_new ? cache->length() : 0;
    in.continued = cache->length() > 0;
  }
  if (encodes_new) position_->apply(in);
  Tensor keys = cat({in.v, in.k}, 3);
  if (cache) {
    cache->append(keys, keys.slice(3, 0, 0));
    keys = cache->k;
    in.v = keys.slice(3, 0, options.d_latent);
  }
  if (!encodes_new) {
    const Tensor cached = in.k = keys.slice(3, options.d_latent);
    position_->apply(in);
    if (!in.k.same(cached)) keys = cat({in.v, in.k}, 3);
  }
  AttentionOptions& o = in.options;
  if (o.relative_keys.defined() && !o.relative_query.defined()) o.relative_query = in.q;
  const bool few = absorbs(in.n_queries(), keys.size(2), o);
  return out(join_heads(few ? absorbed(queries[0], keys, in) : expanded(queries[0], keys, in)));
}

MakeMixer latent_attention(const LatentAttentionOptions& options) {
  return [=](Module& parent, int64_t d_model) {
    LatentAttentionOptions o = options;
    o.d_model = d_model;
    return std::make_unique<LatentAttention>(parent, "mixer", o);
  };
}

}  // namespace stretto::nn
