// Fills and copies, with conversions.
#include "cuda/map.cuh"
#include "cuda/view.h"

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

/// A value of any dtype on its way to another: integers stay integers, the rest is f64 (exact).
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

/// The same for an integer type: beyond its range lies its nearest end, and NaN is 0.
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

/// Any dtype to any other; one kernel for all pairs that are not worth their own.
__global__ void convert(void* to, DType to_type, const void* from, DType from_type,
                        const __grid_constant__ Layout<2> layout, uint64_t n) {
#pragma unroll 1
  for (uint64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<2> at = offsets(layout, i);
    store(to, at.v[0], to_type, load(from, at.v[1], from_type));
  }
}

}  // namespace

void fill(const Tensor& out, double value) {
  dispatch(out.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = static_cast<T>(value);
    dispatch_word(out.dtype(), [&](auto word) {
      using Word = typename decltype(word)::type;
      if constexpr (sizeof(Word) == sizeof(T))
        map<Word>("fill", Constant<Word>{std::bit_cast<Word>(element)}, out);
    });
  });
}

void strided_copy(const Tensor& to, const Tensor& from) {
  const DType t = to.dtype(), f = from.dtype();
  if (t == f) {
    dispatch_word(t, [&](auto word) {
      using Word = typename decltype(word)::type;
      map<Word, Word>("strided_copy", Same{}, to, from);
    });
  } else if (t == bf16 && f == f32) {
    map<BFloat16, float>("strided_copy", Same{}, to, from);
  } else if (t == f32 && f == bf16) {
    map<float, BFloat16>("strided_copy", Same{}, to, from);
  } else if (to.numel() > 0) {
    const Shape strides[2] = {to.strides(),
                              broadcast_strides(from.shape(), from.strides(), to.shape())};
    launch("strided_copy", to.device().index, convert, blocks_for(to.numel(), map_threads),
           map_threads, to.raw_data(), t, from.raw_data(), f, make_layout(to.shape(), strides),
           uint64_t(to.numel()));
  }
}

}  // namespace stretto::cuda
