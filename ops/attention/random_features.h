// Random features: maps φ of queries and keys whose products φ(q)·φ(k) estimate the softmax kernel
// e^(q·k/√D) or replace it (Choromanski et al. 2021, "Rethinking Attention with Performers").
// They are inputs of linear attention (ops/attention/linear_attention.h). The module is nn::Favor.
//
// Reference: tests/reference/random_features.cpp, positive_features(), hyperbolic_features()
#pragma once

#include "../../core/formulas/implementation.h"
#include "../../core/tensor.h"
#include "side.h"

namespace stretto {

/// The kind of random features. With x' = x·D^(−1/4), so that q'·k' = q·k/√D, and ω the W rows of a
/// projection, the F features are:
///
///     positive       exp(ω·x' − ½|x'|²) / √F               F = W   (eq. 7, left, "SM+")
///     hyperbolic     exp(±ω·x' − ½|x'|²) / √F              F = 2W  (eq. 7, right, "SMhyp+")
///     trigonometric  e^(½|x'|²) [cos ω·x', sin ω·x'] / √W  F = 2W  (eq. 6, "SMtrig")
///     generalized    relu(ω·x') + epsilon                  F = W   (§4.1)
///
/// If F = 2W, all first features (+, cos) come before all second features (−, sin). Trigonometric
/// features can be negative; generalized features do not approximate softmax.
enum class RandomFeatureKind { positive, hyperbolic, trigonometric, generalized };

/// The divisor of each row of features, which prevents overflow of the exponentials.
/// Generalized features are never divided. Both divisors cancel in linear attention with
/// eps = 0, up to rounding.
///
///   own_max  the row's largest feature, for queries; trigonometric features lose only the factor
///            e^(½|x'|²)
///   bound    e^max(0, max_ω ½|ω|² − 60) (600 for f64), for keys. As ω·x − ½|x|² ≤ ½|ω|² for every
///            x, the divisor is 1 unless some row could overflow; it depends only on the
///            projection. Trigonometric features have no such bound and are not divided
enum class FeatureStabilizer { none, own_max, bound };

/// Options of random_features().
///
/// The fused implementation computes a tile of rows at a time and has no gradient for the
/// projection. For the backward pass it saves the features with `own_max`, x for generalized
/// features, and both otherwise. On a GPU it supports positive and hyperbolic features with W ≤ 256
/// and D ≤ 128 (cuda/attention/random_features.h), and always saves x too.
struct RandomFeatureOptions {
  RandomFeatureKind kind = RandomFeatureKind::positive;       ///< Kind of the features.
  FeatureStabilizer stabilizer = FeatureStabilizer::none;     ///< Divisor against overflow.
  double epsilon = 1e-3;                                      ///< Only for generalized features.
  Implementation implementation = Implementation::automatic;  ///< Composed or fused.
};

/// Computes random features: x [B, H, L, D], projection [W, D] → [B, H, L, F], in the dtype of x.
///
/// x and projection may have any floating-point dtypes; f64 is computed in f64, others in f32. Rows
/// are independent: a NaN stays in its row. With `own_max` the gradient of the divisor goes to the
/// largest feature. Among equal features it goes to the one of the first row of the projection, as
/// in max(); among the two features of one row of the projection, equal if u = 0, to the + feature.
Tensor random_features(const Tensor& x, const Tensor& projection,
                       RandomFeatureOptions options = {});

/// Returns the logarithms of positive or hyperbolic features of queries or keys without a
/// stabilizer, f64 [B, H, L, F]. Features of queries are computed without the factor e^(−½|x'|²),
/// which cancels in linear attention. Throws for other kinds.
Tensor log_random_features(const Tensor& x, const Tensor& projection, RandomFeatureKind kind,
                           Side side);

/// Returns the logarithm of the divisor of FeatureStabilizer::bound for features of this dtype.
double log_random_feature_bound(const Tensor& projection, DType type);

/// True if no key has so large a norm that all products of its features (FeatureStabilizer::bound)
/// with the features of some query (own_max) could underflow. k [B, G, N, D] is on the CPU; padding
/// [B, N] is bool or u8, or undefined.
bool random_features_in_range(const Tensor& k, const Tensor& projection, const Tensor& padding);

}  // namespace stretto
