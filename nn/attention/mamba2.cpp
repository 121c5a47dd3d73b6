#include "nn/attention/mamba2.h"

#include "ops/attention/gated_linear_attention.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/norm.h"
#include "ops/widened.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "Mamba2";

}  // namespace

Mamba2::Options Mamba2::checked(Options o) {
  check(o.d_model >= 1 && o.expand >= 1 && o.d_head >= 1 && o.d_state >= 1 && o.n_groups >= 1, op,
        "d_model ", o.d_model, ", expand ", o.expand, ", d_head ", o.d_head, ", d_state ",
        o.d_state, ", n_groups ", o.n_groups, "; must be at least 1");
  const int64_t inner = o.expand * o.d_model;
  check(inner % o.d_head == 0 && inner / o.d_head % o.n_groups == 0, op, inner,
        " values (expand · d_model) in heads of ", o.d_head, " and ", o.n_groups,
        " groups; accepted: a multiple of d_head, with a number of heads that is a multiple of "
        "n_groups");
  return o;
}

Mamba2::Mamba2(Options o) : options(checked(o)) { reset_token_decays(a, b); }

Mamba2::Mamba2(Module& parent, std::string name, Options o)
    : Mixer(parent, std::move(name)), options(checked(o)) {
  reset_token_decays(a, b);
}

std::string Mamba2::label() const { return str("Mamba2(", n_heads(), " heads)"); }

Tensor Mamba2::mix(const Tensor& x, const AttentionMask& mask, KeyValueCache* cache,
                   const ForwardContext&) const {
  check(x.dim() == 3 && x.size(2) == options.d_model, op, "input ", x, "; must be [B, N, ",
        options.d_model, "]");
  const int64_t batch = x.size(0), n = x.size(1), groups = options.n_groups,
                of_groups = groups * options.d_state;
  const DType dtype = compute_type(x.dtype());
  LinearState* const state = cache ? &cache->state : nullptr;
  const Tensors parts = split(in(x), {d_inner(), d_inner() + 2 * of_groups, n_heads()}, 2);
  const Tensors mixed = split(convolution(parts[1], mask, state ? &state->history : nullptr),
                              {d_inner(), of_groups, of_groups}, 2);
  const Tensor steps = softplus(parts[2].to(dtype) + b.to(dtype)).transpose(1, 2);  // Δ [B, H, N]
  const Tensor values = split_heads(mixed[0], n_heads());
  const Tensor inputs = (widened(values) * steps.unsqueeze(3)).to(x.dtype());
  const GatedLinearAttentionOptions o{
      .log_decay = -(steps * exp(a.to(dtype)).reshape({n_heads(), 1})),
      .mask = mask,
      .scale = 1,
      .chunk = options.chunk};
  const Tensor q = split_heads(mixed[2], groups), k = split_heads(mixed[1], groups);
  Tensor y = state ? gated_linear_attention(q, k, inputs, *state, o)
                   : gated_linear_attention(q, k, inputs, o);
  y = join_heads(y + values * skip.reshape({n_heads(), 1, 1}));
  y = (y * silu(parts[0])).reshape({batch, n, groups, d_inner() / groups});
  return out(rms_norm(y, {}, options.norm_eps).flatten(2) * norm);
}

MakeMixer mamba2(Mamba2Options options) {
  return [=](Module& parent, int64_t d_model) {
    Mamba2Options o = options;
    o.d_model = d_model;
    return std::make_unique<Mamba2>(parent, "mixer", o);
  };
}

}  // namespace stretto::nn
