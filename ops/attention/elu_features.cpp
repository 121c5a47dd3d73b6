#include "ops/attention/elu_features.h"

#include <array>
#include <limits>

#include "autograd/tape.h"
#include "cuda/attention/elu_features.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loops.h"

namespace stretto {
namespace {

constexpr const char* op = "elu_features";

template <class T>
STRETTO_CLONES void features(const T* x, T* y, int64_t n) {
  using C = compute_t<T>;
  for (int64_t i = 0; i < n; ++i) {
    const C v = C(x[i]), bounded = v > C(0) ? C(0) : v, power = math::exp_negative(bounded);
    y[i] = T(v > C(0) ? v + C(1) : power);
  }
}

// dx = g min(y, 1).
template <class T>
STRETTO_CLONES void chain_rule(const T* y, const T* g, T* dx, int64_t n) {
  using C = compute_t<T>;
  for (int64_t i = 0; i < n; ++i) {
    const C v = C(y[i]);
    dx[i] = T(C(g[i]) * (v > C(1) ? C(1) : v));
  }
}

// Transposes [B, H, L, D] views of memory laid out [B, L, H, D] to the order of that memory.
template <size_t n>
std::array<Tensor, n> in_memory_order(std::array<Tensor, n> x) {
  if (x[0].dim() == 4 && !x[0].is_contiguous())
    for (Tensor& one : x) one = one.transpose(1, 2);
  return x;
}

// Calls f<T>(offsets, n) for runs of n elements of operands of one shape, in parallel.
template <size_t n, class F>
void over_runs(const std::array<Tensor, n>& given, F&& f) {
  const std::array<Tensor, n> x = in_memory_order(given);
  std::array<Shape, n> strides;
  for (size_t i = 0; i < n; ++i) strides[i] = x[i].strides();
  const StridedLoop<int(n)> loop(x[0].shape(), strides);
  dispatch_floating(x[0].dtype(), op, [&]<class T>() {
    loop.run([&](auto at, int64_t run) { f.template operator()<T>(at, run); });
  });
}

// Returns x detached, with contiguous rows if rows have more than one element.
Tensor rows_of(const Tensor& x) {
  return x.dim() == 4 && x.size(3) > 1 ? rows_contiguous(x) : x.detach().contiguous();
}

void features(const Tensor& x, const Tensor& y) {
  if (!x.device().is_cpu()) {
    const auto [from, to] = in_memory_order<2>({x, y});
    return cuda::elu_features(from, to);
  }
  over_runs<2>({x, y}, [&]<class T>(auto at, int64_t n) {
    features(x.data<T>() + at[0], y.data<T>() + at[1], n);
  });
}

void chain_rule(const Tensor& y, const Tensor& g, const Tensor& dx) {
  if (!y.device().is_cpu()) {
    const auto [from, slope, to] = in_memory_order<3>({y, g, dx});
    return cuda::elu_features_backward(from, slope, to);
  }
  over_runs<3>({y, g, dx}, [&]<class T>(auto at, int64_t n) {
    chain_rule(y.data<T>() + at[0], g.data<T>() + at[1], dx.data<T>() + at[2], n);
  });
}

}  // namespace

Tensor elu_features(const Tensor& input) {
  check_floating(op, input);
  if (!input.device().is_cpu() && cuda::composed(op, input.device()))
    return relu(input) + exp(clamp(input, -std::numeric_limits<double>::infinity(), 0));
  const Tensor x = rows_of(input), y = x.dim() == 4 ? heads_like(x) : empty_like(x);
  features(x, y);
  // Gradients: g min(y, 1).
  return record(
      op, {input}, y,
      [](Backward& b) {
        if (grad_enabled()) return Tensors{b.grad() * clamp(b.output(), 0, 1)};
        const Tensor from = b.output().detach(), g = rows_of(b.grad()),
                     dx = from.dim() == 4 ? heads_like(from) : empty_like(from);
        chain_rule(from, g, dx);
        return Tensors{dx};
      },
      Keep::outputs);
}

}  // namespace stretto
