// Normalization over the last dimension.
#pragma once

#include <optional>

#include "../ops/create.h"
#include "../ops/norm.h"
#include "module.h"

namespace stretto::nn {

/// The kinds of normalization.
enum class NormKind {
  layer,  ///< (x − mean) / √(variance + eps) · weight + bias (Ba et al., 2016).
  rms,    ///< x / √(mean(x²) + eps) · weight (Zhang & Sennrich, 2019).
  none    ///< x, without parameters; for a layer that lacks one of its norms.
};

/// Returns the default ε: 1e-5 for layer norm, as in PyTorch, and 1e-6 for RMS norm, as in T5
/// (PyTorch: the machine epsilon). Published models have their own values (LLaMA 2: 1e-5).
double default_eps(NormKind kind);

/// Scales vectors [.., dim] down to the L2 norm `limit` if theirs is larger: x · min(limit / (‖x‖ +
/// 1e-6), 1) (Inkling 2, Thinking Machines 2026). Computes in at least f32.
Tensor clip_norm(const Tensor& x, double limit);

/// Options of Norm.
struct NormOptions {
  int64_t dim = 0;                  ///< Size of the last dimension, at least 1.
  std::optional<double> eps = {};   ///< ε; by default default_eps(kind).
  NormKind kind = NormKind::layer;  ///< Kind of normalization.
  bool bias = true;                 ///< Adds a bias; ignored unless the kind is NormKind::layer.
};

/// Layer norm or RMS norm over the last dimension.
class Norm : public Module {
 public:
  using Options = NormOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if dim is below 1.
  explicit Norm(Options options);
  /// Constructs a child of `parent`. Throws if dim is below 1.
  Norm(Module& parent, std::string name, Options options);

  /// x [.., dim] → [.., dim].
  Tensor operator()(const Tensor& x) const;
  /// Adds a residual branch: returns s = residual + dropout(x) and operator()(s).
  Tensors add(const Tensor& x, const Tensor& residual, const ResidualDropout& o) const;
  std::string label() const override;

  const Options options;  ///< As passed, with eps filled in.
  /// [dim], initially 1; undefined with NormKind::none.
  const Tensor weight =
      options.kind == NormKind::none ? Tensor() : parameter("weight", ones({options.dim}));
  /// [dim], initially 0; undefined without a bias.
  const Tensor bias = options.bias && options.kind == NormKind::layer
                          ? parameter("bias", zeros({options.dim}))
                          : Tensor();

 protected:
  /// Returns the options with another kind.
  static Options of_kind(NormKind kind, Options o) {
    o.kind = kind;
    return o;
  }
};

/// Norm with NormKind::layer; Options::kind is ignored.
class LayerNorm : public Norm {
 public:
  /// Constructs a root module. Throws if dim is below 1.
  explicit LayerNorm(Options o) : Norm(of_kind(NormKind::layer, o)) {}
  /// Constructs a child of `parent`. Throws if dim is below 1.
  LayerNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), of_kind(NormKind::layer, o)) {}
};

/// Norm with NormKind::rms; Options::kind is ignored.
class RMSNorm : public Norm {
 public:
  /// Constructs a root module. Throws if dim is below 1.
  explicit RMSNorm(Options o) : Norm(of_kind(NormKind::rms, o)) {}
  /// Constructs a child of `parent`. Throws if dim is below 1.
  RMSNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), of_kind(NormKind::rms, o)) {}
};

}  // namespace stretto::nn
