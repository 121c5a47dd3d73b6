// Linear attention as the kernel of MultiHeadAttention: queries and keys through a feature map,
// then ops/attention/linear_attention.h.
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 256, .n_heads = 8, .kernel = nn::linear_kernel(nn::favor())}};
//
// A KeyValueCache then holds a state of fixed size: generation takes constant time and memory per
// token.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "attention.h"
#include "feature_map.h"

namespace stretto::nn {

struct LinearKernelOptions {
  double eps = 0;      // LinearAttentionOptions
  int64_t chunk = 32;  // the same
  Implementation implementation = Implementation::automatic;
};

/// Takes calls with `causal` and `key_padding`; anything else acts on scores, which do not exist
/// here, and is an error. Positions that act on q and k work: SPE (nn/positions/spe.h), and RoPE
/// (nn/positions/rotary.h), which turns them before they are mapped, so that features of the
/// softmax kernel (Favor) depend on differences of positions, in the mean, and others on the
/// positions too. bf16 stays bf16, features included, with sums in f32; composed, it is computed in
/// f32.
///
/// Where features that are exponentials (Favor's) underflow, because keys are long, the same ratio
/// is computed from their logarithms in f64 (Stabiliser::max): slower, with the same result for one
/// pass, a continued state and a sequence over processes. A call that is recorded and in which all
/// features of a head underflow anyway, as with eps above 0, is an error, as such a head gets no
/// gradient. On a GPU the ratio is not recomputed, and the error is thrown at the next
/// synchronization.
class LinearKernel : public AttentionKernel {
 public:
  using Options = LinearKernelOptions;
  LinearKernel(Module& parent, HeadShape shape, const MakeFeatureMap& map, Options options);
  Tensor operator()(const AttentionInputs& inputs) const override;
  /// Each key's share q_i·k_j / (Σ_j q_i·k_j + eps).
  Tensor weights(const AttentionInputs& inputs) const override;
  bool has_recurrent_state() const override { return true; }
  bool supports_sequence_parallel() const override { return true; }
  std::string label() const override { return "LinearKernel"; }
  const FeatureMap& feature_map() const { return *map_; }

  const Options options;

 private:
  struct Features {
    Tensor q, k, v;
  };
  Features mapped(const AttentionInputs& inputs, const Tensor& drawn = {}) const;
  Tensor attended(const AttentionInputs& inputs, const Tensor& drawn) const;
  Tensor by_logarithms(const AttentionInputs& inputs, const Tensor& drawn) const;
  void check_alive(const AttentionInputs& inputs, const Tensor& denominators) const;
  LinearAttentionOptions settings(const AttentionInputs& inputs) const;

  std::unique_ptr<FeatureMap> map_;
};

MakeKernel linear_kernel(MakeFeatureMap map = elu_plus_one(), LinearKernelOptions options = {});

}  // namespace stretto::nn
