// FIRE: a bias of the scores that a small network computes from the positions of query and key.
//
// Reference: tests/reference/dense_bias.cpp, fire_bias()
#pragma once

#include "../linear.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// Options of Fire.
struct FireOptions {
  int64_t hidden = 32;     ///< Width of the MLP's hidden layer, at least 1.
  double threshold = 512;  ///< L0 ≥ 0: |m·L0| is the lower limit of i in the denominator of x.
};

/// FIRE, functional interpolation for relative positions (Li et al. 2024):
///   b_h(i, j) = MLP(x),   x = log(|c·(i − j)| + 1) / (log(|c·max(i, |m·L0|)| + 1) + 1e-6)
/// with i the position of the query and j that of the key, both from 0, and MLP 1 → hidden → H with
/// a ReLU. c and m (`multiplier`) are learned, L0 (`threshold`) is fixed. The bias [H, M, N] is not
/// scaled. Without a causal mask, keys after the query also get a bias, by their distance. The
/// first key is at position AttentionInputs::first_position, so that the bias is the same under a
/// limited cache or a memory.
class Fire : public PositionalEncoding {
 public:
  using Options = FireOptions;  ///< Options of the constructor.
  /// Registers c = 0.1, multiplier = 1 and the MLP. Throws if an option is out of its range.
  Fire(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options&) { return {.scores = true, .dense = true}; }
  std::string label() const override;

  const Options options;                                  ///< As passed to the constructor.
  const Tensor c;                                         ///< Scale of distances [1].
  const Tensor multiplier;                                ///< Scale m of the threshold [1].
  Linear linear1{*this, "linear1", {1, options.hidden}};  ///< MLP, 1 → hidden.
  Linear linear2;                                         ///< MLP, hidden → H.
};

/// Returns a factory of Fire.
inline MakePositionalEncoding fire(Fire::Options options = {}) {
  return positional_encoding<Fire>(options);
}

}  // namespace stretto::nn
