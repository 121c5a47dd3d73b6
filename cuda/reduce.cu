// Sums.
//
// out = Σ x, overwriting out. x has any strides; sums are f32 (f64 for f64). The plan
// (cuda/runtime/index.h) chooses between rows (threads share an output; neighboring threads read
// neighboring elements along the reduced dimensions) and columns (a thread per output and eighth of
// the range, neighboring threads read neighboring outputs; or a thread per 16 bytes of outputs if x
// allows it, with the same order of additions). A long range with few outputs is split into chunks,
// each summed into its own place and added in a second launch: one owner per accumulator, one
// order. Tested against f64 sums on the CPU.
#include "cuda/reduce.h"
#include "cuda/runtime/copy.h"
#include "cuda/runtime/rows.cuh"

namespace stretto::cuda {
namespace {

constexpr int column_rows = 8;

/// out [splits, outputs]; `Threads` threads per output.
template <int Threads, class Out, class In>
__global__ void sum_rows(Out* out, const In* x, const __grid_constant__ SumPlan plan) {
  using C = compute_t<In>;
  const int64_t items = plan.splits * plan.outputs;
#pragma unroll 1
  for (int64_t item = first_row(); item < items; item += row_step()) {
    const int64_t split = int64_t(plan.by_outputs.quotient(uint64_t(item)));
    const In* from = x + offsets(plan.kept, uint64_t(item - split * plan.outputs)).v[0];
    const int64_t begin = split * plan.chunk;
    const int64_t end = chunk_end(plan, begin);
    C total = 0;
    if (plan.packs) {
      walk<RowShape<Threads, pack_size<In>, 0>>(
          end - begin, [&](int64_t, C v) { total += v; }, from + begin);
    } else if (plan.reduced.dims <= 1) {
      const int64_t stride = plan.reduced.strides[0][0];
#pragma unroll 4
      for (int64_t r = begin + threadIdx.x; r < end; r += Threads)
        total += cast<C>(from[r * stride]);
    } else {
#pragma unroll 1
      for (int64_t r = begin + threadIdx.x; r < end; r += Threads)
        total += cast<C>(from[offsets(plan.reduced, uint64_t(r)).v[0]]);
    }
    total = combine<Threads>(total, Sum());
    if (threadIdx.x == 0) out[item] = cast<Out>(total);
  }
}

/// out [splits, outputs]; blocks of 32 outputs × 8 threads per output; blockIdx.y is the split.
template <class Out, class In>
__global__ void sum_columns(Out* out, const In* x, const __grid_constant__ SumPlan plan) {
  using C = compute_t<In>;
  __shared__ C part[column_rows][32];
  const int64_t begin = blockIdx.y * plan.chunk;
  const int64_t end = chunk_end(plan, begin);
#pragma unroll 1
  for (int64_t first = int64_t(blockIdx.x) * 32; first < plan.outputs;
       first += int64_t(gridDim.x) * 32) {
    const int64_t o = first + threadIdx.x;
    C total = 0;
    if (o < plan.outputs) {
      const In* from = x + offsets(plan.kept, uint64_t(o)).v[0];
      if (plan.reduced.dims <= 1) {
        const int64_t stride = plan.reduced.strides[0][0];
#pragma unroll 4
        for (int64_t r = begin + threadIdx.y; r < end; r += column_rows)
          total += cast<C>(from[r * stride]);
      } else {
#pragma unroll 1
        for (int64_t r = begin + threadIdx.y; r < end; r += column_rows)
          total += cast<C>(from[offsets(plan.reduced, uint64_t(r)).v[0]]);
      }
    }
    part[threadIdx.y][threadIdx.x] = total;
    __syncthreads();
    if (threadIdx.y == 0 && o < plan.outputs) {
      for (int k = 1; k < column_rows; ++k) total += part[k][threadIdx.x];
      out[blockIdx.y * plan.outputs + o] = cast<Out>(total);
    }
    __syncthreads();
  }
}

/// As sum_columns(), by packs: blocks of 32 packs of outputs × 8 threads each.
template <class Out, class In>
__global__ void sum_column_packs(Out* out, const In* x, const __grid_constant__ SumPlan plan) {
  using C = compute_t<In>;
  constexpr int V = pack_size<In>, W = 16 / int(sizeof(C));  // of x; of sums in shared memory
  constexpr int width = 32 * V;
  __shared__ Pack<C, W> parts[column_rows][width / W];
  // The swizzled place of a pack in a row of parts: avoids bank conflicts by exchanging the packs
  // of each pair in every other group of eight.
  auto place = [](int pack) { return pack ^ (pack >> 3 & 1); };
  const int64_t begin = blockIdx.y * plan.chunk + threadIdx.y;
  const int64_t end = chunk_end(plan, blockIdx.y * plan.chunk);
  const int thread = int(threadIdx.y * 32 + threadIdx.x);
#pragma unroll 1
  for (int64_t first = int64_t(blockIdx.x) * width; first < plan.outputs;
       first += int64_t(gridDim.x) * width) {
    const int64_t o = first + int64_t(threadIdx.x) * V;
    Pack<C, W> total[V / W] = {};
    if (o < plan.outputs) {
      const In* from = x + offsets(plan.kept, uint64_t(o)).v[0];
#pragma unroll 4
      for (int64_t r = begin; r < end; r += column_rows) {
        const auto v = *reinterpret_cast<const Pack<In, V>*>(
            from + (plan.reduced.dims <= 1 ? r * plan.reduced.strides[0][0]
                                           : offsets(plan.reduced, uint64_t(r)).v[0]));
#pragma unroll
        for (int j = 0; j < V; ++j) total[j / W].v[j % W] += cast<C>(v.v[j]);
      }
    }
#pragma unroll
    for (int k = 0; k < V / W; ++k)
      parts[threadIdx.y][place(int(threadIdx.x) * (V / W) + k)] = total[k];
    __syncthreads();
    if (thread < width && first + thread < plan.outputs) {
      auto part = [&](int k) { return parts[k][place(thread / W)].v[thread % W]; };
      C sum = part(0);
      for (int k = 1; k < column_rows; ++k) sum += part(k);
      out[blockIdx.y * plan.outputs + first + thread] = cast<Out>(sum);
    }
    __syncthreads();
  }
}

template <class Out, class In>
void run(SumPlan plan, Out* out, const In* x, int device) {
  plan.set_packs(pack_size<In>, aligned(x));
  const int64_t items = plan.splits * plan.outputs;
  if (plan.threads == 32) {
    launch("sum", device, sum_rows<32, Out, In>, blocks_for(items, 8), row_block<32>(), out, x,
           plan);
  } else if (plan.threads == 256) {
    launch("sum", device, sum_rows<256, Out, In>, blocks_for(items, 1), row_block<256>(), out, x,
           plan);
  } else if (plan.column_packs(pack_size<In>, aligned(x))) {
    launch("sum", device, sum_column_packs<Out, In>,
           dim3(blocks_for(plan.outputs, 32 * pack_size<In>), unsigned(plan.splits)),
           dim3(32, column_rows), out, x, plan);
  } else {
    launch("sum", device, sum_columns<Out, In>,
           dim3(blocks_for(plan.outputs, 32), unsigned(plan.splits)), dim3(32, column_rows), out, x,
           plan);
  }
}

/// out [n]: the sum of the rows of parts [rows, n], in one launch.
template <class T>
void add_rows(const Tensor& out, const Tensor& parts) {
  SumPlan plan = plan_sum(parts.shape(), parts.strides(), {0});
  plan.splits = 1;
  plan.chunk = plan.count;
  run(plan, out.data<T>(), static_cast<const compute_t<T>*>(parts.data<compute_t<T>>()),
      out.device().index);
}

}  // namespace

Tensor sum(const Tensor& x, const Shape& sorted_dims, bool keepdim) {
  Shape shape;
  for (int64_t d = 0, next = 0; d < x.dim(); ++d) {
    const bool reduce = next < sorted_dims.dim() && sorted_dims[next] == d;
    if (reduce) ++next;
    if (!reduce || keepdim) shape.push_back(reduce ? 1 : x.size(d));
  }
  Tensor out = empty_like(x, shape);
  if (out.numel() == 0) return out;
  if (x.numel() == 0) {
    fill(out, 0);
    return out;
  }

  const SumPlan plan = plan_sum(x.shape(), x.strides(), sorted_dims);
  const int device = x.device().index;
  dispatch_number(x.dtype(), "sum", [&]<class T>() {
    using C = compute_t<T>;
    if (plan.splits == 1) return run(plan, out.data<T>(), x.data<T>(), device);
    const Tensor parts =
        empty({plan.splits, plan.outputs}, {.dtype = dtype_of<C>(), .device = x.device()});
    run(plan, parts.data<C>(), x.data<T>(), device);
    add_rows<T>(out, parts);
  });
  return out;
}

}  // namespace stretto::cuda
