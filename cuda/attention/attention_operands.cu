// Fused attention: what its kernels get. Operands of f32 are cut into three of bf16, which add up
// to them: products of these on tensor cores, six of the nine, are those of f32 to a few of its
// roundings, if their sums are short (tile::accumulate).
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

/// parts [3, B·H, L, D] of x [B, H, L, D], whose rows are multiplied by factors [B, H, L] if any.
__global__ void __launch_bounds__(256, 1)
    attention_parts(BFloat16* parts, HeadRows<const void> x, const float* factors, int heads,
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

HeadRows<const void> attention_operand(const Tensor& x, Tensors& kept, const float* factors) {
  if (x.dtype() != f32) return head_rows<const void>(x);
  const int64_t b = x.size(0), h = x.size(1), l = x.size(2), d = x.size(3);
  const Tensor parts = empty({3 * b, h, l, d}, {.dtype = bf16, .device = x.device()});
  kept.push_back(parts);
  launch("attention", x.device().index, attention_parts,
         dim3(unsigned(b * h), unsigned(std::min<int64_t>(ceil_div(l * d / 8, 256), 1024))), 256,
         parts.data<BFloat16>(), head_rows<const void>(x), factors, int(h), int(l));
  HeadRows<const void> rows = head_rows<const void>(parts);
  rows.part = b * h * l * d;
  return rows;
}

Scores scores_of(const Tensor& x) {
  const auto stride = [&](int d) { return x.size(d) == 1 ? 0 : x.strides()[d]; };
  return {x.raw_data(), stride(0), stride(1), stride(2), stride(3)};
}

AttentionArgs attention_args(const AttentionCall& c, Tensors& kept, bool cut) {
  const auto operand = [&](const Tensor& x) {
    return cut ? attention_operand(x, kept) : head_rows<const void>(x);
  };
  AttentionArgs a = {};
  a.sizes.parts = cut && c.q.dtype() == f32 ? 3 : 1;
  a.operands.q = operand(c.q);
  a.operands.k = operand(c.k);
  a.operands.v = operand(c.v);
  a.operands.p = c.position.defined() ? operand(c.position) : a.operands.q;
  a.sizes.batch = int(c.q.size(0));
  a.sizes.heads = int(c.q.size(1));
  a.sizes.per_group = int(c.q.size(1) / c.k.size(1));
  a.sizes.by_heads = Divider(a.sizes.heads);
  a.sizes.by_group = Divider(a.sizes.per_group);
  a.sizes.m = int(c.q.size(2));
  a.sizes.n = int(c.k.size(2));
  a.sizes.shift = a.sizes.n - a.sizes.m;
  if (c.rows.defined()) {
    a.table.rows = operand(c.rows.unsqueeze(0));
    if (c.rows.size(0) == 1) a.table.rows.head = 0;
    a.table.count = int(c.rows.size(1));
    a.table.zero_row = int(c.zero_row);
  }
  if (c.value_rows.defined()) {
    a.value_table.rows = operand(c.value_rows.unsqueeze(0));
    if (c.value_rows.size(0) == 1) a.value_table.rows.head = 0;
    a.value_table.count = int(c.value_rows.size(1));
    a.value_table.zero_row = int(c.value_zero_row);
  }
  if (c.bias.defined()) a.dense = scores_of(c.bias);
  if (c.lag_bias.defined()) {
    a.lag_bias.data = c.lag_bias.data<float>();
    a.lag_bias.width = int(c.lag_bias.size(1));
    a.lag_bias.head = c.lag_bias.size(0) == 1 ? 0 : a.lag_bias.width;
    a.lag_bias.first = int(c.first);
  }
  if (c.padding.defined()) a.mask.padding = c.padding.data<uint8_t>();
  a.mask.causal = c.causal;
  a.mask.window = int(c.window >= a.sizes.n ? 0 : c.window);
  a.mask.block = int(c.block >= a.sizes.n ? 0 : c.block);
  a.scale.score = float(c.scale);
  a.scale.log2e = float(c.scale * 1.4426950408889634);
  a.scale.inverse = float(1 / c.scale);
  a.dropout.keep_scale = 1;
  if (c.dropout > 0) {
    a.dropout.below = uint32_t(std::ceil(c.dropout * 16777216.0));
    a.dropout.keep_scale = c.dropout >= 1 ? 0.f : float(1 / (1 - c.dropout));
    a.dropout.key = draw_key(*c.dropout_key, c.q.device().index);
  }
  return a;
}

bool attention_takes(const AttentionCall& c) {
  const int64_t d = c.q.size(3), dv = c.v.size(3), limit = int64_t(1) << 20;
  const int64_t most = c.q.dtype() == bf16 ? 128 : c.q.dtype() == f32 ? 64 : 0;
  return d > 0 && dv > 0 && d % 8 == 0 && dv % 8 == 0 && d <= most && dv <= most &&
         c.scale > 1e-6 && c.scale < 1e6 && c.q.size(2) < limit && c.k.size(2) < limit &&
         c.q.size(0) * c.q.size(1) < limit;
}

}  // namespace stretto::cuda
