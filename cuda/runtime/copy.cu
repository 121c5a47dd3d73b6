// Fills and copies, with conversions.
//
// A copy between tensors whose smallest strides are along different dimensions goes through
// shared memory, in tiles that are read along one dimension and written along the other
// (cuda/runtime/index.h has the plan). Pitches are odd numbers of words, so that a tile's
// columns are in different banks. All other copies are maps (cuda/runtime/map.cuh). Tested
// against the CPU: bit-identical.
#include "cuda/runtime/copy.h"
#include "cuda/runtime/map.cuh"

namespace stretto::cuda {
namespace {

template <class C>
struct Constant {
  C value;
  __device__ C operator()() const { return value; }
};
struct Same {
  template <class C>
  __device__ C operator()(C x) const {
    return x;
  }
};

/// A value of any dtype during conversion: integers stay integers, all others are f64 (exact).
struct AnyValue {
  bool integer;
  int64_t i;
  double d;
};

__device__ AnyValue load(const void* from, int64_t at, DType t) {
  switch (t) {
    case DType::f32:
      return {false, 0, static_cast<const float*>(from)[at]};
    case DType::f64:
      return {false, 0, static_cast<const double*>(from)[at]};
    case DType::bf16:
      return {false, 0, cast<double>(static_cast<const BFloat16*>(from)[at])};
    case DType::i64:
      return {true, static_cast<const int64_t*>(from)[at], 0};
    case DType::i32:
      return {true, static_cast<const int32_t*>(from)[at], 0};
    default:
      return {true, static_cast<const uint8_t*>(from)[at], 0};  // u8, bool
  }
}

template <class T>
__device__ T to_type(AnyValue x) {
  return x.integer ? cast<T>(x.i) : cast<T>(x.d);
}

/// As to_type(), for an integer type: values out of range become its nearest limit, NaN becomes 0.
template <class T>
__device__ T to_integer(AnyValue x, double least, T lowest, T highest) {
  if (x.integer) return T(x.i);
  const double end = 2 * double(highest / 2 + 1);
  return x.d >= end ? highest : x.d <= least ? lowest : T(x.d == x.d ? x.d : 0.0);
}

__device__ void store(void* to, int64_t at, DType t, AnyValue x) {
  switch (t) {
    case DType::f32:
      static_cast<float*>(to)[at] = to_type<float>(x);
      break;
    case DType::f64:
      static_cast<double*>(to)[at] = to_type<double>(x);
      break;
    case DType::bf16:
      static_cast<BFloat16*>(to)[at] = to_type<BFloat16>(x);
      break;
    case DType::i64:
      static_cast<int64_t*>(to)[at] = to_integer<int64_t>(x, -0x1p63, INT64_MIN, INT64_MAX);
      break;
    case DType::i32:
      static_cast<int32_t*>(to)[at] = to_integer<int32_t>(x, -0x1p31, INT32_MIN, INT32_MAX);
      break;
    case DType::u8:
      static_cast<uint8_t*>(to)[at] = to_integer<uint8_t>(x, 0, 0, UINT8_MAX);
      break;
    case DType::boolean:
      static_cast<bool*>(to)[at] = to_type<bool>(x);
      break;
  }
}

/// Any dtype to any other: one kernel for all pairs that do not justify their own.
__global__ void convert(void* to, DType to_type, const void* from, DType from_type,
                        const __grid_constant__ Layout<2> layout, uint64_t n) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<2> at = offsets(layout, i);
    store(to, at.v[0], to_type, load(from, at.v[1], from_type));
  }
}

constexpr int tile_height = 8;
template <class T>
constexpr int tile_side = sizeof(T) <= 2 ? 64 : 32;

/// A block copies one tile of side × side elements at a time.
template <class To, class From>
__global__ void copy_tiles(To* to, const From* from, const __grid_constant__ TilePlan plan) {
  constexpr int side = tile_side<To>, pitch = side + (sizeof(To) < 4 ? 4 / int(sizeof(To)) : 1);
  __shared__ To tile[side * pitch];
#pragma unroll 1
  for (uint32_t item = blockIdx.x; item < plan.tiles; item += gridDim.x) {
    const TilePlan::Place at = plan.place(item, side);
    To value[side / tile_height][side / 32] = {};
#pragma unroll
    for (int i = 0; i < side / tile_height; ++i)
#pragma unroll
      for (int j = 0; j < side / 32; ++j) {
        const int t = int(threadIdx.y) + i * tile_height, f = int(threadIdx.x) + j * 32;
        if (t < at.to_count && f < at.from_count)
          value[i][j] = cast<To>(from[at.from + t * plan.from_across + f * plan.from_along]);
      }
    __syncthreads();  // the last tile has been read
#pragma unroll
    for (int i = 0; i < side / tile_height; ++i)
#pragma unroll
      for (int j = 0; j < side / 32; ++j)
        tile[(int(threadIdx.y) + i * tile_height) * pitch + int(threadIdx.x) + j * 32] =
            value[i][j];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < side / tile_height; ++i)
#pragma unroll
      for (int j = 0; j < side / 32; ++j) {
        const int f = int(threadIdx.y) + i * tile_height, t = int(threadIdx.x) + j * 32;
        if (t < at.to_count && f < at.from_count)
          to[at.to + f * plan.to_across + t * plan.to_along] = tile[t * pitch + f];
      }
  }
}

/// Copies by tiles and returns true, or returns false if tiles do not pay off.
template <class To, class From>
bool tiled_copy(const Tensor& to, const Tensor& from) {
  const TilePlan plan = plan_tiles(to.shape(), to.strides(),
                                   broadcast_strides(from.shape(), from.strides(), to.shape()),
                                   tile_side<To>, 32 / int(std::min(sizeof(To), sizeof(From))));
  if (plan.tiles > 0)
    launch("strided_copy", to.device().index, copy_tiles<To, From>, blocks_for(plan.tiles, 1),
           dim3(32, tile_height), static_cast<To*>(to.raw_data()),
           static_cast<const From*>(from.raw_data()), plan);
  return plan.tiles > 0;
}

template <class To, class From = To>
void copy(const Tensor& to, const Tensor& from) {
  if (!tiled_copy<To, From>(to, from)) map_as_it_is<To, From>("strided_copy", Same{}, to, from);
}

}  // namespace

void fill(const Tensor& out, double value) {
  dispatch(out.dtype(), [&]<class T>() {
    const T element = static_cast<T>(value);
    dispatch_word(out.dtype(), [&]<class Word>() {
      if constexpr (sizeof(Word) == sizeof(T))
        map<Word>("fill", Constant<Word>{std::bit_cast<Word>(element)}, out);
    });
  });
}

void strided_copy(const Tensor& to, const Tensor& from) {
  const DType t = to.dtype(), f = from.dtype();
  if (t == f) {
    dispatch_word(t, [&]<class Word>() { copy<Word>(to, from); });
  } else if (t == bf16 && f == f32) {
    copy<BFloat16, float>(to, from);
  } else if (t == f32 && f == bf16) {
    copy<float, BFloat16>(to, from);
  } else if (crosses(to, from)) {
    const Tensor straight = empty(to.shape(), options_of(from));
    strided_copy(straight, from);
    strided_copy(to, straight);
  } else if (to.numel() > 0) {
    const Shape strides[2] = {to.strides(),
                              broadcast_strides(from.shape(), from.strides(), to.shape())};
    launch("strided_copy", to.device().index, convert, blocks_for(to.numel(), map_threads),
           map_threads, to.raw_data(), t, from.raw_data(), f, make_layout(to.shape(), strides),
           uint64_t(to.numel()));
  }
}

}  // namespace stretto::cuda
