// Feature maps, which linear attention (nn/attention/linear_attention.h) applies
// to queries and keys.
//
//   EluPlusOne    elu(x) + 1                     Katharopoulos et al. 2020, eq. 7
//   ReluFeatures  relu(x) + ε                    Choromanski et al. 2021, §4.1; Tay et al.
//   Favor         random features of e^(q·k/√D)  Choromanski et al. 2021, "FAVOR+"
//
// Your own map derives from FeatureMap and is passed as nn::feature_map<MyMap>(arguments…).
//
// Reference: tests/reference/linear_attention.cpp, elu_plus_one(), relu_plus()
// Reference: tests/reference/random_features.cpp, positive_features(), trigonometric_features()
#pragma once

#include <mutex>

#include "../../core/random.h"
#include "../../ops/attention/random_features.h"
#include "../../ops/attention/side.h"
#include "../positions/positional_encoding.h"

namespace stretto::nn {

/// Base class of feature maps.
///
/// Maps whose features are exponentials may divide them by a stabilizer that cancels in the output.
/// Such maps return true from stabilizes() and override logarithms(), in_range() and key_divisor().
class FeatureMap : public Module {
 public:
  /// Registers the map in `parent`, a kernel, under the name "feature_map".
  explicit FeatureMap(Module& parent) : Module(parent, "feature_map") {}
  /// Maps x [B, H, L, D] → [B, H, L, features(D)], each position separately. `drawn` is the result
  /// of next_call() for this call; if undefined, the map's current random numbers are used.
  virtual Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const = 0;
  /// Returns F, the number of features, for queries and keys of dimension d; by default d.
  virtual int64_t features(int64_t d) const { return d; }
  /// Called once at the start of each forward pass, before queries and keys are mapped, but not
  /// when a recurrent state is continued. Maps with random numbers may draw new ones
  /// (autograd/recompute.h) and return them for both queries and keys.
  virtual Tensor next_call() const { return {}; }

  /// Returns the logarithms of the features without the stabilizer, f64 [B, H, L, F]; those of
  /// queries may lack a common factor. Undefined (the default) if stabilizes() is false.
  virtual Tensor logarithms(const Tensor&, Side, const Tensor& /*drawn*/ = {}) const { return {}; }
  /// Returns true if, for every possible query, at least one product of its features with the
  /// features of the keys k [B, G, N, D] does not underflow. padding [B, N] may be undefined. CPU
  /// only.
  virtual bool in_range(const Tensor& /*k*/, const Tensor& /*padding*/,
                        const Tensor& /*drawn*/ = {}) const {
    return true;
  }
  /// Returns the logarithm of the stabilizer of keys of this dtype.
  virtual double key_divisor(DType, const Tensor& /*drawn*/ = {}) const { return 0; }
  /// Returns true if features are exponentials, which may all underflow to 0 and leave a
  /// head without gradients.
  virtual bool has_exponentials() const { return false; }
  /// Returns true if features are divided by a stabilizer that cancels in the output.
  virtual bool stabilizes() const { return false; }
};

/// A factory of feature maps, as linear_kernel() accepts it.
using MakeFeatureMap = std::function<std::unique_ptr<FeatureMap>(Module& parent, HeadShape shape)>;

/// Returns a factory that constructs F(parent, shape, arguments…).
template <class F, class... Arguments>
MakeFeatureMap feature_map(Arguments... arguments) {
  return [=](Module& parent, HeadShape shape) {
    return std::make_unique<F>(parent, shape, arguments...);
  };
}

/// The feature map elu(x) + 1 (Katharopoulos et al. 2020, eq. 7).
class EluPlusOne : public FeatureMap {
 public:
  /// Registers the map in `parent`.
  EluPlusOne(Module& parent, HeadShape) : FeatureMap(parent) {}
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  std::string label() const override { return "EluPlusOne"; }
};

/// Returns a factory of EluPlusOne.
inline MakeFeatureMap elu_plus_one() { return feature_map<EluPlusOne>(); }

/// The feature map relu(x) + ε (Choromanski et al. 2021, §4.1; Tay et al.).
class ReluFeatures : public FeatureMap {
 public:
  /// Registers the map in `parent`. Throws if epsilon is negative.
  ReluFeatures(Module& parent, HeadShape shape, double epsilon);
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  std::string label() const override;

  const double epsilon;  ///< ε.
};

/// Returns a factory of ReluFeatures.
inline MakeFeatureMap relu_plus(double epsilon = 1e-3) {
  return feature_map<ReluFeatures>(epsilon);
}

/// The functions of ops/attention/random_features.h. F features need a projection of W = F rows;
/// the hyperbolic and trigonometric ones come in pairs and need W = F/2 rows.
using FavorKind = RandomFeatureKind;

/// Norms of the rows of an orthogonal projection.
enum class RowNorms {
  /// Norms of independent rows of normal random numbers, for which features of the softmax are
  /// unbiased.
  chi,
  sqrt_d  ///< All norms are √D.
};

/// Protection against overflow of exponential features. It cancels in the output, up to rounding,
/// if LinearKernelOptions::eps is 0.
enum class Stabilizer {
  none,  ///< Features as they are.
  /// Each query is divided by its own largest feature, keys by a number that depends only on the
  /// projection (FeatureStabilizer::own_max and bound). No query depends on later keys, and a state
  /// can be continued.
  ///
  /// Features of a query or state may underflow nevertheless. On the CPU, with eps 0 and positive
  /// or hyperbolic features, LinearKernel then divides each feature by its largest value among the
  /// keys so far. In all other cases, features of keys with ½|k'|² far above 80 in f32 and bf16
  /// (k' = k·D^(−1/4)) underflow, and such keys are ignored.
  ///
  /// Keys of trigonometric features have no stabilizer: they overflow to NaN if ½|k'|² is above 88
  /// (709 in f64).
  max
};

/// Options of Favor.
struct FavorOptions {
  int64_t features = 256;                ///< F, the number of features.
  FavorKind kind = FavorKind::positive;  ///< Formula of the features.
  bool orthogonal = true;                ///< Orthogonal rows; false: independent rows.
  RowNorms norms = RowNorms::chi;        ///< Norms of orthogonal rows.
  /// Number of training calls after which the projection is drawn again; 0: never.
  int64_t redraw = 0;
  Stabilizer stabilizer = Stabilizer::max;                    ///< Protection against overflow.
  double epsilon = 1e-3;                                      ///< ε of generalized features.
  Implementation implementation = Implementation::automatic;  ///< Implementation of the features.
};

/// FAVOR+, random features of the softmax kernel (Choromanski et al. 2021). bf16 is computed in f32
/// and rounded once.
///
/// The projection is drawn at construction, shared by all heads, saved in checkpoints and fixed in
/// evaluation. With `redraw` a second buffer, `schedule`, determines the later projections, which
/// depend only on the map's own random key and the index of the projection. Only training calls
/// whose ops are recorded count as calls, including those under recompute().
class Favor : public FeatureMap {
 public:
  using Options = FavorOptions;  ///< Options of the constructor.
  /// Registers and draws the projection. Throws if an option is out of its range.
  Favor(Module& parent, HeadShape shape, Options options);
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  int64_t features(int64_t) const override { return options.features; }
  /// Returns the projection of this call, a copy if later calls may redraw it. Thread-safe.
  Tensor next_call() const override;
  Tensor logarithms(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  bool in_range(const Tensor& k, const Tensor& padding, const Tensor& drawn = {}) const override;
  double key_divisor(DType type, const Tensor& drawn = {}) const override;
  bool has_exponentials() const override;
  bool stabilizes() const override;
  std::string label() const override;

  const Options options;    ///< As passed to the constructor.
  const Tensor projection;  ///< [W, D], a buffer; f32 in bf16 modules.
  /// i64 [4]: seed and stream of the random key, index of the current projection, and the number of
  /// calls since it was drawn. Undefined if Options::redraw is 0.
  const Tensor schedule;

 private:
  Tensor draw(RandomKey key, uint64_t number) const;
  void advance(bool counts) const;
  Tensor current(bool next) const;
  Tensor projection_of(const Tensor& drawn) const;

  mutable std::mutex mutex_;  // guards the buffers
};

/// Returns a factory of Favor.
inline MakeFeatureMap favor(FavorOptions options = {}) { return feature_map<Favor>(options); }

/// Returns random rows ω [rows, d] in f64. Blocks of d rows (the last block may have fewer) are
/// orthogonal, each direction is uniform, and norms are those of independent rows of normal random
/// numbers, or √d. The result depends only on the arguments, on a GPU up to rounding.
///
/// The orthogonal matrices are uniform because the QR factorization behind them has a positive
/// diagonal in R. The signs that LAPACK returns bias e^(ω·x − ½|x|²) by several percent.
Tensor orthogonal_features(int64_t rows, int64_t d, RandomKey key, RowNorms norms = RowNorms::chi,
                           Device device = cpu);

}  // namespace stretto::nn
