// Similarity and length of vectors.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes a·b / (max(|a|, eps) · max(|b|, eps)) for the vectors along dimension d of a and b,
/// which broadcast and have one floating-point dtype → their common shape without d. The gradient
/// is 0 for the length of a vector that is shorter than eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int d = 1, double eps = 1e-8);

/// Returns x / max(|x|, eps) for the vectors along dimension d of x, in its floating-point dtype. The
/// gradient is 0 for the length of a vector that is shorter than eps.
Tensor normalize(const Tensor& x, Int d = -1, double eps = 1e-12);

}  // namespace stretto
