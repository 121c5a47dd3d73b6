// Linear attention with the kernels of cuda/attention/linear_attention.h, in chunks of 64
// positions for any options.chunk. bf16 inputs are not converted. The backward pass needs only the
// inputs and the denominators.
#include "autograd/tape.h"
#include "cuda/attention/linear_attention.h"
#include "cuda/runtime/composed.h"
#include "cuda/runtime/reports.h"
#include "ops/attention/heads.h"
#include "ops/attention/linear_attention_implementations.h"

namespace stretto {
namespace {

bool is_token(const Tensor& q, const Tensor& k, const Tensor& v, const LinearState* state) {
  return state && state->sums.defined() && q.size(2) == 1 && k.size(2) == 1 && v.size(3) <= 1024 &&
         q.numel() > 0 && v.numel() > 0 && q.dtype() != f64;
}

}  // namespace

bool has_device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                 const LinearState* state) {
  if (!q.device().is_cuda() || cuda::composed("linear_attention", q.device())) return false;
  return cuda::serves_linear_attention(q, k, v) ||
         (is_token(q, k, v, state) && !recording({q, k, v, state->sums}));
}

Tensor device_linear_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                               LinearState* state, const LinearAttentionOptions& o,
                               Tensor* denominators) {
  const Tensor padding =
      o.mask.key_padding.defined() ? o.mask.key_padding.to(u8).contiguous() : Tensor();
  const Tensor sums = state ? state->sums : Tensor();
  const auto inputs_of = [o, padding](const Tensor& q_, const Tensor& k_, const Tensor& v_,
                                      const Tensor& before) {
    return cuda::LinearAttentionOperands{
        .q = rows_contiguous(q_),
        .k = rows_contiguous(k_),
        .v = rows_contiguous(v_),
        .padding = padding,
        .before = before.defined() ? before.detach().contiguous() : Tensor(),
        .causal = o.mask.causal,
        .eps = o.eps};
  };
  const TensorOptions wide{.dtype = f32, .device = q.device()};
  const auto in = inputs_of(q, k, v, sums);
  Tensor y = heads_beside(q, q.size(1), q.size(2), v.size(3));
  const Tensor after =
      state ? empty({k.size(0), k.size(1), k.size(3), v.size(3) + 1}, wide) : Tensor();
  Tensors inputs{q, k, v};
  if (sums.defined()) inputs.push_back(sums);
  if (is_token(q, k, v, state) && !recording(inputs)) {
    cuda::linear_attention_token(in, y, after);
    state->sums = after;
    return y;
  }
  const Tensor totals = empty({q.size(0), q.size(1), q.size(2)}, wide);
  cuda::linear_attention(in, y, totals, after);
  if (denominators) *denominators = totals;

  const auto composed = [o, has_state = bool(state)](const Tensors& x) {
    LinearState old{.sums = x.size() > 3 ? x[3] : Tensor()};
    const Tensor out = composed_linear_attention(x[0].to(f32), x[1].to(f32), x[2].to(f32),
                                                 has_state ? &old : nullptr, o);
    Tensors all{out.to(x[0].dtype())};
    if (has_state) all.push_back(old.sums);
    return all;
  };
  std::vector<Saved> saved(inputs.begin(), inputs.end());
  Tensors outputs{y};
  if (state) outputs.push_back(after);
  // Gradients: G Sᵀ + δ zᵀ + R K, V Tᵀ + 1 tᵀ + Rᵀ Q, K T + Pᵀ G, and T and t themselves.
  const Tensors results = record(
      "linear_attention", inputs, outputs,
      [=, has_state = bool(state), saved = std::move(saved)](Backward& b) {
        const Tensors from = values_of(saved);
        if (grad_enabled()) return composed_gradient(b, composed, from);
        const Tensor before = from.size() > 3 ? from[3] : Tensor();
        const auto again = inputs_of(from[0], from[1], from[2], before);
        const cuda::LinearAttentionGradients to{
            .q = heads_like(from[0]),
            .k = heads_like(from[1]),
            .v = heads_like(from[2]),
            .before = before.defined() ? empty(before.shape(), options_of(totals)) : Tensor()};
        cuda::linear_attention_backward(again, totals, rows_contiguous(b.grad(0)),
                                        has_state ? b.grad(1).contiguous() : Tensor(), to);
        Tensors gradients{to.q, to.k, to.v};
        if (before.defined()) gradients.push_back(to.before);
        return gradients;
      });
  if (state) state->sums = results[1];
  return results[0];
}

void report_dead_heads(const char* op, const Tensor& denominators, double eps, int64_t n_keys,
                       const Tensor& key_padding, std::function<std::string(int64_t)> text) {
  if (denominators.numel() == 0 || n_keys == 0) return;
  // Products of exponentials are not negative.
  cuda::check_heads(op, denominators.contiguous(), eps,
                    key_padding.defined() ? key_padding.to(u8).contiguous() : Tensor(),
                    [text = std::move(text)](int64_t head, int64_t) { return text(head); });
}

}  // namespace stretto
