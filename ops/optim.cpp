#include "ops/optim.h"

#include <cmath>
#include <initializer_list>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "cuda/optim.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/on_device.h"
#include "ops/reduce.h"
#include "ops/rows.h"

namespace stretto {
namespace {

constexpr int64_t grain = 32768;

// Element i of a parameter in the precision of the step.
template <class P>
compute_t<P> load(const P* weight, const compute_t<P>* master, int64_t i) {
  if constexpr (std::is_same_v<P, BFloat16>) {
    const float value = master[i], rounded = float(weight[i]);
    return BFloat16(value).bits == weight[i].bits ? value : rounded;
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

// In the loops below, a template parameter is true if a pointer is not null. The compiler would
// turn a condition at run time into masked vector accesses through the null pointer, which are
// ten times slower.
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

void sgd_cpu(const SgdTask& t) {
  dispatch_floating(t.weight.dtype(), "sgd_step", [&]<class P>() {
    using T = compute_t<P>;
    const auto loop = t.momentum.defined() ? sgd_loop<P, true> : sgd_loop<P, false>;
    parallel_for(t.weight.numel(), grain, [&](int64_t begin, int64_t end) {
      loop(end - begin, at<P>(t.weight, begin), at<P>(t.gradient, begin), at<T>(t.master, begin),
           at<T>(t.momentum, begin), SgdRule<T>(t.step));
    });
  });
}

void adam_cpu(const AdamTask& t) {
  dispatch_floating(t.weight.dtype(), "adam_step", [&]<class P>() {
    using T = compute_t<P>;
    const auto loop = t.v_max.defined() ? adam_loop<P, true> : adam_loop<P, false>;
    parallel_for(t.weight.numel(), grain, [&](int64_t begin, int64_t end) {
      loop(end - begin, at<P>(t.weight, begin), at<P>(t.gradient, begin), at<T>(t.master, begin),
           at<T>(t.m, begin), at<T>(t.v, begin), at<T>(t.v_max, begin), AdamRule<T>(t.step));
    });
  });
}

// Checks the layout that the loops require. From here on nothing is allocated, so that no step of
// an optimizer can fail after other steps are done.
void check_step(const char* op, const Tensor& weight, const Tensor& gradient,
                std::initializer_list<const Tensor*> state) {
  check(is_floating(weight.dtype()) && gradient.dtype() == weight.dtype(), op, "weight ", weight,
        ", gradient ", gradient, "; both must have one floating-point dtype");
  const DType type = compute_type(weight.dtype());
  auto fits = [&](const Tensor& x) {
    return x.shape() == weight.shape() && x.device() == weight.device() && x.is_contiguous();
  };
  check(fits(weight) && fits(gradient), op, "weight ", weight, ", gradient ", gradient,
        "; both must be contiguous, of one shape and on one device");
  for (const Tensor* x : state)
    check(!x->defined() || (fits(*x) && x->dtype() == type), op, "state ", *x, " of a weight ",
          weight, "; must be contiguous ", type, " with the weight's shape and device");
}

void changed(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* x : tensors)
    if (x->defined()) ++x->storage().version;
}

// Calls f(begin, end) for runs of consecutive tensors of one dtype on one device.
template <class F>
void each_run(size_t n, const auto& tensor, F&& f) {
  for (size_t begin = 0, end = 0; begin < n; begin = end) {
    const Tensor& first = tensor(begin);
    while (end < n && tensor(end).dtype() == first.dtype() &&
           tensor(end).device() == first.device())
      ++end;
    f(begin, end);
  }
}

template <class Task>
void run(std::span<const Task> tasks, void (*on_cpu)(const Task&),
         void (*on_cuda)(std::span<const Task>)) {
  const auto weight = [&](size_t i) -> const Tensor& { return tasks[i].weight; };
  each_run(tasks.size(), weight, [&](size_t begin, size_t end) {
    const auto some = tasks.subspan(begin, end - begin);
    if (some[0].weight.device().is_cuda()) return on_cuda(some);
    for (const Task& task : some) on_cpu(task);
  });
}

template <class T>
STRETTO_CLONES double sum_of_squares(const T* x, int64_t n) {
  return rows::sum<double>(n, [&](int64_t i) {
    const double v = double(compute_t<T>(x[i]));
    return v * v;
  });
}

// Σ x² on a GPU, without synchronization.
Tensor squares_cuda(const Tensors& tensors) {
  Tensors sums;
  const auto tensor = [&](size_t i) -> const Tensor& { return tensors[i]; };
  each_run(tensors.size(), tensor, [&](size_t begin, size_t end) {
    sums.push_back(
        cuda::squares({tensors.begin() + ptrdiff_t(begin), tensors.begin() + ptrdiff_t(end)}));
  });
  for (Tensor& x : sums) x = sum(x.to(tensors[0].device()));
  Tensor total = sums[0];
  for (size_t i = 1; i < sums.size(); ++i) total = total + sums[i];
  return total;
}

}  // namespace

void sgd_steps(std::span<const SgdTask> tasks) {
  for (const SgdTask& t : tasks)
    check_step("sgd_steps", t.weight, t.gradient, {&t.master, &t.momentum});
  for (const SgdTask& t : tasks) changed({&t.weight, &t.master, &t.momentum});
  run(tasks, sgd_cpu, cuda::sgd_steps);
}

void adam_steps(std::span<const AdamTask> tasks) {
  for (const AdamTask& t : tasks)
    check_step("adam_steps", t.weight, t.gradient, {&t.master, &t.m, &t.v, &t.v_max});
  for (const AdamTask& t : tasks) changed({&t.weight, &t.master, &t.m, &t.v, &t.v_max});
  run(tasks, adam_cpu, cuda::adam_steps);
}

std::vector<double> block_squares(const Tensor& x) {
  std::vector<double> sums(size_t((x.numel() + norm_block - 1) / norm_block));
  dispatch_floating(x.dtype(), "l2_norm", [&]<class T>() {
    const T* values = x.data<T>();
    parallel_for(x.numel(), norm_block, [&](int64_t begin, int64_t end) {
      sums[size_t(begin / norm_block)] = sum_of_squares(values + begin, end - begin);
    });
  });
  return sums;
}

Tensor l2_norm(const Tensors& tensors) {
  NoGrad guard;
  Tensors plain;
  for (const Tensor& x : tensors) plain.push_back(x.detach().contiguous());
  if (!plain.empty() && plain[0].device().is_cuda()) return sqrt(squares_cuda(plain));
  double total = 0;
  for (const Tensor& x : plain)
    for (const double squares : block_squares(x.to(cpu))) total += squares;
  return scalar(std::sqrt(total), {.dtype = f64, .device = cpu});
}

void clip_to_norm(const Tensors& tensors, const Tensor& norm, double most) {
  const auto tensor = [&](size_t i) -> const Tensor& { return tensors[i]; };
  each_run(tensors.size(), tensor, [&](size_t begin, size_t end) {
    const std::span<const Tensor> some(&tensors[begin], end - begin);
    NoGrad guard;
    if (some[0].device().is_cuda()) {
      Tensors rows;
      for (const Tensor& x : some) rows.push_back(x.contiguous());
      cuda::clip(rows, norm.to(some[0].device()), most);
      for (size_t i = 0; i < rows.size(); ++i)
        rows[i].same(some[i]) ? changed({&some[i]}) : void(Tensor(some[i]).copy_(rows[i]));
      return;
    }
    const double is = norm.item();
    if (is > most && std::isfinite(is))
      for (const Tensor& x : some) x.mul_(most / is);
  });
}

}  // namespace stretto
