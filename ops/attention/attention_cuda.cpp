// Fused attention on a GPU: prepares the operands of the kernels and records the op.
#include <functional>

#include "autograd/tape.h"
#include "cuda/attention/attention.h"
#include "cuda/attention/attention_decode.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/attention_implementations.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

constexpr double log2_e = 1.4426950408889634;

// Returns x detached, and copied unless its rows are contiguous and 16-byte aligned, which
// the kernels require.
Tensor aligned_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor y = x.detach();
  const Shape& s = y.strides();
  bool fits = s.back() == 1 && reinterpret_cast<uintptr_t>(y.raw_data()) % 16 == 0;
  for (int64_t d = 0; d < y.dim() - 1; ++d) fits = fits && s[d] % 8 == 0;
  return fits ? y : y.clone().contiguous();
}

// Returns the rows of a table that occur. If OutOfRange::clip repeats rows, these are rows too, in
// f32: the op is recorded with them, so their gradients are summed in f32 and rounded once.
RelativeTable rows_in_use(const RelativeTable& table, RelativeRange all) {
  const int64_t have = table.rows.size(1), first = table.zero_row + all.first(),
                end = table.zero_row + all.future + 1;
  if (table.out_of_range == OutOfRange::clip && (first < 0 || end > have))
    return {relative_rows({table.rows.to(f32), table.zero_row, table.out_of_range}, all.first(),
                          all.count()),
            all.past};
  if (first <= 0 && end >= have) return {table.rows, table.zero_row};
  const int64_t begin = std::max<int64_t>(first, 0);
  return {table.rows.slice(1, begin, std::max(begin, std::min(end, have))), table.zero_row - begin};
}

// Returns the operands with tables as the kernels need them: rows in use, other terms in f32.
AttentionOperands with_tables_of_kernels(const AttentionOperands& inputs) {
  AttentionOperands x = inputs;
  x.options.relative_keys = x.options.relative_values = {};
  x = with_short_tables(x, f32);
  const AttentionOptions& o = inputs.options;
  if (o.relative_keys.defined()) x.options.relative_keys = rows_in_use(o.relative_keys, x.range());
  if (o.relative_values.defined())
    x.options.relative_values = rows_in_use(o.relative_values, x.range());
  return x;
}

// Prepends dimensions of size 1 to the shape of a bias, up to four dimensions.
Shape four(Shape sizes) {
  while (sizes.dim() < 4) sizes.insert(0, 1);
  return sizes;
}

// The operands in the layout of the kernels (cuda/attention/attention.h).
AttentionOperands for_kernels(AttentionOperands x) {
  AttentionOptions& o = x.options;
  x.for_each_tensor([](Tensor& t) {
    if (t.defined()) t = t.detach();
  });
  for (Tensor* table : {&o.relative_keys.rows, &o.relative_values.rows})
    if (table->defined())
      *table = table->size(1) > 0 ? table->to(x.q.dtype()).contiguous() : Tensor();
  if (!o.relative_keys.defined()) o.relative_query = {};
  for (Tensor* rows :
       {&x.q, &x.k, &x.v, &o.relative_query, &o.relative_keys.rows, &o.relative_values.rows})
    *rows = aligned_rows(*rows);
  if (o.bias.defined()) o.bias = o.bias.reshape(four(o.bias.shape()));
  if (Tensor& rows = o.relative_bias.rows; rows.defined())
    rows = (rows * (1 / *o.scale)).contiguous();
  if (o.sinks.defined()) o.sinks = (o.sinks.to(f32) * log2_e).contiguous();
  for (Tensor* tokens : {&o.mask.key_padding, &o.mask.global_tokens})
    if (tokens->defined()) *tokens = tokens->to(u8).contiguous();
  if (Tensor& lengths = o.mask.prefix_lengths; lengths.defined())
    lengths = lengths.to(i64).contiguous();
  if (Tensor& segments = o.mask.segments; segments.defined()) segments = segments.contiguous();
  if (Tensor& hidden = o.mask.hidden; hidden.defined())
    hidden = hidden.reshape(four(hidden.shape()));
  return x;
}

Tensors gradients(const AttentionOperands& x, const Tensor& out, const cuda::AttentionSaved& saved,
                  const Tensor& grad, const std::function<bool(const Tensor&)>& needs) {
  const AttentionOptions& o = x.options;
  const AttentionOperands call = for_kernels(x);
  const Tensors like = heads_like({x.q, x.k, x.v});
  AttentionOperands g{.q = like[0], .k = like[1], .v = like[2]};
  if (call.options.relative_query.defined())
    g.options.relative_query = heads_like(o.relative_query);
  if (needs(o.bias))
    g.options.bias = zeros(four(o.bias.shape()), {.dtype = f32, .device = x.q.device()});
  const bool of_tables =
      needs(o.relative_keys.rows) || needs(o.relative_bias.rows) || needs(o.relative_values.rows);
  const auto in_dtype_of = [&](const Tensor& table, const Tensor& in_call) {
    const bool narrow = of_tables && in_call.defined() && table.dtype() == bf16;
    return narrow ? empty_like(table) : Tensor();
  };
  g.options.relative_keys.rows = in_dtype_of(o.relative_keys.rows, call.options.relative_keys.rows);
  g.options.relative_values.rows =
      in_dtype_of(o.relative_values.rows, call.options.relative_values.rows);
  cuda::attention_backward(call, out, saved, aligned_rows(grad), of_tables, g);
  return reduced_gradients(g, x);
}

}  // namespace

std::optional<Tensor> cuda_attention(const AttentionOperands& inputs) {
  AttentionOperands x = inputs;
  const auto& [q, k, v, o] = inputs;
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return {};
  x.options.scale = score_scale(q, o);
  if (!cuda::attention_takes(x) || cuda::composed("attention", q.device())) return {};
  // The kernels have no sums of the scores' gradients over keys, which a bias that all keys share
  // needs under a soft cap.
  if (o.soft_cap > 0 && o.bias.defined() && k.size(2) > 1 &&
      (o.bias.dim() == 0 || o.bias.size(-1) == 1))
    return {};
  // The kernels compute an f32 product as six bf16 products. With few keys the composed
  // implementation is used, which computes one f32 product but stores the scores.
  if (q.dtype() == f32 && o.implementation == Implementation::automatic && k.size(2) < 256)
    return {};
  bool decodes = cuda::attention_decode_takes(x) && !recording(inputs.tensors());
  if (decodes && !cuda::attention_decode_takes_terms(o)) {
    if (o.implementation == Implementation::automatic) return {};
    decodes = false;
  }
  const Tensor out = heads_beside(q, q.size(1), q.size(2), v.size(3));
  if (decodes) {  // the decoding kernels read the whole table of relative keys, unchanged
    x.options.relative_keys = {};
    x = with_short_tables(x, f32);
    x.options.relative_keys = o.relative_keys;
    cuda::attention_decode(for_kernels(x), out);
    return out;
  }
  x = with_tables_of_kernels(x);
  const Tensors tensors = x.tensors();
  const cuda::AttentionSaved of_forward = cuda::attention(for_kernels(x), out, recording(tensors));
  // Gradients: those of the fused CPU implementation (ops/attention/attention_fused.cpp).
  return record(
      "attention", tensors, out,
      [saved = SavedAttention(x), of_forward](Backward& b) {
        if (grad_enabled()) return saved.composed_gradients(b);
        const AttentionOperands y = saved();
        return gradients(y, b.output().detach(), of_forward, b.grad(),
                         [&](const Tensor& member) { return b.needs(y.index_of(member)); });
      },
      Keep::outputs);
}

}  // namespace stretto
