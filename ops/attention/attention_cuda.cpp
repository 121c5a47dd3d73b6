// Fused attention on a GPU: what the kernels get, and the tape.
//
// Tables reach the tape in f32, as rows that occur: their gradients are f32 sums, rounded once.
#include "ops/attention/attention_cuda.h"

#include <algorithm>

#include "autograd/tape.h"
#include "cuda/attention/attention.h"
#include "cuda/attention/attention_decode.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/attention_composed.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Off the tape, as kernels read rows: a copy of what is not.
Tensor aligned_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Tensor y = x.detach();
  const Shape& s = y.strides();
  bool fits = s.back() == 1 && reinterpret_cast<uintptr_t>(y.raw_data()) % 16 == 0;
  for (int64_t d = 0; d < y.dim() - 1; ++d) fits = fits && s[d] % 8 == 0;
  return fits ? y : y.clone().contiguous();
}

// [B, H, L, D] as a view of memory laid out [B, L, H, D].
Tensor heads_on_gpu(const Shape& s, const TensorOptions& options) {
  return empty({s[0], s[2], s[1], s[3]}, options).transpose(1, 2);
}
// Uninitialised, in the layout of x.
Tensor gradient_like(const Tensor& x) {
  return x.is_contiguous() ? empty_like(x) : heads_on_gpu(x.shape(), options_of(x));
}

// The rows of a table that relative positions which occur meet.
RelativeTable within_reach(RelativeTable table, int64_t first, int64_t width) {
  if (!table.defined()) return table;
  table.rows = table.rows.to(f32);
  if (table.beyond == Beyond::clip) return {relative_rows(table, first, width), -first};
  const int64_t begin = std::max<int64_t>(0, table.zero_row + first);
  const int64_t end = std::min(table.rows.size(1), table.zero_row + first + width);
  table.rows = table.rows.slice(1, begin, std::max(begin, end));
  return {table.rows, table.zero_row - begin};
}

// The differentiable operands, in the order in which the tape has them; the tables in f32.
struct Operands {
  Tensor q, k, v, position, rows, lag_bias, value_rows, bias;
  Tensors list() const { return {q, k, v, position, rows, lag_bias, value_rows, bias}; }
  static Operands of(const Tensors& x) { return {x[0], x[1], x[2], x[3], x[4], x[5], x[6], x[7]}; }
};
constexpr size_t rows_at = 4, lag_bias_at = 5, value_rows_at = 6, bias_at = 7;

// Sizes of a bias in four dimensions.
Shape four(Shape sizes) {
  while (sizes.dim() < 4) sizes.insert(0, 1);
  return sizes;
}

// `call` has all but the operands.
cuda::AttentionCall with_operands(cuda::AttentionCall call, const Operands& x) {
  call.q = aligned_rows(x.q);
  call.k = aligned_rows(x.k);
  call.v = aligned_rows(x.v);
  const auto table = [&](const Tensor& rows) {
    return rows.defined() && rows.size(1) > 0
               ? aligned_rows(rows.detach().to(x.q.dtype()).contiguous())
               : Tensor();
  };
  call.rows = table(x.rows);
  call.value_rows = table(x.value_rows);
  if (call.rows.defined()) call.position = aligned_rows(x.position);
  if (x.bias.defined()) {
    call.bias = x.bias.detach();
    while (call.bias.dim() < 4) call.bias = call.bias.unsqueeze(0);
  }
  if (x.lag_bias.defined()) call.lag_bias = (x.lag_bias.detach() * (1 / call.scale)).contiguous();
  return call;
}

// The same call in its composed form.
Tensor composed(const Operands& x, const cuda::AttentionCall& call, AttentionOptions o) {
  const auto wide = [](const Tensor& t) { return t.defined() ? t.to(f32) : t; };
  o.position_query = wide(x.position);
  o.keys = {x.rows, call.zero_row};
  o.values = {x.value_rows, call.value_zero_row};
  o.lag_bias = {x.lag_bias, -call.first};
  o.bias = wide(x.bias);
  return composed_attention(wide(x.q), wide(x.k), wide(x.v), o).to(x.q.dtype());
}

}  // namespace

std::optional<Tensor> cuda_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& o) {
  if (q.numel() == 0 || k.numel() == 0 || v.numel() == 0) return {};
  const int64_t past = furthest_past(k.size(2), o.mask), first = -past;
  const int64_t width = past + (o.mask.is_causal() ? 1 : q.size(2));
  cuda::AttentionCall call{.q = q,
                           .k = k,
                           .v = v,
                           .first = first,
                           .causal = o.mask.is_causal(),
                           .window = o.mask.window,
                           .block = o.mask.block,
                           .scale = score_scale(q, o),
                           .dropout = o.dropout,
                           .dropout_key = o.dropout_key};
  if (!cuda::attention_takes(call) || cuda::composed("attention", q.device())) return {};
  // Six products for one: where scores are few, f32 of one product is worth their memory.
  if (q.dtype() == f32 && o.form == Form::automatic && k.size(2) < 256) return {};
  if (o.mask.key_padding.defined()) call.padding = o.mask.key_padding.to(u8).contiguous();
  bool decodes =
      cuda::attention_decode_takes(call) &&
      !recording({q, k, v, o.position_query, o.keys.rows, o.lag_bias.rows, o.values.rows, o.bias});
  if (o.values.defined() ||
      o.bias.defined()) {  // of which the kernels for few queries know nothing
    if (decodes && o.form == Form::automatic) return {};
    decodes = false;
  }
  const RelativeTable rows = decodes ? o.keys : within_reach(o.keys, first, width),
                      value_rows = within_reach(o.values, first, width);
  const Tensor lag_bias =
      o.lag_bias.defined()
          ? relative_rows({o.lag_bias.rows.to(f32), o.lag_bias.zero_row, o.lag_bias.beyond}, first,
                          width)
          : Tensor();
  call.zero_row = rows.zero_row;
  call.value_zero_row = value_rows.zero_row;
  const Operands x{q, k, v, o.position_query, rows.rows, lag_bias, value_rows.rows, o.bias};
  const Tensor out = heads_on_gpu({q.size(0), q.size(1), q.size(2), v.size(3)}, options_of(q));
  if (decodes) {
    cuda::attention_decode(with_operands(call, x), rows.beyond == Beyond::clip, out);
    return out;
  }
  const Tensors inputs = x.list();
  const cuda::AttentionSaved of_forward =
      cuda::attention(with_operands(call, x), out, recording(inputs));
  call.q = call.k = call.v = Tensor();
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  AttentionOptions plain{
      .mask = o.mask, .scale = call.scale, .dropout = o.dropout, .dropout_key = o.dropout_key};
  // Gradients: with O = P V and dS = P · (g Vᵀ − rowsum(g · O)): dq = scale · dS K, dk = scale ·
  // dSᵀ Q, dv = Pᵀ g; with dS and P sheared to relative positions dp = scale · dS R, dR = scale ·
  // dSᵀ p, dV = Pᵀ g, db = Σ dS.
  return record(
      "attention", inputs, out,
      [call, saved, of_forward, plain](Backward& b) {
        const Tensors again = values_of(saved);
        if (grad_enabled())
          return composed_gradient(
              b, [&](const Tensors& inner) { return composed(Operands::of(inner), call, plain); },
              again);
        const Operands y = Operands::of(again);
        const cuda::AttentionCall full = with_operands(call, y);
        cuda::AttentionGradients g{
            .q = gradient_like(y.q), .k = gradient_like(y.k), .v = gradient_like(y.v)};
        if (full.position.defined()) g.position = gradient_like(y.position);
        if (b.needs(bias_at))
          g.bias = zeros(four(y.bias.shape()), {.dtype = f32, .device = y.q.device()});
        cuda::attention_backward(full, b.output().detach(), of_forward, aligned_rows(b.grad()),
                                 b.needs(rows_at) || b.needs(lag_bias_at) || b.needs(value_rows_at),
                                 g);
        if (g.bias.defined()) g.bias = g.bias.reshape(y.bias.shape()).to(y.bias.dtype());
        return Tensors{g.q, g.k, g.v, g.position, g.rows, g.lag_bias, g.value_rows, g.bias};
      },
      Keep::outputs);
}

}  // namespace stretto
