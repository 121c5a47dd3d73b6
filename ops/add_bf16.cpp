#include <algorithm>
#include <array>

#include "autograd/accumulate.h"
#include "core/error.h"
#include "cuda/elementwise.h"
#include "ops/loops.h"

namespace stretto {
namespace {

template <class T, int N>
STRETTO_CLONES void add_terms(T* y, const BFloat16* const (&x)[N], const int64_t (&strides)[N],
                              int64_t n) {
  const auto run = [&](auto at) __attribute__((always_inline)) {
    for (int64_t i = 0; i < n; ++i) {
      float sum = float(at(0, i));
      for (int k = 1; k < N; ++k) sum += float(at(k, i));
      y[i] = T(sum);
    }
  };
  if (std::all_of(strides, strides + N, [](int64_t s) { return s == 1; }))
    run([&](int k, int64_t i) { return x[k][i]; });
  else
    run([&](int k, int64_t i) { return x[k][i * strides[k]]; });
}

// to = Σ terms, for N bf16 tensors; `to` is contiguous.
template <class T, int N>
void add_bf16_as(const Tensors& terms, const Tensor& to) {
  std::array<Shape, N + 1> all{to.strides()};
  for (int k = 0; k < N; ++k) all[size_t(k) + 1] = terms[size_t(k)].strides();
  const StridedLoop<N + 1> loop(to.shape(), all);
  T* const y = to.data<T>();
  loop.run([&](auto at, int64_t n) {
    const BFloat16* x[N];
    int64_t strides[N];
    for (int k = 0; k < N; ++k) {
      x[k] = terms[size_t(k)].data<BFloat16>() + at[size_t(k) + 1];
      strides[k] = loop.inner[size_t(k) + 1];
    }
    add_terms(y + at[0], x, strides, n);
  });
}

template <class T>
void add_bf16_cpu(const Tensors& terms, const Tensor& to) {
  terms.size() == 2   ? add_bf16_as<T, 2>(terms, to)
  : terms.size() == 3 ? add_bf16_as<T, 3>(terms, to)
                      : add_bf16_as<T, 4>(terms, to);
}

}  // namespace

Tensor add_bf16(const Tensors& terms, DType dtype) {
  check(terms.size() >= 2 && terms.size() <= most_bf16_terms, "add_bf16", "got ", terms.size(),
        " terms; accepted: 2 to ", most_bf16_terms);
  const Tensor& first = terms[0];
  for (const Tensor& x : terms) {
    check_same_device("add_bf16", {&first, &x});
    check(first.dtype() == bf16 && x.dtype() == bf16 && first.shape() == x.shape(), "add_bf16",
          "got ", first, " and ", x, "; accepted: bf16 tensors of one shape");
  }
  check(dtype == bf16 || dtype == f32, "add_bf16", "a sum in ", dtype, "; accepted: bf16, f32");
  Tensor sum = empty(first.shape(), {.dtype = dtype, .device = first.device()});
  if (first.device().is_cuda())
    cuda::add_bf16(terms, sum);
  else
    dtype == bf16 ? add_bf16_cpu<BFloat16>(terms, sum) : add_bf16_cpu<float>(terms, sum);
  return sum;
}

}  // namespace stretto
