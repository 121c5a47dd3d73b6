// Similarity of vectors.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Computes a·b / (max(|a|, eps) · max(|b|, eps)) for the vectors along dimension d of a and b,
/// which broadcast and have one floating-point dtype → their common shape without d. The gradient
/// is 0 for the length of a vector that is shorter than eps.
Tensor cosine_similarity(const Tensor& a, const Tensor& b, Int d = 1, double eps = 1e-8);

}  // namespace stretto
