#include "ops/attention/gated_linear_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/recompute.h"
#include "core/all_or_nothing.h"
#include "ops/attention/gated_linear_attention_implementations.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

constexpr const char* op = "gated_linear_attention";

int64_t heads_of_all(const Tensor& q, const Tensor& k, const Tensor& v) {
  return std::max({q.size(1), k.size(1), v.size(1)});
}

void check_operands(const Tensor& q, const Tensor& k, const Tensor& v) {
  bool fit = q.dim() == 4 && k.dim() == 4 && v.dim() == 4 && q.size(0) == k.size(0) &&
             k.size(0) == v.size(0) && q.size(3) == k.size(3) && k.size(2) == v.size(2);
  for (const Tensor* x : {&q, &k, &v})
    fit = fit && x->size(1) > 0 && heads_of_all(q, k, v) % x->size(1) == 0;
  check(fit, op, "q ", q, ", k ", k, ", v ", v,
        "; accepted: q [B, H, M, F], k [B, H, N, F], v [B, H, N, Dv], where H may be a divisor of "
        "the largest number of heads");
  check(is_floating(q.dtype()) && q.dtype() == k.dtype() && q.dtype() == v.dtype(), op, "q ", q,
        ", k ", k, ", v ", v, "; all must have one floating-point dtype");
  check(q.size(2) <= k.size(2), op, q.size(2), " queries for ", k.size(2),
        " keys; accepted: at most as many queries as keys, because no query may precede the keys");
}

void check_options(const Tensor& q, const Tensor& k, const Tensor& v,
                   const GatedLinearAttentionOptions& o) {
  const int64_t b = q.size(0), h = heads_of_all(q, k, v), n = k.size(2), f = q.size(3);
  const Tensor &decay = o.log_decay, &beta = o.beta;
  check(!decay.defined() || (is_floating(decay.dtype()) &&
                             (decay.shape() == Shape{h} || decay.shape() == Shape{b, h, n} ||
                              decay.shape() == Shape{b, h, n, f})),
        op, "log_decay ", decay, "; must be floating-point ", Shape{h}, ", ", Shape{b, h, n},
        " or ", Shape{b, h, n, f});
  check(!beta.defined() || (is_floating(beta.dtype()) && beta.shape() == Shape{b, h, n}), op,
        "beta ", beta, "; must be floating-point ", Shape{b, h, n});
  check(o.mask.causal, op,
        "the mask is not causal; accepted: a causal mask, as the state holds "
        "only earlier positions");
  const char* const other = setting_besides(o.mask, {"causal", "key_padding", "segments"});
  check(!other, op, other ? other : "",
        " is set; accepted: causal, key_padding and segments, as there are no scores to mask");
  const Tensor &padding = o.mask.key_padding, &segments = o.mask.segments;
  check(!padding.defined() || (is_mask(padding.dtype()) && padding.shape() == Shape{b, n}), op,
        "key_padding ", padding, "; must be bool or u8 ", Shape{b, n});
  check(!segments.defined() || (is_index(segments.dtype()) && segments.shape() == Shape{b, n}), op,
        "segments ", segments, "; must be i64 or i32 ", Shape{b, n});
  check_same_device(op, {&q, &k, &v, &decay, &beta, &padding, &segments});
  check(o.chunk >= 1, op, "chunk ", o.chunk, "; must be at least 1");
  check(!o.scale || std::isfinite(*o.scale), op, "scale ", o.scale.value_or(0), "; must be finite");
}

// On a GPU, where reading the ids would synchronize, this is not checked.
void check_contiguous(const Tensor& segments) {
  if (!segments.device().is_cpu()) return;
  const std::vector<int64_t> ids = segments.to(i64).to_vector<int64_t>();
  const auto n = size_t(segments.size(1));
  for (size_t b = 0; b < size_t(segments.size(0)); ++b) {
    std::vector<int64_t> starts;  // the id of each range
    for (size_t t = b * n; t < (b + 1) * n; ++t)
      if (t == b * n || ids[t] != ids[t - 1]) starts.push_back(ids[t]);
    std::sort(starts.begin(), starts.end());
    const auto twice = std::adjacent_find(starts.begin(), starts.end());
    check(twice == starts.end(), op, "segment ", twice == starts.end() ? 0 : *twice,
          " of batch entry ", b,
          " is not contiguous; accepted: contiguous segments, as the state "
          "is cleared between them");
  }
}

// True where the segment differs from that of the position before, [B, N].
Tensor begins_segment(const Tensor& segments) {
  const Tensor changes = ne(segments.slice(1, 1), segments.slice(1, 0, -1));
  return cat({zeros({segments.size(0), std::min<int64_t>(segments.size(1), 1)},
                    {.dtype = boolean, .device = segments.device()}),
              changes},
             1);
}

// The decays as [B, H, N] or [B, H, N, F]: −∞ where a segment begins, 0 for padding.
Tensor decays(const Tensor& log_decay, int64_t b, int64_t h, int64_t n, const AttentionMask& mask,
              TensorOptions options) {
  Tensor g = log_decay.defined() ? log_decay.to(options.dtype) : zeros({h}, options);
  if (g.dim() == 1) g = g.reshape({1, h, 1}).expand({b, h, n});
  const auto over = [&](const Tensor& of_tokens) {  // [B, N]
    return g.dim() == 3 ? of_tokens.unsqueeze(1) : of_tokens.unsqueeze(1).unsqueeze(3);
  };
  if (mask.segments.defined() && n > 0)
    g = masked_fill(g, over(begins_segment(mask.segments)),
                    -std::numeric_limits<double>::infinity());
  if (mask.key_padding.defined()) {
    // A segment that begins with padding clears the state there.
    Tensor padding = mask.key_padding.to(boolean);
    if (mask.segments.defined() && n > 0)
      padding = logical_and(padding, logical_not(begins_segment(mask.segments)));
    g = masked_fill(g, over(padding), 0);
  }
  return g;
}

Tensor computed(const Tensor& q, const Tensor& k, const Tensor& v, LinearState* state,
                const GatedLinearAttentionOptions& o) {
  const TensorOptions options{.dtype = compute_type(q.dtype()), .device = q.device()};
  const int64_t b = q.size(0), h = heads_of_all(q, k, v), m = q.size(2), n = k.size(2),
                f = q.size(3), dv = v.size(3);
  const auto unpadded = [&](const Tensor& x) {
    if (!o.mask.key_padding.defined()) return widened(x).to(options.dtype);
    const Tensor padding = o.mask.key_padding.unsqueeze(1);
    return widened(masked_fill(x, x.dim() == 4 ? padding.unsqueeze(3) : padding, 0))
        .to(options.dtype);
  };
  const GatedLinearOperands in{
      .q = widened(m == n ? q : pad(q, 2, n - m, 0)),
      .k = unpadded(k),
      .v = unpadded(v),
      .log_decay = decays(o.log_decay, b, h, n, o.mask, options),
      .before = state && state->sums.defined() ? state->sums : zeros({b, h, f, dv}, options),
      .beta = o.beta.defined() ? unpadded(o.beta) : Tensor(),
      .scale = o.scale.value_or(f > 0 ? 1 / std::sqrt(double(f)) : 1),
      .chunk = o.chunk};
  const bool fused =
      o.implementation != Implementation::composed && has_chunked_gated_linear_attention(in);
  check(fused || o.implementation != Implementation::fused, op, "no fused implementation for q ", q,
        ", v ", v, " and log_decay ", o.log_decay, "; use Implementation::composed");
  const GatedLinearResult y =
      fused ? chunked_gated_linear_attention(in) : composed_gated_linear_attention(in);
  if (state) state->sums = y.after;
  return (m == n ? y.out : y.out.slice(2, n - m)).to(q.dtype());
}

void check_state(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState& state,
                 const GatedLinearAttentionOptions& o) {
  check(q.size(2) == k.size(2), op, q.size(2), " queries and ", k.size(2),
        " keys continue a state; accepted: a query for each key");
  check(!o.mask.segments.defined(), op,
        "segments with a state; accepted: none, as a state does not store its last segment");
  if (!state.sums.defined()) return;
  const Shape shape{q.size(0), heads_of_all(q, k, v), q.size(3), v.size(3)};
  const DType dtype = compute_type(q.dtype());
  check(state.sums.shape() == shape && state.sums.dtype() == dtype, op, "the state is ", state.sums,
        "; for q ", q, ", k ", k, " and v ", v, " it must be ", dtype, " ", shape);
  check_same_device(op, {&q, &state.sums});
}

}  // namespace

Tensors GatedLinearOperands::tensors() const {
  Tensors all{q, k, v, log_decay, before};
  if (beta.defined()) all.push_back(beta);
  return all;
}

GatedLinearOperands GatedLinearOperands::with(const Tensors& x) const {
  return {x[0], x[1], x[2], x[3], x[4], x.size() > 5 ? x[5] : Tensor(), scale, chunk};
}

Tensor gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                              const GatedLinearAttentionOptions& options) {
  check_operands(q, k, v);
  check_options(q, k, v, options);
  if (options.mask.segments.defined()) check_contiguous(options.mask.segments);
  return computed(q, k, v, nullptr, options);
}

Tensor gated_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v, LinearState& state,
                              const GatedLinearAttentionOptions& options) {
  check_not_recomputed(op, "a state");
  check_operands(q, k, v);
  check_options(q, k, v, options);
  check_state(q, k, v, state, options);
  return all_or_nothing(state, [&](LinearState& after) {
    Tensor y = computed(q, k, v, &after, options);
    after.length += k.size(2);
    return y;
  });
}

}  // namespace stretto
