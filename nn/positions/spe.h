// Stochastic positional encoding as the position of MultiHeadAttention (Liutkus et al., "Relative
// Positional Encoding for Transformers with Linear Complexity", ICML 2021; ops/spe/spe.h): relative
// positions for kernels without scores, and for softmax too.
//
//     nn::MultiHeadAttention attention{*this, "attention",
//         {.d_model = 512, .n_heads = 8, .position = nn::sine_spe(),
//          .kernel = nn::linear_kernel(nn::favor())}};
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code(), gated_code()
#pragma once

#include "../../ops/spe/spe.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// What the layers of one model (PerModel, nn/positions/positional_encoding.h) have in common.
/// Gates and their noise are always of one layer.
enum class SpeShare {
  nothing,
  parameters,  // of the code; each layer draws its noise (the published JAX program's conv)
  draws        // these and the noise: one code for a pass through all layers (its PyTorch programs)
};

struct SineSpeOptions {
  int64_t realizations = 64;  // R
  int64_t sines = 10;         // K
  bool gated = true;
  SpeShare shared = SpeShare::nothing;
  Implementation implementation = Implementation::automatic;
};

struct ConvSpeOptions {
  int64_t realizations = 64;  // R
  Shape taps = {128};         // P, or {P1, P2} for positions in a plane
  Shape shape = {};           // {h, w} of the plane
  bool gated = true;
  SpeShare shared = SpeShare::nothing;
  Implementation implementation = Implementation::automatic;
};

/// sineSPE: `freqs`, `offsets`, `gains` [H, D, K] (SpeCode::sine), as the authors start them: all
/// N(0, 1), then freqs − 4, and the gains of each dimension divided by half the root of their norm.
MakePositionalEncoding sine_spe(SineSpeOptions options = {});

/// convSPE: `filter_q`, `filter_k` [H, D, P…] (SpeCode::conv), uniform in [0, √(2/P)) at the start,
/// P = P1·P2 in a plane. Its template reaches to both sides, P − 1 positions far.
MakePositionalEncoding conv_spe(ConvSpeOptions options = {});

/// What both make: q and k of a call become q̂ and k̂ with R numbers a head (spe(), ops/spe/spe.h),
/// whose products have the mean √(R/D) Σ_d q_d k_d P_d(lag). A scale that the call has is
/// multiplied by √(D/R); its default, 1/√R, is right as it is.
///
/// Queries and keys may differ in number, as spe() has them; key heads must be as many as query
/// heads. In training every call has new noise, but one that continues a cache or a state has what
/// that began with. With SpeShare::draws the layers of a pass (ForwardContext) have one draw. In
/// evaluation the noise is frozen, drawn when the module is made and saved in checkpoints: passes
/// repeat, and generation step by step equals one pass over everything, under a limited cache too.
/// A cache or state goes on in the mode it began in, and with as many realizations.
class Spe : public PositionalEncoding {
 public:
  /// Sine or conv, with its options.
  struct Kind {
    const char* name;
    std::string size;  // for the label
    int64_t realizations;
    bool gated;
    SpeShare shared;
    Implementation implementation;
    bool keep;   // a code that is shared is kept for the pass
    bool ahead;  // and some positions at a time in generation
    /// The code's parameters [H, D, …] by name, with their first values.
    std::function<std::vector<NamedTensor>(HeadShape)> parameters = {};
    std::function<SpeCode(const Tensors& parameters, const SpeNoise&)> code = {};
  };
  /// What a call and those that continue it draw from; what layers share, by model.
  struct Draws;
  using Models = std::shared_ptr<PerModel<std::weak_ptr<Draws>>>;
  Spe(Module& parent, HeadShape shape, const Kind& kind, const Models& models);

  void apply(AttentionInputs& inputs) const override;
  int64_t encoded_dim(HeadShape) const override { return realizations(); }
  bool caches_encoded_keys() const override { return true; }
  std::string label() const override;

  /// R: no parameter depends on it, and more are closer to the mean. Layers that share draws have
  /// one. A kernel with a projection (Favor) keeps the width it was made with; others, and the
  /// softmax, take any.
  int64_t realizations() const;
  void set_realizations(int64_t realizations);

  const Tensor
      gate;  // [H, D], where gated: sigmoid(gate) is the share of the noise without positions

 protected:
  void copy_settings(const Module& from) override;

 private:
  struct Made;
  struct Keys;
  struct Memory;
  struct Pass;
  Tensor frozen_key(const char* name);
  Pass* pass_of(const AttentionInputs& inputs) const;
  Keys keys_of(const AttentionInputs& inputs) const;
  SpeCode code_of(const AttentionInputs& inputs, const Keys& keys,
                  std::shared_ptr<const Made>& made) const;

  const Kind kind_;
  const HeadShape shape_;
  std::shared_ptr<Draws> draws_;  // its own, or shared
  std::shared_ptr<Draws> first_;  // of the first layer, whose parameters the others take
  Tensor frozen_gate_;            // i64 [2]: the key of the gate's noise in evaluation
};

}  // namespace stretto::nn
