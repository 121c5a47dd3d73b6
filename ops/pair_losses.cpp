// Losses of pairs of elements [ops/loss.h].
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "cuda/runtime/reports.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/loss.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

void check_pair(const char* op, const Tensor& x, const Tensor& target) {
  check(x.defined() && target.defined() && is_floating(x.dtype()) && x.dtype() == target.dtype() &&
            x.shape() == target.shape(),
        op, x, " for target ", target, "; both must have one shape and one floating-point dtype");
}

// bf16 is computed in f32.
Tensor wide(const Tensor& x) { return x.to(compute_type(x.dtype())); }

Tensor reduced(const Tensor& losses, Reduction reduction, DType dtype) {
  if (reduction == Reduction::none) return losses.to(dtype);
  const Tensor total = sum(losses);
  const bool divided = reduction == Reduction::mean && losses.numel() > 0;
  return (divided ? total / double(losses.numel()) : total).to(dtype);
}

// max(log x, −100), with derivative min(1/x, 10¹²).
Tensor bounded_log(const Tensor& x) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return record(
      "bounded_log", {x}, clamp(log(x.detach()), -100, infinity),
      [x = Saved(x)](Backward& b) { return Tensors{b.grad() / clamp(x(), 1e-12, infinity)}; });
}

// −t log x − (1 − t) log(1 − x). The derivative is also 0 at x = t = 0 and x = t = 1.
Tensor cross_entropies(const Tensor& x, const Tensor& t) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const Tensor p = x.detach(), want = t.detach();
  const Tensor y = -(want * bounded_log(p) + (1.0 - want) * bounded_log(1.0 - p));
  return record("binary_cross_entropy", {x, t}, y, [x = Saved(x), t = Saved(t)](Backward& b) {
    return Tensors{b.needs(0) ? b.grad() * ((x() - t()) / clamp(x() * (1.0 - x()), 1e-12, infinity))
                              : Tensor(),
                   b.needs(1) ? b.grad() * (bounded_log(1.0 - x()) - bounded_log(x())) : Tensor()};
  });
}

}  // namespace

Tensor mse_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  check_pair("mse_loss", x, target);
  return reduced(square(wide(x) - wide(target)), reduction, x.dtype());
}

Tensor l1_loss(const Tensor& x, const Tensor& target, Reduction reduction) {
  check_pair("l1_loss", x, target);
  return reduced(abs(wide(x) - wide(target)), reduction, x.dtype());
}

Tensor huber_loss(const Tensor& x, const Tensor& target, HuberOptions options) {
  check_pair("huber_loss", x, target);
  check(options.delta > 0 && std::isfinite(options.delta), "huber_loss", "delta ", options.delta,
        "; must be positive and finite");
  // With m = d clamped to ±δ, both cases are m · (d − m/2).
  const Tensor d = wide(x) - wide(target), m = clamp(d, -options.delta, options.delta);
  return reduced(m * (d - m * 0.5), options.reduction, x.dtype());
}

Tensor kl_div(const Tensor& log_p, const Tensor& target, KlDivOptions options) {
  check_pair("kl_div", log_p, target);
  const Tensor q = wide(log_p), given = wide(target);
  const Tensor t = options.log_target ? exp(given) : given;
  const Tensor zero = eq(t.detach(), 0.0), none = zeros_like(t.detach());
  const Tensor log_t =
      options.log_target ? where(zero, none, given) : log(where(zero, ones_like(none), given));
  const Tensor losses = t * (log_t - where(zero, none, q));
  return reduced(losses, options.reduction, log_p.dtype());
}

namespace {
constexpr const char* bce_hint = "; for logits use binary_cross_entropy_with_logits";
}

Tensor binary_cross_entropy(const Tensor& p, const Tensor& target, Reduction reduction) {
  const char* op = "binary_cross_entropy";
  check_pair(op, p, target);
  if (p.numel() > 0 && p.device().is_cuda()) {
    const Tensor outside =
        logical_or(lt(p.detach(), 0.0), gt(p.detach(), 1.0)).to(i64).contiguous();
    cuda::checked_indices(op, outside.reshape({p.numel()}), 1, 0, [](int64_t at, int64_t) {
      return str("the probability at position ", at, " is outside of [0, 1]", bce_hint);
    });
  } else if (p.numel() > 0) {
    const double low = min(p.detach()).item(), high = max(p.detach()).item();
    check(!(low < 0) && !(high > 1), op, "probabilities from ", low, " to ", high,
          "; must lie in [0, 1]", bce_hint);
  }
  const Tensor x = wide(p), t = wide(target);
  return reduced(cross_entropies(x, t), reduction, p.dtype());
}

Tensor binary_cross_entropy_with_logits(const Tensor& logits, const Tensor& target,
                                        Reduction reduction) {
  check_pair("binary_cross_entropy_with_logits", logits, target);
  const Tensor x = wide(logits), t = wide(target);
  return reduced(t * softplus(-x) + (1.0 - t) * softplus(x), reduction, logits.dtype());
}

}  // namespace stretto
