#include "nn/attention/attention.h"

#include "autograd/replay.h"
#include "core/all_or_nothing.h"

namespace stretto::nn {

Tensor Kernel::weights(const AttentionCall& call) const {
  return attention_weights(call.q, call.k, call.options);
}

Tensor SoftmaxKernel::operator()(const AttentionCall& call) const {
  AttentionOptions options = call.options;
  options.form = form;
  return attention(call.q, call.k, call.v, options);
}

MakeKernel softmax_kernel(AttentionForm form) {
  return [form](Module& parent, HeadShape shape) {
    return std::make_unique<SoftmaxKernel>(parent, shape, form);
  };
}

MultiHeadAttention::Options MultiHeadAttention::completed(Options o) {
  const char* op = "MultiHeadAttention";
  check(o.d_model >= 1 && o.n_heads >= 1, op, "d_model ", o.d_model, ", n_heads ", o.n_heads);
  check((o.d_key > 0 && o.d_value > 0) || o.d_model % o.n_heads == 0, op, "d_model ", o.d_model,
        " is not a multiple of n_heads ", o.n_heads, "; give d_key and d_value");
  if (o.d_key == 0) o.d_key = o.d_model / o.n_heads;
  if (o.d_value == 0) o.d_value = o.d_model / o.n_heads;
  if (o.n_key_heads == 0) o.n_key_heads = o.n_heads;
  check(o.n_heads % o.n_key_heads == 0, op, "n_heads ", o.n_heads,
        " is not a multiple of n_key_heads ", o.n_key_heads);
  if (!o.kernel) o.kernel = softmax_kernel();
  return o;
}

MultiHeadAttention::MultiHeadAttention(Options o) : options(completed(std::move(o))) { make(); }

MultiHeadAttention::MultiHeadAttention(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(completed(std::move(o))) {
  make();
}

void MultiHeadAttention::make() {
  HeadShape shape{options.n_heads, options.d_key, options.d_value, options.d_model};
  if (options.position) {
    position_ = options.position(*this, shape);
    shape.d_key = position_->key_width(shape);
  }
  kernel_ = options.kernel(*this, shape);
}

std::string MultiHeadAttention::label() const {
  return str("MultiHeadAttention(", options.n_heads, " heads)");
}

AttentionCall MultiHeadAttention::project(const Tensor& x, const Tensor& context,
                                          const AttentionMask& visible) const {
  for (const Tensor* t : {&x, &context})
    check(t->dim() == 3 && t->size(2) == options.d_model, "MultiHeadAttention", "input ", *t,
          "; must be [B, L, ", options.d_model, "]");
  auto heads = [](const Tensor& t, int64_t n, int64_t d) {
    return t.reshape({t.size(0), t.size(1), n, d}).transpose(1, 2);
  };
  AttentionCall c{heads(q(x), options.n_heads, options.d_key),
                  heads(k(context), options.n_key_heads, options.d_key),
                  heads(v(context), options.n_key_heads, options.d_value),
                  {}};
  c.options.causal = visible.causal;
  c.options.window = visible.window;
  c.options.block = visible.block;
  c.options.key_padding = visible.key_padding;
  c.options.scale = options.scale;
  c.options.dropout = training() ? options.dropout : 0;
  return c;
}

void MultiHeadAttention::place(AttentionCall& c) const {
  if (position_) position_->apply(c);
}

Tensor MultiHeadAttention::attend(AttentionCall c) const {
  place(c);
  return joined(c);
}

// Of a call that has its position: through the kernel, and the heads joined.
Tensor MultiHeadAttention::joined(const AttentionCall& c) const {
  return out((*kernel_)(c).transpose(1, 2).flatten(2));
}

Tensor MultiHeadAttention::attend_state(AttentionCall c, KeyValueCache& cache) const {
  check(cache.limit == 0, "MultiHeadAttention", "a cache limited to ", cache.limit,
        " positions for a kernel that keeps a state; a state forgets nothing, and needs no limit");
  Tensor& padding = c.options.key_padding;
  const Shape all{c.k.size(0), cache.state.length + c.n_keys()};
  check(!padding.defined() || padding.shape() == all, "MultiHeadAttention", "key_padding ", padding,
        "; must be bool or u8 ", all, ", the positions in the cache included");
  if (padding.defined()) padding = padding.slice(1, cache.state.length);
  c.state = &cache.state;
  c.first = cache.state.length;
  c.continued = c.first > 0;
  return attend(std::move(c));
}

Tensor MultiHeadAttention::attend_cached(AttentionCall c, KeyValueCache& cache) const {
  const bool encoded = position_ && position_->encodes_keys();
  c.first = cache.dropped + (encoded ? cache.length() : 0);
  c.continued = cache.length() > 0;
  if (encoded) place(c);
  cache.append(c.k, c.v);
  c.k = cache.k;
  c.v = cache.v;
  cache.trim();
  if (!encoded) place(c);
  return joined(c);
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const AttentionMask& visible,
                                      KeyValueCache* cache) const {
  check(!cache || cache->limit == 0 || visible.block == 0, "MultiHeadAttention",
        "a limited cache does not know where blocks begin; use a window instead of blocks, or no "
        "limit");
  if (cache) check_not_replayed("MultiHeadAttention", "a cache");
  return all_or_nothing(cache, [&](KeyValueCache* after) {
    AttentionCall c = project(x, x, visible);
    if (!after) return attend(std::move(c));
    c.memory = &after->position;
    return kernel_->keeps_state() ? attend_state(std::move(c), *after)
                                  : attend_cached(std::move(c), *after);
  });
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& context,
                                      const AttentionMask& visible) const {
  return attend(project(x, context, visible));
}

Tensor MultiHeadAttention::operator()(const Tensor& x, const Tensor& context,
                                      const AttentionMask& visible, KeyValueCache& cache) const {
  check_not_replayed("MultiHeadAttention", "a cache");
  return all_or_nothing(cache, [&](KeyValueCache& after) {
    const bool known = after.k.defined();
    AttentionCall c = project(x, known ? x.slice(1, 0, 0) : context, visible);
    c.memory = &after.position;
    c.continued = known;
    if (!known) after.append(c.k, c.v);
    c.k = after.k;
    c.v = after.v;
    return attend(std::move(c));
  });
}

Tensor MultiHeadAttention::weights(const Tensor& x, const AttentionMask& visible) const {
  AttentionCall c = project(x, x, visible);
  place(c);
  return kernel_->weights(c);
}

Tensor MultiHeadAttention::scores(const Tensor& x, const AttentionMask& visible) const {
  AttentionCall c = project(x, x, visible);
  place(c);
  return attention_scores(c.q, c.k, c.options);
}

}  // namespace stretto::nn
