// Linear attention, forward. With S = Σ k vᵀ and z = Σ k over the keys of all earlier chunks,
//
//     P = tril(Q Kᵀ)    total = Q z + P 1 + eps    y = (Q S + P V) / total    S += Kᵀ V, z += Kᵀ 1
//
// chunk by chunk (linear_attention_chunks.cuh), with a block per head, or per segment of its chunks
// if there are few heads: then the sums of all segments are computed first, and each segment starts
// from those before it. Bidirectional attention computes the state of all keys first, and then y =
// Q S / total. As operands, P and S keep full precision, and z and the denominators are f32
// throughout, so that in bf16 only the result is rounded. Tested against the CPU.
#include "cuda/attention/linear_attention_chunks.cuh"

namespace stretto::cuda {
namespace linear {
namespace {

constexpr SharedTiles forward_tiles{.with_g = false, .z_is_operand = true};

/// Writes y and the denominators of the chunk whose first query is `first`.
template <class T, Widths W, class S>
__device__ __forceinline__ void write_outputs(const Args<T>& a, int b, int h, int first,
                                              const Place& p, const Chunk<T, W>& in, const S& state,
                                              bool keys) {
  const BlockRange range{0, keys ? p.warp_row + 1 : 0};
  float products[4][2][4] = {};
  HalfRows<W.values> out = {};
  typename decltype(state.line)::Sums totals;
  multiply_rows<Registers<T, W>::steps>(products, p, in.q, in.k, 0, range,
                                        [&](int x, const FragmentOf<T>& q) {
                                          state.multiply_by(out, p, q, 16 * x);
                                          state.line.multiply(totals, q, 16 * x);
                                        });
  float total[2] = {totals.part(0), totals.part(1)};
#pragma unroll
  for (int x = 0; x < 4; ++x)
    if (range.has(x)) {
      if (x == p.warp_row) mask_diagonal<false>(p, products[x]);
#pragma unroll
      for (int i = 0; i < 8; ++i) total[i % 4 / 2] += products[x][i / 4][i % 4];
      multiply_half(out, p, packed<WideFragmentOf<T>>(products[x]), in.v, 16 * x);
    }
  T* rows[2];
  float by[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = first + p.chunk_row(i);
    const float sum = quad_sum(total[i]) + a.eps;
    by[i] = sum == 0 ? 0 : 1 / sum;
    rows[i] = row_or_null(a.y, b, h, row, a.size.m);
    if (rows[i] && p.owns_row()) a.totals[int64_t(blockIdx.x) * a.size.m + row] = sum;
  }
  store_half(rows, out, by, p, a.size.dv);
}

/// y and the state. Without keys, y = Q S / total; without queries, only the state. Grid:
/// [B H or B G, segments]
template <class Memory>
__global__ void __launch_bounds__(threads, Memory::blocks_per_sm)
    linear_attention_chunks(const __grid_constant__ Args<typename Memory::Element> a) {
  using Operand = typename Memory::Operand;
  extern __shared__ __align__(1024) char bytes[];
  const Memory memory{bytes};
  const Sizes& size = a.size;
  Place p;
  const int b = int(blockIdx.x) / size.heads, h = int(blockIdx.x) % size.heads,
            per_group = size.heads / size.groups, kh = h / per_group, unit = b * size.groups + kh,
            segment = int(blockIdx.y), begin = segment * size.per_segment,
            end = min(size.chunks, begin + size.per_segment);
  const bool outputs = a.q.data, keys = a.k.data;
  const uint8_t* const hidden = a.hidden_of(b);

  const auto load = [&](int c, int stage) {
    const Operand to = memory.stage(stage);
    const int at = size.first + c * chunk;
    if (outputs) copy_chunk(to.q, a.q, b, h, at - size.shift, size.m, size.f);
    if (keys) copy_keys(to, a, b, kh, at, hidden);
    ptx::commit();
  };

  load(begin, 0);
  State<Memory> state(memory);
  state.load(p, a.before.at(unit, segment), size, outputs);
  wait_for_copies();
#pragma unroll 1
  for (int c = begin; c < end; ++c) {
    const int stage = Memory::stage_of(c - begin);
    if (Memory::stages == 2 && c + 1 < end) load(c + 1, stage ^ 1);
    p.make_opaque();
    const Operand in = memory.stage(stage);
    if (outputs) write_outputs(a, b, h, size.first + c * chunk - size.shift, p, in, state, keys);
    if (keys) state.add_keys(p, in);
    if (c + 1 == end) break;
    __syncthreads();  // the state and, if there is one stage, the chunk have been read
    if (outputs && keys) state.share(p);
    if (Memory::stages == 1) load(c + 1, 0);
    wait_for_copies();
  }
  if (a.after.data && h % per_group == 0) state.store(p, a.after.at(unit, segment), size);
}

/// sums [units, segments, size] become the exclusive prefix sums over segments, from `before` on
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
void start(int device, int64_t blocks, int segments, const Args<T>& args) {
  launch_chunks<forward_tiles>(op, device, blocks, segments, args,
                               [&]<class Memory>() { return linear_attention_chunks<Memory>; });
}

}  // namespace

void before_segments(const char* name, int device, float* sums, int64_t units, int segments,
                     int64_t size, const float* before, float* after) {
  launch(name, device, add_segments, dim3(unsigned(ceil_div(size, int64_t(256))), unsigned(units)),
         256, sums, segments, size, before, after);
}

KeyStates key_states(const LinearAttentionOperands& in, const Tensor& k, const Tensor& v,
                     const Sizes& sizes, int segments, const Tensor& after) {
  const int64_t units = k.size(0) * k.size(1), state = int64_t(sizes.f) * (sizes.dv + 1);
  if (in.causal && segments == 1) return {{data_or_null<float>(in.before), state, 0}, {}};
  const int device = k.device().index;
  Sizes s = sizes;
  s.heads = s.groups;
  if (!in.causal) plain_chunks(s, s.n), segments = cut(s, units);
  const Tensor sums = empty({units, segments, state}, {.dtype = f32, .device = k.device()});
  dispatch_among<float, BFloat16>(k.dtype(), [&]<class T>() {
    Args<T> args = args_of<T>(in, s);
    args.k = head_rows<const T>(k), args.v = head_rows<const T>(v);
    args.after = {sums.data<float>(), segments * state, state};
    start(device, units, segments, args);
  });
  const Tensor last =
      in.causal || after.defined() ? after : empty({units, state}, options_of(sums));
  before_segments(op, device, sums.data<float>(), units, segments, state,
                  data_or_null<float>(in.before), data_or_null<float>(last));
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

void linear_attention(const LinearAttentionOperands& in, const Tensor& y, const Tensor& totals,
                      const Tensor& after) {
  const Tensor q = aligned_rows(in.q), k = aligned_rows(in.k), v = aligned_rows(in.v);
  const int64_t blocks = q.size(0) * q.size(1);
  Sizes s = sizes_of(q, k, v);
  in.causal ? causal_chunks(s) : plain_chunks(s, s.m);
  const int segments = cut(s, blocks);
  const KeyStates states = key_states(in, k, v, s, segments, after);
  dispatch_among<float, BFloat16>(q.dtype(), [&]<class T>() {
    Args<T> args = args_of<T>(in, s);
    args.q = head_rows<const T>(q), args.y = head_rows<T>(y);
    if (in.causal) args.k = head_rows<const T>(k), args.v = head_rows<const T>(v);
    args.before = states.at;
    if (in.causal && segments == 1)
      args.after = {data_or_null<float>(after), int64_t(s.f) * (s.dv + 1), 0};
    args.totals = totals.data<float>();
    start(q.device().index, blocks, segments, args);
  });
}

}  // namespace stretto::cuda
