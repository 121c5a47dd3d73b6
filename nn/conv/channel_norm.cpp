#include "nn/conv/channel_norm.h"

#include "autograd/recompute.h"
#include "autograd/tape.h"
#include "ops/channel_norm.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

const GroupNormOptions& checked(const GroupNormOptions& o) {
  check(o.dim > 0 && o.groups > 0 && o.dim % o.groups == 0, "GroupNorm", "groups = ", o.groups,
        ", dim = ", o.dim, "; both must be positive, and groups must divide dim");
  return o;
}

const BatchNormOptions& checked(const BatchNormOptions& o) {
  check(o.dim > 0, "BatchNorm", "dim = ", o.dim, " must be positive");
  return o;
}

}  // namespace

GroupNorm::GroupNorm(Options o) : options(checked(o)) {}

GroupNorm::GroupNorm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {}

Tensor GroupNorm::operator()(const Tensor& x) const {
  return group_norm(x, options.groups, weight, bias, options.eps);
}

std::string GroupNorm::label() const {
  return str("GroupNorm(", options.groups, " groups, ", options.dim, ")");
}

BatchNorm::BatchNorm(Options o) : options(checked(o)) {}

BatchNorm::BatchNorm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {}

Tensor BatchNorm::operator()(const Tensor& x) const {
  Tensor y = batch_norm(x, running_mean, running_var, weight, bias,
                        {.training = training(), .momentum = options.momentum, .eps = options.eps});
  if (training())
    recorded("the number of batches of BatchNorm", [&] {
      NoGrad guard;
      num_batches_tracked.copy_(num_batches_tracked + 1.0);
      return true;
    });
  return y;
}

std::string BatchNorm::label() const { return str("BatchNorm(", options.dim, ")"); }

}  // namespace stretto::nn
