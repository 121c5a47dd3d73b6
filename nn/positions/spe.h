// Stochastic positional encoding (SPE) for MultiHeadAttention (Liutkus et al., "Relative Positional
// Encoding for Transformers with Linear Complexity", ICML 2021; ops/spe/spe.h): relative positions
// for linear attention, and for softmax too. A code (SpeCode) is the pair of random processes, one
// for queries and one for keys, with which queries and keys are multiplied.
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

/// What the layers of one model share (one model: see PerModel). Gates and their noise
/// are always per layer.
enum class SpeShare {
  nothing,     ///< Each layer has its own parameters and noise.
  parameters,  ///< The parameters of the code (the published JAX program for conv).
  draws        ///< Parameters and noise: one code per forward pass (the PyTorch programs).
};

/// Options of sine_spe().
struct SineSpeOptions {
  int64_t realizations = 64;          ///< R, the dimension of encoded queries and keys.
  int64_t sines = 10;                 ///< K, the number of sines per template.
  bool gated = true;                  ///< Learns a share of the noise without positions.
  SpeShare shared = SpeShare::draws;  ///< What layers share.
  Implementation implementation = Implementation::automatic;  ///< Implementation of spe().
};

/// Options of conv_spe().
struct ConvSpeOptions {
  int64_t realizations = 64;          ///< R, the dimension of encoded queries and keys.
  Shape taps = {128};                 ///< P, the filter length; {P1, P2} in a plane.
  Shape shape = {};                   ///< {h, w} of the plane; empty in one dimension.
  bool gated = true;                  ///< Learns a share of the noise without positions.
  SpeShare shared = SpeShare::draws;  ///< What layers share.
  Implementation implementation = Implementation::automatic;  ///< Implementation of spe().
};

/// Returns a factory of sineSPE, with parameters `freqs`, `offsets` and `gains` [H, D, K]
/// (SpeCode::sine). They start as in the authors' code: all N(0, 1), then freqs − 4, and the gains
/// of each dimension divided by half the square root of their norm.
MakePositionalEncoding sine_spe(SineSpeOptions options = {});

/// Returns a factory of convSPE, with parameters `filter_q` and `filter_k` [H, D, P…]
/// (SpeCode::conv), which start uniform in [0, √(2/P)), P = P1·P2 in a plane. The template is 0 for
/// distances of P and more, in both directions.
MakePositionalEncoding conv_spe(ConvSpeOptions options = {});

/// The encoding that sine_spe() and conv_spe() construct. It replaces q and k by q̂ and k̂ of
/// dimension R per head (spe(), ops/spe/spe.h). For query position m and key position n their dot
/// product has the mean √(R/D) Σ_d q_d k_d P_d(m − n). An explicit scale of the scores is
/// multiplied by √(D/R); the default, 1/√R, needs no change.
///
/// The numbers of queries and keys may differ, as in spe(); n_kv_heads must equal n_heads. In
/// training every call draws new noise, except that a call that continues a cache or a state reuses
/// the noise that the cache began with. With SpeShare::draws all layers of a forward pass
/// (ForwardContext) share the noise. In evaluation the noise is fixed: it is drawn at construction
/// and saved in checkpoints. Results are then reproducible, and generation step by step gives the
/// same result as one call for all tokens, under a limited cache too. A cache or state must be
/// continued in the mode (training or evaluation) and with the number of realizations with which it
/// began.
class Spe : public PositionalEncoding {
 public:
  /// The description of a code: sine or conv, with its options.
  struct Kind {
    const char* name;               ///< Name in label() and in errors.
    std::string size;               ///< Size of the code, for label().
    int64_t realizations;           ///< R.
    bool gated;                     ///< True if there is a gate.
    SpeShare shared;                ///< What layers share.
    Implementation implementation;  ///< Implementation of spe().
    bool keep;                      ///< Computes a shared code once per forward pass.
    bool ahead;                     ///< Computes codes for several positions at once in generation.
    /// Returns the code's parameters [H, D, …] by name, with their initial values.
    std::function<std::vector<NamedTensor>(HeadShape)> parameters = {};
    /// Returns the code of these parameters and this noise.
    std::function<SpeCode(const Tensors& parameters, const SpeNoise&)> code = {};
  };
  /// The parameters of a code and the key of its noise, of one layer or shared by several.
  struct Draws;
  /// The Draws that layers share, per model; null if they share nothing.
  using Models = std::shared_ptr<PerModel<std::weak_ptr<Draws>>>;
  /// Registers the parameters, unless they are shared, and the gate. Throws if layers that share
  /// have different HeadShapes.
  Spe(Module& parent, HeadShape shape, const Kind& kind, const Models& models);

  /// Returns the traits of all codes.
  static PositionTraits traits(const Kind&, const Models&) { return {.caches_encoded_keys = true}; }
  void apply(AttentionInputs& inputs) const override;
  int64_t encoded_dim(HeadShape) const override { return realizations(); }
  std::string label() const override;

  /// Returns R. More realizations bring the products closer to their mean; no parameter depends on
  /// R. Layers that share noise have the same R.
  int64_t realizations() const;
  /// Sets R, at least 1. Kernels with a projection (Favor) accept only the R that they were
  /// constructed with; other kernels, softmax included, accept any.
  void set_realizations(int64_t realizations);

  /// [H, D]: sigmoid(gate) is the share of the noise without positions. Undefined without a gate.
  const Tensor gate;

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
  std::shared_ptr<Draws> draws_;  // of this layer, or shared
  std::shared_ptr<Draws> first_;  // of the model's first layer, whose parameters the others share
  Tensor frozen_gate_;            // i64 [2]: the key of the gate's noise in evaluation
};

}  // namespace stretto::nn
