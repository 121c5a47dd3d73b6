// Linear attention, backward. With r = 1 / total, and S, z as in linear_attention.cu,
//
//     N·g = Σ_f Q (g Sᵀ) + Σ_j P (g Vᵀ)    e = r N·g    (= g·y, but y may be rounded)
//     dQ = r [g Sᵀ − e z + tril(g Vᵀ − e) K]                from the first chunk to the last
//     dK = V Tᵀ + w + [tril(g Vᵀ − e) r]ᵀ Q                 from the last chunk to the first
//     dV = K T + [tril(Q Kᵀ) r]ᵀ g                T = Σ r q gᵀ, w = −Σ r e q of the chunks after
//
// The first sweep is a block for a head, and writes e; the second a block for a key head, whose
// chunks go over its heads, one after the other. Either by segments where there are few. T and w
// after the first chunk are the gradient of the state before it. In bf16 the weights tril(…) are
// rounded as operands; S, T and r q are not. Tested against the CPU.
#include "cuda/attention/linear_attention.cuh"

namespace stretto::cuda {
namespace linear {
namespace {

template <class T>
struct Backward {
  Rows<const T> q, k, v, g;  // sweep of queries: k null, the state is that of all keys; of keys: q
                             // null, the same of queries
  Rows<T> dq, dk, dv;        // dk null: sums alone
  const uint8_t* hidden;
  States<const float> before;
  States<float> after;
  const float* totals;  // [B, H, M]
  float* slopes;        // e [B, H, M]
  Sizes size;
};

template <class T, int JF, int ND>
using BackwardPlan = Plan<T, JF, ND, 2, 2, float, 4 * chunk * 4>;

/// The tiles of a stage.
template <class T, int JF, int ND>
struct Tiles {
  using Here = BackwardPlan<T, JF, ND>;
  Tile<T, 64 * JF> q, k;
  Tile<T, 64 * ND> v, g;
  __device__ Tiles(char* memory, int stage)
      : q{memory + stage * Here::stage},
        k{q.data + Here::wide},
        v{k.data + Here::wide},
        g{v.data + Here::narrow} {}
};

/// 1 / total of a query, 0 where there is none.
template <class T>
__device__ inline float factor_of(const Backward<T>& a, int64_t first, int row) {
  if (row < 0 || row >= a.size.m) return 0;
  const float total = a.totals[first + row];
  return total == 0 ? 0 : 1 / total;
}

/// dq and e; grid: [B H, segments]
template <class T, int JF, int ND>
__global__ void __launch_bounds__(threads, sizeof(T) == 2 && JF * ND == 1 ? 2 : 1)
    linear_attention_queries(const __grid_constant__ Backward<T> a) {
  using Here = BackwardPlan<T, JF, ND>;
  using Part = State<T, JF, ND>;
  constexpr int unrolled = steps_at_once<T, JF * ND>;
  constexpr bool keeps = sizeof(T) == 2 ? JF * ND <= 2 : JF * ND == 1;
  extern __shared__ __align__(1024) char memory[];
  const Sizes& size = a.size;
  Place p;
  const int b = int(blockIdx.x) / size.heads, h = int(blockIdx.x) % size.heads,
            kh = h / (size.heads / size.groups), segment = int(blockIdx.y),
            begin = segment * size.per_segment, end = min(size.chunks, begin + size.per_segment);
  const bool keys = a.k.data;
  const int64_t first_query = int64_t(blockIdx.x) * size.m;
  const uint8_t* const hidden = a.hidden ? a.hidden + int64_t(b) * size.n : nullptr;
  const WideTile<T, 64 * ND> shared_state(memory + Here::state_at, 64 * JF);
  const auto z = Here::line(memory);
  float* const dots = reinterpret_cast<float*>(memory + Here::more_at);  // [2, 64]
  const auto column = [&](int c) { return 32 * JF * p.side + 16 * c; };  // of dq

  const auto load = [&](int c, int stage) {
    const Tiles<T, JF, ND> to(memory, stage);
    const int at = size.first + c * chunk;
    copy_rows<threads>(to.q, a.q.at(b, h), a.q.row, at - size.shift, size.m, size.f);
    copy_rows<threads>(to.g, a.g.at(b, h), a.g.row, at - size.shift, size.m, size.dv);
    if (keys) {
      copy_rows<threads>(to.k, a.k.at(b, kh), a.k.row, at, size.n, size.f, hidden);
      copy_rows<threads>(to.v, a.v.at(b, kh), a.v.row, at, size.n, size.dv, hidden);
    }
    ptx::commit();
  };

  load(begin, 0);
  Part state;
  state.begin(p, a.before.data ? a.before.at(b * size.groups + kh, segment) : nullptr, size.f,
              size.dv, shared_state, z, true);
  ptx::wait<0>();
  __syncthreads();
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    const int stage = Here::stages == 2 ? (c - begin) % 2 : 0;
    if (Here::stages == 2 && c + 1 < end) load(c + 1, stage ^ 1);
    const Tiles<T, JF, ND> in(memory, stage);
    p.renew();
    float by[2];
    T* rows[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = size.first + c * chunk - size.shift + 16 * p.slab + p.row + 8 * i;
      by[i] = factor_of(a, first_query, row);
      rows[i] = row >= 0 && row < size.m ? a.dq.at(b, h) + row * a.dq.row : nullptr;
    }
    // g Vᵀ is kept, or computed twice where registers do not suffice.
    float weights[keeps ? 4 : 1][2][4] = {}, d[JF][2][2][4] = {}, dot[2] = {};
#pragma unroll(unrolled)
    for (int x = 0; x < 4 * ND; ++x) {
      const Left<T> mine = left(in.g, 16 * p.slab, 16 * x);
      if (keeps && keys)
#pragma unroll
        for (int y = 0; y < 4; ++y)
          if (y <= p.slab)
            multiply(weights[keeps ? y : 0], mine, right_turned(in.v, 16 * y, 16 * x));
#pragma unroll
      for (int y = 0; y < 2 * JF; ++y)
        shared_state.multiply_by_turned(d[y / 2][y % 2], mine, column(y), 16 * x);
    }
    const auto weigh = [&](int y) -> float(&)[2][4] {
      if constexpr (!keeps) {
#pragma unroll
        for (int i = 0; i < 8; ++i) weights[0][i / 4][i % 4] = 0;
#pragma unroll 1
        for (int x = 0; x < 4 * ND; ++x)
          multiply(weights[0], left(in.g, 16 * p.slab, 16 * x), right_turned(in.v, 16 * y, 16 * x));
      }
      return weights[keeps ? y : 0];
    };
    // N·g: each side takes its half of the features.
    if (keys)
#pragma unroll(keeps ? 4 : 1)
      for (int y = 0; y < 4; ++y)
        if (y <= p.slab) {
          float products[2][4] = {};
#pragma unroll(unrolled)
          for (int x = 0; x < 2 * JF; ++x)
            multiply(products, left(in.q, 16 * p.slab, column(x)),
                     right_turned(in.k, 16 * y, column(x)));
          if (y == p.slab) mask_diagonal<false>(p, products);
          const float(&w)[2][4] = weigh(y);
#pragma unroll
          for (int i = 0; i < 8; ++i) dot[i % 4 / 2] += products[i / 4][i % 4] * w[i / 4][i % 4];
        }
#pragma unroll
    for (int y = 0; y < 2 * JF; ++y) {
      const Left<T> mine = left(in.q, 16 * p.slab, column(y));
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float2 one = mine.values(i / 2, i % 2);
        const float(&sums)[4] = d[y / 2][y % 2][i % 2];
        dot[i / 2] += one.x * sums[i / 2 * 2] + one.y * sums[i / 2 * 2 + 1];
      }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      dot[i] = row_sum(dot[i]);
      if (p.column == 0) dots[p.side * chunk + 16 * p.slab + p.row + 8 * i] = dot[i];
    }
    __syncthreads();
    float slope[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int row = 16 * p.slab + p.row + 8 * i;
      slope[i] = by[i] * (dots[row] + dots[chunk + row]);
      if (rows[i] && p.side == 0 && p.column == 0)
        a.slopes[first_query + size.first + c * chunk - size.shift + row] = slope[i];
    }
#pragma unroll
    for (int y = 0; y < 2 * JF; ++y)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        const float2 sum = *reinterpret_cast<const float2*>(z.data + column(y) + 8 * j + p.column);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          d[y / 2][y % 2][j][2 * i] -= slope[i] * sum.x;
          d[y / 2][y % 2][j][2 * i + 1] -= slope[i] * sum.y;
        }
      }
    if (keys)
#pragma unroll(keeps ? 4 : 1)
      for (int x = 0; x < 4; ++x)
        if (x <= p.slab) {
          float(&w)[2][4] = weigh(x);
#pragma unroll
          for (int i = 0; i < 8; ++i) w[i / 4][i % 4] -= slope[i % 4 / 2];
          if (x == p.slab) mask_diagonal<false>(p, w);
          const auto mine = operand_of<Left<T>>(w);
#pragma unroll
          for (int y = 0; y < 2 * JF; ++y)
            multiply(d[y / 2][y % 2], mine, right(in.k, 16 * x, column(y)));
        }
#pragma unroll
    for (int y = 0; y < JF; ++y) store_sums(rows, d[y], by, column(2 * y), size.f);
    if (keys) state.add_keys(p, in.k, in.v, shared_state, z);
    if (c + 1 == end) break;
    __syncthreads();
    if (keys) state.share(p, shared_state, z);
    if (Here::stages == 1) load(c + 1, 0);
    ptx::wait<0>();
    __syncthreads();
  }
}

/// dk and dv, or T and w alone; grid: [B G, segments], segments from the last chunk on
template <class T, int JF, int ND>
__global__ void __launch_bounds__(threads, 1)
    linear_attention_keys(const __grid_constant__ Backward<T> a) {
  using Here = BackwardPlan<T, JF, ND>;
  using Part = State<T, JF, ND>;
  extern __shared__ __align__(1024) char memory[];
  constexpr int unrolled = steps_at_once<T, JF * ND>, together = JF * ND <= 2 ? 4 : 1;
  const Sizes& size = a.size;
  Place p;
  const bool queries = a.q.data, outputs = a.dk.data;
  const int b = int(blockIdx.x) / size.groups, kh = int(blockIdx.x) % size.groups,
            heads = queries ? size.heads / size.groups : 1, first_head = kh * heads,
            segment = int(blockIdx.y), begin = segment * size.per_segment,
            steps = (min(size.chunks, begin + size.per_segment) - begin) * heads;
  const uint8_t* const hidden = a.hidden ? a.hidden + int64_t(b) * size.n : nullptr;
  const WideTile<T, 64 * ND> shared_state(memory + Here::state_at, 64 * JF);
  const auto z = Here::line(memory);
  float* const stats = reinterpret_cast<float*>(memory + Here::more_at);  // [2][r, e][64]
  const auto column = [&](int c) { return 32 * JF * p.side + 16 * c; };   // of dk
  const auto first_of = [&](int step) {
    return size.first + (size.chunks - 1 - (begin + step / heads)) * chunk;
  };

  const auto load = [&](int step, int stage) {
    const Tiles<T, JF, ND> to(memory, stage);
    const int at = first_of(step), h = first_head + step % heads;
    if (queries) {
      copy_rows<threads>(to.q, a.q.at(b, h), a.q.row, at - size.shift, size.m, size.f);
      copy_rows<threads>(to.g, a.g.at(b, h), a.g.row, at - size.shift, size.m, size.dv);
    }
    if (outputs) {
      copy_rows<threads>(to.k, a.k.at(b, kh), a.k.row, at, size.n, size.f, hidden);
      copy_rows<threads>(to.v, a.v.at(b, kh), a.v.row, at, size.n, size.dv, hidden);
    }
    ptx::commit();
  };
  // r by the first 64 threads, e by the next.
  const auto stat_of = [&](int step) -> float {
    if (!queries || threadIdx.x >= 2 * chunk) return 0;
    const int row = first_of(step) - size.shift + int(threadIdx.x) % chunk;
    const int64_t first = (int64_t(b) * size.heads + first_head + step % heads) * size.m;
    if (threadIdx.x < chunk) return factor_of(a, first, row);
    return row >= 0 && row < size.m ? a.slopes[first + row] : 0;
  };
  const auto keep_stat = [&](int step, float x) {
    if (threadIdx.x < 2 * chunk) stats[step % 2 * 2 * chunk + threadIdx.x] = x;
  };

  load(0, 0);
  keep_stat(0, stat_of(0));
  Part state;
  state.begin(p, a.before.data ? a.before.at(int(blockIdx.x), segment) : nullptr, size.f, size.dv,
              shared_state, z, outputs);
  ptx::wait<0>();
  __syncthreads();
  float dkey[JF][2][2][4] = {}, dvalue[ND][2][2][4] = {};
#pragma unroll 1
  for (int step = 0; step < steps; ++step) {
    const int stage = Here::stages == 2 ? step % 2 : 0;
    const bool more = step + 1 < steps;
    if (Here::stages == 2 && more) load(step + 1, stage ^ 1);
    const float next_stat = more ? stat_of(step + 1) : 0;
    const Tiles<T, JF, ND> in(memory, stage);
    p.renew();
    const float* const r = stats + step % 2 * 2 * chunk;
    const auto of_queries = [&](const float* x, int y, int j) {
      return *reinterpret_cast<const float2*>(x + 16 * y + 8 * j + p.column);
    };
    if (outputs) {
      const bool first_one = step % heads == 0;
      if (first_one)
#pragma unroll
        for (int i = 0; i < 16 * ND; ++i) dvalue[i / 16][i / 8 % 2][i / 4 % 2][i % 4] = 0;
      // Products of keys and queries, `together` blocks of 16 at a time, weighed and on or above
      // the diagonal; with the state's part on the way.
      const auto weigh = [&](float(&w)[2][4], int y, auto less) {
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          const float2 by = of_queries(r, y, j), e = less(y, j);
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            w[j][2 * i] = (w[j][2 * i] - e.x) * by.x;
            w[j][2 * i + 1] = (w[j][2 * i + 1] - e.y) * by.y;
          }
        }
        if (y == p.slab) mask_diagonal<true>(p, w);
        return operand_of<Left<T>>(w);
      };
#pragma unroll 1
      for (int y0 = 0; y0 < 4; y0 += together) {
        float weights[together][2][4] = {};
#pragma unroll(unrolled)
        for (int x = 0; x < 4 * JF; ++x) {
          const Left<T> mine = left(in.k, 16 * p.slab, 16 * x);
#pragma unroll
          for (int y = 0; y < together; ++y)
            if (queries && y0 + y >= p.slab)
              multiply(weights[y], mine, right_turned(in.q, 16 * (y0 + y), 16 * x));
          if (first_one && y0 == 0)
#pragma unroll
            for (int y = 0; y < 2 * ND; ++y)
              shared_state.multiply_by(dvalue[y / 2][y % 2], mine, 16 * x, Part::column(p, y));
        }
#pragma unroll
        for (int x = 0; x < together; ++x)
          if (queries && y0 + x >= p.slab) {
            const auto mine = weigh(weights[x], y0 + x, [](int, int) { return float2{0, 0}; });
#pragma unroll
            for (int y = 0; y < 2 * ND; ++y)
              multiply(dvalue[y / 2][y % 2], mine, right(in.g, 16 * (y0 + x), Part::column(p, y)));
          }
      }
      if (first_one)
#pragma unroll
        for (int y = 0; y < 2 * JF; ++y)
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            const float2 sum =
                *reinterpret_cast<const float2*>(z.data + column(y) + 8 * j + p.column);
#pragma unroll
            for (int i = 0; i < 2; ++i) {
              dkey[y / 2][y % 2][j][2 * i] = sum.x;
              dkey[y / 2][y % 2][j][2 * i + 1] = sum.y;
            }
          }
#pragma unroll 1
      for (int y0 = 0; y0 < 4; y0 += together) {
        float weights[together][2][4] = {};
#pragma unroll(unrolled)
        for (int x = 0; x < 4 * ND; ++x) {
          const Left<T> mine = left(in.v, 16 * p.slab, 16 * x);
#pragma unroll
          for (int y = 0; y < together; ++y)
            if (queries && y0 + y >= p.slab)
              multiply(weights[y], mine, right_turned(in.g, 16 * (y0 + y), 16 * x));
          if (first_one && y0 == 0)
#pragma unroll
            for (int y = 0; y < 2 * JF; ++y)
              shared_state.multiply_by_turned(dkey[y / 2][y % 2], mine, column(y), 16 * x);
        }
#pragma unroll
        for (int x = 0; x < together; ++x)
          if (queries && y0 + x >= p.slab) {
            const auto mine = weigh(weights[x], y0 + x,
                                    [&](int y, int j) { return of_queries(r + chunk, y, j); });
#pragma unroll
            for (int y = 0; y < 2 * JF; ++y)
              multiply(dkey[y / 2][y % 2], mine, right(in.q, 16 * (y0 + x), column(y)));
          }
      }
      if (step % heads == heads - 1) {
        T *key_rows[2], *value_rows[2];
        float by[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const int row = first_of(step) + 16 * p.slab + p.row + 8 * i;
          const bool there = row >= 0 && row < size.n;
          by[i] = there && hidden && hidden[row] ? 0 : 1;
          key_rows[i] = there ? a.dk.at(b, kh) + row * a.dk.row : nullptr;
          value_rows[i] = there ? a.dv.at(b, kh) + row * a.dv.row : nullptr;
        }
#pragma unroll
        for (int y = 0; y < JF; ++y) store_sums(key_rows, dkey[y], by, column(2 * y), size.f);
#pragma unroll
        for (int y = 0; y < ND; ++y)
          store_sums(value_rows, dvalue[y], by, Part::column(p, 2 * y), size.dv);
      }
    }
    if (queries)
      state.template add<RowSums<float>>(
          p, in.g, shared_state, z, [&](int j, int x, RowSums<float>* sums) {
            const Left<T> mine = left_turned(in.q, 16 * x, Part::feature(p, j));
            Wide<T> scaled;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              const float2 by = of_queries(r, x, i % 2), two = mine.values(i / 2, i % 2),
                           both = {two.x * by.x, two.y * by.y};
              scaled.set(i / 2, i % 2, both);
              if (!sums) continue;
              const float2 e = of_queries(r + chunk, x, i % 2);
              sums->add(i / 2, -(both.x * e.x + both.y * e.y));
            }
            return scaled;
          });
    if (!more) break;
    keep_stat(step + 1, next_stat);
    __syncthreads();
    if (outputs && queries) state.share(p, shared_state, z);
    if (Here::stages == 1) load(step + 1, 0);
    ptx::wait<0>();
    __syncthreads();
  }
  if (a.after.data)
    state.store(p, shared_state, z, a.after.at(int(blockIdx.x), segment), size.f, size.dv);
}

constexpr const char* op = "linear_attention_backward";

template <class T>
void start_queries(int device, int64_t blocks, int segments, const Backward<T>& call) {
  with_widths<T>(call.size.f, call.size.dv, [&](auto jf, auto nd) {
    constexpr int JF = decltype(jf)::value, ND = decltype(nd)::value;
    launch_with_shared(op, device, linear_attention_queries<T, JF, ND>,
                       dim3(unsigned(blocks), unsigned(segments)), threads,
                       BackwardPlan<T, JF, ND>::bytes, call);
  });
}
template <class T>
void start_keys(int device, int64_t blocks, int segments, const Backward<T>& call) {
  with_widths<T>(call.size.f, call.size.dv, [&](auto jf, auto nd) {
    constexpr int JF = decltype(jf)::value, ND = decltype(nd)::value;
    launch_with_shared(op, device, linear_attention_keys<T, JF, ND>,
                       dim3(unsigned(blocks), unsigned(segments)), threads,
                       BackwardPlan<T, JF, ND>::bytes, call);
  });
}

float* sums_of(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

}  // namespace
}  // namespace linear

using namespace linear;

void linear_attention_backward(const LinearAttentionInputs& in, const Tensor& totals,
                               const Tensor& grad, const Tensor& grad_after,
                               const LinearAttentionGradients& to) {
  const Tensor q = aligned_rows(in.q), k = aligned_rows(in.k), v = aligned_rows(in.v),
               g = aligned_rows(grad), slopes = empty_like(totals);
  const int64_t blocks = q.size(0) * q.size(1), units = k.size(0) * k.size(1);
  const int device = q.device().index;
  const auto sizes = [&](int length) {
    Sizes s = sizes_of(q, k, v);
    in.causal ? causal_chunks(s) : plain_chunks(s, length);
    return s;
  };
  Sizes of_q = sizes(int(q.size(2))), of_k = sizes(int(k.size(2)));
  const int64_t state = int64_t(of_q.f) * (of_q.dv + 1);
  const int q_segments = cut(of_q, blocks);
  const KeyStates states = key_states(in, k, v, of_q, q_segments, {});
  with_type(q.dtype(), [&]<class T>() {
    const Backward<T> all = {.q = rows_of<const T>(q),
                             .k = rows_of<const T>(k),
                             .v = rows_of<const T>(v),
                             .g = rows_of<const T>(g),
                             .dq = rows_of<T>(to.q),
                             .dk = rows_of<T>(to.k),
                             .dv = rows_of<T>(to.v),
                             .hidden = in.padding.defined() ? in.padding.data<uint8_t>() : nullptr,
                             .totals = totals.data<float>(),
                             .slopes = slopes.data<float>()};
    Backward<T> call = all;
    if (!in.causal) call.k = call.v = {};
    call.before = states.at;
    call.size = of_q;
    start_queries(device, blocks, q_segments, call);

    // T of segments, then before each; two-sided, of all queries.
    call = all;
    const float* const last = sums_of(grad_after);
    float* const first = sums_of(to.before);
    int segments = cut(of_k, units);
    Tensor sums, total;
    if (!in.causal || segments > 1) {
      Sizes of_sums = in.causal ? of_k : of_q;
      const int parts = in.causal ? segments : cut(of_sums, units);
      sums = empty({units, parts, state}, options_of(totals));
      call.dk = call.dv = {};
      call.size = of_sums;
      call.after = {sums.data<float>(), parts * state, state};
      start_keys(device, units, parts, call);
      if (!in.causal) total = first ? to.before : empty({units, state}, options_of(totals));
      before_segments(op, device, sums.data<float>(), units, parts, state, last,
                      in.causal ? first : total.data<float>());
      call = all;
      call.before = {sums_of(in.causal ? sums : total), in.causal ? parts * state : state,
                     in.causal ? state : 0};
    } else {
      call.before = {last, state, 0};
      call.after = {first, state, 0};
    }
    if (!in.causal) call.q = call.g = {};
    call.size = of_k;
    start_keys(device, units, segments, call);
  });
}

}  // namespace stretto::cuda
