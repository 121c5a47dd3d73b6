// The noise of convSPE: rows of normal random numbers, each from its own place in one sequence.
//
// out [N, rows, n]: a thread computes one Philox block of four random numbers of a row; if a row
// begins or ends within a block, only its own elements are stored. normal_columns writes the same
// with R before the positions, as convolutions need it. Bit-identical to the CPU's: compiled
// without fused multiply-adds (cuda/runtime/unfused.h). Tested against the CPU's codes.
#include "cuda/runtime/capture.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/unfused.h"
#include "cuda/spe/spe.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 128;

/// out [count, rows, n]
template <class T>
__global__ void normal_rows(T* out, DrawKey given, int64_t count, int64_t rows, int64_t n,
                            int64_t apart, int64_t first, int64_t pitch) {
  const RandomKey key = key_now(given);
#pragma unroll 1
  for (int64_t block = blockIdx.y; block < count; block += gridDim.y) {
#pragma unroll 1
    for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
      const int64_t begin = block * apart + first + row * pitch;
      T* const to = out + (block * rows + row) * n;
#pragma unroll 1
      for (int64_t at = int64_t(threadIdx.x) * 4 - (begin & 3); at < n; at += threads * 4) {
        const Random4 r = philox(key, uint64_t(begin + at) / 4);
        float y[4];
        normals_from_bits(r.v[0], r.v[1], y[0], y[1]);
        normals_from_bits(r.v[2], r.v[3], y[2], y[3]);
#pragma unroll
        for (int j = 0; j < 4; ++j)
          if (at + j >= 0 && at + j < n) to[at + j] = T(y[j]);
      }
    }
  }
}

constexpr int places = 32, transposed_pitch = places + 1;

/// out [count, R, rows, n]: a block computes `places` columns of a row for all R, and transposes
/// them in shared memory.
template <class T>
__global__ void normal_columns(T* out, DrawKey given, Divider tiles, Divider height, Divider across,
                               int64_t n, int64_t apart, int64_t first, int64_t pitch) {
  extern __shared__ float transposed[];
  const RandomKey key = key_now(given);
  const uint64_t line = tiles.quotient(uint64_t(blockIdx.x)), k = height.quotient(line);
  const int64_t tile = int64_t(blockIdx.x - line * tiles.size),
                row = int64_t(line - k * height.size);
  const int64_t j0 = tile * places, r = int64_t(across.size);
  const int columns = int(n - j0 < places ? n - j0 : places), count = columns * int(r);
  const int64_t begin = int64_t(k) * apart + first + row * pitch + j0 * r;
#pragma unroll 1
  for (int at = int(threadIdx.x) * 4 - int(begin & 3); at < count; at += threads * 4) {
    const Random4 bits = philox(key, uint64_t(begin + at) / 4);
    float y[4];
    normals_from_bits(bits.v[0], bits.v[1], y[0], y[1]);
    normals_from_bits(bits.v[2], bits.v[3], y[2], y[3]);
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      if (at + q < 0 || at + q >= count) continue;
      const int j = int(across.quotient(uint32_t(at + q)));
      transposed[(at + q - j * int(r)) * transposed_pitch + j] = y[q];
    }
  }
  __syncthreads();
  T* const to = out + (int64_t(k) * r * int64_t(height.size) + row) * n + j0;
  const int j = int(threadIdx.x) % places;
#pragma unroll 1
  for (int i = int(threadIdx.x) / places; i < int(r); i += threads / places)
    if (j < columns) to[i * int64_t(height.size) * n + j] = T(transposed[i * transposed_pitch + j]);
}

}  // namespace

void fill_normal_rows(const Tensor& out, RandomKey key, int64_t apart, int64_t first,
                      int64_t pitch) {
  if (out.numel() == 0) return;
  const int64_t count = out.size(0), rows = out.size(1), n = out.size(2);
  const dim3 grid(blocks_for(rows, 1), blocks_for(count, 1));
  const int device = out.device().index;
  const auto run = [&]<class T>() {
    launch("fill_normal_rows", device, normal_rows<T>, grid, threads, out.data<T>(),
           draw_key(key, device), count, rows, n, apart, first, pitch);
  };
  dispatch_among<double, float>(out.dtype(), run);
}

void fill_normal_columns(const Tensor& out, RandomKey key, int64_t apart, int64_t first,
                         int64_t pitch) {
  if (out.numel() == 0) return;
  const int64_t r = out.size(1), rows = out.size(2), n = out.size(3);
  const int64_t bytes = 4 * r * transposed_pitch, tiles = ceil_div(n, places);
  const int device = out.device().index;
  if (bytes > shared_memory(device)) {
    const Tensor by_row = empty({out.size(0), rows, n * r}, options_of(out));
    fill_normal_rows(by_row, key, apart, first, pitch);
    Tensor all = out;
    all.copy_(by_row.view({out.size(0), rows, n, r}).permute({0, 3, 1, 2}));
    return;
  }
  const int64_t blocks = out.size(0) * rows * tiles;
  check(blocks < INT32_MAX, "fill_normal_columns", "too many rows: ", out);
  const auto run = [&]<class T>() {
    launch_with_shared("fill_normal_columns", device, normal_columns<T>, unsigned(blocks), threads,
                       bytes, out.data<T>(), draw_key(key, device), Divider(tiles), Divider(rows),
                       Divider(r), n, apart, first, pitch);
  };
  dispatch_among<double, float>(out.dtype(), run);
}

}  // namespace stretto::cuda
