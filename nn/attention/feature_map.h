// Feature maps: what linear attention (nn/attention/linear_attention.h) makes of queries and keys.
//
//   EluPlusOne    elu(x) + 1                     Katharopoulos et al. 2020, eq. 7
//   ReluFeatures  relu(x) + ε                    Choromanski et al. 2021, §4.1; Tay et al.
//   Favor         random features of e^(q·k/√D)  Choromanski et al. 2021, "FAVOR+"
//
// A map of your own derives from FeatureMap and is passed as nn::feature_map<MyMap>(arguments…).
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

class FeatureMap : public Module {
 public:
  /// Every map registers under the name "feature_map" in its kernel.
  explicit FeatureMap(Module& parent) : Module(parent, "feature_map") {}
  /// x [B, H, L, D] → [B, H, L, features(D)], each position by itself. `drawn` is what next_call()
  /// gave for this call; undefined: what the map has.
  virtual Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const = 0;
  virtual int64_t features(int64_t d) const { return d; }
  /// Comes before the queries and keys of a call, but not while a state is continued: maps with
  /// random numbers may draw new ones now (autograd/recompute.h). What both need is returned.
  virtual Tensor next_call() const { return {}; }

  /// Of maps whose features are exponentials with a stabiliser that cancels: the logarithms of the
  /// features without it, f64 [B, H, L, F]; those of queries may lack a factor. Undefined: there
  /// are none.
  virtual Tensor logarithms(const Tensor&, Side, const Tensor& /*drawn*/ = {}) const { return {}; }
  /// Of these maps: whether the features of keys [B, G, N, D] can be used as they are, whatever the
  /// queries; padding [B, N] may be undefined. On the CPU.
  virtual bool in_range(const Tensor& /*k*/, const Tensor& /*padding*/,
                        const Tensor& /*drawn*/ = {}) const {
    return true;
  }
  /// Of these maps: the logarithm of what features of keys in this dtype are divided by.
  virtual double key_divisor(DType, const Tensor& /*drawn*/ = {}) const { return 0; }
  /// Whether features are exponentials, which may all underflow to 0 and leave a head without
  /// gradients; and whether they have such a stabiliser, and logarithms() therefore.
  virtual bool has_exponentials() const { return false; }
  virtual bool stabilises() const { return false; }
};

using MakeFeatureMap = std::function<std::unique_ptr<FeatureMap>(Module& parent, HeadShape shape)>;

/// Makes an F(parent, head shape, arguments…).
template <class F, class... Arguments>
MakeFeatureMap feature_map(Arguments... arguments) {
  return [=](Module& parent, HeadShape shape) {
    return std::make_unique<F>(parent, shape, arguments...);
  };
}

class EluPlusOne : public FeatureMap {
 public:
  EluPlusOne(Module& parent, HeadShape) : FeatureMap(parent) {}
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  std::string label() const override { return "EluPlusOne"; }
};

inline MakeFeatureMap elu_plus_one() { return feature_map<EluPlusOne>(); }

class ReluFeatures : public FeatureMap {
 public:
  ReluFeatures(Module& parent, HeadShape shape, double epsilon);
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  std::string label() const override;

  const double epsilon;
};

inline MakeFeatureMap relu_plus(double epsilon = 1e-3) {
  return feature_map<ReluFeatures>(epsilon);
}

/// The functions of ops/attention/random_features.h. R features need a projection of R rows, or R/2
/// where they come in pairs: hyperbolic and trigonometric ones.
using FavorKind = RandomFeatureKind;

/// How long the rows of orthogonal features are: as independent normal ones, which makes the
/// features of the softmax unbiased, or all √D.
enum class RowNorms { chi, sqrt_d };

/// Against overflow of exponentials; where eps is 0 it cancels in the output, to rounding.
/// max: each query is divided by its own largest feature; keys by a number that depends on the
/// projection alone (FeatureStabiliser::own_max and bound). So nothing looks into the future, and a
/// state may be continued. Where that leaves a query or a state with features that underflow,
/// LinearKernel divides each feature by its largest value among the keys so far instead: on the
/// CPU, where eps is 0, of positive and hyperbolic features. Elsewhere features of keys underflow
/// where ½|k'|² is far beyond 80 in f32 and bf16 (k' = k·D^(−1/4)), and such keys are ignored.
/// Trigonometric features have no stabiliser of keys: they overflow to NaN where ½|k'|² is beyond
/// 88, 709 in f64.
enum class Stabiliser { none, max };

struct FavorOptions {
  int64_t features = 256;  // R
  FavorKind kind = FavorKind::positive;
  bool orthogonal = true;  // else rows are independent
  RowNorms norms = RowNorms::chi;
  int64_t redraw = 0;  // a new projection for every so many training calls; 0: never
  Stabiliser stabiliser = Stabiliser::max;
  double epsilon = 1e-3;  // generalised
  Implementation implementation = Implementation::automatic;
};

/// bf16 is computed in f32 and rounded once. The projection [W, D] is a buffer, f32 in bf16
/// modules too: drawn when the map is made, shared by heads, saved in checkpoints and
/// frozen outside of training. With `redraw` a second buffer, `schedule`, says how the draws go on:
/// they depend on the map's own key and their number only. What counts as a call is a training call
/// whose ops are recorded, by checkpoint() too.
class Favor : public FeatureMap {
 public:
  using Options = FavorOptions;
  Favor(Module& parent, HeadShape shape, Options options);
  Tensor operator()(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  int64_t features(int64_t) const override { return options.features; }
  /// The projection of the call; a copy where later calls may draw another. Calls of several
  /// threads take turns.
  Tensor next_call() const override;
  Tensor logarithms(const Tensor& x, Side side, const Tensor& drawn = {}) const override;
  bool in_range(const Tensor& k, const Tensor& padding, const Tensor& drawn = {}) const override;
  double key_divisor(DType type, const Tensor& drawn = {}) const override;
  bool has_exponentials() const override;
  bool stabilises() const override;
  std::string label() const override;

  const Options options;
  const Tensor projection;
  const Tensor schedule;  // i64 [4]: seed, stream, number of the draw, calls since

 private:
  Tensor draw(RandomKey key, uint64_t number) const;
  void advance(bool counts) const;
  Tensor current(bool next) const;
  Tensor projection_of(const Tensor& drawn) const;

  mutable std::mutex mutex_;  // of the buffers
};

inline MakeFeatureMap favor(FavorOptions options = {}) { return feature_map<Favor>(options); }

/// Random rows ω [rows, d], f64: blocks of d of them (the last one cut) are orthogonal, each
/// direction uniform, with the norms of independent normal rows or √d. A pure function of the key,
/// on a GPU to within rounding.
///
/// The orthogonal matrices are uniform because the QR factorisation behind them has a positive
/// diagonal in R. Signs as LAPACK leaves them bias e^(ω·x − ½|x|²) by several percent.
Tensor orthogonal_features(int64_t rows, int64_t d, RandomKey key, RowNorms norms = RowNorms::chi,
                           Device device = cpu);

}  // namespace stretto::nn
