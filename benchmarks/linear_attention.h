// One training step of one Performer layer (Choromanski et al. 2021) at any length, and a linear
// fit of its cost. Shared by the benchmark and its test.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/random.h"
#include "nn/attention/feature_map.h"
#include "nn/attention/linear_attention.h"
#include "nn/optim/optim.h"
#include "nn/transformer.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

namespace stretto::benchmarks {

struct PerformerSettings {
  int64_t d_model = 512, heads = 8, d_hidden = 2048, features = 128, batch = 1;
};

/// A causal layer with hyperbolic random features, and its optimizer.
class PerformerStep {
 public:
  explicit PerformerStep(const PerformerSettings& s)
      : layer_({.d_model = s.d_model,
                .attention = {.n_heads = s.heads,
                              .kernel = nn::linear_kernel(nn::favor(
                                  {.features = s.features, .kind = nn::FavorKind::hyperbolic}))},
                .feed_forward = {.d_hidden = s.d_hidden}}),
        optimizer_(layer_.parameters(), {.lr = 1e-4}) {}

  /// Runs forward, backward and AdamW on x [B, L, d_model]. The gradient of x is computed too, as
  /// if there were a layer below.
  void operator()(const Tensor& x) {
    optimizer_.zero_grad();
    const Tensor below = x.detach().set_requires_grad();
    mean(square(layer_(below, {.causal = true}))).backward();
    optimizer_.step();
  }

 private:
  nn::TransformerLayer layer_;
  nn::AdamW optimizer_;
};

/// y ≈ intercept + slope·x by least squares.
struct LineFit {
  double intercept = 0, slope = 0;
  double r_squared = 0;          // 1 − Σ (y − fit)² / Σ (y − mean)²
  double largest_deviation = 0;  // of y from the line, relative to the line
};

/// Fits at least two points, not all with the same x.
inline LineFit fit_line(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = double(x.size());
  double mean_x = 0, mean_y = 0, xx = 0, xy = 0, yy = 0, residual = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / n;
    mean_y += y[i] / n;
  }
  for (size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mean_x) * (x[i] - mean_x);
    xy += (x[i] - mean_x) * (y[i] - mean_y);
    yy += (y[i] - mean_y) * (y[i] - mean_y);
  }
  LineFit fit{.slope = xy / xx};
  fit.intercept = mean_y - fit.slope * mean_x;
  for (size_t i = 0; i < x.size(); ++i) {
    const double line = fit.intercept + fit.slope * x[i];
    residual += (y[i] - line) * (y[i] - line);
    fit.largest_deviation = std::max(fit.largest_deviation, std::fabs(y[i] / line - 1));
  }
  fit.r_squared = yy == 0 ? 1 : 1 - residual / yy;
  return fit;
}

}  // namespace stretto::benchmarks
