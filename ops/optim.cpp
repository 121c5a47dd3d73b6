#include "ops/optim.h"

#include <cmath>
#include <initializer_list>
#include <vector>

#include "core/parallel.h"
#include "cuda/optim.h"
#include "ops/elementwise.h"
#include "ops/on_device.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

constexpr int64_t grain = 32768;

// Element i of a parameter in the precision of the step.
template <class P>
compute_t<P> load(const P* weight, const compute_t<P>* master, int64_t i) {
  if constexpr (std::is_same_v<P, BFloat16>) {
    const float kept = master[i], fresh = float(weight[i]);
    return BFloat16(kept).bits == weight[i].bits ? kept : fresh;
  } else {
    return weight[i];
  }
}

template <class P>
void store(P* weight, compute_t<P>* master, int64_t i, compute_t<P> value) {
  if constexpr (std::is_same_v<P, BFloat16>) master[i] = value;
  weight[i] = P(value);
}

// Pointer to element i; null for an undefined tensor.
template <class T>
T* at(const Tensor& x, int64_t i) {
  return x.defined() ? x.data<T>() + i : nullptr;
}

// In the loops below, a pointer that may be null is asked for at compile time: as a condition it
// becomes masked vector accesses through null, which are ten times slower.
template <class P, bool with_momentum, class T = compute_t<P>>
STRETTO_CLONES void sgd_loop(int64_t n, P* __restrict w, const P* __restrict grad,
                             T* __restrict master, T* __restrict b, const SgdRule<T> rule) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = load(w, master, i), g = T(grad[i]);
    if constexpr (with_momentum)
      store(w, master, i, rule.with_momentum(x, g, b[i]));
    else
      store(w, master, i, rule.plain(x, g));
  }
}

template <class P, bool amsgrad, class T = compute_t<P>>
STRETTO_CLONES void adam_loop(int64_t n, P* __restrict w, const P* __restrict grad,
                              T* __restrict master, T* __restrict m, T* __restrict v,
                              T* __restrict v_max, const AdamRule<T> rule) {
  for (int64_t i = 0; i < n; ++i) {
    const T x = load(w, master, i);
    rule.moments(x, T(grad[i]), m[i], v[i]);
    T second = v[i];
    if constexpr (amsgrad) {
      second = v_max[i] > second ? v_max[i] : second;
      v_max[i] = second;
    }
    store(w, master, i, rule.stepped(x, m[i], second));
  }
}

void sgd_cpu(const Tensor& weight, const Tensor& gradient, const Tensor& master,
             const Tensor& momentum, const SgdStep& step) {
  dispatch_floating(weight.dtype(), "sgd_step", [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    const auto loop = momentum.defined() ? sgd_loop<P, true> : sgd_loop<P, false>;
    parallel_for(weight.numel(), grain, [&](int64_t begin, int64_t end) {
      loop(end - begin, at<P>(weight, begin), at<P>(gradient, begin), at<T>(master, begin),
           at<T>(momentum, begin), SgdRule<T>(step));
    });
  });
}

void adam_cpu(const Tensor& weight, const Tensor& gradient, const Tensor& master, const Tensor& m,
              const Tensor& v, const Tensor& v_max, const AdamStep& step) {
  dispatch_floating(weight.dtype(), "adam_step", [&](auto tag) {
    using P = typename decltype(tag)::type;
    using T = compute_t<P>;
    const auto loop = v_max.defined() ? adam_loop<P, true> : adam_loop<P, false>;
    parallel_for(weight.numel(), grain, [&](int64_t begin, int64_t end) {
      loop(end - begin, at<P>(weight, begin), at<P>(gradient, begin), at<T>(master, begin),
           at<T>(m, begin), at<T>(v, begin), at<T>(v_max, begin), AdamRule<T>(step));
    });
  });
}

// What a step changes and reads must lie as the loops walk it. Here and below nothing is allocated:
// of the many steps of an optimiser none may fail when others are done.
void check_step(const char* op, const Tensor& weight, const Tensor& gradient,
                std::initializer_list<const Tensor*> state) {
  check(is_floating(weight.dtype()) && gradient.dtype() == weight.dtype(), op, "weight ", weight,
        ", gradient ", gradient, "; both must have one floating dtype");
  const DType type = weight.dtype() == f64 ? f64 : f32;
  auto fits = [&](const Tensor& x) {
    return x.shape() == weight.shape() && x.device() == weight.device() && x.is_contiguous();
  };
  check(fits(weight) && fits(gradient), op, "weight ", weight, ", gradient ", gradient,
        "; both must be contiguous, of one shape and on one device");
  for (const Tensor* x : state)
    check(!x->defined() || (fits(*x) && x->dtype() == type), op, "state ", *x, " of a weight ",
          weight, "; it must be contiguous ", type, " beside the weight");
}

void changed(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* x : tensors)
    if (x->defined()) ++x->storage().version;
}

// total + Σ x².
double with_squares_cpu(const Tensor& x, double total) {
  std::vector<double> sums(size_t((x.numel() + grain - 1) / grain));
  dispatch_floating(x.dtype(), "l2_norm", [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T* values = x.data<T>();
    parallel_for(x.numel(), grain, [&](int64_t begin, int64_t end) {
      double sum = 0;
      for (int64_t i = begin; i < end; ++i) sum += double(values[i]) * double(values[i]);
      sums[size_t(begin / grain)] = sum;
    });
  });
  for (double sum : sums) total += sum;
  return total;
}

double with_squares_cuda(const Tensor& x, double total) {
  return total + sum(square(x.to(f64))).item();
}

}  // namespace

void sgd_step(const Tensor& weight, const Tensor& gradient, const Tensor& master,
              const Tensor& momentum, const SgdStep& step) {
  check_step("sgd_step", weight, gradient, {&master, &momentum});
  changed({&weight, &master, &momentum});
  on_device(weight, sgd_cpu, cuda::sgd_step, gradient, master, momentum, step);
}

void adam_step(const Tensor& weight, const Tensor& gradient, const Tensor& master, const Tensor& m,
               const Tensor& v, const Tensor& v_max, const AdamStep& step) {
  check_step("adam_step", weight, gradient, {&master, &m, &v, &v_max});
  changed({&weight, &master, &m, &v, &v_max});
  on_device(weight, adam_cpu, cuda::adam_step, gradient, master, m, v, v_max, step);
}

double l2_norm(const Tensors& tensors) {
  double total = 0;
  for (const Tensor& x : tensors)
    total = on_device(x.detach().contiguous(), with_squares_cpu, with_squares_cuda, total);
  return std::sqrt(total);
}

}  // namespace stretto
