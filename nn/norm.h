// Normalisation of the last dimension.
#pragma once

#include "nn/module.h"

namespace stretto::nn {

/// (x − mean) / √(variance + eps) · weight + bias over the last dimension (Ba et al., 2016).
/// weight [dim] starts at 1, bias [dim] at 0.
class LayerNorm : public Module {
 public:
  struct Options {
    int64_t dim = 0;
    double eps = 1e-5;
    bool bias = true;
  };
  explicit LayerNorm(Options options);
  LayerNorm(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;
  Tensor weight;
  Tensor bias;  // undefined without

 private:
  void make();
};

/// x / √(mean(x²) + eps) · weight over the last dimension (Zhang & Sennrich, 2019). weight [dim]
/// starts at 1.
class RMSNorm : public Module {
 public:
  struct Options {
    int64_t dim = 0;
    double eps = 1e-6;
  };
  explicit RMSNorm(Options options);
  RMSNorm(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;
  Tensor weight;

 private:
  void make();
};

}  // namespace stretto::nn
