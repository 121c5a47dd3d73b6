#include "ops/channel_norm.h"

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/widened.h"

namespace stretto {
namespace {

// Throws unless x is [N, C, …] and the others are [C] of its dtype.
void check_channels(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  check(x.dim() >= 2 && is_floating(x.dtype()), op, "got ", x,
        "; accepted: a floating-point tensor [N, C, ..]");
  for (const Tensor* t : {&weight, &bias})
    check(!t->defined() || (t->shape() == Shape{x.size(1)} && t->dtype() == x.dtype()), op,
          "weight or bias ", *t, " for x ", x, "; it must be [C] of the same dtype");
  check_same_device(op, {&x, &weight, &bias});
}

// Returns values of channels, [C], as [C, 1, …] with the dimensions of x after the first.
Tensor per_channel(const Tensor& values, const Tensor& x) {
  Shape shape(x.shape().begin() + 1, x.dim() - 1);
  for (int64_t& size : shape) size = 1;
  shape[0] = values.numel();
  return values.to(compute_type(x.dtype())).reshape(shape);
}

// y · weight + bias in x's dtype, for y [N, C, …].
Tensor scaled(Tensor y, const Tensor& weight, const Tensor& bias, const Tensor& x) {
  if (weight.defined()) y = y * per_channel(weight, x);
  if (bias.defined()) y = y + per_channel(bias, x);
  return y.to(x.dtype());
}

void update(const Tensor& running, const Tensor& value, double momentum) {
  if (!running.defined()) return;
  running.mul_(1 - momentum);
  running.add_(value, momentum);
}

}  // namespace

Tensor group_norm(const Tensor& x, Int groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  check_channels("group_norm", x, weight, bias);
  check(groups >= 1 && x.size(1) % groups == 0, "group_norm", groups, " groups of the channels of ",
        x, "; the number must divide C");
  const int64_t rows = x.size(0) * groups;
  const Tensor all = widened(x.reshape({rows, rows == 0 ? 0 : x.numel() / rows}));
  const Tensor y = layer_norm(all, {}, {}, eps);
  return scaled(y.reshape(x.shape()), weight, bias, x);
}

Tensor batch_norm(const Tensor& x, const Tensor& running_mean, const Tensor& running_var,
                  const Tensor& weight, const Tensor& bias, BatchNormOptions o) {
  const char* op = "batch_norm";
  check_channels(op, x, weight, bias);
  const DType wide = compute_type(x.dtype());
  for (const Tensor* t : {&running_mean, &running_var}) {
    check(t->defined() || o.training, op,
          "running statistics are undefined; evaluation needs running_mean and running_var");
    check(!t->defined() || (t->shape() == Shape{x.size(1)} && t->dtype() == wide), op,
          "running statistics ", *t, " for x ", x, "; must be ", wide, " [C]");
  }
  check_same_device(op, {&x, &running_mean, &running_var});
  check(o.momentum >= 0 && o.momentum <= 1, op, "momentum ", o.momentum, "; accepted: 0 to 1");
  if (!o.training) {
    const Tensor scale = rsqrt(running_var.detach() + o.eps);
    return scaled((x.to(wide) - per_channel(running_mean.detach(), x)) * per_channel(scale, x),
                  weight, bias, x);
  }
  const int64_t count = x.size(1) == 0 ? 2 : x.numel() / x.size(1);
  check(count >= 2, op, "x ", x, " has ", count, count == 1 ? " value" : " values",
        " per channel; training needs at least 2");
  Shape shape = x.shape();  // channels first: one row per channel
  std::swap(shape[0], shape[1]);
  const Tensor rows = widened(x.transpose(0, 1).reshape({x.size(1), count}));
  recorded("the running statistics of batch_norm", [&] {
    NoGrad guard;
    update(running_mean, mean(rows.detach(), {1}), o.momentum);
    update(running_var, var(rows.detach(), {1}), o.momentum);
    return true;
  });
  const Tensor y = layer_norm(rows, {}, {}, o.eps).reshape(shape).transpose(0, 1);
  return scaled(y, weight, bias, x).contiguous();
}

}  // namespace stretto
