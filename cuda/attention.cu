// Fused attention, forward (docs: FlashAttention-2, Dao 2023; the strip of relative positions is
// ours).
//
// A block of warps has 64 or 128 queries, a warp 16 or 32 of them, and walks the keys that any of
// them sees in tiles of BK. Scores, weights and the sum of the output stay in registers. What a
// tile of keys says of relative positions is a strip: the product of the queries with the rows of
// BK + 16 lags, of which 16 are carried from the step before, sheared by shuffles. Rows of the
// table lie in a ring, as each step needs BK new ones. The largest score of a row moves only when
// it has grown by more than 8 in the exponent of 2: any number near it will do.
//
// Sums over keys are taken in the order of the tiles by the one warp that owns the query.
//
// Tested by tests/cuda/attention_kernels_test.cpp, and by tests/ops/attention on a GPU.
#include "cuda/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int BK, int Slabs, int Warps, bool Table, bool Apart>
struct ForwardShape {
  static constexpr int BQ = 16 * Slabs * Warps, ring = tile::ring_of(BQ + 2 * BK);
  static constexpr int tile = BK * D * 2;
  static constexpr int q = 0, p = Apart ? BQ * D * 2 : 0, k = p + BQ * D * 2, v = k + 2 * tile;
  static constexpr int r = v + 2 * tile, bias = r + (Table ? ring * D * 2 : 0);
  static constexpr int bytes = bias + ring * 4;
};

/// Fused attention of the queries of a block.
template <int D, int BK, int Slabs, int Warps, int PerSM, bool Table, bool Apart>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_forward(const __grid_constant__ AttentionArgs a) {
  using S = ForwardShape<D, BK, Slabs, Warps, Table, Apart>;
  constexpr int Threads = Warps * 32, P = 2 * D;
  constexpr uint32_t all = 0xffffffffu;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const sbias = reinterpret_cast<const float*>(smem + S::bias);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int b = blockIdx.x / a.heads, h = blockIdx.x % a.heads, kh = h / a.per_group;
  const int i0 = int(gridDim.y - 1 - blockIdx.y) * S::BQ, p0 = i0 + a.shift;
  const int iw = i0 + 16 * Slabs * warp, pw = iw + a.shift;
  const int p_last = min(i0 + S::BQ, a.m) - 1 + a.shift;
  const int begin = a.first_key(p0) / BK * BK, end = a.end_key(p_last);
  const int tiles = end > begin ? (end - begin + BK - 1) / BK : 0;
  const auto keys = a.k.source(b, kh), values = a.v.source(b, kh), table = a.table.source(0, h);
  const float* const bias = a.bias_of(h);
  const bool biased = a.width > 0;
  if (tiles > 0) {
    tile::load_rows<D, Threads>(base + S::q, a.q.source(b, h), i0, S::BQ, a.m);
    if (Apart) tile::load_rows<D, Threads>(base + S::p, a.p.source(b, h), i0, S::BQ, a.m);
    tile::load_rows<D, Threads>(base + S::k, keys, begin, BK, a.n);
    tile::load_rows<D, Threads>(base + S::v, values, begin, BK, a.n);
    const int low = begin - (p0 + S::BQ - 1);
    if (Table)
      tile::load_ring<D, S::ring, Threads>(base + S::r, table, low, S::BQ + BK, a.zero_row, a.rows);
    if (Table || biased)
      tile::load_line_ring<S::ring, Threads>(base + S::bias, bias, low, S::BQ + BK, -a.first,
                                             a.width);
  }
  ptx::commit();
  ptx::wait<0>();
  __syncthreads();

  const uint32_t eight = Rows<D>::eight(lane), sixteen = Rows<D>::sixteen(lane);
  const uint32_t mine = base + warp * Slabs * 16 * P + sixteen;
  uint32_t fq[Slabs][D / 16][4];
  float acc[Slabs][D / 8][4] = {}, top[Slabs][2], total[Slabs][2] = {};
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl) top[sl][0] = top[sl][1] = -1e30f;
  const tile::Shear shear(lane);
  // Slab s carries 2 + 2 s tiles, so that all slabs take the same new octets of lags.
  float w[Table ? Slabs : 1][Table ? BK / 8 + 2 * Slabs : 1][4];
  const uint32_t turn = ((lane / 8) ^ Rows<D>::swizzle(begin - pw + 1 + lane % 8)) << 4;
  // Tiles of the strip for 8 lags, of slabs from … : slab s at `place` + 2 s.
  auto octet = [&](int lag, int from, int place) {
    const float b0 = sbias[(lag + 2 * t) & (S::ring - 1)];
    const float b1 = sbias[(lag + 2 * t + 1) & (S::ring - 1)];
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) {
      if (sl < from) continue;
      float(&d)[4] = w[sl][place + 2 * sl];
      d[0] = d[2] = b0;
      d[1] = d[3] = b1;
    }
    const uint32_t at = base + S::r + ((lag + lane % 8) & (S::ring - 1)) * P;
#pragma unroll
    for (int x = 0; x < D / 32; ++x) {
      uint32_t f[4];
      ptx::ldmatrix(f, at + (turn ^ (x << 6)));
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        if (sl < from) continue;
        float(&d)[4] = w[sl][place + 2 * sl];
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          if constexpr (Apart) {
            uint32_t left[4];
            ptx::ldmatrix(left, (mine + S::p + sl * 16 * P) ^ ((2 * x + y) << 5));
            ptx::mma(d, left, f[2 * y], f[2 * y + 1]);
          } else {
            ptx::mma(d, fq[sl][2 * x + y], f[2 * y], f[2 * y + 1]);
          }
        }
      }
    }
  };
  if (tiles > 0) {
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int x = 0; x < D / 16; ++x)
        ptx::ldmatrix(fq[sl][x], (mine + S::q + sl * 16 * P) ^ (x << 5));
    if constexpr (Table) {
#pragma unroll
      for (int o = -2 * Slabs; o < 0; ++o) octet(begin - pw + 1 + 8 * o, (-o - 1) / 2, o + 2);
    }
  }
  const int first_last = a.first_key(pw + 16 * Slabs - 1);
  const float slack = 8 / a.scale2;
#pragma unroll 1
  for (int step = 0; step < tiles; ++step) {
    const int j0 = begin + step * BK, now = step & 1;
    if (step + 1 < tiles) {
      tile::load_rows<D, Threads>(base + S::k + (now ^ 1) * S::tile, keys, j0 + BK, BK, a.n);
      tile::load_rows<D, Threads>(base + S::v + (now ^ 1) * S::tile, values, j0 + BK, BK, a.n);
      const int lag = j0 + BK - p0 + 1;
      if (Table)
        tile::load_ring<D, S::ring, Threads>(base + S::r, table, lag, BK, a.zero_row, a.rows);
      if (Table || biased)
        tile::load_line_ring<S::ring, Threads>(base + S::bias, bias, lag, BK, -a.first, a.width);
    }
    ptx::commit();
    uint32_t keep_bits[Slabs];
    if (a.drop_below > 0) {
      const RandomKey key = key_now(a.key);
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
        keep_bits[sl] =
            kept_of_queries<BK / 8>(a, key, int64_t(blockIdx.x) * a.m, iw + 16 * sl, j0);
    }
    const uint32_t tk = base + S::k + now * S::tile, tv = base + S::v + now * S::tile;
    float s[Slabs][BK / 8][4] = {};
    if constexpr (Table) {
#pragma unroll
      for (int n = 0; n < BK / 8; ++n) {
        octet(j0 - pw + 1 + 8 * n, 0, n + 2);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl)
          shear.scores(s[sl][n], w[sl][n], w[sl][n + 1], w[sl][n + 2]);
      }
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int c = 0; c < 2 + 2 * sl; ++c)
#pragma unroll
          for (int e = 0; e < 4; ++e) w[sl][c][e] = w[sl][BK / 8 + c][e];
    } else if (biased) {
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int n = 0; n < BK / 8; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[sl][n][e] = sbias[(j0 - pw - 16 * sl + 8 * n + 2 * t + (e & 1) - gr - 8 * (e >> 1)) &
                                (S::ring - 1)];
    }
#pragma unroll
    for (int x = 0; x < D / 32; ++x)
#pragma unroll
      for (int n = 0; n < BK / 8; ++n) {
        uint32_t f[4];
        ptx::ldmatrix(f, (tk + eight + n * 8 * P) ^ (x << 6));
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          ptx::mma(s[sl][n], fq[sl][2 * x], f[0], f[1]);
          ptx::mma(s[sl][n], fq[sl][2 * x + 1], f[2], f[3]);
        }
      }
    if ((a.causal && j0 + BK - 1 > pw) || j0 + BK > a.n || first_last > j0 || a.padding) {
      uint32_t padded = 0;
      if (a.padding) {
#pragma unroll
        for (int c = 0; c < BK / 4; ++c)
          padded |= uint32_t(a.hidden(b, j0 + 8 * (c / 2) + 2 * t + c % 2)) << c;
      }
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int position = pw + 16 * sl + gr + 8 * half;
          const int low = a.first_key(position) - j0 - 2 * t,
                    high = a.end_key(position) - j0 - 2 * t;
#pragma unroll
          for (int c = 0; c < BK / 4; ++c) {
            const int j = 8 * (c / 2) + c % 2;
            if (j < low || j >= high || (padded >> c & 1))
              s[sl][c / 2][2 * half + c % 2] = -INFINITY;
          }
        }
    }
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) {
      float most[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[half] = top[sl][half];
#pragma unroll
        for (int n = 0; n < BK / 8; ++n)
          most[half] = fmaxf(most[half], fmaxf(s[sl][n][2 * half], s[sl][n][2 * half + 1]));
        most[half] = fmaxf(most[half], __shfl_xor_sync(all, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(all, most[half], 2));
      }
      const bool grown[2] = {most[0] > top[sl][0] + slack, most[1] > top[sl][1] + slack};
      if (__any_sync(all, grown[0] || grown[1])) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float keep = grown[half] ? ptx::ex2((top[sl][half] - most[half]) * a.scale2) : 1.f;
          if (grown[half]) top[sl][half] = most[half];
          total[sl][half] *= keep;
#pragma unroll
          for (int x = 0; x < D / 8; ++x) {
            acc[sl][x][2 * half] *= keep;
            acc[sl][x][2 * half + 1] *= keep;
          }
        }
      }
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float at = top[sl][half] * a.scale2;
#pragma unroll
        for (int n = 0; n < BK / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[sl][n][e] = ptx::ex2(s[sl][n][e] * a.scale2 - at);
            total[sl][half] += s[sl][n][e];
          }
      }
      if (a.drop_below > 0) {
#pragma unroll
        for (int x = 0; x < BK / 2; ++x)
          if (!(keep_bits[sl] >> x & 1)) s[sl][x / 4][x % 4] = 0;
      }
    }
#pragma unroll
    for (int x = 0; x < BK / 16; ++x) {
      uint32_t left[Slabs][4];
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) tile::pack(left[sl], s[sl][2 * x], s[sl][2 * x + 1]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        uint32_t f[4];
        ptx::ldmatrix_trans(f, (tv + sixteen + x * 16 * P) ^ (n << 5));
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          ptx::mma(acc[sl][2 * n], left[sl], f[0], f[1]);
          ptx::mma(acc[sl][2 * n + 1], left[sl], f[2], f[3]);
        }
      }
    }
    ptx::wait<0>();
    __syncthreads();  // the next tile is there, and this one's place is free
  }
  // Out through the warp's own rows of q's place, so that a row leaves in pieces of 16 bytes.
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[sl][half];
      sum += __shfl_xor_sync(all, sum, 1);
      sum += __shfl_xor_sync(all, sum, 2);
      const float factor = sum == 0 ? 0.f : a.keep_scale / sum;
      const int r = (warp * Slabs + sl) * 16 + gr + 8 * half;
#pragma unroll
      for (int x = 0; x < D / 8; ++x)
        *reinterpret_cast<uint32_t*>(smem + S::q + Rows<D>::at(r, x) + 4 * t) =
            ptx::cvt_pack(acc[sl][x][2 * half] * factor, acc[sl][x][2 * half + 1] * factor);
      if (t == 0 && i0 + r < a.m)
        a.sums[int64_t(blockIdx.x) * a.m + i0 + r] =
            sum == 0 ? INFINITY : top[sl][half] * a.scale2 + log2f(sum);
    }
  __syncwarp();
#pragma unroll
  for (int c = lane; c < 16 * Slabs * (D / 8); c += 32) {
    const int r = warp * Slabs * 16 + c / (D / 8), x = c % (D / 8);
    if (i0 + r < a.m && x < a.out.chunks)
      *reinterpret_cast<uint4*>(a.out.at(b, h, i0 + r) + x * 8) =
          *reinterpret_cast<const uint4*>(smem + S::q + Rows<D>::at(r, x));
  }
}

template <int D, int BK, int Slabs, int Warps, int PerSM, bool Table, bool Apart>
void launch_forward(const AttentionArgs& a, int device) {
  using S = ForwardShape<D, BK, Slabs, Warps, Table, Apart>;
  launch_with_shared("attention", device,
                     attention_forward<D, BK, Slabs, Warps, PerSM, Table, Apart>,
                     dim3(unsigned(a.batch * a.heads), unsigned(ceil_div(a.m, S::BQ))),
                     dim3(Warps * 32), S::bytes, a);
}

template <int D, int Wide, int Slabs, int Warps, int PerSM>
void choose_forward(const AttentionArgs& a, int device) {
  if (!a.table.data)
    launch_forward<D, 64, Slabs, Warps, PerSM, false, false>(a, device);
  else if (a.p.data == a.q.data)
    launch_forward<D, Wide, Slabs, Warps, PerSM, true, false>(a, device);
  else
    launch_forward<D, Wide, Slabs, Warps, PerSM, true, true>(a, device);
}

}  // namespace

AttentionArgs attention_args(const AttentionCall& c) {
  AttentionArgs a = {};
  a.q = head_rows<const BFloat16>(c.q);
  a.k = head_rows<const BFloat16>(c.k);
  a.v = head_rows<const BFloat16>(c.v);
  a.p = c.position.defined() ? head_rows<const BFloat16>(c.position) : a.q;
  a.batch = int(c.q.size(0));
  a.heads = int(c.q.size(1));
  a.per_group = int(c.q.size(1) / c.k.size(1));
  a.m = int(c.q.size(2));
  a.n = int(c.k.size(2));
  a.shift = a.n - a.m;
  if (c.rows.defined()) {
    a.table = head_rows<const BFloat16>(c.rows.unsqueeze(0));
    if (c.rows.size(0) == 1) a.table.head = 0;
    a.rows = int(c.rows.size(1));
    a.zero_row = int(c.zero_row);
  }
  a.bias = reinterpret_cast<const float*>(a.q.data);  // a place that can be named
  if (c.lag_bias.defined()) {
    a.bias = c.lag_bias.data<float>();
    a.width = int(c.lag_bias.size(1));
    a.bias_head = c.lag_bias.size(0) == 1 ? 0 : a.width;
    a.first = int(c.first);
  }
  if (c.padding.defined()) a.padding = c.padding.data<uint8_t>();
  a.causal = c.causal;
  a.window = int(c.window >= a.n ? 0 : c.window);
  a.block = int(c.block >= a.n ? 0 : c.block);
  a.scale = float(c.scale);
  a.scale2 = float(c.scale * 1.4426950408889634);
  a.keep_scale = 1;
  if (c.dropout > 0) {
    a.drop_below = uint32_t(std::ceil(c.dropout * 16777216.0));
    a.keep_scale = c.dropout >= 1 ? 0.f : float(1 / (1 - c.dropout));
    a.key = draw_key(*c.dropout_key, c.q.device().index);
  }
  return a;
}

bool attention_takes(const AttentionCall& c) {
  const int64_t d = c.q.size(3), dv = c.v.size(3), limit = int64_t(1) << 30;
  return c.q.dtype() == bf16 && d > 0 && dv > 0 && d % 8 == 0 && dv % 8 == 0 && d <= 128 &&
         dv <= 128 && c.scale > 1e-6 && c.scale < 1e6 && c.q.size(2) < limit / 2 &&
         c.k.size(2) < limit / 2 && c.q.size(0) * c.q.size(1) < limit;
}

Tensor attention(const AttentionCall& call, const Tensor& out) {
  const int64_t width = std::max(call.q.size(3), call.v.size(3));
  const int device = call.q.device().index;
  const Tensor sums = empty({call.q.size(0), call.q.size(1), call.q.size(2)},
                            {.dtype = f32, .device = call.q.device()});
  if (out.numel() == 0) return sums;
  AttentionArgs a = attention_args(call);
  a.out = head_rows<BFloat16>(out);
  a.sums = sums.data<float>();
  if (width <= 32)
    choose_forward<32, 64, 2, 4, 2>(a, device);
  else if (width <= 64)
    choose_forward<64, 32, 2, 4, 2>(a, device);
  else
    choose_forward<128, 32, 1, 8, 1>(a, device);
  return sums;
}

}  // namespace stretto::cuda
