// Elementwise functions and copies.
//
// out = f(in...): every element is written once, by one thread. Operands may have any strides and
// repeat (stride 0). Where all lie contiguous, threads move 16 bytes at a time.
#include <array>

#include "cuda/common.cuh"
#include "cuda/kernels.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256;

template <class In, int N>
struct Inputs {
  const In* at[N == 0 ? 1 : N] = {};
  bool repeats[N == 0 ? 1 : N] = {};  // one value for all; for map_packs
};

/// Computes f on the compute type of In: f32 for bf16.
template <class Out, class In, class F>
__device__ inline Out apply(const F& f, const In (&)[1], std::integral_constant<int, 0>) {
  return cast<Out>(f());
}
template <class Out, class In, class F>
__device__ inline Out apply(const F& f, const In (&x)[1], std::integral_constant<int, 1>) {
  using C = compute_t<In>;
  return cast<Out>(f(cast<C>(x[0])));
}
template <class Out, class In, class F>
__device__ inline Out apply(const F& f, const In (&x)[2], std::integral_constant<int, 2>) {
  using C = compute_t<In>;
  return cast<Out>(f(cast<C>(x[0]), cast<C>(x[1])));
}

/// out [n] = f(in [n]...), any strides; operand 0 of the layout is out.
template <class Out, class In, int N, class F>
__global__ void map_strided(Out* out, const Inputs<In, N> in,
                            const __grid_constant__ Layout<N + 1> layout, int64_t n, F f) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<N + 1> at = offsets(layout, i);
    In x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) x[k] = in.at[k][at.v[k + 1]];
    out[at.v[0]] = apply<Out>(f, x, std::integral_constant<int, N>());
  }
}

template <class T, int V>
struct alignas(sizeof(T) * V) Pack {
  T v[V];
};

/// The same for contiguous operands (or ones that repeat one value), aligned for packs of V.
template <int V, class Out, class In, int N, class F>
__global__ void map_packs(Out* out, const Inputs<In, N> in, int64_t n, F f) {
  const int64_t packs = n / V;
  for (int64_t i = thread_index(); i < packs; i += thread_count()) {
    Pack<In, V> x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) {
      if (in.repeats[k]) {
        for (int j = 0; j < V; ++j) x[k].v[j] = in.at[k][0];
      } else {
        x[k] = reinterpret_cast<const Pack<In, V>*>(in.at[k])[i];
      }
    }
    Pack<Out, V> y;
    for (int j = 0; j < V; ++j) {
      In one[N == 0 ? 1 : N];
      for (int k = 0; k < N; ++k) one[k] = x[k].v[j];
      y.v[j] = apply<Out>(f, one, std::integral_constant<int, N>());
    }
    reinterpret_cast<Pack<Out, V>*>(out)[i] = y;
  }
  for (int64_t i = packs * V + thread_index(); i < n; i += thread_count()) {
    In x[N == 0 ? 1 : N];
    for (int k = 0; k < N; ++k) x[k] = in.at[k][in.repeats[k] ? 0 : i];
    out[i] = apply<Out>(f, x, std::integral_constant<int, N>());
  }
}

/// Launches f over out's shape; the inputs broadcast to it. Out and In may be any types of the
/// tensors' element sizes.
template <class Out, class In, int N, class F>
void map(const char* name, const Tensor& out, const std::array<const Tensor*, N>& inputs, F f) {
  const int64_t n = out.numel();
  if (n == 0) return;
  const int device = out.device().index;
  Shape strides[N + 1] = {out.strides()};
  Inputs<In, N> in;
  for (int k = 0; k < N; ++k) {
    strides[k + 1] = broadcast_strides(inputs[k]->shape(), inputs[k]->strides(), out.shape());
    in.at[k] = static_cast<const In*>(inputs[k]->raw_data());
  }
  const Layout<N + 1> layout = make_layout(out.shape(), strides);
  Out* const to = static_cast<Out*>(out.raw_data());

  constexpr int V = 16 / int(sizeof(Out) > sizeof(In) ? sizeof(Out) : sizeof(In));
  auto aligned = [](const void* p, size_t bytes) {
    return reinterpret_cast<uintptr_t>(p) % bytes == 0;
  };
  bool packs = layout.dims == 1 && layout.strides[0][0] == 1 && aligned(to, sizeof(Out) * V);
  for (int k = 0; k < N; ++k) {
    const int64_t stride = layout.strides[k + 1][0];
    in.repeats[k] = stride == 0;
    packs = packs && (stride == 0 || (stride == 1 && aligned(in.at[k], sizeof(In) * V)));
  }
  if (packs) {
    launch(name, device, map_packs<V, Out, In, N, F>, blocks_for(n, threads * V), threads, to, in,
           n, f);
  } else {
    launch(name, device, map_strided<Out, In, N, F>, blocks_for(n, threads), threads, to, in,
           layout, n, f);
  }
}

struct Add {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a + b;
  }
};
struct Sub {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a - b;
  }
};
struct Mul {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a * b;
  }
};
struct Div {
  template <class C>
  __device__ C operator()(C a, C b) const {
    return a / b;
  }
};
template <class C>
struct AddScalar {
  C value;
  __device__ C operator()(C x) const { return x + value; }
};
template <class C>
struct MulScalar {
  C value;
  __device__ C operator()(C x) const { return x * value; }
};
template <class C>
struct DivScalar {
  C value;
  __device__ C operator()(C x) const { return x / value; }
};
template <class C>
struct AddScaled {
  C scale;
  __device__ C operator()(C to, C from) const { return to + scale * from; }
};
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

/// Calls f with the unsigned integer of the dtype's size: what moves bits needs no other type.
template <class F>
void dispatch_word(DType t, F&& f) {
  switch (item_size(t)) {
    case 1:
      return f(TypeTag<uint8_t>{});
    case 2:
      return f(TypeTag<uint16_t>{});
    case 4:
      return f(TypeTag<uint32_t>{});
    default:
      return f(TypeTag<uint64_t>{});
  }
}

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
                        const __grid_constant__ Layout<2> layout, int64_t n) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
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
        map<Word, Word, 0>("fill", out, {}, Constant<Word>{std::bit_cast<Word>(element)});
    });
  });
}

void strided_copy(const Tensor& to, const Tensor& from) {
  const DType t = to.dtype(), f = from.dtype();
  if (t == f) {
    dispatch_word(t, [&](auto word) {
      using Word = typename decltype(word)::type;
      map<Word, Word, 1>("strided_copy", to, {&from}, Same{});
    });
  } else if (t == bf16 && f == f32) {
    map<BFloat16, float, 1>("strided_copy", to, {&from}, Same{});
  } else if (t == f32 && f == bf16) {
    map<float, BFloat16, 1>("strided_copy", to, {&from}, Same{});
  } else if (to.numel() > 0) {
    const Shape strides[2] = {to.strides(),
                              broadcast_strides(from.shape(), from.strides(), to.shape())};
    launch("strided_copy", to.device().index, convert, blocks_for(to.numel(), threads), threads,
           to.raw_data(), t, from.raw_data(), f, make_layout(to.shape(), strides), to.numel());
  }
}

Tensor binary(Binary op, const Tensor& a, const Tensor& b) {
  constexpr const char* names[] = {"add", "sub", "mul", "div"};
  const char* name = names[int(op)];
  Tensor out = empty_like(a, broadcast_shapes(name, a.shape(), b.shape()));
  dispatch_floating(a.dtype(), name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const std::array<const Tensor*, 2> in = {&a, &b};
    switch (op) {
      case Binary::add:
        return map<T, T, 2>(name, out, in, Add{});
      case Binary::sub:
        return map<T, T, 2>(name, out, in, Sub{});
      case Binary::mul:
        return map<T, T, 2>(name, out, in, Mul{});
      case Binary::div:
        return map<T, T, 2>(name, out, in, Div{});
    }
  });
  return out;
}

Tensor add_scalar(const Tensor& x, double value) {
  Tensor out = empty_like(x);
  dispatch_floating(x.dtype(), "add", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    map<T, T, 1>("add_scalar", out, {&x}, AddScalar<C>{C(value)});
  });
  return out;
}

Tensor mul_scalar(const Tensor& x, double value) {
  Tensor out = empty_like(x);
  dispatch_floating(x.dtype(), "mul", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    map<T, T, 1>("mul_scalar", out, {&x}, MulScalar<C>{C(value)});
  });
  return out;
}

Tensor div_scalar(const Tensor& x, double value) {
  Tensor out = empty_like(x);
  dispatch_floating(x.dtype(), "div", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    map<T, T, 1>("div_scalar", out, {&x}, DivScalar<C>{C(value)});
  });
  return out;
}

void add_scaled(const Tensor& to, const Tensor& from, double scale) {
  dispatch_floating(to.dtype(), "add_", [&](auto tag) {
    using T = typename decltype(tag)::type;
    using C = compute_t<T>;
    map<T, T, 2>("add_scaled", to, {&to, &from}, AddScaled<C>{C(scale)});
  });
}

}  // namespace stretto::cuda
