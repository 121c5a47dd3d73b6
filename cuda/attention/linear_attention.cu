// Linear attention, forward. With S = Σ k vᵀ and z = Σ k over all keys of chunks before,
//
//     P = tril(Q Kᵀ)    total = Q z + P 1 + eps    y = (Q S + P V) / total    S += Kᵀ V, z += Kᵀ 1
//
// chunk by chunk, a block for a head, or for a segment of its chunks where there are few heads:
// then first the sums of all segments are computed, then each from those before it. Two-sided, the
// state of all keys is computed first, and then y = Q S / total. Layout: linear_attention.cuh. P
// and S are exact operands, z and the denominators f32 throughout, so that bf16 is rounded at the
// end alone. Tested against the CPU.
#include "cuda/attention/linear_attention.cuh"

namespace stretto::cuda {
namespace linear {
namespace {

template <class T>
struct Forward {
  Rows<const T> q, k, v;  // null: no outputs, or no keys and the state is that of all
  Rows<T> y;
  const uint8_t* hidden;  // [B, N]
  States<const float> before;
  States<float> after;
  float* totals;  // [B, H, M]
  Sizes size;
  float eps;
};

template <class T, int JF, int ND>
using ForwardPlan = Plan<T, JF, ND, 2, 1, T, 0>;

/// grid: [B H or B G, segments]
template <class T, int JF, int ND>
__global__ void __launch_bounds__(threads, sizeof(T) == 2 && JF * ND == 1 ? 2 : 1)
    linear_attention_chunks(const __grid_constant__ Forward<T> a) {
  using Here = ForwardPlan<T, JF, ND>;
  using Part = State<T, JF, ND>;
  extern __shared__ __align__(1024) char memory[];
  const Sizes& size = a.size;
  Place p;
  const int b = int(blockIdx.x) / size.heads, h = int(blockIdx.x) % size.heads,
            per_group = size.heads / size.groups, kh = h / per_group, unit = b * size.groups + kh,
            segment = int(blockIdx.y), begin = segment * size.per_segment,
            end = min(size.chunks, begin + size.per_segment);
  const bool outputs = a.q.data, keys = a.k.data;
  const uint8_t* const hidden = a.hidden ? a.hidden + int64_t(b) * size.n : nullptr;
  const WideTile<T, 64 * ND> shared_state(memory + Here::state_at, 64 * JF);
  const auto z = Here::line(memory);

  const auto tile = [&](int stage, int at) { return memory + stage * Here::stage + at; };
  const auto load = [&](int c, int stage) {
    const int at = size.first + c * chunk;
    if (outputs)
      copy_rows<threads>(Tile<T, 64 * JF>{tile(stage, 0)}, a.q.at(b, h), a.q.row, at - size.shift,
                         size.m, size.f);
    if (keys) {
      copy_rows<threads>(Tile<T, 64 * JF>{tile(stage, Here::wide)}, a.k.at(b, kh), a.k.row, at,
                         size.n, size.f, hidden);
      copy_rows<threads>(Tile<T, 64 * ND>{tile(stage, 2 * Here::wide)}, a.v.at(b, kh), a.v.row, at,
                         size.n, size.dv, hidden);
    }
    ptx::commit();
  };

  load(begin, 0);
  Part state;
  state.begin(p, a.before.data ? a.before.at(unit, segment) : nullptr, size.f, size.dv,
              shared_state, z, outputs);
  ptx::wait<0>();
  __syncthreads();
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    const int stage = Here::stages == 2 ? (c - begin) % 2 : 0;
    if (Here::stages == 2 && c + 1 < end) load(c + 1, stage ^ 1);
    p.renew();
    const Tile<T, 64 * JF> q{tile(stage, 0)}, k{tile(stage, Here::wide)};
    const Tile<T, 64 * ND> v{tile(stage, 2 * Here::wide)};
    if (outputs) {
      float products[4][2][4] = {}, out[ND][2][2][4] = {};
      typename Here::Z::Sums totals;
#pragma unroll(steps_at_once <T, JF * ND>)
      for (int x = 0; x < 4 * JF; ++x) {
        const Left<T> mine = left(q, 16 * p.slab, 16 * x);
        if (keys)
#pragma unroll
          for (int y = 0; y < 4; ++y)
            if (y <= p.slab) multiply(products[y], mine, right_turned(k, 16 * y, 16 * x));
#pragma unroll
        for (int y = 0; y < 2 * ND; ++y)
          shared_state.multiply_by(out[y / 2][y % 2], mine, 16 * x, Part::column(p, y));
        z.multiply(totals, mine, 16 * x);
      }
      float total[2] = {totals.part(0), totals.part(1)};
      if (keys)
#pragma unroll
        for (int x = 0; x < 4; ++x)
          if (x <= p.slab) {
            if (x == p.slab) mask_diagonal<false>(p, products[x]);
#pragma unroll
            for (int i = 0; i < 8; ++i) total[i % 4 / 2] += products[x][i / 4][i % 4];
            const auto mine = operand_of<Wide<T>>(products[x]);
#pragma unroll
            for (int y = 0; y < 2 * ND; ++y)
              multiply(out[y / 2][y % 2], mine, right(v, 16 * x, Part::column(p, y)));
          }
      T* rows[2];
      float by[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = size.first + c * chunk - size.shift + 16 * p.slab + p.row + 8 * i;
        const bool there = row >= 0 && row < size.m;
        const float sum = row_sum(total[i]) + a.eps;
        by[i] = sum == 0 ? 0 : 1 / sum;
        rows[i] = there ? a.y.at(b, h) + row * a.y.row : nullptr;
        if (there && p.side == 0 && p.column == 0)
          a.totals[int64_t(blockIdx.x) * size.m + row] = sum;
      }
#pragma unroll
      for (int y = 0; y < ND; ++y) store_sums(rows, out[y], by, Part::column(p, 2 * y), size.dv);
    }
    if (keys) state.add_keys(p, k, v, shared_state, z);
    if (c + 1 == end) break;
    __syncthreads();  // the state and, where there is one stage, the chunk have been read
    if (outputs && keys) state.share(p, shared_state, z);
    if (Here::stages == 1) load(c + 1, 0);
    ptx::wait<0>();
    __syncthreads();
  }
  if (a.after.data && h % per_group == 0)
    state.store(p, shared_state, z, a.after.at(unit, segment), size.f, size.dv);
}

/// sums [units, segments, size]
__global__ void add_segments(float* sums, int segments, int64_t size, const float* before,
                             float* after) {
  const int64_t i = thread_index(), unit = blockIdx.y;
  if (i >= size) return;
  float sum = before ? before[unit * size + i] : 0;
#pragma unroll 1
  for (int s = 0; s < segments; ++s) {
    float* const at = sums + (unit * segments + s) * size + i;
    const float more = *at;
    *at = sum;
    sum += more;
  }
  if (after) after[unit * size + i] = sum;
}

constexpr const char* op = "linear_attention";

template <class T>
void start(int device, int64_t blocks, int segments, const Forward<T>& call) {
  with_widths<T>(call.size.f, call.size.dv, [&](auto jf, auto nd) {
    constexpr int JF = decltype(jf)::value, ND = decltype(nd)::value;
    launch_with_shared(op, device, linear_attention_chunks<T, JF, ND>,
                       dim3(unsigned(blocks), unsigned(segments)), threads,
                       ForwardPlan<T, JF, ND>::bytes, call);
  });
}

template <class T>
Forward<T> call_of(const LinearAttentionInputs& in, const Sizes& s) {
  return {.hidden = in.padding.defined() ? in.padding.data<uint8_t>() : nullptr,
          .size = s,
          .eps = float(in.eps)};
}

float* sums_of(const Tensor& x) { return x.defined() ? x.data<float>() : nullptr; }

}  // namespace

void before_segments(const char* name, int device, float* sums, int64_t units, int segments,
                     int64_t size, const float* before, float* after) {
  launch(name, device, add_segments, dim3(unsigned(ceil_div(size, int64_t(256))), unsigned(units)),
         256, sums, segments, size, before, after);
}

KeyStates key_states(const LinearAttentionInputs& in, const Tensor& k, const Tensor& v,
                     const Sizes& sizes, int segments, const Tensor& after) {
  const int64_t units = k.size(0) * k.size(1), state = int64_t(sizes.f) * (sizes.dv + 1);
  if (in.causal && segments == 1) return {{sums_of(in.before), state, 0}, {}};
  const int device = k.device().index;
  Sizes s = sizes;
  s.heads = s.groups;
  if (!in.causal) plain_chunks(s, s.n), segments = cut(s, units);
  const Tensor sums = empty({units, segments, state}, {.dtype = f32, .device = k.device()});
  with_type(k.dtype(), [&]<class T>() {
    Forward<T> call = call_of<T>(in, s);
    call.k = rows_of<const T>(k), call.v = rows_of<const T>(v);
    call.after = {sums.data<float>(), segments * state, state};
    start(device, units, segments, call);
  });
  const Tensor last =
      in.causal || after.defined() ? after : empty({units, state}, options_of(sums));
  before_segments(op, device, sums.data<float>(), units, segments, state, sums_of(in.before),
                  sums_of(last));
  if (in.causal) return {{sums.data<float>(), segments * state, state}, sums};
  return {{last.data<float>(), state, 0}, last};
}
}  // namespace linear

using namespace linear;

bool serves_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v) {
  const DType type = q.dtype();
  if (type != f32 && type != bf16) return false;
  const int64_t whole = 16 / item_size(type), f = q.size(3), dv = v.size(3);
  return q.numel() > 0 && k.numel() > 0 && v.numel() > 0 && f % whole == 0 && dv % whole == 0 &&
         dv <= 128 && (f <= 128 || (f <= 256 && dv <= 64)) &&
         std::max(q.size(2), k.size(2)) < int64_t(1) << 30 &&
         q.size(0) * q.size(1) < int64_t(1) << 16;
}

void linear_attention(const LinearAttentionInputs& in, const Tensor& y, const Tensor& totals,
                      const Tensor& after) {
  const Tensor q = aligned_rows(in.q), k = aligned_rows(in.k), v = aligned_rows(in.v);
  const int64_t blocks = q.size(0) * q.size(1);
  Sizes s = sizes_of(q, k, v);
  in.causal ? causal_chunks(s) : plain_chunks(s, s.m);
  const int segments = cut(s, blocks);
  const KeyStates states = key_states(in, k, v, s, segments, after);
  with_type(q.dtype(), [&]<class T>() {
    Forward<T> call = call_of<T>(in, s);
    call.q = rows_of<const T>(q), call.y = rows_of<T>(y);
    if (in.causal) call.k = rows_of<const T>(k), call.v = rows_of<const T>(v);
    call.before = states.at;
    if (in.causal && segments == 1) call.after = {sums_of(after), int64_t(s.f) * (s.dv + 1), 0};
    call.totals = totals.data<float>();
    start(q.device().index, blocks, segments, call);
  });
}

}  // namespace stretto::cuda
