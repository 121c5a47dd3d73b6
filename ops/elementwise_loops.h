// Shared code of functions of two tensors on the CPU: loop and dtype promotion. Internal to ops/.
#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "loops.h"

namespace stretto {

/// True if loops over T are compiled for every instruction set (STRETTO_CLONES). False for f64, which
/// is for gradient checks, and for i32 and u8, which are rare in training.
template <class T>
constexpr bool has_clones =
    !std::is_same_v<T, double> && !std::is_same_v<T, int32_t> && !std::is_same_v<T, uint8_t>;

/// Computes y = F::value(a, b) for n elements, with strides sa, sb and 1.
using BinaryRun = void (*)(const void* a, int64_t sa, const void* b, int64_t sb, void* y,
                           int64_t n);

// Not compiled for each instruction set, because strided loops gain nothing from wider vectors.
template <class T, class R, class F>
[[gnu::noinline]] void binary_strided(const T* a, int64_t sa, const T* b, int64_t sb, R* y,
                                      int64_t n) {
  using C = compute_t<T>;
  for (int64_t i = 0; i < n; ++i) y[i] = R(F::value(C(a[i * sa]), C(b[i * sb])));
}

template <class T, class R, class F>
[[gnu::always_inline]] inline void binary_each(const T* a, int64_t sa, const T* b, int64_t sb, R* y,
                                               int64_t n) {
  using C = compute_t<T>;
  if (sa == 1 && sb == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = R(F::value(C(a[i]), C(b[i])));
  } else if (sa == 1 && sb == 0) {
    const C c = C(b[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = R(F::value(C(a[i]), c));
  } else if (sa == 0 && sb == 1) {
    const C c = C(a[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = R(F::value(c, C(b[i])));
  } else {
    binary_strided<T, R, F>(a, sa, b, sb, y, n);
  }
}

template <class T, class R, class F>
STRETTO_CLONES void binary_clones(const void* a, int64_t sa, const void* b, int64_t sb, void* y,
                                  int64_t n) {
  binary_each<T, R, F>(static_cast<const T*>(a), sa, static_cast<const T*>(b), sb,
                       static_cast<R*>(y), n);
}
template <class T, class R, class F>
void binary_plain(const void* a, int64_t sa, const void* b, int64_t sb, void* y, int64_t n) {
  binary_each<T, R, F>(static_cast<const T*>(a), sa, static_cast<const T*>(b), sb,
                       static_cast<R*>(y), n);
}
template <class T, class R, class F>
constexpr BinaryRun binary_run() {
  if constexpr (has_clones<T>)
    return binary_clones<T, R, F>;
  else
    return binary_plain<T, R, F>;
}

/// Computes y = run(a, b) with a and b broadcast to y's shape. One loop for all functions.
inline void binary_loop(const Tensor& a, const Tensor& b, const Tensor& y, BinaryRun run) {
  const StridedLoop<3> loop(y.shape(),
                            {y.strides(), broadcast_strides(a.shape(), a.strides(), y.shape()),
                             broadcast_strides(b.shape(), b.strides(), y.shape())});
  const auto *pa = static_cast<const std::byte*>(a.raw_data()),
             *pb = static_cast<const std::byte*>(b.raw_data());
  auto* py = static_cast<std::byte*>(y.raw_data());
  const int64_t from_size = item_size(a.dtype()), to_size = item_size(y.dtype());
  loop.run([&](auto at, int64_t n) {
    run(pa + at[1] * from_size, loop.inner[1], pb + at[2] * from_size, loop.inner[2],
        py + at[0] * to_size, n);
  });
}

// Returns x in the dtype of the result of an op with a number c: its own dtype (i64 for bool), or
// f32 if x is an integer tensor and c is not an i64.
inline Tensor for_scalar(const char* op, const Tensor& x, double c) {
  check_defined(op, x);
  if (is_floating(x.dtype())) return x;
  if (!has_value(i64, c)) return x.to(f32);
  return x.dtype() == boolean ? x.to(i64) : x;
}

// Returns both operands in their common dtype; bool counts as i64 in arithmetic.
inline std::pair<Tensor, Tensor> promoted(const char* op, const Tensor& a, const Tensor& b,
                                          bool to_floating = false) {
  check_defined(op, a, "a");
  check_defined(op, b, "b");
  check_same_device(op, {&a, &b});
  DType type = promote(a.dtype(), b.dtype());
  if (type == boolean) type = i64;
  if (to_floating && !is_floating(type)) type = f32;
  return {a.to(type), b.to(type)};
}

}  // namespace stretto
