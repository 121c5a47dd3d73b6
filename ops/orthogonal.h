// Orthonormalization of rows, for random orthogonal matrices.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Orthonormalizes the rows of each matrix of x [..., n, m], f64, n ≤ m, by the Gram–Schmidt
/// method, which is applied twice to each row for orthogonality to full precision.
///
/// The result is Qᵀ of the QR factorization of xᵀ whose R has a positive diagonal (Mezzadri, 2007),
/// so Q is uniformly distributed if x is normal. Not differentiable. Rows that depend linearly on
/// earlier ones give NaN or noise.
Tensor orthogonal_rows(const Tensor& x);

}  // namespace stretto
