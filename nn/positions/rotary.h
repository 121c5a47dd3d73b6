// Positions that turn queries and keys: RoPE and xPos.
//
// Reference: tests/reference/rotary.cpp, rotated(), rotary_scores()
#pragma once

#include <utility>

#include "../../ops/attention/rotary.h"
#include "position.h"

namespace stretto::nn {

/// Turns the queries and keys of a call. No parameters. A cache keeps turned keys. xPos is for
/// causal calls of kernels that act on scores, and counts positions from the middle of the keys, so
/// that its factors stay near 1: keys of a cache are turned anew in each call.
class Rotary : public Position {
 public:
  using Options = RotaryOptions;
  Rotary(Module& parent, HeadShape shape, Options options);
  void apply(AttentionCall& call) const override;
  bool encodes_keys() const override { return !options.xpos; }
  std::string label() const override;

  const Options options;
};

inline MakePosition rotary(RotaryOptions options = {}) {
  return position<Rotary>(std::move(options));
}

}  // namespace stretto::nn
