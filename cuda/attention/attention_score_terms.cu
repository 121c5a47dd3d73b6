// The terms of attention scores other than products: arguments of the kernels, and gradients. Tested
// against the composed implementation in f64.
#include "cuda/attention/attention.cuh"
#include "cuda/attention/attention_decode.h"
#include "cuda/reduce.h"

namespace stretto::cuda {
namespace {

/// The gradients of the sinks' scores [B, H, M], −P δ, times a factor, from sums and −δ [B, H, M]
/// and sinks [H].
__global__ void __launch_bounds__(256)
    attention_sinks(float* grad, const float* sums, const float* delta, const float* sinks,
                    float factor, int heads, int m, int64_t n) {
  const int64_t i = thread_index();
  if (i < n) grad[i] = ptx::ex2(sinks[i / m % heads] - sums[i]) * delta[i] * factor;
}

/// The gradients of the sinks' scores times a factor [B, H, M, 1].
Tensor sinks_gradient(const AttentionArgs& a, const Tensor& delta, float factor) {
  const Tensor grad = empty_like(delta);
  launch("attention", delta.device().index, attention_sinks,
         unsigned(ceil_div(delta.numel(), int64_t(256))), 256, grad.data<float>(), a.results.sums,
         a.delta.data, a.sinks, factor, a.sizes.heads, a.sizes.m, delta.numel());
  return grad.unsqueeze(-1);
}

}  // namespace

Scores scores_of(const Tensor& x) {
  const auto stride = [&](int d) { return x.size(d) == 1 ? 0 : x.strides()[d]; };
  return {x.raw_data(), stride(0), stride(1), stride(2), stride(3)};
}

void set_score_terms(AttentionArgs& a, const AttentionOptions& o) {
  if (o.bias.defined()) a.dense = scores_of(o.bias);
  if (const Tensor& rows = o.relative_bias.rows; rows.defined()) {
    const int width = int(rows.size(1));
    a.relative_bias = {rows.data<float>(), rows.size(0) == 1 ? 0 : width,
                       -int(o.relative_bias.zero_row), width};
  }
}

bool attention_decode_takes_terms(const AttentionOptions& options) {
  AttentionOperands others{.options = options};
  AttentionOptions& o = others.options;
  o.relative_query = o.relative_keys.rows = o.relative_bias.rows = o.sinks = {};
  bool any = false;
  others.for_each_tensor([&](const Tensor& x) { any = any || x.defined(); });
  return !any;
}

Tensor begin_term_gradients(AttentionArgs& a, const AttentionOptions& to, Device device) {
  const bool differs_by_key = to.bias.defined() && to.bias.size(3) == a.sizes.n;
  if (differs_by_key && to.bias.size(2) > 1) a.gradients.dense = scores_of(to.bias);
  if (!differs_by_key || to.bias.size(2) > 1) return {};
  const Tensor sums =
      empty({a.sizes.batch, a.sizes.heads, 1, a.sizes.n}, {.dtype = f32, .device = device});
  a.gradients.key_sums = sums.data<float>();
  return sums;
}

void finish_term_gradients(const AttentionArgs& a, const Tensor& key_sums, const Tensor& delta,
                           AttentionOptions& to) {
  // A bias that all keys share changes no weight: its gradient is 0. With sinks it is that of the
  // sinks, negated.
  if (key_sums.defined())
    to.bias = key_sums;
  else if (a.sinks && to.bias.defined() && to.bias.size(3) != a.sizes.n)
    to.bias = sinks_gradient(a, delta, -1);
  if (a.sinks) to.sinks = sum(sinks_gradient(a, delta, 1), {0, 2}, true).reshape({a.sizes.heads});
}

}  // namespace stretto::cuda
