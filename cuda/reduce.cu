// Sums.
//
// out = Σ x, written, not accumulated. x has any strides; sums are f32 (f64 for f64). The plan
// (cuda/index.h) chooses between rows (threads share an output, neighbours read neighbours along
// the reduced dimensions) and columns (a thread per output and eighth of the range, neighbours read
// neighbouring outputs). A long range with few outputs is cut into chunks, each summed into its own
// place and added in a second launch: one owner per accumulator, one order.
#include "cuda/reduce.h"
#include "cuda/rows.cuh"
#include "cuda/view.h"

namespace stretto::cuda {
namespace {

constexpr int column_rows = 8;

/// out [splits, outputs]: each by `Threads` threads.
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

/// out [splits, outputs]: blocks of 32 outputs × 8 threads each; blockIdx.y is the split.
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
  } else {
    launch("sum", device, sum_columns<Out, In>,
           dim3(blocks_for(plan.outputs, 32), unsigned(plan.splits)), dim3(32, column_rows), out, x,
           plan);
  }
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
  dispatch_number(x.dtype(), "sum", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    if (plan.splits == 1) return run(plan, out.data<T>(), x.data<T>(), device);
    const Tensor parts =
        empty({plan.splits, plan.outputs}, {.dtype = dtype_of<C>(), .device = x.device()});
    run(plan, parts.data<C>(), x.data<T>(), device);
    SumPlan last = plan_sum(parts.shape(), parts.strides(), {0});
    last.splits = 1;
    last.chunk = last.count;
    run(last, out.data<T>(), static_cast<const C*>(parts.data<C>()), device);
  });
  return out;
}

}  // namespace stretto::cuda
