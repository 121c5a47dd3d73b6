#include "nn/attention/linear_attention.h"

#include "nn/distributed/sequence.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "LinearKernel";

// What a call has that needs scores; nullptr for nothing.
const char* of_scores(const AttentionOptions& o) {
  if (o.keys.defined()) return "a key table";
  if (o.values.defined()) return "a value table";
  if (o.lag_bias.defined()) return "a bias per lag";
  if (o.bias.defined()) return "a dense bias";
  if (o.position_query.defined()) return "a position query";
  if (o.mask.window > 0) return "a window";
  if (o.mask.block > 0) return "blocks";
  if (o.dropout > 0) return "dropout of the weights";
  if (o.scale) return "a scale of the scores";
  return nullptr;
}

}  // namespace

LinearKernel::LinearKernel(Module& parent, HeadShape shape, const MakeFeatureMap& map, Options o)
    : AttentionKernel(parent), options(o) {
  check(bool(map), op, "needs a feature map: elu_plus_one(), relu_plus() or favor()");
  map_ = map(*this, shape);
}

LinearKernel::Features LinearKernel::mapped(const AttentionCall& call, const Tensor& drawn) const {
  if (const char* found = of_scores(call.options))
    fail(op, "the call has ", found,
         ", but linear attention has no scores; accepted: causal, key_padding, and positions that "
         "act on q and k, RoPE (nn/positions/rotary.h) and SPE (nn/positions/spe.h); or use "
         "softmax_kernel()");
  const bool narrow = options.form != Form::composed;
  auto wide = [narrow](const Tensor& x) { return x.dtype() == bf16 && !narrow ? x.to(f32) : x; };
  return {(*map_)(wide(call.q), Side::query, drawn), (*map_)(wide(call.k), Side::key, drawn),
          wide(call.v)};
}

LinearAttentionOptions LinearKernel::settings(const AttentionCall& call) const {
  return {
      .mask = call.options.mask, .eps = options.eps, .chunk = options.chunk, .form = options.form};
}

Tensor LinearKernel::operator()(const AttentionCall& call) const {
  const bool begins = !call.state || call.state->length == 0;
  const Features f = mapped(call, begins ? map_->next_call() : Tensor());
  const LinearAttentionOptions o = settings(call);
  const Tensor y = call.group   ? linear_attention_of_whole(f.q, f.k, f.v, o, *call.group)
                   : call.state ? linear_attention(f.q, f.k, f.v, *call.state, o)
                                : linear_attention(f.q, f.k, f.v, o);
  return y.to(call.q.dtype());
}

Tensor LinearKernel::weights(const AttentionCall& call) const {
  const Features f = mapped(call);
  const int64_t n = call.n_keys();
  // The values of unit vectors say where they come from.
  const Tensor from = eye(n, options_of(f.v)).expand({f.k.size(0), f.k.size(1), n, n});
  return linear_attention(f.q, f.k, from, settings(call)).to(call.q.dtype());
}

MakeKernel linear_kernel(MakeFeatureMap map, LinearKernelOptions options) {
  return [map = std::move(map), options](Module& parent, HeadShape shape) {
    return std::make_unique<LinearKernel>(parent, shape, map, options);
  };
}

}  // namespace stretto::nn
