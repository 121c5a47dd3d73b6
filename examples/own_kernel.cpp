#include <stretto/stretto.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
using namespace stretto;

// Retention (Sun et al. 2023, §2.1), without its scale and norm: with a decay γ per head,
//   y_i = Σ_{j ≤ i} γ^(i − j) (q_i · k_j) v_j = q_i S_i,    S_i = γ S_{i−1} + k_i v_iᵀ.
struct Retention : nn::AttentionKernel {
  Retention(nn::Module& parent, nn::HeadShape) : AttentionKernel(parent) {}
  std::string label() const override { return "Retention"; }
  static nn::KernelTraits traits() { return {.recurrent = true, .ordered = true}; }

  Tensor operator()(const nn::AttentionInputs& inputs) const override {
    const AttentionOptions& o = inputs.options;
    check(!nn::score_term(o), "Retention", "the inputs have a term of the scores; accepted: none");
    check(o.mask.causal && !setting_besides(o.mask, {"causal"}) && !o.scale &&
              inputs.n_queries() == inputs.n_keys() && inputs.q.size(1) == inputs.k.size(1),
          "Retention", "accepted: causal self-attention without n_kv_heads or scale");
    const DType dtype = compute_type(inputs.q.dtype());  // f32 for bf16: the state is a sum
    const TensorOptions options{.dtype = dtype, .device = inputs.q.device()};
    const Tensor q = inputs.q.to(dtype), k = inputs.k.to(dtype), v = inputs.v.to(dtype);
    const int64_t heads = k.size(1), n = k.size(2);  // [B, H, n, D]
    const Tensor h = arange(heads, options).reshape({heads, 1, 1});
    const Tensor log_decay = log(1 - exp(-std::log(2) * (h + 5)));  // log γ [H, 1, 1]
    const Tensor i = arange(n, options).reshape({n, 1});
    const Tensor weights = tril(exp(log_decay * relu(i - i.transpose(0, 1))));  // [H, n, n]

    Tensor y = matmul(matmul(q, k.transpose(2, 3)) * weights, v);  // the new keys
    if (inputs.state) {
      Tensor state = matmul((k * exp(log_decay * (double(n - 1) - i))).transpose(2, 3), v);
      if (const Tensor past = inputs.state->sums; past.defined()) {  // S [B, H, D, Dv]
        y = y + matmul(q * exp(log_decay * (i + 1)), past);          // the keys before them
        state = state + exp(log_decay * double(n)) * past;
      }
      inputs.state->sums = state;  // last: an error above leaves the state as it was
      inputs.state->length += n;
    }
    return y.to(inputs.q.dtype());
  }
};

int main(int argc, char** argv) {
  const nn::DeviceConfig config = nn::parse_device_args(argc, argv);  // --device cuda, --dtype bf16
  nn::MultiHeadAttention attention(
      {.d_model = 16, .n_heads = 2, .kernel = nn::kernel<Retention>()});
  attention.to(config.device).to(config.dtype);
  const nn::EvalMode guard(attention);
  const Tensor x = randn({1, 10, 16}).to(config.device).to(config.dtype);
  const Tensor all = attention(x, {.causal = true});
  nn::KeyValueCache cache;
  double worst = 0;  // token by token against one pass
  for (int t = 0; t < 10; ++t) {
    const Tensor y = attention(x.slice(1, t, t + 1), {.causal = true}, &cache);
    worst = std::max(worst, max(abs(y - all.slice(1, t, t + 1))).item());
  }
  std::printf("largest difference %.1e\n", worst);
}
