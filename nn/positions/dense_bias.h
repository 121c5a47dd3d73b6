// Encodings whose bias is not a function of the relative position alone, added to the scores as a
// dense matrix: FIRE, and relative positions in two dimensions.
//
// Reference: tests/reference/dense_bias.cpp, fire_bias(), window_bias(), grid_logits()
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
  bool is_dense() const override { return true; }
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

/// Options of WindowBias.
struct WindowBiasOptions {
  int64_t height = 0;  ///< Rows of the window, at least 1.
  int64_t width = 0;   ///< Columns of the window, at least 1.
};

/// Relative position bias of the Swin Transformer (Liu et al. 2021, eq. 4): tokens are the cells of
/// a height × width window in row-major order. Row (dy + height − 1)·(2·width − 1) + dx + width − 1
/// of `table` is for a query dy rows below and dx columns to the right of the key. Accepts
/// self-attention of exactly height·width tokens.
class WindowBias : public PositionalEncoding {
 public:
  using Options = WindowBiasOptions;  ///< Options of the constructor.
  /// Registers `table`, normal with standard deviation 0.02, truncated to ±2.
  WindowBias(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  const Tensor table;     ///< [(2·height − 1)·(2·width − 1), H].
};

/// Returns a factory of WindowBias.
inline MakePositionalEncoding window_bias(WindowBias::Options options) {
  return positional_encoding<WindowBias>(options);
}

/// Options of GridRelative.
struct GridRelativeOptions {
  int64_t height = 0;  ///< Rows of the image, at least 1.
  int64_t width = 0;   ///< Columns of the image, at least 1.
};

/// Relative attention in two dimensions (Bello et al. 2019, eq. 3 and 4; Tensor2Tensor): tokens are
/// the cells of a height × width image in row-major order. The query at row y, column x adds
/// q·height_table[y' − y] + q·width_table[x' − x], before scaling, to the score of the key at row
/// y', column x'. Accepts self-attention of exactly height·width tokens.
class GridRelative : public PositionalEncoding {
 public:
  using Options = GridRelativeOptions;  ///< Options of the constructor.
  /// Registers both tables, normal with standard deviation D^−½.
  GridRelative(Module& parent, HeadShape shape, Options options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;      ///< As passed to the constructor.
  const Tensor height_table;  ///< [H, 2·height − 1, D], distance 0 in the middle.
  const Tensor width_table;   ///< [H, 2·width − 1, D], distance 0 in the middle.
};

/// Returns a factory of GridRelative.
inline MakePositionalEncoding grid_relative(GridRelative::Options options) {
  return positional_encoding<GridRelative>(options);
}

}  // namespace stretto::nn
