// Positions that are learned tables over relative positions.
#pragma once

#include "nn/position.h"

namespace stretto::nn {

/// Relative attention of the Music Transformer (Huang et al. 2018, §3.4): q_i · E[r] is added to
/// the score of the key at relative position r before scaling. `table` is [H, R, D] or, shared by
/// the heads, [1, R, D], starting normal with standard deviation D^−½; R = length for the past
/// alone (last row = the query's own position), 2·length − 1 for both sides.
class MusicRelative : public Position {
 public:
  struct Options {
    int64_t length = 0;  // distances 0 … length − 1 have a row
    bool shared_by_heads = false;
    bool two_sided = false;  // for attention that is not causal
    Beyond beyond = Beyond::zero;
  };
  MusicRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionCall& call) const override;
  std::string label() const override;

  const Options options;
  Tensor table;
};

inline MakePosition music_relative(MusicRelative::Options options) {
  return position<MusicRelative>(options);
}

}  // namespace stretto::nn
