// Positions that turn queries and keys: RoPE and xPos.
//
// Reference: tests/reference/rotary.cpp, rotated(), rotary_scores()
#pragma once

#include <utility>

#include "../../ops/attention/rotary.h"
#include "positional_encoding.h"

namespace stretto::nn {

/// Turns the queries and keys of a inputs. No parameters. A cache keeps turned keys. xPos is for
/// causal calls of kernels that act on scores, and counts positions from the middle of the keys, so
/// that its factors stay near 1: keys of a cache are turned anew in each inputs.
class Rotary : public PositionalEncoding {
 public:
  using Options = RotaryOptions;
  Rotary(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  bool caches_encoded_keys() const override { return !options.xpos; }
  std::string label() const override;

  const Options options;
};

inline MakePositionalEncoding rotary(RotaryOptions options = {}) {
  return positional_encoding<Rotary>(std::move(options));
}

}  // namespace stretto::nn
