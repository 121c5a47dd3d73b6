// Elementwise functions of two operands, each a tensor or a scalar.
#include "cuda/elementwise.h"
#include "cuda/runtime/map.cuh"

namespace stretto::cuda {
namespace {

namespace em = elementwise;

template <class F>
struct Value {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return F::value(a, b);
  }
};
template <class F, class C>
struct WithRight {
  C c;
  __device__ C operator()(C x) const { return F::value(x, c); }
};
template <class F, class C>
struct WithLeft {
  C c;
  __device__ C operator()(C x) const { return F::value(c, x); }
};
template <class C>
struct Clamp {
  double low, high;
  __device__ C operator()(C x) const { return em::clamp(x, low, high); }
};
struct ClampWhole {
  int64_t low, high;
  __device__ int64_t operator()(int64_t x) const { return x < low ? low : x > high ? high : x; }
};
template <class C>
struct AddScaled {
  C scale;
  __device__ C operator()(C to, C from) const { return to + scale * from; }
};

struct SumOfAll {
  template <class... More>
  __device__ float operator()(float first, More... more) const {
    return (first + ... + more);
  }
};

/// ops/ converts integers to floating point for quotients and powers.
template <class F>
constexpr bool of_integers = !std::is_same_v<F, em::Div> && !std::is_same_v<F, em::Pow>;

template <class F>
Tensor of_tensors(const char* name, const Tensor& a, const Tensor& b) {
  Tensor out = empty_like(a, broadcast_shapes(name, a.shape(), b.shape()));
  dispatch_number<of_integers<F>>(a.dtype(), name,
                                  [&]<class T>() { map<T, T, T>(name, Value<F>{}, out, a, b); });
  return out;
}

template <template <class, class> class With, class F>
Tensor with_number(const char* name, const Tensor& x, double c) {
  Tensor out = empty_like(x);
  dispatch_number<of_integers<F>>(x.dtype(), name, [&]<class T>() {
    using C = compute_t<T>;
    map<T, T>(name, With<F, C>{C(c)}, out, x);
  });
  return out;
}

}  // namespace

#define STRETTO_DEFINE(F) \
  Tensor binary(em::F, const Tensor& a, const Tensor& b) { return of_tensors<em::F>(#F, a, b); }
STRETTO_BINARY_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

#define STRETTO_DEFINE(F)                                     \
  Tensor binary(em::F, const Tensor& x, double c) {           \
    return with_number<WithRight, em::F>(#F " scalar", x, c); \
  }                                                           \
  Tensor binary(em::F, double c, const Tensor& x) {           \
    return with_number<WithLeft, em::F>(#F " scalar", x, c);  \
  }
STRETTO_SCALAR_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

Tensor clamp(const Tensor& x, double low, double high) {
  Tensor out = empty_like(x);
  dispatch_floating(x.dtype(), "clamp", [&]<class T>() {
    map<T, T>("clamp", Clamp<compute_t<T>>{low, high}, out, x);
  });
  return out;
}

Tensor clamp(const Tensor& x, int64_t low, int64_t high) {
  Tensor out = empty_like(x);
  map<int64_t, int64_t>("clamp", ClampWhole{low, high}, out, x);
  return out;
}

void scale(const Tensor& x, double factor) {
  dispatch_floating(x.dtype(), "mul_", [&]<class T>() {
    using C = compute_t<T>;
    map<T, T>("scale", WithRight<em::Mul, C>{C(factor)}, x, x);
  });
}

void add_scaled(const Tensor& to, const Tensor& from, double scale) {
  if (from.dtype() != to.dtype()) {
    const AddScaled<float> add{float(scale)};
    return map<float, float, BFloat16>("add_scaled", add, to, to, from);
  }
  dispatch_floating(to.dtype(), "add_", [&]<class T>() {
    using C = compute_t<T>;
    map<T, T, T>("add_scaled", AddScaled<C>{C(scale)}, to, to, from);
  });
}

void add_bf16(const Tensors& terms, const Tensor& to) {
  const auto run = [&]<class Out>() {
    using B = BFloat16;
    const Tensor &a = terms[0], &b = terms[1];
    if (terms.size() == 2) return map<Out, B, B>("add_bf16", SumOfAll(), to, a, b);
    if (terms.size() == 3) return map<Out, B, B, B>("add_bf16", SumOfAll(), to, a, b, terms[2]);
    map<Out, B, B, B, B>("add_bf16", SumOfAll(), to, a, b, terms[2], terms[3]);
  };
  to.dtype() == bf16 ? run.operator()<BFloat16>() : run.operator()<float>();
}

}  // namespace stretto::cuda
