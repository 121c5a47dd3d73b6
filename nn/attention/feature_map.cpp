#include "nn/attention/feature_map.h"

#include <algorithm>
#include <cmath>

#include "autograd/recompute.h"
#include "core/gpu_runtime.h"
#include "nn/init.h"
#include "ops/attention/elu_features.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/orthogonal.h"
#include "ops/reduce.h"

namespace stretto::nn {
namespace {

// Returns the key at index `number` of the sequence that `key` determines.
RandomKey derived_key(RandomKey key, uint64_t number) {
  const Random4 bits = philox(key, number);
  return {bits.v[0] | uint64_t(bits.v[1]) << 32, bits.v[2] | uint64_t(bits.v[3]) << 32};
}

Favor::Options checked(Favor::Options o) {
  const char* op = "Favor";
  const bool pairs = o.kind == FavorKind::hyperbolic || o.kind == FavorKind::trigonometric;
  check(o.features >= 1 && (!pairs || o.features % 2 == 0), op, o.features, " features; must be ",
        pairs ? "an even number, two for each row of the projection" : "at least 1");
  check(o.orthogonal || o.norms == RowNorms::chi, op,
        "RowNorms::sqrt_d needs orthogonal rows; for independent rows use RowNorms::chi");
  check(o.redraw >= 0, op, "redraw ", o.redraw,
        "; must be the number of calls between redraws, or 0 to never redraw");
  check(o.epsilon >= 0, op, "epsilon ", o.epsilon, "; must be 0 or more");
  return o;
}

}  // namespace

Tensor EluPlusOne::operator()(const Tensor& x, Side, const Tensor&) const {
  return elu_features(x);
}

ReluFeatures::ReluFeatures(Module& parent, HeadShape, double epsilon_)
    : FeatureMap(parent), epsilon(epsilon_) {
  check(epsilon >= 0, "ReluFeatures", "epsilon ", epsilon, "; must be 0 or more");
}

Tensor ReluFeatures::operator()(const Tensor& x, Side, const Tensor&) const {
  return epsilon > 0 ? relu(x) + epsilon : relu(x);
}

std::string ReluFeatures::label() const { return str("ReluFeatures(+ ", epsilon, ")"); }

Tensor orthogonal_features(int64_t rows, int64_t d, RandomKey key, RowNorms norms, Device device) {
  check(rows >= 0 && d >= 1, "orthogonal_features", rows, " rows of dimension ", d,
        "; accepted: 0 or more rows of dimension 1 or more");
  const TensorOptions on_device{.dtype = f64, .device = device};
  const int64_t whole = rows / d;
  // Returns rows of normally distributed numbers for all blocks. Each block uses two random keys:
  // 0 for the directions, 1 for the norms.
  const auto normals = [&](uint64_t sequence) {
    Tensors blocks{empty({0, d}, on_device)};
    for (int64_t at = 0; at < rows; at += d)
      blocks.push_back(randn({std::min(d, rows - at), d},
                             derived_key(key, 2 * uint64_t(at / d) + sequence), on_device));
    return cat(blocks, 0);
  };
  const Tensor drawn = normals(0);
  const Tensor q =
      cat({orthogonal_rows(drawn.slice(0, 0, whole * d).view({whole, d, d})).view({whole * d, d}),
           orthogonal_rows(drawn.slice(0, whole * d, rows))},
          0);
  if (norms == RowNorms::sqrt_d) return q * std::sqrt(double(d));
  return q * sqrt(sum(square(normals(1)), {1}, true));
}

namespace {

// Returns the number of rows of the projection.
int64_t rows_of(const FavorOptions& o) {
  const bool pairs = o.kind == FavorKind::hyperbolic || o.kind == FavorKind::trigonometric;
  return pairs ? o.features / 2 : o.features;
}

}  // namespace

Favor::Favor(Module& parent, HeadShape shape, Options o)
    : FeatureMap(parent),
      options(checked(o)),
      projection(buffer("projection", empty({rows_of(options), shape.d_key}),
                        {.dtype = BufferDtype::at_least_f32})),
      schedule(options.redraw > 0
                   ? host_buffer("schedule", zeros({4}, {.dtype = i64, .device = cpu}))
                   : Tensor()) {
  if (SkipInit::active()) return;
  const RandomKey key = next_random_key();
  projection.copy_(draw(key, 0));
  if (options.redraw > 0)
    schedule.copy_(stretto::tensor<int64_t>({int64_t(key.seed), int64_t(key.stream), 0, 0}));
}

Tensor Favor::draw(RandomKey key, uint64_t number) const {
  const RandomKey own = derived_key(key, number);
  const Device device = projection.device();
  if (!options.orthogonal) return randn(projection.shape(), own, {.dtype = f64, .device = device});
  return orthogonal_features(projection.size(0), projection.size(1), own, options.norms, device);
}

void Favor::advance(bool counts) const {
  std::vector<int64_t> s = schedule.to_vector<int64_t>();
  if (s[3] >= options.redraw) {
    s[3] = 0;
    Tensor(projection).copy_(draw({uint64_t(s[0]), uint64_t(s[1])}, uint64_t(++s[2])));
  }
  if (counts) ++s[3];
  Tensor(schedule).copy_(stretto::tensor(s, {4}));
}

Tensor Favor::next_call() const {
  if (options.redraw == 0) return {};
  return current(training());
}

// Returns the projection for this call. In training, and if a backward pass may use the projection
// after a later call has redrawn it, the result is a copy.
Tensor Favor::current(bool next) const {
  const bool needed_later = backward_follows() || is_recomputing();
  return recorded("the projection of Favor", [&] {
    const Device device = projection.device();
    if (next && device.is_cuda() && cuda::capturing(device.index)) {
      cuda::before_replay(device.index, [this, counts = backward_follows()] {
        const std::lock_guard lock(mutex_);
        advance(counts);
      });
      next = false;
    }
    const std::lock_guard lock(mutex_);
    if (next) advance(backward_follows());
    return training() || needed_later ? projection.detach().clone() : projection.detach();
  });
}

Tensor Favor::projection_of(const Tensor& drawn) const {
  if (drawn.defined()) return drawn;
  return options.redraw > 0 ? current(false) : Tensor(projection);
}

bool Favor::has_exponentials() const {
  return options.kind == FavorKind::positive || options.kind == FavorKind::hyperbolic;
}

bool Favor::stabilizes() const {
  return has_exponentials() && options.stabilizer == Stabilizer::max;
}

Tensor Favor::logarithms(const Tensor& x, Side side, const Tensor& drawn) const {
  if (!stabilizes()) return {};
  return log_random_features(x, projection_of(drawn), options.kind, side);
}

bool Favor::in_range(const Tensor& k, const Tensor& padding, const Tensor& drawn) const {
  return random_features_in_range(k, projection_of(drawn), padding);
}

double Favor::key_divisor(DType type, const Tensor& drawn) const {
  return log_random_feature_bound(projection_of(drawn), type);
}

Tensor Favor::operator()(const Tensor& x, Side side, const Tensor& drawn) const {
  const int64_t width = projection.size(1);
  check(x.dim() == 4 && is_floating(x.dtype()) && x.size(3) == width, "Favor", "x ", x,
        "; must have a floating-point dtype and shape [B, H, L, ", width,
        "]; the last size is that of the projection");
  const Tensor rows = projection_of(drawn);
  const FeatureStabilizer by_side =
      side == Side::query ? FeatureStabilizer::own_max : FeatureStabilizer::bound;
  return random_features(
      x, rows,
      {.kind = options.kind,
       .stabilizer = options.stabilizer == Stabilizer::max ? by_side : FeatureStabilizer::none,
       .epsilon = options.epsilon,
       .implementation = options.implementation});
}

std::string Favor::label() const {
  constexpr const char* kinds[] = {"positive", "hyperbolic", "trigonometric", "generalized"};
  return str("Favor(", options.features, " ", kinds[int(options.kind)],
             options.orthogonal ? ", orthogonal)" : ")");
}

}  // namespace stretto::nn
