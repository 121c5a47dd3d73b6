// Muon: momentum whose matrices are orthogonalized before each step.
//
//     nn::Muon optimizer(nn::parameter_groups(model, {{"*layers.*.weight", {}},
//                                                     {"*", {.use_muon = false}}}),
//                        {.lr = 1e-3});
#pragma once

#include <string>
#include <vector>

#include "optim.h"

namespace stretto::nn {

/// The factor of Muon's learning rate for a matrix [out, in], as `adjust_lr_fn` in PyTorch, whose
/// default is `original`; the default of Muon is match_rms_adamw.
enum class MuonScale {
  /// 0.2 · √max(out, in): updates are as large as those of AdamW, so that both can share a learning
  /// rate and a weight decay (Liu et al., "Muon is scalable for LLM training", 2025).
  match_rms_adamw,
  original  ///< √max(1, out / in) (Jordan et al., 2024).
};

/// The iteration that orthogonalizes the updates of Muon.
enum class MuonIteration {
  newton_schulz,  ///< newton_schulz().
  polar_express   ///< polar_express(), which is closer to orthogonal.
};

/// Options of Muon. beta1, beta2 and eps are those of AdamW, for the other parameters.
struct MuonOptions {
  std::optional<double> lr = {};                 ///< Learning rate; by default 1e-3.
  double momentum = 0.95;                        ///< Decay μ of the mean of gradients, in [0, 1).
  bool nesterov = true;                          ///< Nesterov's momentum.
  double weight_decay = 0.1;                     ///< Decoupled weight decay λ, of all parameters.
  MuonScale scale = MuonScale::match_rms_adamw;  ///< Factor of the learning rate.
  MuonIteration iteration = MuonIteration::newton_schulz;  ///< Orthogonalization of updates.
  /// If set: the decay β, in [0, 1), of a running mean v_i of the squares of each row o_i of the
  /// orthogonalized updates (Li et al., "NorMuon", 2025, where β is 0.95; rows are output features).
  /// Each row is divided by the root of its mean, and the matrix o then scaled to the norm that it
  /// had: v_i ← β·v_i + (1 − β)·mean(o_i²), o'_i = o_i / (√v_i + 1e-10), o ← o' · ‖o‖ / (‖o'‖ + 1e-10).
  std::optional<double> row_variance = {};
  /// Decays only the elements w of a matrix with d · w ≥ 0, where −d is the direction of the update
  /// (Chen et al., "Cautious weight decay", 2025).
  bool cautious_decay = false;
  double beta1 = 0.9;   ///< AdamW's decay β₁ of the mean of gradients, in [0, 1).
  double beta2 = 0.95;  ///< AdamW's decay β₂ of the mean of squared gradients, in [0, 1).
  double eps = 1e-8;    ///< AdamW's term added to √v̂.
};

/// Returns the nearly orthogonal matrix U·S·Vᵀ of a matrix x = U·Σ·Vᵀ by five steps of a quintic
/// Newton–Schulz iteration (Jordan et al., "Muon: an optimizer for hidden layers in neural
/// networks", 2024): x is divided by its Frobenius norm (at least 1e-7), then A = x·xᵀ and
/// x ← a·x + (b·A + c·A²)·x with (a, b, c) = (3.4445, −4.7750, 2.0315). Singular values in S are
/// 0.68 to 1.21 if those in Σ are at least 0.0016 of the norm; smaller ones grow by a factor of
/// about 480. Products are in the dtype of x; bf16 products are summed in f32. Not differentiable.
Tensor newton_schulz(const Tensor& x);

/// Returns the nearly orthogonal matrix U·S·Vᵀ by five steps of Polar Express (Amsel et al., "The
/// Polar Express: optimal matrix sign methods and their application to the Muon algorithm", 2025), with
/// the coefficients of modded-nanogpt and nanochat: x is divided by 1.02 · ‖x‖ + 1e-6, and each step
/// has its own (a, b, c). Singular values in S are 0.84 to 1.15 if those in Σ are at least 0.001 of
/// the norm.
Tensor polar_express(const Tensor& x);

/// Muon for 2-d weights of groups with `use_muon`, AdamW for all other parameters: with one
/// optimizer, one schedule and one checkpoint serve both. Meant for the weights of linear layers;
/// embeddings, tables and output layers are better in groups with use_muon = false.
///
/// m ← μ·m + (1 − μ)·g, w ← (1 − lr·λ)·w − lr·scale·iteration(u), where u = (1 − μ)·g + μ·m
/// with Nesterov's momentum, otherwise m. The iteration is computed in the dtype of the weight,
/// all else in f32 (f64 for f64 weights). A step needs whole matrices:
/// TrainerOptions::shard_optimizer throws Error.
class Muon : public Adam {
 public:
  using Options = MuonOptions;  ///< Options of the constructor.
  /// One group of parameters.
  Muon(Tensors parameters, Options options);
  /// Several groups of parameters.
  Muon(std::vector<ParameterGroup> groups, Options options);

  const char* name() const override { return "Muon"; }
  std::vector<std::string> slots(size_t i) const override;
  /// With MuonOptions::row_variance: v has the shape [rows, 1].
  Shape slot_shape(const std::string& name, const Shape& parameter) const override;
  const Options options;  ///< The options of the constructor.

 private:
  void update(const std::vector<Update>& all) const override;
  bool is_elementwise() const override { return false; }

  std::vector<bool> is_matrix_;  // for each parameter: updated by Muon
};

}  // namespace stretto::nn
