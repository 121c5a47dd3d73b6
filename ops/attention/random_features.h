// Random features: maps φ of queries and keys whose products φ(q)·φ(k) estimate the kernel of
// softmax, e^(q·k/√D), or stand in its place (Choromanski et al. 2021, "Rethinking Attention with
// Performers"). What linear attention (ops/attention/linear_attention.h) takes; the module is
// nn::Favor.
//
// Reference: tests/reference/random_features.cpp, positive_features(), hyperbolic_features()
#pragma once

#include "../../core/tensor.h"
#include "../implementation.h"
#include "side.h"

namespace stretto {

/// With x' = x·D^(−1/4), so that q'·k' = q·k/√D, and ω the W rows of a projection; F features:
///
///     positive       exp(ω·x' − ½|x'|²) / √F              F = W     (eq. 7, left, "SM+")
///     hyperbolic     exp(±ω·x' − ½|x'|²) / √F             F = 2W    (eq. 7, right, "SMhyp+")
///     trigonometric  e^(½|x'|²) [cos ω·x', sin ω·x'] / √W  F = 2W    (eq. 6, "SMtrig")
///     generalised    relu(ω·x') + epsilon                 F = W     (§4.1)
///
/// Of two features per row of the projection, all first ones (+, cos) come before all second ones.
/// Trigonometric ones can be negative; generalised ones approximate no softmax.
enum class RandomFeatureKind { positive, hyperbolic, trigonometric, generalised };

/// What each row of features is divided by, against overflow of its exponentials. Generalised
/// features are left alone.
///   own_max  its own largest feature, for queries; trigonometric ones lose the factor e^(½|x'|²)
///   bound    e^max(0, max_ω ½|ω|² − 60) (600 for f64), for keys: ω·x − ½|x|² ≤ ½|ω|² for every x,
///            so this is 1 unless some row could overflow, and depends on the projection alone.
///            Trigonometric features have no such bound, and stay as they are
/// Both cancel in linear attention where its eps is 0, to rounding.
enum class FeatureStabiliser { none, own_max, bound };

/// The fused form takes some rows at a time and keeps the features alone for its backward; it has
/// no gradient for the projection. On a GPU it serves positive and hyperbolic features of up to 256
/// rows of up to 128 numbers (cuda/attention/random_features.h), and keeps x, too.
struct RandomFeatureOptions {
  RandomFeatureKind kind = RandomFeatureKind::positive;
  FeatureStabiliser stabiliser = FeatureStabiliser::none;
  double epsilon = 1e-3;  // generalised
  Implementation implementation = Implementation::automatic;
};

/// x [B, H, L, D], projection [W, D] → [B, H, L, F], of the dtype of x. Any floating dtypes; f64 is
/// computed in f64, others in f32. Each row is mapped by itself: a NaN stays in its row. The
/// gradient through a largest feature goes to the first row of the projection of equal ones, as
/// that of max, and where both of its features are equal, at 0, to the + one.
Tensor random_features(const Tensor& x, const Tensor& projection,
                       RandomFeatureOptions options = {});

/// Logarithms of positive or hyperbolic features of queries or keys without a stabiliser, in f64
/// [B, H, L, F]; those of queries lack the factor e^(−½|x'|²), which cancels in linear attention.
Tensor log_random_features(const Tensor& x, const Tensor& projection, RandomFeatureKind kind,
                           Side side);

/// The logarithm of what FeatureStabiliser::bound divides features of this dtype by.
double log_random_feature_bound(const Tensor& projection, DType type);

/// Whether no key is so long that products of its features, with FeatureStabiliser::bound, and
/// those of some query, with own_max, could all underflow: k [B, G, N, D] on the CPU, padding [B,
/// N] bool or u8, or undefined.
bool random_features_in_range(const Tensor& k, const Tensor& projection, const Tensor& padding);

}  // namespace stretto
