// Fused attention, forward (docs: FlashAttention-2, Dao 2023; the strip of relative positions is
// ours).
//
// A block of warps has 64 or 128 queries, a warp 16 or 32 of them, and walks the keys that any of
// them sees in tiles of BK. Scores, weights and the sum of the output stay in registers. What a
// tile of keys says of relative positions is a strip: the product of the queries with the rows of
// BK + 16 lags, of which 16 are carried from the step before, sheared by shuffles. Rows of the
// table lie in a ring, as each step needs BK new ones. What is taken off a row's exponents of 2
// moves only when the largest has grown by more than 8: any number near it will do. It is rounded
// before it is taken off, once for all weights, so that large scores lose only what they share.
//
// Sums over keys are taken in the order of the tiles by the one warp that owns the query.
// Tested against the composed form in f64.
#include "cuda/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int BK, int Slabs, int Warps, bool Table, bool Apart>
struct ForwardShape {
  static constexpr int BQ = 16 * Slabs * Warps, ring = tile::ring_of(BQ + 2 * BK);
  static constexpr int row = Parts * D * 2, tile = BK * row;
  static constexpr int q = 0, p = Apart ? BQ * row : 0, k = p + BQ * row, v = k + 2 * tile;
  static constexpr int r = v + 2 * tile, bias = r + (Table ? ring * row : 0);
  static constexpr int bytes = bias + ring * 4;
};

/// out [B, H, M, Dv] and sums [B, H, M] from q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv]
template <int D, int Parts, int BK, int Slabs, int Warps, int PerSM, bool Table, bool Apart>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_forward(const __grid_constant__ AttentionArgs a) {
  using S = ForwardShape<D, Parts, BK, Slabs, Warps, Table, Apart>;
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
    tile::load_rows<D, Threads, Parts>(base + S::q, a.q.source(b, h), i0, S::BQ, a.m);
    if (Apart) tile::load_rows<D, Threads, Parts>(base + S::p, a.p.source(b, h), i0, S::BQ, a.m);
    tile::load_rows<D, Threads, Parts>(base + S::k, keys, begin, BK, a.n);
    tile::load_rows<D, Threads, Parts>(base + S::v, values, begin, BK, a.n);
    const int low = begin - (p0 + S::BQ - 1);
    if (Table)
      tile::load_ring<D, S::ring, Threads, Parts>(base + S::r, table, low, S::BQ + BK, a.zero_row,
                                                  a.rows);
    if (Table || biased)
      tile::load_line_ring<S::ring, Threads>(base + S::bias, bias, low, S::BQ + BK, -a.first,
                                             a.width);
  }
  ptx::commit();
  ptx::wait<0>();
  __syncthreads();

  const uint32_t eight = Rows<D>::eight(lane), sixteen = Rows<D>::sixteen(lane);
  const uint32_t mine = base + warp * Slabs * 16 * P + sixteen;
  tile::Fragment<Parts> fq[Slabs][D / 16];
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
      tile::Fragment<Parts> f;
      tile::load(f, at + (turn ^ (x << 6)), S::ring * P);
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        if (sl < from) continue;
        float(&d)[4] = w[sl][place + 2 * sl];
#pragma unroll
        for (int y = 0; y < 2; ++y) {
          if constexpr (Apart) {
            tile::Fragment<Parts> left;
            tile::load(left, (mine + S::p + sl * 16 * P) ^ ((2 * x + y) << 5), S::BQ * P);
            tile::multiply(d, left, f, y);
          } else {
            tile::multiply(d, fq[sl][2 * x + y], f, y);
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
        tile::load(fq[sl][x], (mine + S::q + sl * 16 * P) ^ (x << 5), S::BQ * P);
    if constexpr (Table) {
#pragma unroll
      for (int o = -2 * Slabs; o < 0; ++o) octet(begin - pw + 1 + 8 * o, (-o - 1) / 2, o + 2);
    }
  }
  const int first_last = a.first_key(pw + 16 * Slabs - 1);
#pragma unroll 1
  for (int step = 0; step < tiles; ++step) {
    const int j0 = begin + step * BK, now = step & 1;
    if (step + 1 < tiles) {
      tile::load_rows<D, Threads, Parts>(base + S::k + (now ^ 1) * S::tile, keys, j0 + BK, BK, a.n);
      tile::load_rows<D, Threads, Parts>(base + S::v + (now ^ 1) * S::tile, values, j0 + BK, BK,
                                         a.n);
      const int lag = j0 + BK - p0 + 1;
      if (Table)
        tile::load_ring<D, S::ring, Threads, Parts>(base + S::r, table, lag, BK, a.zero_row,
                                                    a.rows);
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
        tile::Fragment<Parts> f;
        tile::load(f, (tk + eight + n * 8 * P) ^ (x << 6), BK * P);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          tile::multiply(s[sl][n], fq[sl][2 * x], f, 0);
          tile::multiply(s[sl][n], fq[sl][2 * x + 1], f, 1);
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
        most[half] = -1e30f;
#pragma unroll
        for (int n = 0; n < BK / 8; ++n)
          most[half] = fmaxf(most[half], fmaxf(s[sl][n][2 * half], s[sl][n][2 * half + 1]));
        most[half] = fmaxf(most[half], __shfl_xor_sync(all, most[half], 1));
        most[half] = fmaxf(most[half], __shfl_xor_sync(all, most[half], 2));
      }
      const bool grown[2] = {most[0] * a.scale2 > top[sl][0] + 8,
                             most[1] * a.scale2 > top[sl][1] + 8};
      if (__any_sync(all, grown[0] || grown[1])) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float to = most[half] * a.scale2;
          const float keep = grown[half] ? ptx::ex2(top[sl][half] - to) : 1.f;
          if (grown[half]) top[sl][half] = to;
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
        const float at = top[sl][half];
#pragma unroll
        for (int n = 0; n < BK / 8; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[sl][n][e] = ptx::ex2(fmaf(s[sl][n][e], a.scale2, -at));
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
      tile::Fragment<Parts> left[Slabs];
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) tile::pack(left[sl], s[sl][2 * x], s[sl][2 * x + 1]);
#pragma unroll
      for (int n = 0; n < D / 16; ++n) {
        tile::Fragment<Parts> f;
        tile::load_trans(f, (tv + sixteen + x * 16 * P) ^ (n << 5), BK * P);
#pragma unroll
        for (int sl = 0; sl < Slabs; ++sl) {
          tile::multiply(acc[sl][2 * n], left[sl], f, 0);
          tile::multiply(acc[sl][2 * n + 1], left[sl], f, 1);
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
        put<Parts>(smem + S::q + Rows<D>::at(r, x) + 4 * t, a.out, b, h, i0 + r, a.m, x,
                   acc[sl][x][2 * half] * factor, acc[sl][x][2 * half + 1] * factor);
      if (t == 0 && i0 + r < a.m)
        a.sums[int64_t(blockIdx.x) * a.m + i0 + r] =
            sum == 0 ? INFINITY : top[sl][half] + log2f(sum);
    }
  if (Parts > 1) return;
  __syncwarp();
#pragma unroll
  for (int c = lane; c < 16 * Slabs * (D / 8); c += 32) {
    const int r = warp * Slabs * 16 + c / (D / 8), x = c % (D / 8);
    if (i0 + r < a.m && x < a.out.chunks)
      *reinterpret_cast<uint4*>(a.out.at(b, h, i0 + r) + x * 8) =
          *reinterpret_cast<const uint4*>(smem + S::q + Rows<D>::at(r, x));
  }
}

template <int D, int Parts, int BK, int Slabs, int Warps, int PerSM, bool Table, bool Apart>
void launch_forward(const AttentionArgs& a, int device) {
  using S = ForwardShape<D, Parts, BK, Slabs, Warps, Table, Apart>;
  launch_with_shared("attention", device,
                     attention_forward<D, Parts, BK, Slabs, Warps, PerSM, Table, Apart>,
                     dim3(unsigned(a.batch * a.heads), unsigned(ceil_div(a.m, S::BQ))),
                     dim3(Warps * 32), S::bytes, a);
}

template <int D, int Parts, int BK, int Wide, int Slabs, int Warps, int PerSM>
void choose_forward(const AttentionArgs& a, int device) {
  if (!a.table.data)
    launch_forward<D, Parts, Wide, Slabs, Warps, PerSM, false, false>(a, device);
  else if (a.p.data == a.q.data)
    launch_forward<D, Parts, BK, Slabs, Warps, PerSM, true, false>(a, device);
  else
    launch_forward<D, Parts, BK, Slabs, Warps, PerSM, true, true>(a, device);
}

}  // namespace

Tensor attention(const AttentionCall& call, const Tensor& out) {
  const int64_t width = std::max(call.q.size(3), call.v.size(3));
  const int device = call.q.device().index;
  const Tensor sums = empty({call.q.size(0), call.q.size(1), call.q.size(2)},
                            {.dtype = f32, .device = call.q.device()});
  if (out.numel() == 0) return sums;
  Tensors kept;
  AttentionArgs a = attention_args(call, kept);
  a.out = head_rows<BFloat16>(out);
  a.sums = sums.data<float>();
  if (a.parts > 1)
    choose_forward<64, 3, 32, 32, 1, 4, 1>(a, device);
  else if (width <= 32)
    choose_forward<32, 1, 64, 64, 2, 4, 2>(a, device);
  else if (width <= 64)
    choose_forward<64, 1, 32, 64, 2, 4, 2>(a, device);
  else
    choose_forward<128, 1, 32, 64, 1, 8, 1>(a, device);
  return sums;
}

}  // namespace stretto::cuda
