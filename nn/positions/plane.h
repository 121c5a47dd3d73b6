// Encodings of tokens in a plane, such as the patches of an image: the bias of Swin, relative
// vectors of rows and columns, RoPE in two dimensions, and sinusoids of row and column.
//
// The tokens are `class_tokens` tokens without a place (ViT's class token, registers), followed by
// the cells of a height × width plane in row-major order: cell i is in row i / width and column
// i % width. Attention must be self-attention of exactly these tokens.
//
// Reference: tests/reference/dense_bias.cpp, swin_bias(), grid_logits()
// Reference: tests/reference/rotary.cpp, rotated_2d()
#pragma once

#include "../../ops/attention/rotary.h"
#include "positional_encoding.h"
#include "sinusoid.h"

namespace stretto::nn {

/// Options of SwinBias.
struct SwinBiasOptions {
  int64_t height = 0;        ///< Rows of the window, at least 1.
  int64_t width = 0;         ///< Columns of the window, at least 1.
  int64_t class_tokens = 0;  ///< Number of tokens before the cells.
};

/// Relative position bias of the Swin Transformer (Liu et al. 2021, eq. 4). Row
/// (dy + height − 1)·(2·width − 1) + dx + width − 1 of `table` is added to the scores of a query dy
/// rows below and dx columns to the right of the key. With class tokens the table ends with three
/// more rows, as in BEiT (Bao et al. 2022): for class tokens as queries and cells as keys, for
/// cells as queries and class tokens as keys, and for class tokens among themselves.
class SwinBias : public PositionalEncoding {
 public:
  using Options = SwinBiasOptions;  ///< Options of the constructor.
  /// Registers `table`, normal with standard deviation 0.02, truncated to ±2.
  SwinBias(Module& parent, HeadShape shape, Options options);
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [(2·height − 1)·(2·width − 1), H]; with class tokens three rows more.
  const Tensor table;
};

/// Returns a factory of SwinBias.
inline MakePositionalEncoding swin_bias(SwinBias::Options options) {
  return positional_encoding<SwinBias>(options);
}

/// Options of GridRelative.
struct GridRelativeOptions {
  int64_t height = 0;        ///< Rows of the image, at least 1.
  int64_t width = 0;         ///< Columns of the image, at least 1.
  int64_t class_tokens = 0;  ///< Number of tokens before the cells.
};

/// Relative attention in two dimensions (Bello et al. 2019, eq. 3 and 4; Tensor2Tensor): the query
/// at row y, column x adds q·height_table[y' − y] + q·width_table[x' − x], before scaling, to the
/// score of the key at row y', column x'. Scores of class tokens, as queries or keys, have no term.
class GridRelative : public PositionalEncoding {
 public:
  using Options = GridRelativeOptions;  ///< Options of the constructor.
  /// Registers both tables, normal with standard deviation D^−½.
  GridRelative(Module& parent, HeadShape shape, Options options);
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& options);
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

/// Options of Rotary2d.
struct Rotary2dOptions {
  int64_t height = 0;        ///< Rows of the image, at least 1.
  int64_t width = 0;         ///< Columns of the image, at least 1.
  int64_t class_tokens = 0;  ///< Number of tokens before the cells, which are not rotated.
  double base = 100;         ///< Base of the frequencies (Heo et al.: 100; RoPE of text: 10000).
  RotaryPairing pairing = RotaryPairing::interleaved;  ///< Which features of a half form a pair.
};

/// RoPE in two dimensions, "axial" (Heo et al. 2024, §3.2): the first half of the features of a
/// head is rotated by the column of the token, the second half by its row, each half like a head
/// of RoPE with D/2 features. The product of a query and a key then depends only on the
/// differences of their columns and rows. D must be a multiple of 4. No parameters; fits every
/// kernel.
class Rotary2d : public PositionalEncoding {
 public:
  using Options = Rotary2dOptions;  ///< Options of the constructor.
  /// Registers the encoding. Throws if a size is out of its range.
  Rotary2d(Module& parent, HeadShape shape, Options options);
  /// Returns the traits of an encoding with these options.
  static PositionTraits traits(const Options& options);
  void apply(AttentionInputs& inputs) const override;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.

 private:
  Tensor rotated(const Tensor& x, Side side) const;
};

/// Returns a factory of Rotary2d.
inline MakePositionalEncoding rotary_2d(Rotary2d::Options options) {
  return positional_encoding<Rotary2d>(options);
}

/// Returns a vector for each cell of a plane, [height · width, d], computed in f64: the sinusoid of
/// dimension d/2 of its column, then that of its row (He et al. 2022, MAE, with
/// Sinusoid::concatenated). d must be even, for Sinusoid::concatenated a multiple of 4.
Tensor sinusoids_2d(int64_t height, int64_t width, int64_t d, Sinusoid layout,
                    TensorOptions options = {});

}  // namespace stretto::nn
