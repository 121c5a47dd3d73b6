// Linear attention as a kernel of MultiHeadAttention: a feature map of queries and
// keys, then ops/attention/linear_attention.h.
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 256, .n_heads = 8, .kernel = nn::linear_kernel(nn::favor())}};
//
// A KeyValueCache then holds a state of fixed size: generation takes constant time
// and memory per token.
//
// Reference: tests/reference/linear_attention.cpp, linear_attention()
#pragma once

#include "attention.h"
#include "feature_map.h"

namespace stretto::nn {

/// Options of LinearKernel.
struct LinearKernelOptions {
  double eps = 0;      ///< Added to the denominator (LinearAttentionOptions::eps).
  int64_t chunk = 32;  ///< Keys and queries per chunk on the CPU (LinearAttentionOptions::chunk).
  /// Implementation of linear_attention().
  Implementation implementation = Implementation::automatic;
};

/// Linear attention. Accepts the masks `causal` and `key_padding`; windows, blocks, dropout, scales
/// and terms of the scores throw, because there are no scores. Encodings of q and k work:
/// - SPE (nn/positions/spe.h);
/// - RoPE (nn/positions/rotary.h), which rotates q and k before the feature map. The expected
///   attention weights of the softmax kernel's features (Favor) then depend on relative positions
///   only, those of other features on absolute positions too.
///
/// bf16 inputs and features stay bf16, with sums in f32; the composed implementation computes in
/// f32.
///
/// Exponential features (those of Favor) underflow if keys have a large norm. On the CPU, with eps
/// 0 and Stabilizer::max, the output is then computed from their logarithms in f64, which is
/// slower. It is equal for a whole sequence, a continued state and sequence parallelism. On a GPU,
/// with eps above 0 or with Stabilizer::none, a head whose features all underflow gets no
/// gradient; a call without a state or sequence parallelism then throws if a gradient is recorded
/// (on a GPU at the next synchronization).
class LinearKernel : public AttentionKernel {
 public:
  using Options = LinearKernelOptions;  ///< Options of the constructor.
  /// Registers the feature map that `map` constructs.
  LinearKernel(Module& parent, HeadShape shape, const MakeFeatureMap& map, Options options);
  /// Returns the traits of every feature map.
  static KernelTraits traits(const MakeFeatureMap&, const Options&) {
    return {.recurrent = true, .segments = false, .sequence_parallel = true};
  }
  Tensor operator()(const AttentionInputs& inputs) const override;
  /// Returns the share of each key, q_i·k_j / (Σ_j q_i·k_j + eps).
  Tensor weights(const AttentionInputs& inputs) const override;
  std::string label() const override { return "LinearKernel"; }
  /// Returns the feature map.
  const FeatureMap& feature_map() const { return *map_; }

  const Options options;  ///< As passed to the constructor.

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

/// Returns a factory of LinearKernel.
MakeKernel linear_kernel(MakeFeatureMap map = elu_plus_one(), LinearKernelOptions options = {});

}  // namespace stretto::nn
