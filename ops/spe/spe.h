// Stochastic positional encoding: relative positions for attention that never implementations its
// scores (Liutkus et al., "Relative Positional Encoding for Transformers with Linear Complexity",
// ICML 2021; equations as numbered there).
//
// Queries and keys are multiplied by random codes of their positions, drawn so that codes of
// dimension d at query position m and key position n have the covariance P_d(m − n), the template:
//
//   q̂_i[r] = Σ_d q_i[d] Q_d[m, r] / (RD)^¼,   k̂_j[r] = Σ_d k_j[d] K_d[n, r] / (RD)^¼      (16, 17)
//   E[q̂_i·k̂_j] = √(R/D) Σ_d q_i[d] k_j[d] P_d(m − n)
//
// so that what follows sees features of R numbers, whose products divided by √R are, in
// expectation, the logits of a softmax with relative positions.
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code(), gated_code(), encoded()
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "../../core/random.h"
#include "../../core/tensor.h"
#include "../implementation.h"

namespace stretto {

/// The standard normal draws of a code: a key, from which they are drawn again whenever they are
/// needed, and the number R of realizations; or a given tensor, as each code describes it.
///
/// From a key, draws depend on the key, R and their place in the code, not on the length that is
/// asked for: position p has the same code in every call. They are f32 numbers in every dtype.
struct SpeNoise {
  SpeNoise(RandomKey key, int64_t realizations);
  SpeNoise(Tensor given);
  RandomKey key;
  int64_t realizations = 0;  // R for a key; that of a tensor is in its shape
  Tensor given;              // undefined for a key
};

struct SpeSource;  // ops/spe/spe_source.h

/// One code: for each head and dimension the processes Q_d and K_d. A handle, cheap to copy.
///
/// Parameters have any one floating dtype and are converted to that of the queries (f32 for bf16).
class SpeCode {
 public:
  /// sineSPE (18–21): freqs, offsets, gains [H, D, K] without bounds give f = sigmoid(freqs)/2
  /// cycles per position, θ = offsets, λ = softplus(gains), and
  ///
  ///   P_d(τ) = 1/(2K) Σ_k λ² cos(2πfτ + θ)
  ///
  /// Given noise z is [H, D, 2K, R]. (18) lacks the 1/(2K) that (20) and (21) bring.
  static SpeCode sine(Tensor freqs, Tensor offsets, Tensor gains, SpeNoise noise);

  /// convSPE (22): white noise through filters [H, D, P], Q[m] = Σ_p filter_q[p] z[m − p + P − 1],
  /// and K with filter_k from the same noise:
  ///
  ///   P_d(τ) = Σ_p filter_q[p] filter_k[p − τ],  exactly 0 from |τ| = P on
  ///
  /// Given noise z is [H, D, R, n], n ≥ L + P − 1 for L positions. In two dimensions filters are
  /// [H, D, P1, P2], `shape` is {h, w}, position y·w + x stands at row y, column x, and given noise
  /// is [H, D, R, n1, n2], n1 ≥ h + P1 − 1, n2 ≥ w + P2 − 1. Filters may be longer than sequences.
  static SpeCode conv(Tensor filter_q, Tensor filter_k, SpeNoise noise, Shape shape = {});

  /// The same code with its values at positions first … first + length − 1 computed once and kept,
  /// for layers that share a draw, or for calls that go on from position to position: it takes
  /// H·D·length·R numbers for queries and as many for keys, and saves time in every spe() but the
  /// first.
  ///
  /// Gradients stay exact, and there are none of the values kept: the backward of each spe() leaves
  /// its operands (q, k and the gradients that arrived) behind, and after the last one of a pass
  /// the parameters' gradients are summed from them. So it costs no memory before backward.
  /// Form::composed computes the code anew, as does CUDA, but for up to 64 positions of a filter.
  SpeCode kept(int64_t length, int64_t first = 0) const;
  /// Of a kept code: whether x may use it too, as one backward pass goes through all that do: it
  /// has no gradient, or x was computed from it.
  bool keeps_for(const Tensor& x) const;

  int64_t heads() const;
  int64_t d() const;
  int64_t realizations() const;

  SpeCode() = default;
  /// For the ops in this folder.
  explicit SpeCode(std::shared_ptr<const SpeSource> source) : source_(std::move(source)) {}
  const std::shared_ptr<const SpeSource>& source() const;

 private:
  std::shared_ptr<const SpeSource> source_;
};

/// The gate (23–25): of the template, (1 − δ) P_d + δ with δ = sigmoid(gate), gate [H, D]. Its
/// noise has no positions, given [H, D, R].
struct SpeGate {
  Tensor gate;
  SpeNoise noise;
};

struct SpeOptions {
  std::optional<SpeGate> gate = {};
  int64_t first = 0;  // position of the first key
  Implementation implementation = Implementation::automatic;
};

struct SpePair {
  Tensor q, k;
};

/// q [B, H, M, D], k [B, H, N, D] → q̂ [B, H, M, R], k̂ [B, H, N, R], all of one floating dtype (in
/// bf16 codes, gates and sums are f32, and results and gradients are rounded once).
///
/// Key j stands at position first + j and query i at first + i + N − M, so the last query stands
/// with the last key; without keys (N = 0) query i stands at first + i. No position is below 0.
/// The batch shares one draw. A NaN in q or k stays in its row.
///
/// Form::composed makes the whole code, H·L·D·R numbers for queries and as many for keys.
/// Form::fused makes it in tiles that stay in the cache, forward and again backward, and can be
/// differentiated any number of times: on the CPU, and on CUDA in f32 and bf16, if the noise of a
/// filter is not given (long filters there make codes of some dimensions at a time in memory).
SpePair spe(const Tensor& q, const Tensor& k, const SpeCode& code, const SpeOptions& options = {});

/// P_d(τ) for τ = −(n − 1) … n − 1, query position minus key position → [H, D, 2n − 1]; with a gate
/// [H, D] the gated one. For codes of one dimension; differentiable.
Tensor spe_template(const SpeCode& code, int64_t n, const Tensor& gate = {});

}  // namespace stretto
