#include "nn/attention/gated_linear_attention.h"

#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "nn/init.h"
#include "nn/positions/relative_bias.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/norm.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "GatedLinearKernel";

// log α [H] of the fixed decays; undefined for the others.
Tensor fixed_decays(int64_t heads, const GatedLinearKernelOptions& o) {
  if (o.decay != StateDecay::retention && o.decay != StateDecay::slopes) return {};
  const std::vector<double> slopes = alibi_slopes(heads);
  std::vector<float> values;
  for (int64_t h = 0; h < heads; ++h)
    values.push_back(float(o.decay == StateDecay::retention
                               ? std::log1p(-std::exp2(-5.0 - double(h)))
                               : -o.rate * slopes[size_t(h)]));
  return tensor(values, {heads});
}

// x / √(Σ x² + 1e-6), over the last dimension.
Tensor normalized(const Tensor& x) {
  const auto d = double(std::max<int64_t>(x.size(-1), 1));
  return rms_norm(x, {}, 1e-6 / d) * (1 / std::sqrt(d));
}

void check_inputs(const AttentionInputs& inputs, bool convolves) {
  const char* const term = score_term(inputs.options);
  const char* const other =
      term ? term : setting_besides(inputs.options.mask, {"causal", "key_padding", "segments"});
  if (other)
    fail(op, "the inputs have ", other,
         ", but linear attention has no scores; accepted: causal, key_padding, segments, a scale, "
         "and encodings of q and k (RoPE, SPE)");
  check(inputs.x.defined() && inputs.n_queries() <= inputs.n_keys(), op,
        "cross-attention; accepted: self-attention, as the gates belong to the layer's own input");
  check(!convolves || inputs.n_queries() == inputs.n_keys(), op, inputs.n_queries(),
        " queries for ", inputs.n_keys(),
        " keys; a short convolution needs a query for each key (no memory)");
  check(inputs.options.mask.causal || !inputs.state, op,
        "a cache without a causal mask; accepted: a causal mask");
}

// Returns the last m positions of `dim` in reverse order.
Tensor reversed(const Tensor& x, int64_t m, int64_t dim = 2) {
  return flip(x.slice(dim, x.size(dim) - m), dim);
}

// True if the rate of the decay is a parameter.
bool learns_rate(const GatedLinearKernelOptions& o) {
  return o.decay == StateDecay::token || o.decay == StateDecay::kda;
}

}  // namespace

void reset_token_decays(const Tensor& rate, const Tensor& bias) {
  uniform_(rate, 1, 16);
  uniform_(bias, std::log(0.001), std::log(0.1));
  if (SkipInit::active()) return;
  const NoGrad guard;
  rate.copy_(log(rate));
  bias.copy_(log(expm1(exp(bias))));
}

GatedLinearKernel::GatedLinearKernel(Module& parent, HeadShape shape_, Options o)
    : AttentionKernel(parent),
      options(o),
      shape(shape_),
      log_decay([&] {
        const Tensor fixed = fixed_decays(shape_.n_output_heads(), o);
        return fixed.defined() ? buffer("log_decay", fixed, {.dtype = BufferDtype::at_least_f32})
                               : fixed;
      }()),
      decay_rate(learns_rate(o) ? parameter("decay_rate", zeros({shape_.n_output_heads()}))
                                : Tensor()),
      decay_bias(
          learns_rate(o)
              ? parameter("decay_bias", zeros({shape_.n_output_heads() *
                                               (o.decay == StateDecay::kda ? shape_.d_key : 1)}))
              : Tensor()),
      norm(*this, "norm",
           {.dim = shape_.d_value, .eps = o.norm_eps, .kind = o.norm, .bias = false}) {
  check(o.taps >= 0, op, "taps ", o.taps, "; must be 0 (no convolution) or more");
  check(std::isfinite(o.rate) && o.rate >= 0, op, "rate ", o.rate, "; must be 0 or more");
  check(o.gate_rank >= 0, op, "gate_rank ", o.gate_rank, "; must be 0 (Dv) or more");
  const int64_t d = shape.d_model, h = shape.n_output_heads(), q = shape.n_heads,
                g = shape.n_kv_heads > 0 ? shape.n_kv_heads : q,
                v = shape.n_value_heads > 0 ? shape.n_value_heads : g,
                rank = o.gate_rank > 0 ? o.gate_rank : shape.d_value;
  const auto linear = [&](const char* name, int64_t in, int64_t out, bool bias = false) {
    return [this, name, o = Linear::Options{in, out, bias}](std::optional<Linear>& to) {
      to.emplace(*this, name, o);
    };
  };
  if (learns_rate(o)) reset_token_decays(decay_rate, decay_bias);
  if (o.decay == StateDecay::token) linear("decay", d, h)(decay);
  if (o.decay == StateDecay::feature || o.decay == StateDecay::kda) {
    linear("decay", d, rank)(decay);
    linear("decay_up", rank, h * shape.d_key, o.decay == StateDecay::feature)(decay_up);
  }
  if (o.delta) linear("beta", d, h)(beta);
  const bool low_rank = o.gate == OutputGate::low_rank;
  if (o.gate != OutputGate::none) linear("gate", d, low_rank ? rank : h * shape.d_value)(gate);
  if (low_rank) linear("gate_up", rank, h * shape.d_value)(gate_up);
  if (o.taps > 0)
    convolution.emplace(*this, "convolution",
                        ShortConvolution::Options{
                            .features = (q + g) * shape.d_key + v * shape.d_value, .taps = o.taps});
}

// The logarithms of the decays [H], [B, H, N] or [B, H, N, D]; undefined without a decay.
Tensor GatedLinearKernel::decays(const Tensor& x) const {
  const DType dtype = compute_type(x.dtype());
  switch (options.decay) {
    case StateDecay::none:
      return {};
    case StateDecay::retention:
    case StateDecay::slopes:
      return log_decay;
    case StateDecay::token: {
      const Tensor steps = softplus((*decay)(x).to(dtype) + decay_bias.to(dtype));
      return -(steps * exp(decay_rate.to(dtype))).transpose(1, 2);
    }
    case StateDecay::feature:
      return split_heads(softplus(widened(-(*decay_up)((*decay)(x)))) * (-1.0 / 16),
                         shape.n_output_heads());
    case StateDecay::kda: {
      const int64_t h = shape.n_output_heads();
      const Tensor steps = softplus((*decay_up)((*decay)(x)).to(dtype) + decay_bias.to(dtype));
      return -(split_heads(steps, h) * exp(decay_rate.to(dtype)).reshape({h, 1, 1}));
    }
  }
  return {};
}

// The short convolution, or SiLU, of q, k and v.
void GatedLinearKernel::mix(Gated& in, const AttentionMask& mask, LinearState* state) const {
  if (!convolution) {
    for (Tensor* x : {&in.q, &in.k, &in.v}) *x = silu(*x);
    return;
  }
  const int64_t heads[] = {in.q.size(1), in.k.size(1), in.v.size(1)};
  const std::vector<int64_t> sizes{in.q.size(1) * in.q.size(3), in.k.size(1) * in.k.size(3),
                                   in.v.size(1) * in.v.size(3)};
  const Tensor mixed =
      (*convolution)(cat({join_heads(in.q), join_heads(in.k), join_heads(in.v)}, 2), mask,
                     state ? &state->history : nullptr);
  const Tensors parts = split(mixed, sizes, 2);
  size_t i = 0;
  for (Tensor* x : {&in.q, &in.k, &in.v}) {
    *x = split_heads(parts[i], heads[i]);
    ++i;
  }
}

GatedLinearKernel::Gated GatedLinearKernel::gated(const AttentionInputs& inputs,
                                                  LinearState* state) const {
  check_inputs(inputs, options.taps > 0);
  Gated in{.q = inputs.q, .k = inputs.k, .v = inputs.v, .log_decay = decays(inputs.x), .beta = {}};
  if (convolution || options.silu) mix(in, inputs.options.mask, state);
  if (options.delta) {
    in.q = normalized(in.q), in.k = normalized(in.k);
    in.beta = sigmoid((*beta)(inputs.x).to(compute_type(inputs.x.dtype()))).transpose(1, 2);
    if (options.negative_eigenvalues) in.beta = in.beta * 2;
  }
  return in;
}

// y [B, H, M, Dv] before the norm.
Tensor GatedLinearKernel::attended(const Gated& in, const AttentionInputs& inputs,
                                   LinearState* state) const {
  GatedLinearAttentionOptions o{.log_decay = in.log_decay,
                                .beta = in.beta,
                                .mask = inputs.options.mask,
                                .scale = inputs.options.scale,
                                .chunk = options.chunk,
                                .implementation = options.implementation};
  o.mask.causal = true;
  Tensor y = state ? gated_linear_attention(in.q, in.k, in.v, *state, o)
                   : gated_linear_attention(in.q, in.k, in.v, o);
  if (inputs.options.mask.causal) return y;
  // No query precedes the last M keys, so the reversed pass needs only these.
  const int64_t m = inputs.n_queries();
  for (Tensor* x : {&o.mask.key_padding, &o.mask.segments})
    if (x->defined()) *x = reversed(*x, m, 1);
  if (o.log_decay.defined() && o.log_decay.dim() > 1) o.log_decay = reversed(o.log_decay, m);
  if (o.beta.defined()) o.beta = reversed(o.beta, m);
  const Tensor back =
      gated_linear_attention(reversed(in.q, m), reversed(in.k, m), reversed(in.v, m), o);
  return y + flip(back, 2);
}

// Norm and gate; x belongs to the queries.
Tensor GatedLinearKernel::finished(const Tensor& y, const Tensor& x) const {
  const Tensor normed = norm(y.transpose(1, 2));  // [B, M, H, Dv]
  if (!gate) return normed.transpose(1, 2);
  const Tensor g = (gate_up ? (*gate_up)((*gate)(x)) : (*gate)(x)).reshape(normed.shape());
  return (normed * (options.gate == OutputGate::silu ? silu(g) : sigmoid(g))).transpose(1, 2);
}

Tensor GatedLinearKernel::operator()(const AttentionInputs& inputs) const {
  return all_or_nothing(inputs.state, [&](LinearState* state) {
    const Tensor y = attended(gated(inputs, state), inputs, state);
    return finished(y, inputs.x.slice(1, inputs.n_keys() - inputs.n_queries()));
  });
}

Tensor GatedLinearKernel::weights(const AttentionInputs& inputs) const {
  Gated in = gated(inputs, nullptr);
  // With unit vectors as values, the output is the factors.
  const int64_t n = inputs.n_keys();
  in.v = eye(n, options_of(in.v)).expand({in.v.size(0), in.v.size(1), n, n});
  return attended(in, inputs, nullptr);
}

MakeKernel gated_linear_kernel(GatedLinearKernelOptions options) {
  return kernel<GatedLinearKernel>(options);
}
MakeKernel retention_kernel(NormKind norm) {
  return gated_linear_kernel({.decay = StateDecay::retention, .norm = norm});
}
MakeKernel lightning_kernel(double rate) {
  return gated_linear_kernel(
      {.decay = StateDecay::slopes, .rate = rate, .silu = true, .gate = OutputGate::sigmoid});
}
MakeKernel gla_kernel() { return gated_linear_kernel({.decay = StateDecay::feature}); }
MakeKernel delta_kernel() {
  return gated_linear_kernel({.delta = true, .taps = 4, .gate = OutputGate::none});
}
MakeKernel gated_delta_kernel() {
  return gated_linear_kernel({.decay = StateDecay::token, .delta = true, .taps = 4});
}
MakeKernel kda_kernel() {
  return gated_linear_kernel({.decay = StateDecay::kda,
                              .delta = true,
                              .taps = 4,
                              .gate = OutputGate::low_rank,
                              .gate_rank = 0});
}

}  // namespace stretto::nn
