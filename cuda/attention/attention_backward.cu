// Fused attention, backward: preparation and order of its three kernels.
//
// With P the weights and dP = g Vᵀ: dS = P ∘ (dP − δ), δ = rowsum(g ∘ O). The kernels recompute P
// from the sums that forward saved. One owns queries (attention_queries.cu) and computes δ for all,
// one owns relative positions (attention_relative.cu), one owns keys (attention_keys.cu), so that
// every sum has one owner and one order. The first kernel computes the gradient of a dense bias,
// or, if all queries share the bias, the last one.
//
// In f32 P is not divided by its sum: the kernels recompute forward's exponentials from scores that
// are bit-identical to forward's, since all terms are added in the same order: the product with
// keys, plus (the product with rows of relative positions, plus their bias), plus the dense bias.
// Instead, the rows of g are divided by the sums when they are split into parts; P only occurs in
// products with them. Tested against the composed implementation in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

/// Chooses the number of segments for the gradients of tables: enough blocks, of unequal length,
/// for several waves of a large GPU. More than 8 only if their parts have no more rows than q.
void choose_segments(AttentionArgs& a) {
  const int64_t relatives = a.grid.high_relative + 1 - a.grid.low_relative;
  const int64_t blocks = a.sizes.heads * ceil_div(relatives, relative_per_block);
  // A segment has at least 256 of an entry's queries.
  const int64_t longest = ceil_div(a.sizes.m, 256);
  const int64_t most = std::max(int64_t(a.sizes.batch) * a.sizes.m / relatives, int64_t(8));
  a.grid.segments =
      int(std::min({ceil_div(8 * planned_sms, blocks), a.sizes.batch * longest, most}));
  a.grid.pieces = int(ceil_div(a.grid.segments, a.sizes.batch));
}

/// to [n] = the sum of parts [count, n], in order, rounded once
template <class T>
__global__ void __launch_bounds__(256)
    add_table_parts(T* to, const float* parts, int count, int64_t n) {
  const int64_t i = thread_index();
  if (i >= n) return;
  float sum = 0;
#pragma unroll 4
  for (int part = 0; part < count; ++part) sum += parts[part * n + i];
  to[i] = cast<T>(sum);
}

/// The gradient of a table [H or 1, ...]: the sum of its parts [segments, H, ...]. Written to `to`;
/// in f32 if that is undefined.
void add_parts(const Tensor& parts, const Tensor& table, Tensor& to) {
  if (!to.defined() && parts.numel() == table.numel()) {
    to = parts.reshape(table.shape());
    return;
  }
  if (!to.defined()) to = empty(table.shape(), options_of(parts));
  const int64_t n = table.numel();
  dispatch_floating(to.dtype(), "attention", [&]<class T>() {
    launch("attention", parts.device().index, add_table_parts<T>,
           unsigned(ceil_div(n, int64_t(256))), 256, to.data<T>(),
           static_cast<const float*>(parts.data<float>()), int(parts.numel() / n), n);
  });
}

}  // namespace

void attention_backward(const AttentionOperands& inputs, const Tensor& out,
                        const AttentionSaved& saved, const Tensor& grad, bool of_tables,
                        AttentionOperands& into) {
  const Device device = inputs.q.device();
  const TensorOptions wide{.dtype = f32, .device = device};
  const int64_t d = widest(inputs);
  const auto table = [&](const Tensor& x) { return of_tables && x.defined() && x.numel() > 0; };
  const int64_t batch = inputs.q.size(0), heads = inputs.q.size(1), m = inputs.q.size(2);
  const AttentionOptions& o = inputs.options;
  AttentionOptions& to = into.options;
  Tensors kept;
  AttentionArgs a = attention_args(inputs, kept);
  const Tensor delta = empty({batch, heads, m}, wide);
  a.results.sums = saved.sums.data<float>();
  if (a.sizes.parts > 1)
    a.results.inverse = a.results.sums + batch * heads * m;
  else
    a.results.rest = operand_rows<void>(saved.rest);
  a.delta.data = delta.data<float>();
  a.operands.g = attention_operand(grad, kept, a.results.inverse);
  a.delta.out = operand_rows<const void>(out);
  a.delta.grad = operand_rows<const void>(grad);
  a.gradients.q = operand_rows<void>(into.q);
  a.gradients.k = operand_rows<void>(into.k);
  a.gradients.v = operand_rows<void>(into.v);
  a.gradients.p = operand_rows<void>(to.relative_query);
  const Tensor key_sums = begin_term_gradients(a, to, device);
  launch_attention_queries(a, int(d), device.index);
  a.grid.low_relative = INT_MAX, a.grid.high_relative = INT_MIN;
  const auto reaches = [&](const Tensor& x, int first, int count) {
    if (!table(x)) return;
    a.grid.low_relative = std::min(a.grid.low_relative, first);
    a.grid.high_relative = std::max(a.grid.high_relative, first + count - 1);
  };
  reaches(o.relative_keys.rows, -a.table.zero_row, a.table.count);
  reaches(o.relative_bias.rows, a.relative_bias.first, a.relative_bias.width);
  reaches(o.relative_values.rows, -a.value_table.zero_row, a.value_table.count);
  if (a.grid.low_relative <= a.grid.high_relative) {
    choose_segments(a);
    const auto parts = [&](const Tensor& x, float*& data) {
      if (!table(x)) return Tensor();
      Shape sizes = x.shape();
      sizes[0] = heads;
      sizes.insert(0, a.grid.segments);
      const Tensor made = empty(sizes, wide);
      data = made.data<float>();
      return made;
    };
    const Tensor rows = parts(o.relative_keys.rows, a.gradients.table),
                 relative_bias = parts(o.relative_bias.rows, a.gradients.relative_bias),
                 value_rows = parts(o.relative_values.rows, a.gradients.value_table);
    launch_attention_relative(a, int(d), device.index);
    if (rows.defined()) add_parts(rows, o.relative_keys.rows, to.relative_keys.rows);
    if (relative_bias.defined())
      add_parts(relative_bias, o.relative_bias.rows, to.relative_bias.rows);
    if (value_rows.defined())
      add_parts(value_rows, o.relative_values.rows, to.relative_values.rows);
  }
  launch_attention_keys(a, int(d), device.index);
  finish_term_gradients(a, key_sums, delta, to);
}

}  // namespace stretto::cuda
