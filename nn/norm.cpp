#include "nn/norm.h"

#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

const char* name(NormKind kind) {
  return kind == NormKind::layer ? "LayerNorm" : kind == NormKind::rms ? "RMSNorm" : "NoNorm";
}

Norm::Options completed(Norm::Options o) {
  check(o.dim > 0, name(o.kind), "dim = ", o.dim, " must be positive");
  if (!o.eps) o.eps = default_eps(o.kind);
  return o;
}

}  // namespace

double default_eps(NormKind kind) { return kind == NormKind::layer ? 1e-5 : 1e-6; }

Tensor clip_norm(const Tensor& x, double limit) {
  const Tensor wide = x.to(compute_type(x.dtype()));
  return (wide * minimum(limit / (norm(wide, 2, {-1}, true) + 1e-6), 1)).to(x.dtype());
}

Norm::Norm(Options o) : options(completed(o)) {}

Norm::Norm(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(completed(o)) {}

Tensor Norm::operator()(const Tensor& x) const {
  if (options.kind == NormKind::none) return x;
  return options.kind == NormKind::layer ? layer_norm(x, weight, bias, *options.eps)
                                         : rms_norm(x, weight, *options.eps);
}

Tensors Norm::add(const Tensor& x, const Tensor& residual, const ResidualDropout& o) const {
  if (options.kind == NormKind::none) {
    const Tensor sum = o.p > 0 ? dropout_add(x, residual, o.p, o.key) : residual + x;
    return {sum, sum};
  }
  return options.kind == NormKind::layer
             ? add_layer_norm(x, residual, o, weight, bias, *options.eps)
             : add_rms_norm(x, residual, o, weight, *options.eps);
}

std::string Norm::label() const {
  const bool without = options.kind == NormKind::layer && !options.bias;
  return str(name(options.kind), "(", options.dim, without ? ", no bias)" : ")");
}

}  // namespace stretto::nn
