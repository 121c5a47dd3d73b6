// Rows made orthonormal: what random orthogonal matrices are made of.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Each matrix of x [..., n, m], f64, n ≤ m, with its rows made orthonormal one after the other by
/// Gram–Schmidt, every row twice, so that they are orthogonal to the last bit: Qᵀ of the QR
/// factorisation of xᵀ whose R has a positive diagonal (Mezzadri, 2007), which makes Q uniform
/// where x is normal. Not differentiable; rows that depend on those before them give NaN or noise.
Tensor orthogonal_rows(const Tensor& x);

}  // namespace stretto
