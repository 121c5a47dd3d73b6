// Elementwise functions of one tensor, and their derivatives times a gradient.
#include "cuda/elementwise.h"
#include "cuda/map.cuh"

namespace stretto::cuda {
namespace {

namespace em = elementwise;

template <class F>
struct Value {
  template <class C>
  __device__ C operator()(C x) const {
    return F::value(x);
  }
};
template <class F>
struct Slope {
  template <class C>
  __device__ C operator()(C at, C g) const {
    return F::derivative(at, at) * g;
  }
};

template <class F, bool integers>
Tensor value(const char* name, const Tensor& x) {
  Tensor out = empty_like(x);
  dispatch_number<integers>(x.dtype(), name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map<T, T>(name, Value<F>{}, out, x);
  });
  return out;
}

template <class F>
Tensor slope(const char* name, const Tensor& at, const Tensor& g) {
  Tensor out = empty_like(at);
  dispatch_floating(at.dtype(), name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map<T, T, T>(name, Slope<F>{}, out, at, g);
  });
  return out;
}

}  // namespace

#define STRETTO_DEFINE(F) \
  Tensor unary(em::F, const Tensor& x) { return value<em::F, false>(#F, x); }
STRETTO_UNARY_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

#define STRETTO_DEFINE(F) \
  Tensor unary(em::F, const Tensor& x) { return value<em::F, true>(#F, x); }
STRETTO_PIECEWISE_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

#define STRETTO_DEFINE(F)                                       \
  Tensor chain_rule(em::F, const Tensor& at, const Tensor& g) { \
    return slope<em::F>(#F " backward", at, g);                 \
  }
STRETTO_UNARY_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

}  // namespace stretto::cuda
