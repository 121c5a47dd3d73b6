// Rotary positions: pairs of numbers turned by an angle that grows with the position.
//
// Reference: tests/reference/rotary.cpp, rotated(), llama3_rates(), yarn_rates()
#pragma once

#include <vector>

#include "../../core/tensor.h"
#include "side.h"

namespace stretto {

/// Which two numbers of a head turn together, d = dims: i with i + d/2 (GPT-NeoX, LLaMA) or 2i with
/// 2i + 1 (Su et al. 2021, GPT-J). The same up to the order of the rows of the projections.
enum class RotaryPairing { half, interleaved };

struct RotaryOptions {
  int64_t dims = 0;  // the first `dims` numbers of a head turn, an even number; 0: all
  double base = 10000;
  RotaryPairing pairing = RotaryPairing::half;
  double scale = 1;  // positions are divided by it (linear interpolation, Chen et al. 2023)
  double ntk = 1;  // base is multiplied by ntk^(d/(d − 2)), which stretches the slowest pair by it
  /// One for each pair, in place of base^(−2i/d): llama3_frequencies and yarn_frequencies make
  /// some. Positions are still divided by `scale`.
  std::vector<double> frequencies = {};
  double attention_factor = 1;  // what turns is multiplied by it, queries and keys (YaRN)
  bool xpos = false;
  double xpos_scale_base = 512;
};

/// x [B, H, L, D], row l at position t = first_position + l → the same, with pair i turned by the
/// angle t / scale · base^(−2i/d) (Su et al. 2021, eq. 15). The product of a query and a key then
/// depends on the difference of their positions only. With xpos pair i of a query is also
/// multiplied by ζ_i^(t / xpos_scale_base), of a key by its inverse, ζ_i = (2i + 0.4d) / 1.4d (Sun
/// et al. 2023): products fall with the distance into the past, and grow into the future. Positions
/// so far from 0 that x's dtype cannot hold their factor are an error. Angles are computed in f64,
/// bf16 turns in f32. Differentiable any number of times.
Tensor rotate(const Tensor& x, int64_t first_position, const RotaryOptions& options = {},
              Side side = Side::query);

/// What the models of long contexts make of the frequencies base^(−2i/d) of a head's d = dims
/// numbers; `length` is the context that they were trained on before.
struct Llama3Scaling {
  int64_t dims = 0;
  double base = 500000;
  double factor = 8;
  double low_frequency_factor = 1, high_frequency_factor = 4;
  double length = 8192;
};
/// LLaMA 3.1: frequencies that turn less than low_frequency_factor times in `length` are divided by
/// `factor`, those that turn more than high_frequency_factor times stay, and between them both are
/// blended (Hugging Face's "rope_type": "llama3").
std::vector<double> llama3_frequencies(const Llama3Scaling& scaling);

struct YarnScaling {
  int64_t dims = 0;
  double base = 10000;
  double factor = 1;
  double length = 2048;
  double beta_fast = 32, beta_slow = 1;
  bool truncate = true;  // the bounds of the blend to whole pairs
};
/// YaRN (Peng et al. 2024, §3.2): as above, the blend being linear in the pair's number between
/// those that turn beta_fast and beta_slow times in `length`.
std::vector<double> yarn_frequencies(const YarnScaling& scaling);
/// 0.1 · ln(factor) + 1, and 1 where factor is at most 1: the attention_factor of YaRN (eq. 22),
/// unless a model's configuration has its own.
double yarn_attention_factor(double factor);

/// How many of the d_key numbers of a head turn. Throws, naming `op`, for options that no head of
/// this size has.
int64_t rotary_dims(const char* op, const RotaryOptions& options, int64_t d_key);

}  // namespace stretto
