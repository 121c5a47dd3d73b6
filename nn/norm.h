// Normalisation of the last dimension.
#pragma once

#include <optional>

#include "../ops/create.h"
#include "module.h"

namespace stretto::nn {

/// layer: (x − mean) / √(variance + eps) · weight + bias (Ba et al., 2016);
/// rms: x / √(mean(x²) + eps) · weight (Zhang & Sennrich, 2019).
enum class NormKind { layer, rms };

/// ε where none is given: 1e-5 of layer norm, 1e-6 of RMS norm, as in PyTorch and in T5. Published
/// models differ (LLaMA 2: 1e-5): take theirs.
double default_eps(NormKind kind);

struct NormOptions {
  int64_t dim = 0;
  std::optional<double> eps = {};  // default_eps(kind) when not given
  NormKind kind = NormKind::layer;
  bool bias = true;  // NormKind::rms has none
};

/// The norm that its options say, over the last dimension. weight [dim] starts at 1, bias [dim] at
/// 0.
class Norm : public Module {
 public:
  using Options = NormOptions;
  explicit Norm(Options options);
  Norm(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;
  const Tensor weight = parameter("weight", ones({options.dim}));
  const Tensor bias =  // undefined without
      options.bias && options.kind == NormKind::layer ? parameter("bias", zeros({options.dim}))
                                                      : Tensor();

 protected:
  static Options of_kind(NormKind kind, Options o) {
    o.kind = kind;
    return o;
  }
};

/// Norm of the kind `layer`, whatever the options say.
class LayerNorm : public Norm {
 public:
  explicit LayerNorm(Options o) : Norm(of_kind(NormKind::layer, o)) {}
  LayerNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), of_kind(NormKind::layer, o)) {}
};

/// Norm of the kind `rms`, whatever the options say.
class RMSNorm : public Norm {
 public:
  explicit RMSNorm(Options o) : Norm(of_kind(NormKind::rms, o)) {}
  RMSNorm(Module& parent, std::string name, Options o)
      : Norm(parent, std::move(name), of_kind(NormKind::rms, o)) {}
};

}  // namespace stretto::nn
