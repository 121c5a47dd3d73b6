// The fused form of random features on a GPU. Internal to ops/.
//
// Reference: tests/reference/random_features.cpp, positive_features(), hyperbolic_features()
#pragma once

#include <functional>

#include "random_features.h"

namespace stretto {

/// Whether there are kernels for these arguments, which random_features() has checked: positive and
/// hyperbolic features.
bool has_device_random_features(const Tensor& x, const Tensor& projection,
                                const RandomFeatureOptions& options);

/// `projection` is f32, and `bound`, where it is defined, the logarithm of what all features are
/// divided by, f32 []. x is kept for backward beside the features, for gradients of gradients,
/// which go through `composed`.
Tensor device_random_features(const Tensor& x, const Tensor& projection, const Tensor& bound,
                              const RandomFeatureOptions& options,
                              const std::function<Tensor(const Tensor&)>& composed);

}  // namespace stretto
