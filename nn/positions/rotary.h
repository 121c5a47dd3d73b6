// Encodings that rotate queries and keys: RoPE and xPos.
//
// Reference: tests/reference/rotary.cpp, rotated(), rotary_scores()
#pragma once

#include <utility>

#include "../../ops/attention/rotary.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// RoPE: rotates the queries and keys by their positions (ops/attention/rotary.h). No parameters. A
/// cache stores rotated keys.
///
/// xPos requires a causal mask and a kernel that acts on scores. It counts positions from the
/// middle of the keys, so that its factors stay near 1; cached keys are therefore stored unrotated
/// and rotated again in each call.
class Rotary : public PositionalEncoding {
 public:
  using Options = RotaryOptions;  ///< Options of the constructor.
  /// Registers the encoding. Throws if the options do not fit a head of dimension D.
  Rotary(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& o) {
    return {.bidirectional = !o.xpos,  // its factors grow for keys after the query
            .scores = o.xpos,  // features would depend on the position where its factors are 1
            .multiple = o.dims > 0 ? 1 : 2,
            .relative = true,
            .caches_encoded_keys = !o.xpos};
  }
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
};

/// Returns a factory of Rotary.
inline MakePositionalEncoding rotary(RotaryOptions options = {}) {
  return positional_encoding<Rotary>(std::move(options));
}

}  // namespace stretto::nn
