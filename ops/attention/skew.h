// The relative shift behind all attention with relative positions.
//
// Reference: tests/reference/attention.cpp, skew(), skew_local(), skew_with_memory()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// y[.., i, j] = x[.., i, j − i + M − 1] where that column exists, else 0:
/// x [.., M, W] → y [.., M, N].
///
/// With query i at position p(i) = i + N − M, column c of x holds the score for the key at relative
/// position c − (N − 1)  (the past is negative), so that column W − 1 is lag 0 when W = N. One op
/// is all the shifts of the papers: W = M = N the pad–reshape–slice of the Music Transformer (Huang
/// et al. 2018, §3.4.1), W = 2N − 1 with M = N its two-sided and local form, W = N > M the shift
/// with memory of Transformer-XL (Dai et al. 2019, app. B). Entries that the papers' reshape fills
/// with values of another row are 0 here.
Tensor skew(const Tensor& x, Int n_keys);

/// The inverse movement and the gradient of skew: x[.., i, c] = y[.., i, c + i − M + 1] where that
/// column exists, else 0: y [.., M, N] → x [.., M, W].
Tensor unskew(const Tensor& y, Int width);

}  // namespace stretto
