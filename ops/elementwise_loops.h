// What functions of two tensors share on the CPU: the loop and the promotion. Internal to ops/.
#pragma once

#include <utility>

#include "loops.h"

namespace stretto {

// y = f(a, b), all of y's shape or broadcast to it.
template <class T, class R, class F>
STRETTO_CLONES void binary_run(const T* a, int64_t sa, const T* b, int64_t sb, R* y, int64_t n,
                               F f) {
  using C = compute_t<T>;
  if (sa == 1 && sb == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = R(f(C(a[i]), C(b[i])));
  } else if (sa == 1 && sb == 0) {
    const C c = C(b[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = R(f(C(a[i]), c));
  } else if (sa == 0 && sb == 1) {
    const C c = C(a[0]);
    for (int64_t i = 0; i < n; ++i) y[i] = R(f(c, C(b[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) y[i] = R(f(C(a[i * sa]), C(b[i * sb])));
  }
}

template <class T, class R, class F>
void binary_loop(const Tensor& a, const Tensor& b, const Tensor& y, F f) {
  const StridedLoop<3> loop(y.shape(),
                            {y.strides(), broadcast_strides(a.shape(), a.strides(), y.shape()),
                             broadcast_strides(b.shape(), b.strides(), y.shape())});
  const T *pa = a.data<T>(), *pb = b.data<T>();
  R* py = y.data<R>();
  loop.run([&](auto at, int64_t n) {
    binary_run(pa + at[1], loop.inner[1], pb + at[2], loop.inner[2], py + at[0], n, f);
  });
}

// Both operands in their common dtype; bool counts as i64 in arithmetic.
inline std::pair<Tensor, Tensor> promoted(const char* op, const Tensor& a, const Tensor& b,
                                          bool to_floating = false) {
  check_same_device(op, {&a, &b});
  DType type = promote(a.dtype(), b.dtype());
  if (type == boolean) type = i64;
  if (to_floating && !is_floating(type)) type = f32;
  return {a.to(type), b.to(type)};
}

}  // namespace stretto
