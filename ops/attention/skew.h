// The relative shift ("skewing") of composed attention with tables over relative positions, and of
// dense biases that are computed from such tables.
//
// Reference: tests/reference/attention.cpp, skew(), skew_local(), skew_with_memory()
#pragma once

#include "../../core/tensor.h"

namespace stretto {

/// Shifts row i to the left by M − 1 − i columns: y[.., i, j] = x[.., i, j − i + M − 1] if that
/// column exists, else 0. x [.., M, W] → y [.., M, N] for N = n_keys.
///
/// With query i at position p(i) = i + N − M, column c of x holds the score of the key at relative
/// position c − (N − 1) (negative for the past); if W = N, column W − 1 is relative position 0.
/// This op computes the shifts of several papers. Entries that the papers' reshape fills with
/// values of another row are 0 here.
///
///   W = M = N           pad–reshape–slice of the Music Transformer (Huang et al. 2018, §3.4.1)
///   W = 2N − 1, M = N   its bidirectional and local variant
///   W = N > M           shift with memory of Transformer-XL (Dai et al. 2019, app. B)
Tensor skew(const Tensor& x, Int n_keys);

/// Computes the inverse shift, which is the gradient of skew: x[.., i, c] = y[.., i, c + i − M + 1]
/// if that column exists, else 0. y [.., M, N] → x [.., M, W] for W = width.
Tensor unskew(const Tensor& y, Int width);

}  // namespace stretto
