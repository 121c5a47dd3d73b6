// Rotary positional encoding (RoPE): pairs of features rotated by an angle proportional
// to the position.
//
// Reference: tests/reference/rotary.cpp, rotated(), llama3_rates(), yarn_rates()
#pragma once

#include <vector>

#include "../../core/tensor.h"
#include "side.h"

namespace stretto {

/// Which two features of a head form pair i, for d = dims: `half` pairs i with i + d/2 (GPT-NeoX,
/// LLaMA), `interleaved` pairs 2i with 2i + 1 (Su et al. 2021, GPT-J). Both are equivalent up to
/// the order of the rows of the projections.
enum class RotaryPairing { half, interleaved };

/// Options of rotate(). Pair i of a head is rotated by t / scale · base^(−2i/d) at position t.
struct RotaryOptions {
  int64_t dims = 0;     ///< Number of rotated features of a head, the first ones; even; 0: all.
  double base = 10000;  ///< Base of the frequencies.
  RotaryPairing pairing = RotaryPairing::half;  ///< Which features form a pair.
  double scale = 1;  ///< Divides positions (linear interpolation, Chen et al. 2023).
  /// Multiplies the base by ntk^(d/(d − 2)), so the wavelength of the slowest pair
  /// grows by this factor.
  double ntk = 1;
  /// One frequency per pair instead of base^(−2i/d), for example from llama3_frequencies() or
  /// yarn_frequencies(). Positions are still divided by `scale`. Empty: base^(−2i/d).
  std::vector<double> frequencies = {};
  double attention_factor = 1;  ///< Multiplies rotated features of queries and keys (YaRN).
  /// > 0: positions from here on are refused, for frequencies that hold for sequences up to this
  /// length.
  int64_t max_length = 0;
  bool xpos = false;             ///< Adds the decay of xPos (Sun et al. 2023), see rotate().
  double xpos_scale_base = 512;  ///< Positions per power of ζ_i in xPos.
};

/// Rotates pair i of row l, at position t = first_position + l, by the angle
/// t / scale · base^(−2i/d) (Su et al. 2021, eq. 15): x [B, H, L, D] → [B, H, L, D].
///
/// The product of a query and a key then depends only on the difference of their positions. With
/// xpos, pair i of a query is also multiplied by ζ_i^(t / xpos_scale_base), and pair i of a key by
/// the inverse, with ζ_i = (2i + 0.4d) / 1.4d (Sun et al. 2023). Products then decay with the
/// distance to keys before the query and grow with the distance to keys after it. Throws if the
/// factor of a position overflows x's dtype. Angles are computed in f64; bf16 is rotated in f32.
/// Differentiable any number of times.
Tensor rotate(const Tensor& x, int64_t first_position, const RotaryOptions& options = {},
              Side side = Side::query);

/// Rotates several tensors x_i [B, H_i, L, D] by the same angles, as queries and keys of
/// self-attention without xpos. On CUDA one launch rotates parts of one block (linear() of several
/// weights), in place if the caller has moved the only handles to them into `x`.
Tensors rotate(Tensors x, int64_t first_position, const RotaryOptions& options = {});

/// Settings of llama3_frequencies(); the defaults are those of LLaMA 3.1.
struct Llama3Scaling {
  int64_t dims = 0;                  ///< Number of rotated features d of a head, even.
  double base = 500000;              ///< Base of the unscaled frequencies base^(−2i/d).
  double factor = 8;                 ///< Divides the low frequencies.
  double low_frequency_factor = 1;   ///< Pairs with fewer rotations in `length` are divided.
  double high_frequency_factor = 4;  ///< Pairs with more rotations in `length` stay unchanged.
  double length = 8192;              ///< Context length of the original training.
};
/// Returns the frequencies of LLaMA 3.1 for long contexts (Hugging Face's "rope_type": "llama3").
///
/// Frequencies with fewer than low_frequency_factor rotations in `length` are divided by
/// `factor`. Frequencies with more than high_frequency_factor rotations stay unchanged. Frequencies
/// between are interpolated.
std::vector<double> llama3_frequencies(const Llama3Scaling& scaling);

/// Settings of yarn_frequencies().
struct YarnScaling {
  int64_t dims = 0;       ///< Number of rotated features d of a head, even.
  double base = 10000;    ///< Base of the unscaled frequencies base^(−2i/d).
  double factor = 1;      ///< Divides the low frequencies.
  double length = 2048;   ///< Context length of the original training.
  double beta_fast = 32;  ///< Pairs with more rotations in `length` stay unchanged.
  double beta_slow = 1;   ///< Pairs with fewer rotations in `length` are divided.
  bool truncate = true;   ///< Rounds both ends of the interpolation outward to whole pairs.
};
/// Returns the frequencies of YaRN (Peng et al. 2024, §3.2). As in llama3_frequencies(), but the
/// interpolation is linear in the index of the pair, between the pairs with beta_fast and beta_slow
/// rotations in `length`.
std::vector<double> yarn_frequencies(const YarnScaling& scaling);
/// Returns YaRN's attention_factor, 0.1 · ln(factor) + 1, or 1 for factor ≤ 1 (eq. 22). A model's
/// configuration may override it.
double yarn_attention_factor(double factor);

/// Returns the number of rotated features of a head with d_key features. Throws an error of `op` if
/// the options do not fit a head of this size.
int64_t rotary_dims(const char* op, const RotaryOptions& options, int64_t d_key);

}  // namespace stretto
