// Positions whose bias is no function of the lag alone, added to the scores as a whole matrix:
// FIRE, and windows of two dimensions.
//
// Reference: tests/reference/dense_bias.cpp, fire_bias(), window_bias(), grid_logits()
#pragma once

#include "../linear.h"
#include "positional_encoding.h"

namespace stretto::nn {

struct FireOptions {
  int64_t hidden = 32;
  double threshold = 512;
};

/// Functional interpolation for relative positions (Li et al. 2024):
///   b_h(i, j) = MLP(x),   x = log(|c·(i − j)| + 1) / (log(|c·max(i, |m·L0|)| + 1) + 1e-6)
/// with the key positions i of the query and j of the key, both from 0, and MLP 1 → hidden → H with
/// a ReLU. c and m (`multiplier`) are learned, L0 (`threshold`) is not. The result [H, M, N] is not
/// scaled. In a call that is not causal the future counts like the past. Positions are counted from
/// AttentionInputs::first_position, so that a limited cache and a memory change nothing.
class Fire : public PositionalEncoding {
 public:
  using Options = FireOptions;
  Fire(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  bool is_dense() const override { return true; }
  std::string label() const override;

  const Options options;
  const Tensor c, multiplier;  // [1], starting at 0.1 and 1
  Linear linear1{*this, "linear1", {1, options.hidden}};
  Linear linear2;
};

inline MakePositionalEncoding fire(Fire::Options options = {}) {
  return positional_encoding<Fire>(options);
}

struct WindowBiasOptions {
  int64_t height = 0, width = 0;
};

/// Relative position bias of Swin's windows (Liu et al. 2021, eq. 4): tokens are the cells of a
/// height × width window, row by row. `table` [(2·height − 1)·(2·width − 1), H] starts normal,
/// cut off at ±2, with standard deviation 0.02; row (dy + height − 1)·(2·width − 1) + dx + width −
/// 1 is for a query dy rows below and dx columns to the right of the key. Self-attention of
/// height·width tokens only.
class WindowBias : public PositionalEncoding {
 public:
  using Options = WindowBiasOptions;
  WindowBias(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor table;
};

inline MakePositionalEncoding window_bias(WindowBias::Options options) {
  return positional_encoding<WindowBias>(options);
}

struct GridRelativeOptions {
  int64_t height = 0, width = 0;
};

/// Relative attention in two dimensions (Bello et al. 2019, eq. 3 and 4; Tensor2Tensor): tokens are
/// the cells of a height × width image, row by row. Query (y, x) adds q·height_table[y' − y] +
/// q·width_table[x' − x], before scaling, to the score of key (y', x'). Tables [H, 2·height − 1, D]
/// and [H, 2·width − 1, D] with distance 0 in the middle start normal with standard deviation D^−½.
/// Self-attention of height·width tokens only.
class GridRelative : public PositionalEncoding {
 public:
  using Options = GridRelativeOptions;
  GridRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;
  const Tensor height_table, width_table;
};

inline MakePositionalEncoding grid_relative(GridRelative::Options options) {
  return positional_encoding<GridRelative>(options);
}

}  // namespace stretto::nn
