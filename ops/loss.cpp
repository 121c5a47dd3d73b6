#include "ops/loss.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "cuda/loss.h"
#include "cuda/runtime/reports.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/rows.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "ops/weight_gradients.h"

namespace stretto {
namespace {

// The values of a row that are saved for the backward pass: softmax(x) = e^(x − top) / total. There
// are two, because in top + log(total) large logits would lose log(total) in rounding.
template <class C>
struct RowTotal {
  C top, total;
};

// Returns −Σ_c t_c log softmax(x)_c with t_c = (1 − ε)·[c = target] + ε/n.
template <class T>
STRETTO_CLONES compute_t<T> row_loss(const T* x, int64_t n, int64_t target, compute_t<T> epsilon,
                                     RowTotal<compute_t<T>>* row) {
  using C = compute_t<T>;
  const C top = rows::max<C>(n, [&](int64_t i) { return C(x[i]); });
  const C total = rows::sum_of_powers(x, n, top);
  *row = {top, total};
  const C log_total = math::log(total);
  C loss = (C(1) - epsilon) * (log_total - (C(x[target]) - top));
  if (epsilon != C(0)) {
    const C far = rows::sum<C>(n, [&](int64_t i) { return log_total - (C(x[i]) - top); });
    loss += epsilon / C(n) * far;
  }
  return loss;
}

template <class T>
STRETTO_CLONES void row_gradient(const T* __restrict x, T* __restrict dx, int64_t n, int64_t target,
                                 compute_t<T> epsilon, RowTotal<compute_t<T>> row, compute_t<T> g) {
  using C = compute_t<T>;
  const C even = epsilon / C(n), scale = C(1) / row.total;
  for (int64_t i = 0; i < n; ++i)
    dx[i] = T(g * (math::exp_negative(C(x[i]) - row.top) * scale - even));
  dx[target] =
      T(g * (math::exp_negative(C(x[target]) - row.top) * scale - even - (C(1) - epsilon)));
}

// The target distribution t of each row, [N, V]; rows of ignored targets are zero.
Tensor target_distribution(const Tensor& ids, int64_t classes, const CrossEntropyOptions& options,
                           const Tensor& like) {
  const Tensor counted = ne(ids, double(options.ignore_index)).to(like.dtype()).unsqueeze(1);
  const Tensor safe = where(eq(ids, double(options.ignore_index)), zeros_like(ids), ids);
  const double epsilon = options.label_smoothing;
  const Tensor even = full({ids.numel(), classes}, epsilon / double(classes), options_of(like));
  const Tensor point = full({ids.numel(), 1}, 1 - epsilon, options_of(like));
  return scatter_add(even, 1, safe.unsqueeze(1), point) * counted;
}

// Throws unless the targets have an index dtype and one element for each row of x [.., V].
void check_targets(const char* op, const Tensor& targets, const char* name, const Tensor& x) {
  check(targets.defined() && is_index(targets.dtype()), op, "targets ", targets,
        "; must be i64 or i32");
  const Shape rows(x.shape().begin(), x.dim() - 1);
  check(targets.shape() == rows, op, "targets ", targets, " for ", name, " ", x, "; must be ",
        targets.dtype(), " ", rows);
}

// The number of targets that are not ignored: on the CPU `number`, on a GPU `on_gpu`, a 0-d i64.
struct Count {
  int64_t number = 0;
  Tensor on_gpu;
};

// Counts the row-major i64 targets that are not ignored, and throws unless these are classes. On a
// GPU the error is thrown at the next synchronization, and `ids` is replaced by valid ids.
Count checked_targets(const char* op, Tensor& ids, int64_t classes, int64_t ignored) {
  const auto text = [=](int64_t at, int64_t id) {
    return str("target ", id, " at position ", at, "; accepted: 0 to ", classes - 1, ", or ",
               ignored, " to ignore");
  };
  if (ids.device().is_cuda() && classes > 0) {
    const Tensor count = sum(ne(ids, double(ignored)));
    ids = cuda::checked_indices(op, ids, classes, ignored, text);
    return {.on_gpu = count};
  }
  Count count;
  int64_t at = 0;
  for (const int64_t id : ids.to_vector<int64_t>()) {
    const bool counts = id != ignored;
    if (counts && (id < 0 || id >= classes)) fail(op, text(at, id));
    count.number += counts;
    ++at;
  }
  return count;
}

// Returns losses [N] and writes the RowTotals to `totals` [N, 2].
Tensor losses_cpu(const Tensor& x, const Tensor& ids, int64_t ignored, double epsilon,
                  const Tensor& totals) {
  const int64_t classes = x.size(-1), count = ids.numel();
  Tensor losses = zeros({count}, options_of(totals));
  dispatch_floating(x.dtype(), "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    const T* px = x.data<T>();
    const int64_t* id = ids.data<int64_t>();
    C* loss = losses.data<C>();
    auto* row = reinterpret_cast<RowTotal<C>*>(totals.data<C>());
    parallel_for(count, rows_per_chunk(classes), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        if (id[r] != ignored)
          loss[r] = row_loss(px + r * classes, classes, id[r], C(epsilon), row + r);
    });
  });
  return losses;
}

// dx from the gradients g [N] of the losses.
Tensor gradient_cpu(const Tensor& x, const Tensor& ids, int64_t ignored, double epsilon,
                    const Tensor& totals, const Tensor& g) {
  const int64_t classes = x.size(-1);
  Tensor dx = empty_like(x);
  dispatch_floating(x.dtype(), "cross_entropy", [&]<class T>() {
    using C = compute_t<T>;
    const T* px = x.data<T>();
    const C* pg = g.data<C>();
    const auto* row = reinterpret_cast<const RowTotal<C>*>(totals.data<C>());
    const int64_t* target = ids.data<int64_t>();
    T* to = dx.data<T>();
    parallel_for(ids.numel(), rows_per_chunk(classes), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        if (target[r] == ignored)
          std::fill_n(to + r * classes, classes, T(0.0f));
        else
          row_gradient(px + r * classes, to + r * classes, classes, target[r], C(epsilon), row[r],
                       pg[r]);
    });
  });
  return dx;
}

void check_class_weights(const char* op, const Tensor& weight, const Tensor& x) {
  check(!weight.defined() || (weight.shape() == Shape{x.size(-1)} && weight.dtype() == x.dtype()),
        op, "weight ", weight, " for ", x, "; it must be [V] of the same dtype");
  check_same_device(op, {&x, &weight});
}

// bf16 is computed in f32.
Tensor wide(const Tensor& x) { return x.to(compute_type(x.dtype())); }

// Applies the reduction to losses, `counted` of which are not ignored.
Tensor reduced(const Tensor& losses, const Count& counted, Reduction reduction, DType dtype) {
  if (reduction == Reduction::none) return losses.to(dtype);
  const Tensor total = sum(losses);
  if (reduction == Reduction::mean && counted.on_gpu.defined()) {
    const Tensor least = scalar(1, options_of(total));
    return (total / maximum(counted.on_gpu.to(total.dtype()), least)).to(dtype);
  }
  const bool divided = reduction == Reduction::mean && counted.number > 0;
  return (divided ? total / double(counted.number) : total).to(dtype);
}

// Scales a sum of losses for the reduction, or a gradient in the backward pass.
struct Scale {
  double factor = 1;
  Tensor share;  // on a GPU, for a mean

  Scale(const Count& counted, Reduction reduction, const TensorOptions& wide) {
    if (reduction != Reduction::mean) return;
    if (counted.number > 0) factor = 1.0 / double(counted.number);
    if (counted.on_gpu.defined())
      share = 1.0 / maximum(counted.on_gpu.to(wide.dtype), scalar(1, wide));
  }
  Tensor operator()(const Tensor& v) const {
    return share.defined() ? v.to(share.dtype()) * share : v * factor;
  }
};

// Class targets: ids with 0 in place of ignored ones, a mask of the ignored ones, and the weights of
// the targets (0 for ignored ones).
struct ClassTargets {
  Tensor safe, ignored, weights;

  ClassTargets(const Tensor& ids, int64_t ignore_index, const Tensor& class_weights)
      : ignored(eq(ids, double(ignore_index))) {
    safe = where(ignored, zeros_like(ids), ids);
    if (!class_weights.defined()) return;
    const Tensor all = index_select(class_weights, 0, safe.reshape({-1})).reshape(ids.shape());
    weights = where(ignored, zeros_like(all), all);
  }

  // Returns x [.., target] for x [.., V].
  Tensor of(const Tensor& x) const { return gather(x, -1, safe.unsqueeze(-1)).squeeze(-1); }
};

// Applies the reduction to weighted losses.
Tensor reduced(const Tensor& losses, const Tensor& weights, Reduction reduction, DType dtype) {
  if (reduction == Reduction::none) return losses.to(dtype);
  if (reduction == Reduction::sum) return sum(losses).to(dtype);
  const Tensor total = sum(weights);
  return (sum(losses) / where(eq(total, 0.0), ones_like(total), total)).to(dtype);
}

// cross_entropy() with class weights.
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& ids,
                              const CrossEntropyOptions& options) {
  const Tensor weight = wide(options.weight.detach()), x = wide(logits);
  const ClassTargets targets(ids, options.ignore_index, weight);
  const Tensor ignored = targets.ignored.unsqueeze(-1);  // may have any values, including NaN
  const Tensor log_p = log_softmax(where(ignored, zeros_like(x.detach()), x), -1);
  const double epsilon = options.label_smoothing;
  Tensor losses = targets.weights * targets.of(log_p) * (epsilon - 1);
  if (epsilon != 0) {
    const Tensor all = sum(log_p * weight, {-1});
    losses = losses - where(targets.ignored, zeros_like(all.detach()), all) *
                          (epsilon / double(logits.size(-1)));
  }
  return reduced(losses, targets.weights, options.reduction, logits.dtype());
}

// cross_entropy() with targets that are probabilities.
Tensor soft_cross_entropy(const Tensor& logits, const Tensor& targets,
                          const CrossEntropyOptions& options) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double epsilon = options.label_smoothing;
  Tensor t = wide(targets), log_p = log_softmax(wide(logits), -1);
  if (epsilon != 0) t = t * (1 - epsilon) + epsilon / double(logits.size(-1));
  // Terms with probability 0 are 0, even if the logit is −∞.
  log_p = masked_fill(log_p, logical_and(eq(t, 0.0), eq(log_p, -infinity)), 0);
  if (options.weight.defined()) log_p = log_p * wide(options.weight.detach());
  const Tensor losses = -sum(t * log_p, {-1});
  return reduced(losses, {losses.numel(), {}}, options.reduction, logits.dtype());
}

}  // namespace

Tensor cross_entropy(const Tensor& logits, const Tensor& targets,
                     const CrossEntropyOptions& options) {
  const char* op = "cross_entropy";
  check(logits.defined() && logits.dim() >= 1 && is_floating(logits.dtype()), op, "logits ", logits,
        "; must be a floating-point tensor [.., V]");
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, op, "label_smoothing ",
        options.label_smoothing, "; accepted: 0 to 1");
  check_class_weights(op, options.weight, logits);
  check_same_device(op, {&logits, &targets});
  const bool soft =
      targets.defined() && targets.dtype() == logits.dtype() && targets.shape() == logits.shape();
  if (!soft) check_targets(op, targets, "logits", logits);
  const int64_t classes = logits.size(-1), count = targets.numel();
  check(classes > 0 || Shape(logits.shape().begin(), logits.dim() - 1).numel() == 0, op, "logits ",
        logits, " have no classes");
  if (soft) return soft_cross_entropy(logits, targets, options);
  Tensor ids = targets.to(i64).contiguous().reshape({count});
  const int64_t ignored = options.ignore_index;
  const double epsilon = options.label_smoothing;
  const Count counted = checked_targets(op, ids, classes, ignored);
  if (options.weight.defined())
    return weighted_cross_entropy(logits, ids.reshape(targets.shape()), options);
  const Tensor x = logits.detach().contiguous();
  const TensorOptions wide{.dtype = compute_type(x.dtype()), .device = x.device()};
  const Tensor totals = empty({count, 2}, wide);
  const Tensor losses =
      on_device(x, losses_cpu, cuda::cross_entropy, ids, ignored, epsilon, totals);
  const Scale scaled(counted, options.reduction, wide);
  Tensor y =
      options.reduction == Reduction::none ? losses.reshape(targets.shape()) : scaled(sum(losses));
  y = y.to(x.dtype());
  // Gradients: g · (softmax(x) · Σ t − t), with t the target probability of each class.
  return record(op, {logits}, y, [=, x = Saved(logits)](Backward& b) {
    const Tensor g = options.reduction == Reduction::none
                         ? b.grad().reshape({count, 1})
                         : scaled(b.grad()).reshape({1, 1}).expand({count, 1});
    if (grad_enabled()) {
      // An ignored row may have any values, including NaN.
      const Tensor scored = ne(ids, double(ignored)).unsqueeze(1);
      const Tensor given = x().reshape({count, classes});
      const Tensor rows = where(scored, given, zeros_like(given.detach()));
      const Tensor want = target_distribution(ids, classes, options, rows);
      const Tensor dx = g.to(rows.dtype()) * (softmax(rows) * sum(want, {1}, true) - want);
      return Tensors{where(scored, dx, zeros_like(given.detach())).reshape(x().shape())};
    }
    return Tensors{on_device(x().detach().contiguous(), gradient_cpu, cuda::cross_entropy_backward,
                             ids, ignored, epsilon, totals, g.to(wide.dtype).contiguous())};
  });
}

namespace {

constexpr int64_t logits_per_chunk = int64_t(1) << 26, logits_at_once = 2 * logits_per_chunk;

// The rows of a chunk: about equal numbers, multiples of 64. In bf16 each chunk costs passes over the
// weight's gradient, so that few chunks save little memory for their time.
int64_t rows_of_chunk(int64_t rows, int64_t classes) {
  if (rows * classes < logits_at_once) return rows;
  const int64_t chunks = 1 + rows * classes / logits_per_chunk;
  return (rows / chunks + 64) / 64 * 64;
}

// The logits of x [.., in].
Tensor capped_logits(const Tensor& x, const Tensor& weight, const Tensor& bias,
                     const LinearCrossEntropyOptions& o) {
  Tensor y = linear(x, weight, bias);
  if (o.logit_scale != 1) y = y * o.logit_scale;
  return o.soft_cap == 0 ? y : tanh(y * (1 / o.soft_cap)) * o.soft_cap;
}

// Computes losses [N] chunk by chunk; with gradients g [N] of the losses, also `gradients` of those
// of x [N, in], weight and bias that are needed. Nothing is recorded.
Tensor chunked_losses(const Tensors& inputs, const Tensor& ids, const LinearCrossEntropyOptions& o,
                      const Tensor& g, const std::vector<bool>& needs, Tensors& gradients) {
  const NoGrad guard;
  const Tensor x = inputs[0].detach(), weight = inputs[1].detach();
  const Tensor bias = inputs.size() > 2 ? inputs[2].detach() : Tensor();
  const DType type = x.dtype(), wide = compute_type(type);
  Tensors losses, of_x;
  gradients.assign(inputs.size(), {});
  const auto add = [&](size_t i, const Tensor& part) {
    if (!part.defined()) return;
    if (gradients[i].defined())
      gradients[i].add_(part);
    else
      gradients[i] = part.to(wide);
  };
  for (int64_t begin = 0; begin < x.size(0); begin += o.chunk_rows) {
    const int64_t end = std::min(x.size(0), begin + o.chunk_rows);
    const Tensor rows = x.slice(0, begin, end), target = ids.slice(0, begin, end);
    Tensor y = capped_logits(rows, weight, bias, o);
    const Tensor totals = empty({end - begin, 2}, {.dtype = wide, .device = x.device()});
    losses.push_back(on_device(y, losses_cpu, cuda::cross_entropy, target, o.ignore_index,
                               o.label_smoothing, totals));
    if (!g.defined()) continue;
    Tensor dy = on_device(y, gradient_cpu, cuda::cross_entropy_backward, target, o.ignore_index,
                          o.label_smoothing, totals, g.slice(0, begin, end));
    if (o.soft_cap != 0) dy = dy * (1 - square(y * (1 / o.soft_cap)));
    if (o.logit_scale != 1) dy = dy * o.logit_scale;
    y = {};  // before the weight's gradient, which may be as large
    if (needs[0]) of_x.push_back(matmul(dy, weight));
    const auto [of_weight, of_bias] =
        weight_gradients(dy, rows, needs[1], needs.size() > 2 && needs[2]);
    add(1, of_weight);
    if (bias.defined()) add(2, of_bias);
  }
  for (Tensor& sum : gradients) sum = sum.defined() ? sum.to(type) : sum;
  if (!of_x.empty()) gradients[0] = cat(of_x, 0);
  return cat(losses, 0);
}

}  // namespace

Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& bias,
                            const Tensor& targets, const LinearCrossEntropyOptions& options) {
  const char* op = "linear_cross_entropy";
  check(x.defined() && weight.defined() && x.dim() >= 1 && weight.dim() == 2 &&
            x.size(-1) == weight.size(1) && x.dtype() == weight.dtype() && is_floating(x.dtype()),
        op, "x ", x, ", weight ", weight,
        "; x must be [.., in] and weight [V, in] of one floating-point dtype");
  check(options.chunk_rows >= 0, op, "chunk_rows ", options.chunk_rows, "; must not be negative");
  check(options.label_smoothing >= 0 && options.label_smoothing <= 1, op, "label_smoothing ",
        options.label_smoothing, "; accepted: 0 to 1");
  check_same_device(op, {&x, &weight, &bias, &targets});
  check_targets(op, targets, "x", x);
  const int64_t count = targets.numel(), classes = weight.size(0);
  LinearCrossEntropyOptions o = options;
  if (o.chunk_rows == 0) o.chunk_rows = rows_of_chunk(count, classes);
  const auto composed = [targets, o](const Tensors& in) {
    return cross_entropy(capped_logits(in[0], in[1], in.size() > 2 ? in[2] : Tensor(), o), targets,
                         {.ignore_index = o.ignore_index,
                          .label_smoothing = o.label_smoothing,
                          .reduction = o.reduction});
  };
  Tensors inputs{x, weight};
  if (bias.defined()) inputs.push_back(bias);
  if (count <= o.chunk_rows || classes == 0) return composed(inputs);
  check(!bias.defined() || (bias.shape() == Shape{classes} && bias.dtype() == x.dtype()), op,
        "bias ", bias, " for weight ", weight, "; it must be [V] of the same dtype");
  Tensor ids = targets.to(i64).contiguous().reshape({count});
  const Count counted = checked_targets(op, ids, classes, o.ignore_index);
  const TensorOptions wide{.dtype = compute_type(x.dtype()), .device = x.device()};
  const Scale scaled(counted, o.reduction, wide);
  const bool reduced = o.reduction != Reduction::none;
  Tensors rows = inputs, gradients;
  rows[0] = x.detach().reshape({count, x.size(-1)});
  std::vector<bool> needs;
  for (const Tensor& t : inputs) needs.push_back(t.requires_grad());
  const Tensor g = reduced && recording(inputs)
                       ? scaled(ones({1}, wide)).expand({count}).contiguous()
                       : Tensor();
  const Tensor losses = chunked_losses(rows, ids, o, g, needs, gradients);
  const Tensor y = (reduced ? scaled(sum(losses)) : losses.reshape(targets.shape())).to(x.dtype());
  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: dz · weight, dzᵀ · x and Σ dz, with dz those of cross_entropy and the soft cap.
  return record("linear_cross_entropy", inputs, y, [=](Backward& b) {
    Tensors in = values_of(saved), all;
    if (grad_enabled()) return composed_gradient(b, composed, in);
    if (reduced) {
      for (const Tensor& t : gradients) all.push_back(t.defined() ? t * b.grad() : t);
    } else {
      std::vector<bool> needed;
      for (size_t i = 0; i < in.size(); ++i) needed.push_back(b.needs(i));
      in[0] = in[0].detach().reshape({count, in[0].size(-1)});
      chunked_losses(in, ids, o, b.grad().reshape({count}).to(wide.dtype).contiguous(), needed,
                     all);
    }
    if (all[0].defined()) all[0] = all[0].reshape(saved[0]().shape());
    return all;
  });
}

Tensor nll_loss(const Tensor& log_p, const Tensor& targets, const NllOptions& options) {
  const char* op = "nll_loss";
  check(log_p.dim() >= 1 && is_floating(log_p.dtype()), op, "log probabilities ", log_p,
        "; must be a floating-point tensor [.., V]");
  check_targets(op, targets, "log probabilities", log_p);
  check_class_weights(op, options.weight, log_p);
  check_same_device(op, {&log_p, &targets});
  Tensor ids = targets.to(i64).contiguous();
  const int64_t classes = log_p.size(-1);
  check(classes > 0 || targets.numel() == 0, op, "log probabilities ", log_p, " have no classes");
  const Count counted = checked_targets(op, ids, classes, options.ignore_index);
  const Tensor weight = options.weight.defined() ? wide(options.weight.detach()) : Tensor();
  const ClassTargets chosen(ids, options.ignore_index, weight);
  const Tensor taken = wide(chosen.of(log_p));
  const Tensor losses = where(chosen.ignored, zeros_like(taken.detach()), -taken);
  return weight.defined()
             ? reduced(losses * chosen.weights, chosen.weights, options.reduction, log_p.dtype())
             : reduced(losses, counted, options.reduction, log_p.dtype());
}

}  // namespace stretto
