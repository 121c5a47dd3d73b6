// Optimizer steps in place, and gradient clipping: many tensors per launch.
//
// A table of tensors is passed as the kernel's argument. Each block processes 4096 elements of one
// tensor, each thread four adjacent elements at a time; every element is read and written once, by
// one thread. Tested against the CPU's loops in tests/cuda/optim_kernels_test.cpp.
#include <functional>
#include <utility>
#include <vector>

#include "cuda/optim.h"
#include "cuda/runtime/capture.h"
#include "cuda/runtime/common.cuh"
#include "cuda/runtime/unfused.h"

namespace stretto::cuda {
namespace {

constexpr int threads = 256, side_by_side = 4;
constexpr int64_t chunk = 4 * threads * side_by_side;
constexpr int most_tensors = 96;  // per launch

/// The tensors of a launch; blocks first[i] … first[i + 1] − 1 process entry i. A captured step has
/// its rules in device memory, where each replay finds new ones.
template <class Entry>
struct Table {
  int count = 0;
  const typename Entry::Rule* rules = nullptr;
  unsigned first[most_tensors + 1] = {};
  Entry entry[most_tensors];
};

/// Four adjacent elements, or fewer at the end of a tensor.
template <class T>
struct alignas(sizeof(T) * 4 > 16 ? 16 : sizeof(T) * 4) Four {
  T v[4];
};
template <class T>
__device__ inline Four<T> get(const T* from, int64_t i, int count, bool pack) {
  if (pack) return *reinterpret_cast<const Four<T>*>(from + i);
  Four<T> x = {};
#pragma unroll
  for (int j = 0; j < side_by_side; ++j)
    if (j < count) x.v[j] = from[i + j];
  return x;
}
template <class T>
__device__ inline void put(T* to, int64_t i, int count, bool pack, const Four<T>& x) {
  if (pack) {
    *reinterpret_cast<Four<T>*>(to + i) = x;
    return;
  }
#pragma unroll
  for (int j = 0; j < side_by_side; ++j)
    if (j < count) to[i + j] = x.v[j];
}

/// An element of a weight in the precision of the step: its master copy, unless the weight has been
/// changed outside the optimizer.
template <class P, class T>
__device__ inline T current(P w, T master) {
  if constexpr (std::is_same_v<P, BFloat16>)
    return cast<BFloat16>(master).bits == w.bits ? master : cast<T>(w);
  else
    return w;
}

/// w, grad, master (bf16) and b (null without momentum), all [n]
template <class P>
struct SgdEntry {
  using T = compute_t<P>;
  P* w;
  const P* grad;
  T *master, *b;
  int64_t n;
  bool packs;
  SgdRule<T> rule;
  using Rule = SgdRule<T>;

  __device__ void operator()(int64_t i, int count) const {
    const bool pack = packs && count == side_by_side;
    Four<P> weight = get(w, i, count, pack);
    const Four<P> slope = get(grad, i, count, pack);
    Four<T> x = {}, momentum = {};
    if constexpr (std::is_same_v<P, BFloat16>) x = get(master, i, count, pack);
    if (b) momentum = get(b, i, count, pack);
#pragma unroll
    for (int j = 0; j < side_by_side; ++j) {
      const T before = current(weight.v[j], x.v[j]), g = cast<T>(slope.v[j]);
      x.v[j] = b ? rule.with_momentum(before, g, momentum.v[j]) : rule.plain(before, g);
      weight.v[j] = cast<P>(x.v[j]);
    }
    put(w, i, count, pack, weight);
    if constexpr (std::is_same_v<P, BFloat16>) put(master, i, count, pack, x);
    if (b) put(b, i, count, pack, momentum);
  }
};

/// w, grad, master (bf16), m, v and v_max (null without amsgrad), all [n]
template <class P>
struct AdamEntry {
  using T = compute_t<P>;
  P* w;
  const P* grad;
  T *master, *m, *v, *v_max;
  int64_t n;
  bool packs;
  AdamRule<T> rule;
  using Rule = AdamRule<T>;

  __device__ void operator()(int64_t i, int count) const {
    const bool pack = packs && count == side_by_side;
    Four<P> weight = get(w, i, count, pack);
    const Four<P> slope = get(grad, i, count, pack);
    Four<T> x = {}, first = get(m, i, count, pack), second = get(v, i, count, pack), most = {};
    if constexpr (std::is_same_v<P, BFloat16>) x = get(master, i, count, pack);
    if (v_max) most = get(v_max, i, count, pack);
#pragma unroll
    for (int j = 0; j < side_by_side; ++j) {
      const T before = current(weight.v[j], x.v[j]);
      rule.moments(before, cast<T>(slope.v[j]), first.v[j], second.v[j]);
      most.v[j] = v_max && most.v[j] > second.v[j] ? most.v[j] : second.v[j];
      x.v[j] = rule.stepped(before, first.v[j], most.v[j]);
      weight.v[j] = cast<P>(x.v[j]);
    }
    put(w, i, count, pack, weight);
    if constexpr (std::is_same_v<P, BFloat16>) put(master, i, count, pack, x);
    put(m, i, count, pack, first);
    put(v, i, count, pack, second);
    if (v_max) put(v_max, i, count, pack, most);
  }
};

/// x [n] times rule / norm if the norm is finite and exceeds `rule`.
template <class P>
struct ClipEntry {
  P* x;
  int64_t n;
  bool packs;
  const double* norm;
  double rule;  // the largest norm
  using Rule = double;

  __device__ void operator()(int64_t i, int count) const {
    const double is = *norm;
    if (!(is > rule) || isinf(is)) return;
    const auto factor = compute_t<P>(rule / is);
    const bool pack = packs && count == side_by_side;
    Four<P> value = get(x, i, count, pack);
#pragma unroll
    for (int j = 0; j < side_by_side; ++j)
      value.v[j] = cast<P>(cast<compute_t<P>>(value.v[j]) * factor);
    put(x, i, count, pack, value);
  }
};

/// x [n]; the block's sum of squares is written to sums[its index].
template <class P>
struct SquaresEntry {
  const P* x;
  int64_t n;
  bool packs;
  double* sums;
  using Rule = int;  // not used
};

template <class Entry>
__device__ inline int entry_of_block(const Table<Entry>& table) {
  int low = 0, high = table.count;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (table.first[middle] <= blockIdx.x ? low : high) = middle;
  }
  return low;
}

/// Calls f(i, count) for this thread's elements, four at a time, of a block's chunk from `begin`.
template <class F>
__device__ inline void each_four(int64_t begin, int64_t n, F&& f) {
  const int64_t end = begin + chunk < n ? begin + chunk : n;
#pragma unroll 1
  for (int64_t i = begin + threadIdx.x * side_by_side; i < end; i += threads * side_by_side)
    f(i, int(end - i < side_by_side ? end - i : side_by_side));
}

/// Calls the entries' operator() for each four elements of their tensors [n].
template <class Entry>
__global__ void __launch_bounds__(threads) update(const __grid_constant__ Table<Entry> table) {
  const int at = entry_of_block(table);
  Entry entry = table.entry[at];
  if (table.rules) entry.rule = table.rules[at];
  each_four(int64_t(blockIdx.x - table.first[at]) * chunk, entry.n, entry);
}

/// sums [blocks of an entry]: the sum of squares of each block's part of x [n]
template <class P>
__global__ void __launch_bounds__(threads)
    sum_squares(const __grid_constant__ Table<SquaresEntry<P>> table) {
  const int at = entry_of_block(table);
  const SquaresEntry<P>& entry = table.entry[at];
  double total = 0;
  each_four(int64_t(blockIdx.x - table.first[at]) * chunk, entry.n, [&](int64_t i, int count) {
    const Four<P> x = get(entry.x, i, count, entry.packs && count == side_by_side);
#pragma unroll
    for (int j = 0; j < side_by_side; ++j) {
      const double value = cast<double>(x.v[j]);
      total += value * value;
    }
  });
  total = combine<threads>(total, Sum());
  if (threadIdx.x == 0) entry.sums[blockIdx.x - table.first[at]] = total;
}

// True if all pointers are null or aligned for packs.
template <class... T>
bool aligned(const T*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % alignof(Four<T>) == 0) && ...);
}

int64_t blocks_of(int64_t n) { return ceil_div(n, chunk); }

// Collects entries in tables; each table is queued when it is full.
template <class Entry>
class Batch {
 public:
  Batch(const char* op, int device, void (*kernel)(Table<Entry>))
      : op_(op), device_(device), kernel_(kernel) {}

  using Rule = typename Entry::Rule;

  // If the step is captured, `again` computes the rule of each replay.
  void add(const Entry& entry, std::function<Rule()> again = {}) {
    if (entry.n == 0) return;
    const int64_t blocks = table_.first[table_.count] + blocks_of(entry.n);
    if (table_.count == most_tensors || (table_.count > 0 && blocks > INT32_MAX)) {
      flush();
      return add(entry, std::move(again));
    }
    if (again) again_.push_back(std::move(again));
    table_.entry[table_.count] = entry;
    table_.first[++table_.count] = unsigned(blocks);
  }

  void flush() {
    if (table_.count == 0) return;
    if (!again_.empty()) {
      const auto bytes = int64_t(again_.size() * sizeof(Rule));
      const auto fill = [all = std::exchange(again_, {})](void* host) {
        for (size_t i = 0; i < all.size(); ++i) static_cast<Rule*>(host)[i] = all[i]();
      };
      table_.rules = static_cast<const Rule*>(refilled_on_replay(device_, bytes, fill));
    }
    launch(op_, device_, kernel_, table_.first[table_.count], threads, table_);
    table_.count = 0;
  }

 private:
  const char* op_;
  int device_;
  void (*kernel_)(Table<Entry>);
  Table<Entry> table_;
  std::vector<std::function<Rule()>> again_;
};

template <class Rule, class Task>
std::function<Rule()> rule_again(const Task& task) {
  if (!task.again) return {};
  return [again = task.again] { return Rule(again()); };
}

}  // namespace

void sgd_steps(std::span<const SgdTask> tasks) {
  const Tensor& one = tasks[0].weight;
  dispatch_floating(one.dtype(), "sgd_step", [&]<class P>() {
    using T = compute_t<P>;
    Batch<SgdEntry<P>> batch("sgd_step", one.device().index, update);
    for (const SgdTask& task : tasks) {
      P *w = task.weight.data<P>(), *g = task.gradient.data<P>();
      T *master = data_or_null<T>(task.master), *b = data_or_null<T>(task.momentum);
      batch.add(
          {w, g, master, b, task.weight.numel(), aligned(w, g, master, b), SgdRule<T>(task.step)},
          rule_again<SgdRule<T>>(task));
    }
    batch.flush();
  });
}

void adam_steps(std::span<const AdamTask> tasks) {
  const Tensor& one = tasks[0].weight;
  dispatch_floating(one.dtype(), "adam_step", [&]<class P>() {
    using T = compute_t<P>;
    Batch<AdamEntry<P>> batch("adam_step", one.device().index, update);
    for (const AdamTask& task : tasks) {
      P *w = task.weight.data<P>(), *g = task.gradient.data<P>();
      T *master = data_or_null<T>(task.master), *m = task.m.data<T>(), *v = task.v.data<T>();
      T* v_max = data_or_null<T>(task.v_max);
      batch.add({w, g, master, m, v, v_max, task.weight.numel(), aligned(w, g, master, m, v, v_max),
                 AdamRule<T>(task.step)},
                rule_again<AdamRule<T>>(task));
    }
    batch.flush();
  });
}

Tensor squares(const Tensors& tensors) {
  int64_t pieces = 0;
  for (const Tensor& x : tensors) pieces += blocks_of(x.numel());
  const Tensor sums =
      empty({std::max<int64_t>(pieces, 1)}, {.dtype = f64, .device = tensors[0].device()});
  if (pieces == 0) return sums.zero_();
  dispatch_floating(tensors[0].dtype(), "l2_norm", [&]<class P>() {
    Batch<SquaresEntry<P>> batch("l2_norm", sums.device().index, sum_squares<P>);
    double* to = sums.data<double>();
    for (const Tensor& x : tensors) {
      const P* from = x.data<P>();
      batch.add({from, x.numel(), aligned(from), to});
      to += blocks_of(x.numel());
    }
    batch.flush();
  });
  return sums;
}

void clip(const Tensors& tensors, const Tensor& norm, double most) {
  dispatch_floating(tensors[0].dtype(), "clip_grad_norm", [&]<class P>() {
    Batch<ClipEntry<P>> batch("clip_grad_norm", norm.device().index, update);
    for (const Tensor& x : tensors) {
      P* at = x.data<P>();
      batch.add({at, x.numel(), aligned(at), norm.data<double>(), most});
    }
    batch.flush();
  });
}

}  // namespace stretto::cuda
