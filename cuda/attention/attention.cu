// Fused attention, forward (docs: FlashAttention-2, Dao 2023; the strip of relative positions is
// ours).
//
// A block of warps has 64 or 128 queries, a warp 16 or 32 of them, and walks the keys that any of
// them sees in tiles of BK; what none of a warp's queries sees at the end, the warp leaves out, of
// tiles of 64 by halves. The square on the diagonal has nothing of lags beyond 0, and nothing for
// the first 16 of 32 queries in its second half.
// Scores, weights and the sum of the output stay in registers. What a tile of keys says of
// relative positions is a strip: the product of the queries with the rows of BK + 16 lags, of
// which 16 are carried from the step before, sheared by shuffles. Rows of the table lie in a ring,
// as each step needs BK new ones. What is taken off a row's exponents of 2 moves only when the
// largest has grown by more than 8: any number near it will do. It is rounded before it is taken
// off, once for all weights, so that large scores lose only what they share.
//
// Rows of values lie in a ring too: weights go back into a strip, [16 queries, lags], and meet them
// there. Tiles of it that straddle two steps are carried, in bf16, so that there what is taken off
// exponents is a whole number, and what is carried moves by powers of 2.
//
// Sums over keys are taken in the order of the tiles by the one warp that owns the query. In bf16
// the weights are summed as the values are, rounded to bf16, by a product with ones: the output is
// then a weighted mean of the values, so that backward's δ cancels where all values are equal.
// Tested against the composed form in f64.
#include "cuda/attention/attention.cuh"

namespace stretto::cuda {
namespace {

using tile::Rows;

template <int D, int Parts, int BK, int Slabs, int Warps, Positions Of>
struct ForwardShape : AttentionShape<D, Parts, Warps, Of> {
  using Base = AttentionShape<D, Parts, Warps, Of>;
  using Base::Apart, Base::Every, Base::Table, Base::row;
  static constexpr int BQ = 16 * Slabs * Warps, ring = tile::ring_of(BQ + 2 * BK);
  static constexpr int tile = BK * row;
  static constexpr int q = 0, p = Apart ? BQ * row : 0, k = p + BQ * row, v = k + 2 * tile;
  static constexpr int r = v + 2 * tile, values = r + (Table ? ring * row : 0);
  static constexpr int bias = values + (Every ? ring * row : 0);
  static constexpr int bytes = bias + ring * 4;
};

/// out and rest [B, H, M, Dv], sums and inverse [B, H, M] from q [B, H, M, D], k [B, G, N, D], v
/// [B, G, N, Dv]
template <int D, int Parts, int BK, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
__global__ void __launch_bounds__(Warps * 32, PerSM)
    attention_forward(const __grid_constant__ AttentionArgs a) {
  using S = ForwardShape<D, Parts, BK, Slabs, Warps, Of>;
  constexpr bool Table = S::Table, Apart = S::Apart, Every = S::Every;
  constexpr int Threads = Warps * 32, P = 2 * D, N = BK / 8;
  constexpr uint32_t all = 0xffffffffu;
  using Operand = tile::Fragment<Parts>;
  extern __shared__ __align__(256) char smem[];
  const uint32_t base = ptx::shared_address(smem);
  const float* const sbias = reinterpret_cast<const float*>(smem + S::bias);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, gr = lane / 4, t = lane % 4;
  const int unit = int(blockIdx.x);
  const int i0 = int(gridDim.y - 1 - blockIdx.y) * S::BQ, p0 = i0 + a.sizes.shift;
  const int iw = i0 + 16 * Slabs * warp, pw = iw + a.sizes.shift;
  const int begin = a.first_key(p0) / BK * BK;
  const int last = a.end_of(i0, S::BQ), end = a.end_of(iw, 16 * Slabs);  // of the block, the warp
  const bool biased = a.lag_bias.width > 0;
  {
    const auto [b, h, kh] = a.place(unit);
    tile::load_rows<D, Threads, S::BQ, Parts>(base + S::q, a.operands.q.source(b, h), i0,
                                              a.sizes.m);
    if constexpr (Apart)
      tile::load_rows<D, Threads, S::BQ, Parts>(base + S::p, a.operands.p.source(b, h), i0,
                                                a.sizes.m);
  }
  if (last > begin) {
    load_keys<S, BK>(a, base, unit, begin);
    load_lags<S, S::BQ + BK>(a, base, unit, begin - (p0 + S::BQ - 1), biased);
  }
  ptx::commit();
  ptx::wait<0>();
  __syncthreads();

  const uint32_t sixteen = Rows<D>::sixteen(lane), turned = Rows<D>::turned(lane);
  const uint32_t own = base + warp * Slabs * 16 * P + sixteen;
  Operand fq[Slabs][D / 16];
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int x = 0; x < D / 16; ++x)
      tile::load(fq[sl][x], (own + S::q + sl * 16 * P) ^ (x << 5), S::BQ * P);
  float acc[Slabs][D / 8][4] = {}, top[Slabs][2];
  float total[Slabs][4] = {};  // of the lane's two rows [2 · half], as mma() has them
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl) top[sl][0] = top[sl][1] = -1e30f;
  const tile::Shear shear(lane);
  // Slab s carries 2 + 2 s tiles, so that all slabs take the same new octets of lags.
  float w[Table ? Slabs : 1][Table ? N + 2 * Slabs : 1][4];
  const uint32_t turn =
      ((lane / 8 % 2) ^ Rows<D>::swizzle(begin - pw + 1 + Rows<D>::turned_row(lane))) << 4;
  auto of_q = [&](int sl, int x) { return fq[sl][x]; };
  auto of_p = [&](int sl, int x) {
    if constexpr (Apart) {
      Operand f;
      tile::load(f, (own + S::p + sl * 16 * P) ^ (x << 5), S::BQ * P);
      return f;
    } else {
      return fq[sl][x];
    }
  };
  auto strip = [&]<int Count>(std::integral_constant<int, Count>, int lag, int place, int from) {
    tile::add_to_strip<D, S::ring, Count, Parts, Apart ? 1 : D / 16>(
        w, place, from, of_p, base + S::r, turn, lag, sbias, biased, shear);
  };
  constexpr uint32_t ones = 0x3f803f80;  // two of bf16
  [[maybe_unused]] tile::Back<Parts> back[Slabs];
  // Weights of 16 keys, or of none, meet the rows of values from lag `lag` on.
  auto spread = [&](const Operand(&weights)[Slabs], int lag) {
    if (a.value_table.count == 0) return;
    Operand left[Slabs];
    back[0].strip(left[0], weights[0], shear);
    tile::multiply_ring<D, S::ring, Parts>(acc, left, base + S::values, lag);
  };
  const bool lagged = Table && (!Every || a.lagged());
  if constexpr (Table)
    if (end > begin && lagged) {
#pragma unroll
      for (int s = Slabs - 1; s >= 0; --s)
        strip(std::integral_constant<int, 2>(), begin - pw - 15 - 16 * s, -2 * s, s);
    }
  // The next 8 K keys. Diagonal: queries are causal, and the first stands at the first key or
  // before.
  auto walk = [&]<int K, bool Diagonal>(std::integral_constant<int, K>,
                                        std::bool_constant<Diagonal>, int j0) {
    constexpr int first = Diagonal && Slabs == 2 ? K / 2 : K;  // octets that slab 0 sees
    uint32_t keep_bits[Slabs];
    const bool drop = Drop && a.dropout.below > 0;
    if (drop) {
      const RandomKey key = key_now(a.dropout.key);
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
        keep_bits[sl] = kept_of_queries<K>(a, key, int64_t(unit) * a.sizes.m, iw + 16 * sl, j0);
    }
    const uint32_t tk = base + S::k + (j0 / BK & 1) * S::tile + j0 % BK * P,
                   tv = tk + (S::v - S::k);
    float s[Slabs][K][4] = {};
    const auto meet_keys = [&] {
      tile::multiply_turned<D, BK, Parts>(s, of_q, tk + turned,
                                          [](int sl, int n) { return sl > 0 || n < first; });
    };
    if constexpr (Parts > 1) meet_keys();
    if constexpr (Table) {
      constexpr int together = Apart ? K : 2;  // octets of lags that share an operand
      const float none[4] = {};
      const auto strip_at = [&](int sl, int o) -> const float(&)[4] {
        return Diagonal && o >= 2 + 2 * sl ? none : std::as_const(w[sl][o]);
      };
      if (lagged) {
#pragma unroll
        for (int n = 0; n < K; n += together) {
          if constexpr (!Diagonal)
            strip(std::integral_constant<int, together>(), j0 - pw + 1 + 8 * n, n + 2, 0);
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int o = n; o < n + together && o < (sl == 0 ? first : K); ++o)
              shear.scores<(Parts > 1)>(s[sl][o], strip_at(sl, o), strip_at(sl, o + 1),
                                        strip_at(sl, o + 2));
        }
        if constexpr (!Diagonal) {
#pragma unroll
          for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
            for (int c = 0; c < 2 + 2 * sl; ++c)
#pragma unroll
              for (int e = 0; e < 4; ++e) w[sl][c][e] = w[sl][K + c][e];
        }
      }
    }
    if constexpr (Every) {
      const auto [b, h, kh] = a.place(unit);
      a.add_dense<Parts, false>(s, b, h, iw, j0);
    }
    if constexpr (Parts == 1) meet_keys();
    if (!Table && biased) {
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int n = 0; n < K; ++n)
#pragma unroll
          for (int e = 0; e < 4; ++e)
            s[sl][n][e] += sbias[(j0 - pw - 16 * sl + 8 * n + 2 * t + (e & 1) - gr - 8 * (e >> 1)) &
                                 (S::ring - 1)];
    }
    if (Diagonal || (a.mask.causal && j0 + 8 * K - 1 > pw) || j0 + 8 * K > a.sizes.n ||
        a.begins_after(j0, pw + 16 * Slabs - 1) || a.mask.padding)
      a.hide_keys<K>(s, a.place(unit).b, j0, pw, -INFINITY);
    const auto grown = [&](float most, float from) { return most * a.scale.log2e > from + 8; };
    float most[Slabs][2];
    bool any = false;
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        most[sl][half] = -1e30f;
#pragma unroll
        for (int n = 0; n < K; ++n)
          most[sl][half] = fmaxf(most[sl][half], fmaxf(s[sl][n][2 * half], s[sl][n][2 * half + 1]));
        any |= grown(most[sl][half], top[sl][half]);
      }
    if (__any_sync(all, any)) {
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          float& m = most[sl][half];
          m = fmaxf(m, __shfl_xor_sync(all, m, 1));
          m = fmaxf(m, __shfl_xor_sync(all, m, 2));
          const float to = Every ? ceilf(m * a.scale.log2e) : m * a.scale.log2e;
          float& from = top[sl][half];
          const bool moves = grown(m, from);
          const float keep = moves ? ptx::ex2(from - to) : 1.f;
          if (moves) from = to;
          total[sl][2 * half] *= keep;
          total[sl][2 * half + 1] *= keep;
#pragma unroll
          for (int x = 0; x < D / 8; ++x) {
            acc[sl][x][2 * half] *= keep;
            acc[sl][x][2 * half + 1] *= keep;
          }
          if constexpr (Every) back[sl].scale(half, keep);
        }
    }
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float at = top[sl][half];
#pragma unroll
        for (int n = 0; n < K; ++n)
#pragma unroll
          for (int e = 2 * half; e < 2 * half + 2; ++e) {
            s[sl][n][e] =
                weight<Every>(s[sl][n][e], a.scale.log2e, at, most_exponent<Parts, false>);
            if constexpr (Parts > 1) total[sl][2 * half] += s[sl][n][e];
          }
      }
      if (Parts > 1 && drop) {
#pragma unroll
        for (int x = 0; x < 4 * K; ++x)
          if (!(keep_bits[sl] >> x & 1)) s[sl][x / 4][x % 4] = 0;
      }
    }
#pragma unroll
    for (int x = 0; x < K / 2; ++x) {
      Operand left[Slabs];
#pragma unroll
      for (int sl = 0; sl < Slabs; ++sl) {
        tile::pack(left[sl], s[sl][2 * x], s[sl][2 * x + 1]);
        if (Parts == 1 && (sl > 0 || 2 * x < first)) ptx::mma(total[sl], left[sl].r[0], ones, ones);
        if (Parts == 1 && drop) tile::keep_pairs(left[sl], keep_bits[sl] >> (8 * x));
      }
      tile::multiply<D, BK, Parts>(acc, left, tv + sixteen + x * 16 * P,
                                   [x](int sl) { return sl > 0 || 2 * x < first; });
      if constexpr (Every) spread(left, j0 - pw - 15 + 16 * x);
    }
  };
  // The last lag that is met: beyond 0 only where the diagonal begins in the midst of 32 keys.
  const int last_lag =
      Table && Slabs == 2 && a.mask.causal ? (a.sizes.shift % 32 == 0 ? 0 : 31) : INT_MAX;
#pragma unroll 1
  for (int j0 = begin; j0 < last; j0 += BK) {
    if (j0 + BK < last) {
      load_keys<S, BK>(a, base, unit, j0 + BK);
      const int lag = j0 + BK - p0 + 1;
      if (lag <= last_lag) load_lags<S, BK>(a, base, unit, lag, biased);
    }
    ptx::commit();
    if (j0 < end) {
      constexpr int half = BK > 32 ? BK / 2 : BK;
      constexpr std::integral_constant<int, half / 8> narrow;
      const bool to_diagonal = Slabs == 2 && a.mask.causal && j0 + BK > pw;
      if (BK > half && end - j0 > half && !to_diagonal) {
        walk(std::integral_constant<int, N>(), std::false_type(), j0);
      } else {
#pragma unroll 1
        for (int j = j0; j < min(j0 + BK, end); j += half)
          if (to_diagonal && j >= pw)
            walk(narrow, std::true_type(), j);
          else
            walk(narrow, std::false_type(), j);
      }
    }
    ptx::wait<0>();
    __syncthreads();  // the next tile is there, and this one's place is free
  }
  if constexpr (Every) {
    const Operand none[Slabs] = {};  // what the last step left
    if (end > begin) spread(none, (end + BK - 1) / BK * BK - pw - 15);
  }
  const auto [b, h, kh] = a.place(unit);
#pragma unroll
  for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float sum = total[sl][2 * half];
      if constexpr (Parts > 1) {
        sum += __shfl_xor_sync(all, sum, 1);
        sum += __shfl_xor_sync(all, sum, 2);
      }
      const float factor = sum == 0 ? 0.f : a.dropout.keep_scale / sum;
      const int i = iw + 16 * sl + gr + 8 * half;
      const auto number = [&](int x, int e) { return acc[sl][x][2 * half + e] * factor; };
      put_row<D, Parts>(a.results.out, b, h, i, a.sizes.m, number, a.results.rest);
      if (!a.results.sums || t != 0 || i >= a.sizes.m) continue;
      const int64_t at = int64_t(unit) * a.sizes.m + i;
      a.results.sums[at] = sum == 0 ? INFINITY : top[sl][half] + (Parts == 1 ? log2f(sum) : 0);
      if constexpr (Parts > 1) a.results.inverse[at] = sum == 0 ? 0 : 1 / sum;
    }
}

template <int D, int Parts, int BK, int Slabs, int Warps, int PerSM, bool Drop, Positions Of>
void launch_forward(const AttentionArgs& a, int device) {
  using S = ForwardShape<D, Parts, BK, Slabs, Warps, Of>;
  launch_with_shared(
      "attention", device, attention_forward<D, Parts, BK, Slabs, Warps, PerSM, Drop, Of>,
      dim3(unsigned(a.sizes.batch * a.sizes.heads), unsigned(ceil_div(a.sizes.m, S::BQ))),
      dim3(Warps * 32), S::bytes, a);
}

void launch_attention(const AttentionArgs& a, int64_t d, int device) {
  with_positions(a, [&]<Positions Of>(At<Of>) {
    constexpr bool plain = Of == Positions::none, every = Of == Positions::every;
    if (a.sizes.parts > 1)
      launch_forward<64, 3, 32, 1, 4, 1, true, Of>(a, device);
    else if constexpr (every)
      d <= 64 ? launch_forward<64, 1, 32, 1, 4, 2, true, Of>(a, device)
              : launch_forward<128, 1, 32, 1, 4, 1, true, Of>(a, device);
    else if (d <= 32)
      launch_forward<32, 1, 64, 2, 4, 2, true, Of>(a, device);
    else if (d <= 64 && a.dropout.below > 0)
      launch_forward<64, 1, 32, 2, 4, 2, true, Of>(a, device);
    else if (d <= 64)
      launch_forward<64, 1, 64, 2, 4, 2, false, Of>(a, device);
    else
      launch_forward<128, 1, plain ? 64 : 32, 1, 8, 1, true, Of>(a, device);
  });
}

}  // namespace

AttentionSaved attention(const AttentionCall& call, const Tensor& out, bool for_backward) {
  const int64_t width = std::max(call.q.size(3), call.v.size(3));
  const Device device = call.q.device();
  const Shape rows{call.q.size(0), call.q.size(1), call.q.size(2)};
  const bool wide = call.q.dtype() == f32;
  Tensors kept;
  AttentionArgs a = attention_args(call, kept);
  a.results.out = head_rows<void>(out);
  AttentionSaved saved;
  if (for_backward) {
    Shape sizes = rows;
    if (wide) sizes.insert(0, 2);
    saved.sums = empty(sizes, {.dtype = f32, .device = device});
    a.results.sums = saved.sums.data<float>();
    if (wide) {
      a.results.inverse = a.results.sums + rows.numel();
    } else {
      saved.rest = empty_like(out);
      a.results.rest = head_rows<void>(saved.rest);
    }
  }
  launch_attention(a, width, device.index);
  return saved;
}

}  // namespace stretto::cuda
