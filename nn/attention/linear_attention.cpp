#include "nn/attention/linear_attention.h"

#include <algorithm>
#include <tuple>

#include "autograd/tape.h"
#include "core/all_or_nothing.h"
#include "nn/distributed/sequence.h"
#include "ops/attention/linear_attention_implementations.h"
#include "ops/attention/linear_attention_logarithms.h"
#include "ops/create.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "LinearKernel";

// Returns the name of an option that needs scores, or nullptr.
const char* score_option(const AttentionOptions& o) {
  if (const char* term = score_term(o)) return term;
  if (const char* other = setting_besides(o.mask, {"causal", "key_padding"})) return other;
  if (o.scale) return "a scale of the scores";
  return nullptr;
}

void check_scores(const AttentionInputs& inputs) {
  if (const char* found = score_option(inputs.options))
    fail(op, "the inputs have ", found,
         ", but linear attention has no scores; accepted: causal, key_padding, and encodings of q "
         "and k, RoPE (nn/positions/rotary.h) and SPE (nn/positions/spe.h); or use "
         "softmax_kernel()");
}

// Returns true if the condition holds for the denominator [B, H, M] of any query that attends to at
// least one key, in the given head, or in any head if `head` is negative.
template <class Condition>
bool any_visible(const Tensor& denominators, const AttentionMask& mask, int64_t n, int64_t head,
                 Condition condition) {
  const Tensor padding = mask.key_padding.defined() ? mask.key_padding.contiguous() : Tensor();
  const auto* hidden =
      padding.defined() ? static_cast<const uint8_t*>(padding.raw_data()) : nullptr;
  const int64_t heads = denominators.size(1), m = denominators.size(2);
  bool found = false;
  for (int64_t b = 0; b < denominators.size(0); ++b) {
    int64_t key = 0;  // the first key that is not padding
    while (hidden && key < n && hidden[b * n + key]) ++key;
    const int64_t begin = key == n ? m : mask.causal ? std::max<int64_t>(0, key + m - n) : 0;
    for (int64_t h = head < 0 ? 0 : head; h < (head < 0 ? heads : head + 1) && !found; ++h)
      dispatch_floating(denominators.dtype(), op, [&]<class T>() {
        if constexpr (!std::is_same_v<T, BFloat16>) {
          const T* x = denominators.data<T>() + (b * heads + h) * m;
          found = std::any_of(x + begin, x + m, condition);
        }
      });
  }
  return found;
}

}  // namespace

LinearKernel::LinearKernel(Module& parent, HeadShape shape, const MakeFeatureMap& map, Options o)
    : AttentionKernel(parent), options(o) {
  check(bool(map), op, "needs a feature map: elu_plus_one(), relu_plus() or favor()");
  map_ = map(*this, shape);
}

LinearKernel::Features LinearKernel::mapped(const AttentionInputs& inputs,
                                            const Tensor& drawn) const {
  const bool composed = options.implementation == Implementation::composed;
  auto operand = [composed](const Tensor& x) {
    return composed ? x.to(compute_type(x.dtype())) : x;
  };
  return {(*map_)(operand(inputs.q), Side::query, drawn),
          (*map_)(operand(inputs.k), Side::key, drawn), operand(inputs.v)};
}

LinearAttentionOptions LinearKernel::settings(const AttentionInputs& inputs) const {
  return {.mask = inputs.options.mask,
          .eps = options.eps,
          .chunk = options.chunk,
          .implementation = options.implementation};
}

Tensor LinearKernel::by_logarithms(const AttentionInputs& inputs, const Tensor& drawn) const {
  const Tensor q = map_->logarithms(inputs.q, Side::query, drawn);
  Tensor keys = inputs.k, values = inputs.v.to(f64);
  if (ProcessGroup* group = inputs.forward.sequence_group)
    std::tie(keys, values) = gather_left_kv(inputs.k.to(f64), values, inputs.options, *group);
  const Tensor k = map_->logarithms(keys, Side::key, drawn);
  const DType type = compute_type(inputs.q.dtype());
  const double divisor = inputs.state ? map_->key_divisor(inputs.k.dtype(), drawn) : 0;
  const auto compute = [&](LinearState* state) {
    LinearAttentionOptions o = settings(inputs);
    // Without new keys the queries attend to all keys of the state.
    if (state && keys.size(2) == 0) o.mask.causal = false;
    return linear_attention_of_logarithms(q, k, values, o, state, divisor, type);
  };
  return all_or_nothing(inputs.state, compute);
}

// Throws if in some head all products of query and key features are 0, for all queries that see a
// key: such a head gets no gradient, now or later.
void LinearKernel::check_alive(const AttentionInputs& inputs, const Tensor& denominators) const {
  if (!map_->has_exponentials() || denominators.numel() == 0 || !recording({inputs.q, inputs.k}))
    return;
  const double eps = denominators.dtype() == f64 ? options.eps : double(float(options.eps));
  const auto text = [=, heads = denominators.size(1), features = map_->label(),
                     given = options.eps](int64_t h) {
    return str("in head ", h, " of ", heads, " all products of the features of ", features,
               " are 0, with eps ", given,
               ", so that the head gets no gradient; reduce the norms of queries and keys "
               "(qk_norm, a smaller learning rate), or use eps 0 with Stabilizer::max");
  };
  if (denominators.device().is_cuda())
    return report_dead_heads(op, denominators, eps, inputs.n_keys(),
                             inputs.options.mask.key_padding, text);
  const auto any = [&](int64_t head, auto condition) {
    return any_visible(denominators, inputs.options.mask, inputs.n_keys(), head, condition);
  };
  for (int64_t h = 0; h < denominators.size(1); ++h)
    check(any(h, [&](auto x) { return !(double(x) == eps); }) || !any(h, [](auto) { return true; }),
          op, text(h));
}

Tensor LinearKernel::attended(const AttentionInputs& inputs, const Tensor& drawn) const {
  const LinearAttentionOptions o = settings(inputs);
  ProcessGroup* const group = inputs.forward.sequence_group;
  const Tensor& padding = inputs.options.mask.key_padding;
  const bool on_cpu = inputs.q.device().is_cpu();
  const bool stabilized =
      on_cpu && options.eps == 0 && map_->has_exponentials() && map_->stabilizes();
  if (stabilized && (inputs.state || group)) {
    bool in_range = map_->in_range(inputs.k, padding, drawn);
    if (group) {
      const std::vector<double> all = group->all_gather(std::vector<double>{double(in_range)});
      in_range = *std::min_element(all.begin(), all.end()) > 0;
    }
    if (!in_range || (inputs.state && inputs.state->shift.defined()))
      return by_logarithms(inputs, drawn);
  }
  const Features f = mapped(inputs, drawn);
  if (group) return sequence_parallel_linear_attention(f.q, f.k, f.v, o, *group);
  if (inputs.state) return linear_attention(f.q, f.k, f.v, *inputs.state, o);
  const auto [y, denominators] = linear_attention_and_denominators(f.q, f.k, f.v, o);
  // Smaller denominators have lost terms to underflow.
  const double least = inputs.q.dtype() == f64 ? 1e-290 : 1e-25;
  if (stabilized && any_visible(denominators, inputs.options.mask, inputs.n_keys(), -1,
                                [&](auto x) { return double(x) < least; }))
    return by_logarithms(inputs, drawn);
  check_alive(inputs, denominators);
  return y;
}

Tensor LinearKernel::operator()(const AttentionInputs& inputs) const {
  const bool begins = !inputs.state || inputs.state->length == 0;
  check_scores(inputs);
  return attended(inputs, begins ? map_->next_call() : Tensor()).to(inputs.q.dtype());
}

Tensor LinearKernel::weights(const AttentionInputs& inputs) const {
  check_scores(inputs);
  const int64_t n = inputs.n_keys();
  // With unit vectors as values, the output is the weights.
  AttentionInputs from = inputs;
  from.v = eye(n, options_of(inputs.v)).expand({inputs.k.size(0), inputs.k.size(1), n, n});
  return attended(from, {}).to(inputs.q.dtype());
}

MakeKernel linear_kernel(MakeFeatureMap map, LinearKernelOptions options) {
  return kernel<LinearKernel>(std::move(map), options);
}

}  // namespace stretto::nn
