// elu(x) + 1, elementwise (cuda/runtime/map.cuh). Tested against the CPU.
#include "cuda/attention/elu_features.h"
#include "cuda/runtime/map.cuh"

namespace stretto::cuda {
namespace {

struct EluPlusOne {
  template <class C>
  __device__ C operator()(C x) const {
    return x > C(0) ? x + C(1) : math::exp(x);
  }
};
struct EluPlusOneSlope {
  template <class C>
  __device__ C operator()(C y, C g) const {
    return g * (y > C(1) ? C(1) : y);
  }
};

}  // namespace

void elu_features(const Tensor& x, const Tensor& y) {
  dispatch_floating(x.dtype(), "elu_features",
                    [&]<class T>() { map<T, T>("elu_features", EluPlusOne(), y, x); });
}

void elu_features_backward(const Tensor& y, const Tensor& g, const Tensor& dx) {
  dispatch_floating(y.dtype(), "elu_features_backward", [&]<class T>() {
    map<T, T, T>("elu_features_backward", EluPlusOneSlope(), dx, y, g);
  });
}

}  // namespace stretto::cuda
