// The fused implementation of random features on a GPU. Internal to ops/.
//
// Reference: tests/reference/random_features.cpp, positive_features(), hyperbolic_features()
#pragma once

#include <functional>

#include "random_features.h"

namespace stretto {

/// True if there are GPU kernels for these arguments, which random_features() has checked. Only for
/// positive and hyperbolic features.
bool has_device_random_features(const Tensor& x, const Tensor& projection,
                                const RandomFeatureOptions& options);

/// Computes random features. `projection` is f32. `bound`, f32 [] or undefined, is the logarithm of
/// the divisor of all features. x and the features are saved for the backward pass; gradients of
/// gradients use `composed`.
Tensor device_random_features(const Tensor& x, const Tensor& projection, const Tensor& bound,
                              const RandomFeatureOptions& options,
                              const std::function<Tensor(const Tensor&)>& composed);

}  // namespace stretto
