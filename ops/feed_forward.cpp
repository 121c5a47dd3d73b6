#include "ops/feed_forward.h"

#include "autograd/tape.h"
#include "core/formulas/elementwise_math.h"
#include "core/gemm/gemm.h"
#include "cuda/linear.h"
#include "ops/activation.h"
#include "ops/create.h"
#include "ops/dropout_draws.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/weight_gradients.h"

namespace stretto {
namespace {

struct Settings {
  Activation f;
  double p;
  RandomKey key;
};

Tensor composed(const Tensors& in, const Settings& s) {
  return linear(activate_and_drop(linear(in[0], in[1], in[2]), {}, s.f, s.p, s.key), in[3], in[4]);
}

// ---- one row of the hidden layer on the CPU

// before = sums + bias, hidden = F(before). `before` may be the same row as `sums`, or as `hidden`,
// which then holds F(before).
template <class T, class F>
STRETTO_CLONES void hidden_row(const compute_t<T>* sums, const T* bias, T* before, T* hidden,
                               int64_t n) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) before[i] = T(sums[i] + C(bias[i]));
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) hidden[i] = T(F::value(C(before[i])));
}

// d = sums · F′(before); d may be `sums`.
template <class T, class F>
STRETTO_CLONES void gradient_row(const compute_t<T>* sums, const T* before, T* d, int64_t n) {
  using C = compute_t<T>;
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) d[i] = T(sums[i] * F::derivative(C(before[i]), C(before[i])));
}

template <class T>
struct HiddenRows {
  decltype(&hidden_row<T, elementwise::Relu>) hidden;
  decltype(&gradient_row<T, elementwise::Relu>) gradient;
};
template <class T>
HiddenRows<T> rows_of(Activation f) {
  return elementwise::dispatch_activation(f, []<class F>() {
    return HiddenRows<T>{hidden_row<T, F>, gradient_row<T, F>};
  });
}

// ---- products with these rows as epilogue

// Computes a [m, k] · b [k, n], or · bᵀ for b [n, k], all contiguous. The epilogue finish(i, j,
// rows, columns, sums, ld) writes each block of `to` [m, n]. If the dtype of `to` allows, it
// also holds the sums.
template <class T, class F>
void product(const Tensor& a, const Tensor& b, bool transposed, const Tensor& to, F&& finish) {
  using C = compute_t<T>;
  const int64_t m = a.size(0), k = a.size(1), n = to.size(1);
  const auto epilogue = epilogue_of<C>(finish);
  if constexpr (std::is_same_v<T, BFloat16>)
    if (has_bf16_products())
      return gemm_parallel(m, n, k, {a.data<T>(), k}, {b.data<T>(), b.size(1), transposed},
                           epilogue);
  const DType type = std::is_same_v<C, double> ? f64 : f32;
  const Tensor x = a.to(type);
  const Tensor sums = to.dtype() == type ? to : empty({m, n}, {.dtype = type, .device = cpu});
  const MatrixRef<C> left{x.data<C>(), k};
  C* const c = sums.data<C>();
  if constexpr (std::is_same_v<T, BFloat16>)  // for few rows, weights are converted while read
    if (gemm_widening({m, n, k, 1, left, {b.data<T>(), b.size(1), transposed}, 0, c, n}))
      return finish(0, 0, m, n, c, n);
  const Tensor y = b.to(type);
  gemm_parallel<C>({m, n, k, 1, left, {y.data<C>(), b.size(1), transposed}, 0, c, n}, &epilogue);
}

// Computes dropout(F(x · weightᵀ + bias)) in `hidden`. Writes the argument of F to `before`, which
// may be the same tensor.
Tensor hidden_cpu(const Tensor& x, const Tensor& weight, const Tensor& bias, const Tensor& before,
                  const Tensor& hidden, const Settings& s) {
  const int64_t width = weight.size(0);
  const Dropping dropping(s.p, s.key);
  dispatch_floating(x.dtype(), "feed_forward", [&]<class T>() {
    const auto row = rows_of<T>(s.f).hidden;
    const T* const b = bias.data<T>();
    T *const kept = before.data<T>(), *const to = hidden.data<T>();
    product<T>(x, weight, true, before,
               [&](int64_t i, int64_t j, int64_t rows, int64_t columns, const compute_t<T>* sums,
                   int64_t ld) {
                 for (int64_t r = 0; r < rows; ++r) {
                   const int64_t at = (i + r) * width + j;
                   row(sums + r * ld, b + j, kept + at, to + at, columns);
                   if (s.p > 0) dropping.run(to + at, to + at, at, columns);
                 }
               });
  });
  return hidden;
}

// Returns the gradient through dropout and F: (g · weight) · F′(before).
Tensor gradient_cpu(const Tensor& g, const Tensor& weight, const Tensor& before,
                    const Settings& s) {
  Tensor d = empty_like(before);
  const int64_t width = weight.size(1);
  const Dropping dropping(s.p, s.key);
  dispatch_floating(g.dtype(), "feed_forward", [&]<class T>() {
    const auto row = rows_of<T>(s.f).gradient;
    const T* const x = before.data<T>();
    T* const to = d.data<T>();
    product<T>(
        g, weight, false, d,
        [&](int64_t i, int64_t j, int64_t rows, int64_t columns, compute_t<T>* sums, int64_t ld) {
          for (int64_t r = 0; r < rows; ++r, sums += ld) {
            const int64_t at = (i + r) * width + j;
            if (s.p > 0) dropping.run(sums, sums, at, columns);
            row(sums, x + at, to + at, columns);
          }
        });
  });
  return d;
}

// True if the fused implementation supports the inputs. They must have one floating-point dtype and
// must not be empty. On the CPU, dropout requires that the row length is a multiple of 4, because 4
// elements share a Philox block. On a GPU, cuBLASLt must support the sizes.
bool fits(const Tensors& in, const Settings& s) {
  for (const Tensor& x : in)
    if (x.defined() && (x.dtype() != in[0].dtype() || x.numel() == 0)) return false;
  const int64_t width = in[1].size(0);
  if (in[0].device().is_cpu()) return is_floating(in[0].dtype()) && (s.p == 0 || width % 4 == 0);
  const int64_t inside = in[1].size(1);
  return s.f == Activation::gelu_tanh && s.p == 0 && in[2].defined() && in[4].defined() &&
         cuda::serves_gelu(in[0].numel() / inside, inside, width, in[3].size(0), in[0].dtype(),
                           in[0].device().index);
}

Tensor fused(const Tensors& in, const Settings& s) {
  const auto plain = [](const Tensor& t) { return t.detach().contiguous(); };
  const Tensor x = in[0].detach(), b2 = in[4].defined() ? plain(in[4]) : Tensor();
  const bool on_cpu = x.device().is_cpu();
  Shape shape = x.shape();
  shape.back() = in[3].size(0);
  const Tensor rows = plain(x.reshape({-1, in[1].size(1)}));
  Tensor before = empty({rows.size(0), in[1].size(0)}, options_of(x)), hidden, y;
  if (on_cpu) {
    const Tensor b1 = in[2].defined() ? plain(in[2]) : zeros({in[1].size(0)}, options_of(x));
    hidden = recording(in) ? empty_like(before) : before;
    hidden_cpu(rows, plain(in[1]), b1, before, hidden, s);
    y = linear(hidden, plain(in[3]), b2);
  } else {
    hidden = cuda::linear(rows, plain(in[1]), plain(in[2]), before);
    y = cuda::linear(hidden, plain(in[3]), b2, {});
  }
  // Gradients: d w1, dᵀ x, Σ d, gᵀ f(h) and Σ g for x, w1, b1, w2 and b2, with h = x w1ᵀ + b1 and
  // d = f′(h) · (g w2).
  return record("feed_forward", in, y.reshape(shape),
                [x = Saved(in[0]), w1 = Saved(in[1]), b1 = Saved(in[2]), w2 = Saved(in[3]),
                 b2 = Saved(in[4]), before, hidden, on_cpu, s](Backward& b) {
                  if (grad_enabled())
                    return composed_gradient(
                        b, [s](const Tensors& again) { return composed(again, s); },
                        {x(), w1(), b1(), w2(), b2()});
                  const Tensor g = b.grad().reshape({hidden.size(0), -1}).contiguous();
                  Tensors all(5);
                  const auto [dw2, db2] = weight_gradients(g, hidden, b.needs(3), b.needs(4));
                  all[3] = dw2, all[4] = db2;
                  if (!b.needs(0) && !b.needs(1) && !b.needs(2)) return all;
                  const Tensor weight = w2().detach().contiguous();
                  Tensor db1 = on_cpu ? Tensor() : empty_like(b1());
                  const Tensor d = on_cpu ? gradient_cpu(g, weight, before, s)
                                          : cuda::gelu_gradient(g, weight, before, db1);
                  if (b.needs(0)) all[0] = matmul(d, w1().detach()).reshape(x().shape());
                  if (b.needs(1))
                    all[1] = matmul(d.transpose(0, 1), x().detach().reshape({hidden.size(0), -1}));
                  if (b.needs(2)) all[2] = on_cpu ? sum(d, {0}) : db1;
                  return all;
                });
}

}  // namespace

Tensor activate(const Tensor& x, Activation f) {
  switch (f) {
    case Activation::relu:
      return relu(x);
    case Activation::gelu:
      return gelu(x);
    case Activation::gelu_tanh:
      return gelu_tanh(x);
    case Activation::silu:
      break;
  }
  return silu(x);
}

Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p) {
  return feed_forward(x, w1, b1, w2, b2, f, p, p == 0 ? RandomKey() : next_random_key());
}

Tensor feed_forward(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2,
                    const Tensor& b2, Activation f, double p, RandomKey key) {
  const char* op = "feed_forward";
  check(x.dim() >= 1 && w1.dim() == 2 && w2.dim() == 2 && x.size(-1) == w1.size(1) &&
            w1.size(0) == w2.size(1),
        op, "x ", x, ", w1 ", w1, ", w2 ", w2,
        "; x must be [.., in], w1 [hidden, in], w2 [out, hidden]");
  check((!b1.defined() || b1.shape() == Shape{w1.size(0)}) &&
            (!b2.defined() || b2.shape() == Shape{w2.size(0)}),
        op, "b1 ", b1, ", b2 ", b2, "; must be [", w1.size(0), "] and [", w2.size(0), "]");
  check(p >= 0 && p <= 1, op, "dropout probability ", p, "; accepted: 0 to 1");
  check_same_device(op, {&x, &w1, &b1, &w2, &b2});
  const Tensors inputs{x, w1, b1, w2, b2};
  const Settings settings{f, p, key};
  return fits(inputs, settings) ? fused(inputs, settings) : composed(inputs, settings);
}

}  // namespace stretto
