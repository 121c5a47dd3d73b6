// Kernels of functions of one tensor and of their derivatives, for the files that instantiate them.
#pragma once

#include "cuda/elementwise.h"
#include "cuda/runtime/map.cuh"

namespace stretto::cuda {

template <class F>
struct UnaryValue {
  template <class C>
  __device__ C operator()(C x) const {
    return F::value(x);
  }
};
template <class F>
struct UnarySlope {
  template <class C>
  __device__ C operator()(C at, C g) const {
    return F::derivative(at, at) * g;
  }
};

template <class F, bool integers>
Tensor unary_value(const char* name, const Tensor& x) {
  Tensor out = empty_like(x);
  dispatch_number<integers>(x.dtype(), name,
                            [&]<class T>() { map<T, T>(name, UnaryValue<F>{}, out, x); });
  return out;
}

template <class F>
Tensor unary_slope(const char* name, const Tensor& at, const Tensor& g) {
  Tensor out = empty_like(at);
  dispatch_floating(at.dtype(), name,
                    [&]<class T>() { map<T, T, T>(name, UnarySlope<F>{}, out, at, g); });
  return out;
}

/// The two functions of cuda/elementwise.h for one of STRETTO_UNARY_FUNCTIONS.
#define STRETTO_DEFINE_UNARY(F)                                          \
  Tensor unary(elementwise::F, const Tensor& x) {                        \
    return unary_value<elementwise::F, false>(#F, x);                    \
  }                                                                      \
  Tensor chain_rule(elementwise::F, const Tensor& at, const Tensor& g) { \
    return unary_slope<elementwise::F>(#F " backward", at, g);           \
  }

}  // namespace stretto::cuda
