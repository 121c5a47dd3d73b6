#include "ops/ctc.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// The states of a target of length L are blank, label 1, blank, …, label L, blank: 2L + 1 states. A
// path stays in a state, moves to the next, or skips a blank between two different labels.
struct States {
  int64_t frames, batch, classes, count;  // count: 2S + 1, of the longest target
  Tensor labels;                          // class of each state, i64 [N, count]
  Tensor skips;                          // whether the state before may be skipped, bool [N, count]
  Tensor input_lengths, target_lengths;  // i64 [N]
};

// The lengths as i64 on the CPU.
Tensor checked_lengths(const char* what, const Tensor& lengths, int64_t batch, int64_t least,
                       int64_t most) {
  check(is_index(lengths.dtype()) && lengths.shape() == Shape{batch}, "ctc_loss", what, " ",
        lengths, "; must be i64 or i32 ", Shape{batch});
  Tensor values = lengths.detach().to(cpu).to(i64).contiguous();
  for (int64_t n = 0; n < batch; ++n)
    check(values.data<int64_t>()[n] >= least && values.data<int64_t>()[n] <= most, "ctc_loss", what,
          " ", values.data<int64_t>()[n], " at position ", n, "; accepted: ", least, " to ", most);
  return values;
}

States states_of(const Tensor& log_p, const Tensor& targets, const Tensor& input_lengths,
                 const Tensor& target_lengths, int64_t blank) {
  const char* op = "ctc_loss";
  check(log_p.dim() == 3 && is_floating(log_p.dtype()), op, "log probabilities ", log_p,
        "; must be a floating-point tensor [T, N, C]");
  States s{log_p.size(0), log_p.size(1), log_p.size(2), 0, {}, {}, {}, {}};
  check(is_index(targets.dtype()) && targets.dim() == 2 && targets.size(0) == s.batch, op,
        "targets ", targets, " for log probabilities ", log_p, "; must be i64 or i32 [N, S]");
  check(blank >= 0 && blank < s.classes, op, "blank ", blank, " of ", s.classes,
        " classes; must be one of them");
  const int64_t longest = targets.size(1);
  s.count = 2 * longest + 1;
  s.input_lengths = checked_lengths("input length", input_lengths, s.batch, 1, s.frames);
  s.target_lengths = checked_lengths("target length", target_lengths, s.batch, 0, longest);
  s.labels = full({s.batch, s.count}, double(blank), {.dtype = i64, .device = cpu});
  s.skips = zeros({s.batch, s.count}, {.dtype = boolean, .device = cpu});
  const Tensor ids = targets.detach().to(cpu).to(i64).contiguous();
  for (int64_t n = 0; n < s.batch; ++n) {
    const int64_t* id = ids.data<int64_t>() + n * longest;
    int64_t* label = s.labels.data<int64_t>() + n * s.count;
    bool* skip = s.skips.data<bool>() + n * s.count;
    for (int64_t i = 0; i < s.target_lengths.data<int64_t>()[n]; ++i) {
      check(id[i] >= 0 && id[i] < s.classes && id[i] != blank, op, "target ", id[i],
            " at position ", Shape{n, i}, "; accepted: 0 to ", s.classes - 1, " except the blank ",
            blank);
      label[2 * i + 1] = id[i];
      skip[2 * i + 1] = i > 0 && id[i] != id[i - 1];
    }
  }
  return s;
}

double log_add(double a, double b, double c) {
  const double top = std::max(a, std::max(b, c));
  if (!(top > -infinity)) return a + b + c;  // −∞ or NaN
  return top + std::log(std::exp(a - top) + std::exp(b - top) + std::exp(c - top));
}

// One sequence of a batch on the CPU.
template <class T>
struct Sequence {
  int64_t frames, states, frame_stride;  // frame_stride: of log_p
  const T* log_p;
  const int64_t* labels;
  const bool* skips;

  Sequence(const States& s, const Tensor& x, int64_t n)
      : frames(s.input_lengths.data<int64_t>()[n]),
        states(2 * s.target_lengths.data<int64_t>()[n] + 1),
        frame_stride(s.batch * s.classes),
        log_p(x.data<T>() + n * s.classes),
        labels(s.labels.data<int64_t>() + n * s.count),
        skips(s.skips.data<bool>() + n * s.count) {}

  double emission(int64_t t, int64_t i) const { return log_p[t * frame_stride + labels[i]]; }

  // Writes α [frames, states] with rows of `width`: α_t(i) is the log probability of all paths of
  // frames 0 … t that end in state i. Returns the log probability of the target.
  double forward(double* alpha, int64_t width) const {
    for (int64_t i = 0; i < states; ++i) alpha[i] = i < 2 ? emission(0, i) : -infinity;
    for (int64_t t = 1; t < frames; ++t) {
      const double* before = alpha;
      alpha += width;
      for (int64_t i = 0; i < states; ++i)
        alpha[i] = emission(t, i) + log_add(before[i], i > 0 ? before[i - 1] : -infinity,
                                            skips[i] ? before[i - 2] : -infinity);
    }
    return log_add(alpha[states - 1], states > 1 ? alpha[states - 2] : -infinity, -infinity);
  }

  // Adds −g · (probability of being in state i in frame t) to dx[t, label i]. β_t(i) is the log
  // probability of all paths of frames t + 1 … from state i on.
  void backward(const double* alpha, int64_t width, double log_total, double g, T* dx) const {
    std::vector<double> beta(static_cast<size_t>(states), -infinity), after(beta.size());
    for (int64_t i = std::max<int64_t>(states - 2, 0); i < states; ++i) beta[size_t(i)] = 0;
    std::vector<double> sums(static_cast<size_t>(*std::max_element(labels, labels + states)) + 1);
    for (int64_t t = frames; t-- > 0;) {
      for (int64_t i = 0; i < states; ++i)
        sums[size_t(labels[i])] += std::exp(alpha[t * width + i] + beta[size_t(i)] - log_total);
      for (int64_t i = 0; i < states; ++i) {
        double& sum = sums[size_t(labels[i])];
        if (sum != 0) dx[t * frame_stride + labels[i]] = T(-g * sum);
        sum = 0;
      }
      if (t == 0) return;
      for (int64_t i = 0; i < states; ++i) after[size_t(i)] = beta[size_t(i)] + emission(t, i);
      for (int64_t i = 0; i < states; ++i)
        beta[size_t(i)] =
            log_add(after[size_t(i)], i + 1 < states ? after[size_t(i + 1)] : -infinity,
                    i + 2 < states && skips[i + 2] ? after[size_t(i + 2)] : -infinity);
    }
  }
};

// The losses [N]; writes α to `alpha`, f64 [N, T, count].
Tensor losses_cpu(const Tensor& x, const States& s, const Tensor& alpha) {
  Tensor losses = empty({s.batch}, options_of(x));
  dispatch_among<double, float>(x.dtype(), [&]<class T>() {
    parallel_for(s.batch, 1, [&](int64_t n, int64_t) {
      double* const own = alpha.data<double>() + n * s.frames * s.count;
      losses.data<T>()[n] = T(-Sequence<T>(s, x, n).forward(own, s.count));
    });
  });
  return losses;
}

Tensor gradient_cpu(const Tensor& x, const States& s, const Tensor& alpha, const Tensor& g) {
  Tensor dx = zeros(x.shape(), options_of(x));
  dispatch_among<double, float>(x.dtype(), [&]<class T>() {
    parallel_for(s.batch, 1, [&](int64_t n, int64_t) {
      const Sequence<T> one(s, x, n);
      const double* own = alpha.data<double>() + n * s.frames * s.count;
      const double* last = own + (one.frames - 1) * s.count + one.states - 1;
      const double total = log_add(last[0], one.states > 1 ? last[-1] : -infinity, -infinity);
      if (total == -infinity) return;
      one.backward(own, s.count, total, double(g.data<T>()[n]), dx.data<T>() + n * s.classes);
    });
  });
  return dx;
}

// The losses [N] from other ops, one frame of all sequences after the other.
Tensor composed_losses(const Tensor& log_p, const States& s) {
  const Device device = log_p.device();
  const Tensor labels = s.labels.to(device).expand({s.frames, s.batch, s.count}).contiguous();
  const Tensor emissions = gather(log_p, 2, labels);
  const Tensor no_skip = logical_not(s.skips.to(device));
  const Tensor lengths = s.input_lengths.to(device).unsqueeze(1);
  const Tensor later = ge(arange(s.count, {.dtype = i64, .device = device}), 2.0);
  Tensor alpha = masked_fill(emissions[0], later, -infinity);
  const auto moved = [&](int64_t by) {  // from the state `by` before
    return by < s.count ? pad(alpha.slice(1, 0, s.count - by), 1, by, 0, -infinity)
                        : full({s.batch, s.count}, -infinity, options_of(alpha));
  };
  for (int64_t t = 1; t < s.frames; ++t) {
    const Tensor ways = stack({alpha, moved(1), masked_fill(moved(2), no_skip, -infinity)});
    alpha = where(gt(lengths, double(t)), logsumexp(ways, 0) + emissions[t], alpha);
  }
  const Tensor last = s.target_lengths.to(device).unsqueeze(1) * 2.0;
  const Tensor before = gather(alpha, 1, maximum(last - 1.0, zeros_like(last)));
  const Tensor ends =
      cat({gather(alpha, 1, last), masked_fill(before, eq(last, 0.0), -infinity)}, 1);
  return -logsumexp(ends, 1);
}

}  // namespace

Tensor ctc_loss(const Tensor& log_p, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, CtcOptions options) {
  const States s = states_of(log_p, targets, input_lengths, target_lengths, options.blank);
  const Tensor x = widened(log_p);
  Tensor losses;
  if (s.batch == 0) {
    losses = sum(x, {0, 2});
  } else if (x.device().is_cuda()) {
    losses = composed_losses(x, s);
  } else {
    const Tensor values = x.detach().contiguous();
    const Tensor alpha = empty({s.batch, s.frames, s.count}, {.dtype = f64, .device = cpu});
    // Gradients: −Σ_{states i of class c} e^(α_t(i) + β_t(i) − log p(target)), by forward and
    // backward variables.
    losses = record("ctc_loss", {x}, losses_cpu(values, s, alpha), [=, x = Saved(x)](Backward& b) {
      if (grad_enabled())
        return composed_gradient(b, [&](const Tensors& in) { return composed_losses(in[0], s); },
                                 {x()});
      return Tensors{gradient_cpu(x().detach().contiguous(), s, alpha, b.grad().contiguous())};
    });
  }
  if (options.zero_infinity)
    losses = where(eq(losses.detach(), infinity), zeros_like(losses.detach()), losses);
  if (options.reduction == Reduction::mean) {
    const Tensor lengths = s.target_lengths.to(x.device()).to(x.dtype());
    losses =
        losses / (maximum(lengths, ones_like(lengths)) * double(std::max<int64_t>(s.batch, 1)));
  }
  return (options.reduction == Reduction::none ? losses : sum(losses)).to(log_p.dtype());
}

}  // namespace stretto
