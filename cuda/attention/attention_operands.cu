// Fused attention: the arguments of its kernels. f32 operands are split into three bf16 parts,
// which add up to them. Products of the parts on tensor cores, six of the nine, equal the f32
// products up to a few f32 roundings, if their sums are short. In long sums each product starts
// from zero and is then added, because tensor cores truncate sums (tile::accumulate). Tested
// against the composed implementation in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

/// parts [3, B·H, L, D] of x [B, H, L, D], with rows multiplied by factors [B, H, L] unless null.
__global__ void __launch_bounds__(256, 1)
    attention_parts(BFloat16* parts, OperandRows<const void> x, const float* factors, int heads,
                    int length) {
  const int b = int(blockIdx.x) / heads, h = int(blockIdx.x) % heads, n = length * x.chunks;
  const int64_t part = int64_t(gridDim.x) * n * 8;
#pragma unroll 1
  for (int c = int(blockIdx.y * blockDim.x + threadIdx.x); c < n;
       c += int(gridDim.y * blockDim.x)) {
    const float* const from = x.at<const float>(b, h, c / x.chunks) + c % x.chunks * 8;
    Pack<float, 4> v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) v[i] = reinterpret_cast<const Pack<float, 4>*>(from)[i];
    if (factors) {
      const float factor = factors[int64_t(blockIdx.x) * length + c / x.chunks];
#pragma unroll
      for (int i = 0; i < 8; ++i) v[i / 4].v[i % 4] *= factor;
    }
    BFloat16* const to = parts + (int64_t(blockIdx.x) * n + c) * 8;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      Pack<uint32_t, 4> pairs;
#pragma unroll
      for (int r = 0; r < 4; ++r)
        pairs.v[r] = tile::pack_pair(v[r / 2].v[r % 2 * 2], v[r / 2].v[r % 2 * 2 + 1]);
      *reinterpret_cast<Pack<uint32_t, 4>*>(to + i * part) = pairs;
    }
  }
}

}  // namespace

OperandRows<const void> attention_operand(const Tensor& x, Tensors& kept, const float* factors) {
  if (x.dtype() != f32) return operand_rows<const void>(x);
  const int64_t b = x.size(0), h = x.size(1), l = x.size(2), d = x.size(3);
  const Tensor parts = empty({3 * b, h, l, d}, {.dtype = bf16, .device = x.device()});
  kept.push_back(parts);
  launch("attention", x.device().index, attention_parts,
         dim3(unsigned(b * h), unsigned(std::min<int64_t>(ceil_div(l * d / 8, 256), 1024))), 256,
         parts.data<BFloat16>(), operand_rows<const void>(x), factors, int(h), int(l));
  OperandRows<const void> rows = operand_rows<const void>(parts);
  rows.part = b * h * l * d;
  return rows;
}

AttentionArgs attention_args(const AttentionOperands& c, Tensors& kept, bool cut) {
  const auto operand = [&](const Tensor& x) {
    return cut ? attention_operand(x, kept) : operand_rows<const void>(x);
  };
  const AttentionOptions& o = c.options;
  AttentionArgs a = {};
  a.sizes.parts = cut && c.q.dtype() == f32 ? 3 : 1;
  a.operands.q = operand(c.q);
  a.operands.k = operand(c.k);
  a.operands.v = operand(c.v);
  a.operands.p = o.relative_query.defined() ? operand(o.relative_query) : a.operands.q;
  a.sizes.batch = int(c.q.size(0));
  a.sizes.heads = int(c.q.size(1));
  a.sizes.per_group = int(c.q.size(1) / c.k.size(1));
  a.sizes.by_heads = Divider(a.sizes.heads);
  a.sizes.by_group = Divider(a.sizes.per_group);
  a.sizes.m = int(c.q.size(2));
  a.sizes.n = int(c.k.size(2));
  a.sizes.shift = a.sizes.n - a.sizes.m;
  const auto table = [&](auto& to, const RelativeTable& from) {
    if (!from.defined()) return;
    to.rows = operand(from.rows.unsqueeze(0));
    if (from.rows.size(0) == 1) to.rows.head = 0;
    to.count = int(from.rows.size(1));
    to.zero_row = int(from.zero_row);
  };
  table(a.table, o.relative_keys);
  table(a.value_table, o.relative_values);
  set_score_terms(a, o);
  const AttentionMask& mask = o.mask;
  if (mask.key_padding.defined()) a.mask.padding = mask.key_padding.data<uint8_t>();
  a.mask.causal = mask.is_causal();
  const bool limited = !mask.global_tokens.defined();  // else mask.tensors has the windows
  a.mask.window = int(limited && mask.window < a.sizes.n ? mask.window : 0);
  a.mask.ahead = a.mask.causal ? 1 : window_of(limited ? mask.window_after : 0);
  a.mask.block = int(mask.block >= a.sizes.n ? 0 : mask.block);
  a.mask.tensors = tensor_mask(c, cut, kept);
  if (o.soft_cap > 0) {
    a.cap.from = float(*o.scale / o.soft_cap);
    a.cap.to = float(o.soft_cap / *o.scale);
  }
  if (o.sinks.defined()) a.sinks = o.sinks.data<float>();
  a.scale.score = float(*o.scale);
  a.scale.log2e = float(*o.scale * 1.4426950408889634);
  a.scale.inverse = float(1 / *o.scale);
  a.dropout.keep_scale = 1;
  if (o.dropout > 0) {
    const DropoutRule rule(o.dropout);
    a.dropout.below = rule.below;
    a.dropout.keep_scale = float(rule.factor);
    a.dropout.key = draw_key(*o.dropout_key, c.q.device().index);
  }
  return a;
}

bool attention_takes(const AttentionOperands& c) {
  const int64_t limit = int64_t(1) << 20;
  const int64_t most = c.q.dtype() == bf16 ? 128 : c.q.dtype() == f32 ? 64 : 0;
  for (const Tensor* x : {&c.q, &c.v, &c.options.relative_query})
    if (x->defined() && (x->size(3) == 0 || x->size(3) % 8 != 0)) return false;
  return widest(c) <= most && *c.options.scale > 1e-6 && *c.options.scale < 1e6 &&
         c.q.size(2) < limit && c.k.size(2) < limit && c.q.size(0) * c.q.size(1) < limit;
}

}  // namespace stretto::cuda
