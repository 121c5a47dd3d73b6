// Stochastic positional encoding (SPE): relative positions for attention without a matrix of scores
// (Liutkus et al., "Relative Positional Encoding for Transformers with Linear Complexity", ICML
// 2021; equation numbers are from this paper).
//
// Queries and keys are multiplied by random numbers that depend on their positions. These numbers
// are called a code: Q_d[m, r] for feature d and query position m, K_d[n, r] for key position n,
// with r < R realizations. Their covariance is P_d(m − n), the template:
//
//   q̂_i[r] = Σ_d q_i[d] Q_d[m, r] / (RD)^¼,   k̂_j[r] = Σ_d k_j[d] K_d[n, r] / (RD)^¼    (16, 17)
//   E[q̂_i·k̂_j] = √(R/D) Σ_d q_i[d] k_j[d] P_d(m − n)
//
// Attention then gets q̂ and k̂, with R features per query and key. Their products divided by √R
// are, in expectation, the logits of a softmax with relative positions.
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code(), gated_code(), encoded()
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "../../core/formulas/implementation.h"
#include "../../core/random.h"
#include "../../core/tensor.h"

namespace stretto {

/// The standard normal noise of a code: a random key and the number R of realizations, or a given
/// tensor. SpeCode::sine and SpeCode::conv describe the shape of given noise.
///
/// Noise of a key is generated again whenever it is needed. It depends on the key, on R and on the
/// position, but not on the length, so position p has the same code in every call. Noise of a key
/// is f32 for every dtype of q and k.
struct SpeNoise {
  /// Uses noise of a key, R ≥ 1 realizations.
  SpeNoise(RandomKey key, int64_t realizations);
  /// Uses a fixed floating-point tensor of noise, which gets no gradient.
  SpeNoise(Tensor given);
  RandomKey key;             ///< Key of the noise, unless it is given.
  int64_t realizations = 0;  ///< R for a key; 0 for given noise, whose shape includes R.
  Tensor given;              ///< Given noise; undefined for a key.
};

struct SpeSource;  // ops/spe/spe_source.h

/// A code: the random numbers Q_d and K_d of each head and feature. A handle, cheap to copy.
///
/// All parameters have the same floating-point dtype and are converted to the dtype of the queries
/// (f32 for bf16).
class SpeCode {
 public:
  /// Returns a code of sineSPE (18–21). With unconstrained freqs, offsets and gains [H, D, K],
  /// the frequencies are f = sigmoid(freqs)/2 cycles per position, the phases θ = offsets, and
  /// λ = softplus(gains):
  ///
  ///   P_d(τ) = 1/(2K) Σ_k λ² cos(2πfτ + θ)
  ///
  /// Given noise is [H, D, 2K, R]. The factor 1/(2K) of (20) and (21) is missing in (18).
  static SpeCode sine(Tensor freqs, Tensor offsets, Tensor gains, SpeNoise noise);

  /// Returns a code of convSPE (22): white noise z convolved with filters [H, D, P], Q[m] = Σ_p
  /// filter_q[p] z[m − p + P − 1], and K with filter_k from the same noise:
  ///
  ///   P_d(τ) = Σ_p filter_q[p] filter_k[p − τ],  exactly 0 for |τ| ≥ P
  ///
  /// Given noise is [H, D, R, n], n ≥ L + P − 1 for L positions. In two dimensions the filters are
  /// [H, D, P1, P2], `shape` is {h, w}, position y·w + x is row y, column x, and given noise is
  /// [H, D, R, n1, n2], n1 ≥ h + P1 − 1, n2 ≥ w + P2 − 1. Filters may be longer than sequences.
  static SpeCode conv(Tensor filter_q, Tensor filter_k, SpeNoise noise, Shape shape = {});

  /// Returns the same code with its values at positions first … first + length − 1 computed once
  /// and cached, for layers that share noise or for generation. The cache has H·D·length·R elements
  /// each for queries and keys, and saves time in every spe() except the first.
  ///
  /// Gradients stay exact, and the cached values have no gradient tensors. In a backward pass, the
  /// backward closure of each spe() stores q, k and the incoming gradients; after the last of these
  /// closures, the gradients of the parameters are computed from them. No additional memory is
  /// needed before the backward pass. Implementation::composed does not use the cache. CUDA uses it
  /// only for convSPE and at most min(64, P) positions.
  SpeCode kept(int64_t length, int64_t first = 0) const;
  /// True if x may use this cached code so that one backward pass covers all its uses: if the code
  /// has no gradient, or x was computed from the code. True if the code is not cached.
  bool keeps_for(const Tensor& x) const;

  /// Returns the number of heads H.
  int64_t heads() const;
  /// Returns the head dimension D.
  int64_t d() const;
  /// Returns the number of realizations R.
  int64_t realizations() const;

  SpeCode() = default;
  /// Makes a code from its implementation; for the ops in this directory.
  explicit SpeCode(std::shared_ptr<const SpeSource> source) : source_(std::move(source)) {}
  /// Returns the implementation of the code. Throws for an empty code.
  const std::shared_ptr<const SpeSource>& source() const;

 private:
  std::shared_ptr<const SpeSource> source_;
};

/// The gate (23–25): changes the template to (1 − δ) P_d + δ with δ = sigmoid(gate).
struct SpeGate {
  Tensor gate;     ///< [H, D], before the sigmoid.
  SpeNoise noise;  ///< Noise that is the same at all positions; given noise is [H, D, R].
};

/// Options of spe().
struct SpeOptions {
  std::optional<SpeGate> gate = {};                           ///< Default: no gate.
  int64_t first = 0;                                          ///< Position of the first key.
  Implementation implementation = Implementation::automatic;  ///< Composed or fused.
};

/// The result of spe().
struct SpePair {
  Tensor q;  ///< Encoded queries q̂ [B, H, M, R].
  Tensor k;  ///< Encoded keys k̂ [B, H, N, R].
};

/// Encodes queries and keys: q [B, H, M, D], k [B, H, N, D] → q̂ [B, H, M, R], k̂ [B, H, N, R],
/// all of the same floating-point dtype. In bf16, codes, gates and sums are f32, and results and
/// gradients are rounded once.
///
/// Key j has position first + j and query i has position first + i + N − M, so the last query and
/// the last key have the same position; without keys (N = 0) query i has position first + i. Throws
/// if a position is negative. The batch shares the noise. A NaN in q or k stays in its row.
///
/// Implementation::composed stores the whole code, H·L·D·R elements each for queries and keys.
/// Implementation::fused computes the code in tiles that stay in the cache, in the forward pass and
/// again in the backward pass, and can be differentiated any number of times. It exists on the CPU,
/// and on CUDA in f32 and bf16 unless the noise of a filter is given. On CUDA, long filters store
/// the codes of some features at a time.
SpePair spe(const Tensor& q, const Tensor& k, const SpeCode& code, const SpeOptions& options = {});

/// Returns the template P_d(τ) for τ = −(n − 1) … n − 1 (query position minus key
/// position) → [H, D, 2n − 1]; with a gate [H, D], the gated template. Only for codes of
/// one dimension. Differentiable.
Tensor spe_template(const SpeCode& code, int64_t n, const Tensor& gate = {});

}  // namespace stretto
