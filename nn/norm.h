// Normalisation of the last dimension.
#pragma once

#include <optional>

#include "nn/module.h"
#include "ops/create.h"

namespace stretto::nn {

/// layer: (x − mean) / √(variance + eps) · weight + bias (Ba et al., 2016);
/// rms: x / √(mean(x²) + eps) · weight (Zhang & Sennrich, 2019).
enum class NormKind { layer, rms };

/// ε where none is given: 1e-5 of layer norm, 1e-6 of RMS norm, as in PyTorch and in T5. Published
/// models differ (LLaMA 2: 1e-5): take theirs.
double default_eps(NormKind kind);

/// The norm that its options say, over the last dimension. weight [dim] starts at 1, bias [dim] at
/// 0.
class Norm : public Module {
 public:
  struct Options {
    int64_t dim = 0;
    std::optional<double> eps = {};  // default_eps(kind) when not given
    NormKind kind = NormKind::layer;
    bool bias = true;  // NormKind::rms has none
  };
  explicit Norm(Options options);
  Norm(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;
  const Tensor weight = parameter("weight", ones({options.dim}));
  const Tensor bias =  // undefined without
      options.bias && options.kind == NormKind::layer ? parameter("bias", zeros({options.dim}))
                                                      : Tensor();
};

/// Norm of the kind `layer`.
class LayerNorm : public Norm {
 public:
  struct Options {
    int64_t dim = 0;
    double eps = default_eps(NormKind::layer);
    bool bias = true;
    Norm::Options norm() const { return {dim, eps, NormKind::layer, bias}; }
  };
  explicit LayerNorm(Options o) : Norm(o.norm()), options(o) {}
  LayerNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), o.norm()), options(o) {}

  const Options options;
};

/// Norm of the kind `rms`.
class RMSNorm : public Norm {
 public:
  struct Options {
    int64_t dim = 0;
    double eps = default_eps(NormKind::rms);
    Norm::Options norm() const { return {dim, eps, NormKind::rms, false}; }
  };
  explicit RMSNorm(Options o) : Norm(o.norm()), options(o) {}
  RMSNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), o.norm()), options(o) {}

  const Options options;
};

}  // namespace stretto::nn
