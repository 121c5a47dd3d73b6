// Shared by the kernels of fused softmax attention (cuda/attention/attention*.cu): arguments,
// tiles, masks, loads, weights, dropout and stores.
//
// Query i is at position i + N − M. Variables named `relative` are relative positions, key −
// position. Scores are stored divided by their scale; exponentials are powers of 2.
#pragma once

#include "cuda/attention/attention.h"
#include "cuda/attention/attention_mask.cuh"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/fragments.cuh"
#include "cuda/runtime/index.h"

namespace stretto::cuda {

/// The rows of each head of a tensor [B, H, L, D] in f32 or bf16; strides in elements. T: void or
/// const void. f32 operands of tensor cores are split into three bf16 parts, `part` elements apart.
template <class T>
struct OperandRows {
  T* data = nullptr;
  int64_t batch = 0, head = 0, row = 0, part = 0;
  int chunks = 0;  // of 8 elements in a row

  template <class Element>
  __device__ Element* at(int b, int h, int i) const {
    return static_cast<Element*>(data) + (b * batch + h * head + i * row);
  }
  /// The rows of a head, in bf16.
  __device__ tile::Source source(int b, int h) const {
    return {at<const BFloat16>(b, h, 0), row, part, chunks};
  }
};
template <class T>
OperandRows<T> operand_rows(const Tensor& x) {
  if (!x.defined()) return {};
  const Shape& s = x.strides();
  return {x.raw_data(), s[0], s[1], s[2], 0, int(x.size(3) / 8)};
}

/// The arguments of all kernels of fused attention, grouped by purpose.
struct AttentionArgs {
  struct Sizes {
    int batch, heads, per_group, m, n;  // per_group: heads per key head
    int shift;                          // N − M, the position of the first query
    int parts;                          // bf16 parts of an element: 1 in bf16, 3 in f32
    Divider by_heads, by_group;
  } sizes;
  /// The operands of tensor cores. p: the position queries, or q if there are none; g: the gradient
  /// of the output, in f32 divided by the sums of weights.
  struct Operands {
    OperandRows<const void> q, k, v, p, g;
  } operands;
  /// Rows of relative positions, [H or 1, R, D], without a batch dimension. Relative position r
  /// has row zero_row + r.
  struct Table {
    OperandRows<const void> rows;
    int count, zero_row;
  } table, value_table;
  // The terms of scores other than products. attention_score_terms.cu sets them and has the rest of
  // their gradients; ops/attention/attention_score_terms.h is the CPU's list.
  /// f32 [H or 1, width], divided by the scale; width 0: no bias.
  struct LagBias {
    const float* data;
    int64_t head;
    int first, width;
    __device__ const float* of(int h) const { return data + h * head; }
  } relative_bias;
  Scores dense;  // the dense bias; null: none
  struct Mask {
    const uint8_t* padding;  // [B, N]; null: none
    int causal, window, block;
    int ahead;  // keys from position + ahead on are hidden: 1 if causal
    TensorMask tensors;
  } mask;
  struct Scale {
    float score, log2e, inverse;  // scale, scale · log₂ e and 1 / scale
  } scale;
  /// A score s, divided by the scale, becomes to · tanh(from · s); 0: no soft cap.
  struct SoftCap {
    float from, to;
  } cap;
  const float* sinks;  // [H], log₂ e times the sinks; null: none
  struct Dropout {
    uint32_t below;  // 0: no dropout
    float keep_scale;
    DrawKey key;
  } dropout;
  /// Results of forward that backward reads.
  struct Results {
    OperandRows<void> out, rest;  // rest: in bf16, the rounding error of the output
    float* sums;                  // [B, H, M]
    float* inverse;               // [B, H, M], f32 only: 1 / Σ weights
  } results;
  /// −Σ out ∘ grad [B, H, M] and its operands.
  struct Delta {
    OperandRows<const void> out, grad;
    float* data;
  } delta;
  struct Gradients {
    OperandRows<void> q, k, v, p;
    float *table, *value_table,
        *relative_bias;  // [segments, H, R, D], [… R, Dv], [segments, H, width]
    Scores dense;        // f32, of the dense bias
    float* key_sums;     // [B, H, N], of terms that all queries share; null: none
  } gradients;
  struct Grid {
    int low_relative, high_relative, segments,
        pieces;                 // attention_relative; pieces: per batch entry
    int first_unit, unit_step;  // batch entries and heads of attention_queries
  } grid;

  /// Batch entry, head and key head of a unit, one of the B · H heads;
  /// recomputed to save registers.
  struct Place {
    int b, h, kh;
  };
  __device__ Place place(int unit) const {
    const uint32_t u = uint32_t(tile::opaque(unit)), b = sizes.by_heads.quotient(u),
                   h = u - b * uint32_t(sizes.heads);
    return {int(b), int(h), int(sizes.by_group.quotient(h))};
  }
  /// A query sees keys first_key … end_key − 1, except padding and those hidden by mask.tensors.
  __device__ int first_key(int position) const {
    if (mask.window > 0) return max(0, position - mask.window + 1);
    if (mask.block > 0) return max(0, (position / mask.block - 1) * mask.block);
    return 0;
  }
  /// True if a query does not see key j because the key is too far before its position.
  __device__ bool begins_after(int j, int position) const {
    return mask.window > 0 ? j <= position - mask.window
                           : mask.block > 0 && j < position - mask.block;
  }
  __device__ int end_key(int position) const { return min(position + mask.ahead, sizes.n); }
  /// Queries from this position on see no key up to `last_key`.
  __device__ int end_position(int last_key) const {
    if (mask.window > 0) return min(sizes.n, last_key + mask.window);
    if (mask.block > 0) return min(sizes.n, (last_key / mask.block + 2) * mask.block);
    return sizes.n;
  }
  /// The position of the first query that sees keys from j on.
  __device__ int first_position(int j) const { return j + 1 - mask.ahead; }
  /// The end of the keys that queries i … i + count − 1 see; 0 if there are no such queries.
  __device__ int end_of(int i, int count) const {
    return i < sizes.m ? end_key(min(i + count, sizes.m) - 1 + sizes.shift) : 0;
  }
  /// What `queries` queries from i on see of `keys` keys from j on, under masks that are tensors.
  template <bool Extended>
  __device__ Sight sight(int unit, int i, int queries, int j, int keys) const {
    if constexpr (!Extended) return Sight::all;
    const auto [b, h, kh] = place(unit);
    return mask.tensors.sight(b, h, i, queries, j, keys);
  }
  /// True if any of these queries sees any of these keys.
  template <bool Extended>
  __device__ bool sees(int unit, int i, int queries, int j, int keys) const {
    return sight<Extended>(unit, i, queries, j, keys) != Sight::none;
  }
  /// The keys of a batch entry that padding hides from all queries, or that are out of range.
  struct HiddenKeys {
    const uint8_t* padding;
    int64_t row;
    int n;
    __device__ bool operator()(int j) const {
      return j < 0 || j >= n || (padding && padding[row + j]);
    }
  };
  __device__ HiddenKeys hidden_keys(int b) const {
    return {mask.padding, int64_t(b) * sizes.n, sizes.n};
  }
  /// The steps of 16 columns of the table's rows that layout L multiplies; the others are zeros.
  template <class L>
  __device__ int table_steps() const {
    return L::has_p ? (table.rows.chunks + 1) / 2 : L::head / 16;
  }
  /// True if scores have a relative term or a bias of relative positions.
  __device__ bool has_relative() const { return table.count > 0 || relative_bias.width > 0; }

  /// True if scores have such terms in add_terms(), for which kernels are compiled with
  /// Positions::all.
  bool has_terms() const { return dense.data; }
  /// Adds the terms other than products and relative_bias, divided by the scale, to scores in the
  /// layout of each_score().
  template <int Parts, bool Transposed, int Slope = 0, int Slabs, int Tiles>
  __device__ void add_terms(float (&s)[Slabs][Tiles][4], int b, int h, int i, int j) const {
    if (!dense.data) return;
    using T = std::conditional_t<Parts == 1, BFloat16, float>;
    const T* const from = dense.of<const T>(b, h);
    each_score<Transposed, Slope>(s, i, j, [&](int query, int key, float& x) {
      if (query < sizes.m && key >= 0 && key < sizes.n)
        x += cast<float>(from[query * dense.query + key * dense.key]) * scale.inverse;
    });
  }
  /// Applies the soft cap to scores.
  template <int Parts, int Slabs, int Tiles>
  __device__ void cap_scores(float (&s)[Slabs][Tiles][4]) const {
    if (cap.from == 0) return;
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int n = 0; n < Tiles; ++n)
#pragma unroll
        for (int e = 0; e < 4; ++e) s[sl][n][e] = capped<Parts>(s[sl][n][e]);
  }
  /// A score after the cap. Products are rounded separately, so that all kernels compute
  /// bit-identical scores. In bf16 the error is a few 2⁻²⁴ of the cap.
  template <int Parts>
  __device__ float capped(float score) const {
    const float x = __fmul_rn(score, cap.from);
    const float y = Parts > 1 ? tanhf(x) : 1 - __fdividef(2.f, 1 + ptx::ex2(x * 2.88539008f));
    return __fmul_rn(y, cap.to);
  }
  /// The derivative of the soft cap, from the score after it; 1 if there is none.
  __device__ float cap_slope(float score) const {
    const float y = score * cap.from;
    return cap.from == 0 ? 1 : 1 - y * y;  // without a cap, a score may be −∞
  }

  /// Sets scores to `nothing` where a query does not see a key, in slabs of 16 queries, the first
  /// of which is at `position`, and tiles of 8 keys from j0 on.
  template <int Tiles, int Slabs>
  __device__ void hide_keys(float (&s)[Slabs][Tiles][4], int b, int j0, int position,
                            float nothing) const {
    const int lane = threadIdx.x % 32, first = j0 + 2 * (lane % 4);
    uint32_t padded = 0;
    if (mask.padding) {
      const HiddenKeys hidden = hidden_keys(b);
#pragma unroll
      for (int c = 0; c < 2 * Tiles; ++c)
        padded |= uint32_t(hidden(first + 8 * (c / 2) + c % 2)) << c;
    }
#pragma unroll
    for (int sl = 0; sl < Slabs; ++sl)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int at = position + 16 * sl + lane / 4 + 8 * half;
        const int low = first_key(at) - first, high = end_key(at) - first;
#pragma unroll
        for (int c = 0; c < 2 * Tiles; ++c) {
          const int j = 8 * (c / 2) + c % 2;
          if (j < low || j >= high || (padded >> c & 1)) s[sl][c / 2][2 * half + c % 2] = nothing;
        }
      }
  }
};

/// The relative terms of scores other than a bias: none, products of the queries (shared) or of
/// position queries (separate) with a table, or all features (also a value table and a dense bias).
enum class Positions { none, shared, separate, all };

/// The compile-time configuration of a kernel, the template argument of its layout. (nvcc 13 cannot
/// launch kernels that have a template argument of class type themselves.)
struct AttentionTile {
  Positions positions = Positions::none;
  int head = 64;  // head dimension, to which operands are padded with zeros
  int parts = 1;  // bf16 parts of an element: 1 in bf16, 3 in f32
  int slabs = 1;  // of 16 rows per warp: queries, keys or relative positions
  int warps = 4;
  int step = 32;  // keys per step if warps own queries, else queries per step
  int blocks_per_sm = 1;
  int q_steps = 0, g_steps = 0;  // attention_queries: steps of 16 columns held in registers
  bool dropout = true;
  bool extended = false;  // masks that are tensors, and the soft cap

  constexpr bool has_table() const { return positions != Positions::none; }
  constexpr bool has_all() const { return positions == Positions::all; }
  constexpr bool has_p() const { return has_all() || positions == Positions::separate; }
};

/// The largest width of the rows of operands: D, Dv or P.
inline int64_t widest(const AttentionOperands& c) {
  const Tensor& p = c.options.relative_query;
  return std::max({c.q.size(3), c.v.size(3), p.defined() ? p.size(3) : 0});
}
/// True if the inputs need a kernel that is compiled for masks that are tensors and the soft cap.
inline bool is_extended(const AttentionArgs& a) {
  return a.mask.tensors.defined() || a.cap.from != 0;
}

/// The members that all layouts of shared memory have in common; row: bytes per row.
template <AttentionTile T>
struct AttentionLayout {
  static constexpr AttentionTile config = T;
  static constexpr bool table = T.has_table(), all = T.has_all(), has_p = T.has_p();
  static constexpr int head = T.head, parts = T.parts, slabs = T.slabs, step = T.step;
  static constexpr int blocks_per_sm = T.blocks_per_sm;
  static constexpr bool extended = T.extended;
  static constexpr int threads = 32 * T.warps, own = 16 * T.slabs;  // own: rows per warp
  static constexpr int rows = own * T.warps, row = T.parts * T.head * 2;
  using Step = tile::Area<BFloat16, T.head, T.step, T.parts>;
  using Own = tile::Area<BFloat16, T.head, tile::ring_of(rows), T.parts>;
};

/// Begins to copy the table rows, value table rows and biases of relative positions `relative` …
/// relative + Count − 1 into the rings of layout L.
template <class L, int Count>
__device__ inline void copy_relative(const AttentionArgs& a, uint32_t base, int unit,
                                     int relative) {
  const int h = a.place(unit).h;
  const auto load = [&](int ring, const AttentionArgs::Table& table) {
    tile::copy_rows<L::threads, Count>(typename L::Ring{base + ring}, table.rows.source(0, h),
                                       relative + table.zero_row, table.count,
                                       relative & (L::ring - 1));
  };
  if constexpr (L::table) load(L::r, a.table);
  if constexpr (L::all) load(L::values, a.value_table);
  if (a.relative_bias.width > 0)
    tile::copy_line<L::threads, Count, L::ring>(base + L::bias, a.relative_bias.of(h),
                                                relative - a.relative_bias.first,
                                                a.relative_bias.width, relative & (L::ring - 1));
}

/// The index of the buffer, of the two of an area, that holds the step from row `at` on.
template <class L>
__device__ inline int turn(int at) {
  return int(uint32_t(at) / L::step & 1);
}

/// Begins to copy Count keys from j on, and their values, to rows `to` … of areas at L::k and L::v.
template <class L, int Count, class A>
__device__ inline void copy_keys(const AttentionArgs& a, A area, int unit, int j, int to = 0) {
  const auto [b, h, kh] = a.place(unit);
  tile::copy_rows<L::threads, Count>(area + L::k, a.operands.k.source(b, kh), j, a.sizes.n, to);
  tile::copy_rows<L::threads, Count>(area + L::v, a.operands.v.source(b, kh), j, a.sizes.n, to);
}
/// The same for a step of keys, to one of two buffers.
template <class L>
__device__ inline void copy_step(const AttentionArgs& a, uint32_t base, int unit, int j) {
  copy_keys<L, L::step>(a, typename L::Step{base + turn<L>(j) * L::Step::bytes}, unit, j);
}

/// Begins to copy the queries of a step, the gradients of their outputs, sums and deltas.
template <class L>
__device__ inline void copy_queries(const AttentionArgs& a, uint32_t base, int unit, int i) {
  const auto [b, h, kh] = a.place(unit);
  const int64_t line = int64_t(unit) * a.sizes.m;
  const typename L::Step to{base + turn<L>(i) * L::Step::bytes};
  const uint32_t stats = base + L::stats + turn<L>(i) * 2 * L::step * 4;
  const auto rows = [&, b = b, h = h](int area, const OperandRows<const void>& from) {
    tile::copy_rows<L::threads, L::step>(to + area, from.source(b, h), i, a.sizes.m);
  };
  rows(L::q, a.operands.q);
  rows(L::g, a.operands.g);
  if constexpr (L::has_p) rows(L::p, a.operands.p);
  tile::copy_line<L::threads, L::step>(stats, a.results.sums + line, i, a.sizes.m);
  tile::copy_line<L::threads, L::step>(stats + L::step * 4, a.delta.data + line, i, a.sizes.m);
}

/// The rows that a warp owns as left operands, from shared memory or, for the first `Held` steps of
/// 16 columns, from registers.
template <class L, int Held = 0>
struct OwnRows {
  using Operand = tile::Fragment<L::parts>;
  uint32_t address;  // the lane's
  Operand held[Held > 0 ? L::slabs : 1][Held > 0 ? Held : 1];

  __device__ OwnRows(uint32_t base, int area) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    address = base + area + warp * L::own * L::Own::pitch + L::Step::Rows::as_rows(lane);
  }
  /// To be called when the rows have arrived.
  __device__ void hold() {
    if constexpr (Held > 0) {
#pragma unroll
      for (int sl = 0; sl < L::slabs; ++sl)
#pragma unroll
        for (int x = 0; x < Held; ++x) held[sl][x] = load(sl, x);
    }
  }
  __device__ Operand load(int sl, int x) const {
    Operand f;
    tile::load(f, (address + sl * 16 * L::Own::pitch) ^ (x << 5), L::Own::part);
    return f;
  }
  /// Columns 16 x … of a slab. If some steps are held, the product's loop must be unrolled.
  __device__ Operand operator()(int sl, int x) const {
    if constexpr (Held > 0)
      return held[sl][x];
    else
      return load(sl, x);
  }
};

/// Computes delta of a warp's queries from i on, −Σ o ∘ g, in f32 divided by the sum of weights.
/// Writes it to `own`, and to global memory for the kernels of keys and relative positions.
template <class L>
__device__ inline void compute_delta(const AttentionArgs& a, int unit, int i, float* own) {
  using T = std::conditional_t<L::parts == 1, BFloat16, float>;
  constexpr int V = pack_size<T>, lanes = L::head / V;
  const auto [b, h, kh] = a.place(unit);
  const int x = int(threadIdx.x) % lanes;
#pragma unroll 4
  for (int r = int(threadIdx.x) % 32 / lanes; r < L::own; r += 32 / lanes) {
    float sum = 0;
    if (i + r < a.sizes.m && x * V < a.delta.grad.chunks * 8) {
      const auto row = [&, b = b, h = h](const auto& from) {
        return *reinterpret_cast<const Pack<T, V>*>(from.template at<const T>(b, h, i + r) + V * x);
      };
      const auto o = row(a.delta.out), g = row(a.delta.grad);
#pragma unroll
      for (int e = 0; e < V; ++e) sum += cast<float>(o.v[e]) * cast<float>(g.v[e]);
      if constexpr (L::parts == 1) {
        const auto low = row(a.results.rest);
#pragma unroll
        for (int e = 0; e < V; ++e) sum += cast<float>(low.v[e]) * cast<float>(g.v[e]);
      }
    }
#pragma unroll
    for (int lane = lanes / 2; lane > 0; lane /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lane);
    if (x != 0) continue;
    if constexpr (L::parts > 1)
      if (i + r < a.sizes.m) sum *= a.results.inverse[int64_t(unit) * a.sizes.m + i + r];
    own[r] = -sum;
    if (i + r < a.sizes.m) a.delta.data[int64_t(unit) * a.sizes.m + i + r] = -sum;
  }
}

/// The largest exponent of a weight: the subtracted number is rounded up, and may be 8 less
/// than the largest exponent. Backward's bf16 weights are divided by their sum; its f32
/// weights are forward's.
template <int Parts, bool Backward>
constexpr float max_exponent = Parts == 1 && Backward ? 0 : 9;

/// 2^(score · log2e_scale − subtracted). With a dense bias, which may be close to −∞ for all keys
/// of a query, the exponent is limited to `max`: such scores are dominated by the rounding error of
/// the subtracted number.
template <bool Dense>
__device__ inline float weight(float score, float log2e_scale, float subtracted, float max) {
  const float x = fmaf(score, log2e_scale, -subtracted);
  return ptx::ex2(Dense ? fminf(x, max) : x);
}

/// Stores row i of a result, if i < limit, from a product's tiles, in which a quad of lanes holds
/// it: element(x, e) is the lane's element e of tile x. bf16 is stored 16 bytes at a time, and its
/// rounding error goes to `rest`, if given.
template <class L, class Element>
__device__ inline void put_row(const OperandRows<void>& to, int b, int h, int i, int limit,
                               const Element& element, const OperandRows<void>& rest = {}) {
  const int t = tile::opaque(threadIdx.x) % 4;
#pragma unroll
  for (int x = 0; x < L::head / 8; x += 4) {
    if constexpr (L::parts == 1) {
      uint32_t r[4], low[4];
#pragma unroll
      for (int y = 0; y < 4; ++y) {
        float first = element(x + y, 0), second = element(x + y, 1);
        r[y] = tile::pack_pair(first, second);
        low[y] = ptx::cvt_pack(first, second);
      }
      const auto put = [&](const OperandRows<void>& rows, uint32_t(&four)[4]) {
        tile::transpose_quad(four, t);
        if (i < limit && x + t < to.chunks)
          *reinterpret_cast<uint4*>(rows.at<BFloat16>(b, h, i) + (x + t) * 8) = {four[0], four[1],
                                                                                 four[2], four[3]};
      };
      put(to, r);
      if (rest.data) put(rest, low);
    } else {
#pragma unroll
      for (int y = x; y < x + 4; ++y)
        if (i < limit && y < to.chunks)
          *reinterpret_cast<float2*>(to.at<float>(b, h, i) + y * 8 + 2 * t) = {element(y, 0),
                                                                               element(y, 1)};
    }
  }
}

/// x as kernels read it; tensors made for it are added to `kept`. f32 rows are multiplied by
/// `factors` [B, H, L], if given.
OperandRows<const void> attention_operand(const Tensor& x, Tensors& kept,
                                          const float* factors = nullptr);
/// The arguments that forward and backward have in common. Without `cut`, f32 operands are
/// not split into parts.
AttentionArgs attention_args(const AttentionOperands& inputs, Tensors& kept, bool cut = true);
/// The strides of a tensor that broadcasts to [B, H, M, N].
Scores scores_of(const Tensor& x);
/// Sets the terms of scores other than products.
void set_score_terms(AttentionArgs& a, const AttentionOptions& o);
/// Begins to compute their gradients in `to`, except those of tables. The kernel that owns keys
/// writes its sums to the result, [B, H, 1, N], if that is defined.
Tensor begin_term_gradients(AttentionArgs& a, const AttentionOptions& to, Device device);
/// Completes them from these sums and delta [B, H, M]. The caller sums each gradient over the
/// dimensions along which the term was broadcast.
void finish_term_gradients(const AttentionArgs& a, const Tensor& key_sums, const Tensor& delta,
                           AttentionOptions& to);

// Launchers of the backward kernels, each in the file of its name. d: the larger of D and Dv.
void launch_attention_keys(const AttentionArgs& a, int d, int device);
void launch_attention_queries(AttentionArgs a, int d, int device);
void launch_attention_relative(const AttentionArgs& a, int d, int device);
/// The approximate number of relative positions per block of attention_relative: 64 or 128.
constexpr int relative_per_block = 128;

}  // namespace stretto::cuda
