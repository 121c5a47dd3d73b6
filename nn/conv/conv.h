// Convolution layers.
#pragma once

#include "../../ops/conv/size2d.h"
#include "../module.h"

namespace stretto::nn {

/// Options of Conv1d.
struct Conv1dOptions {
  int64_t in = 0;        ///< C, the number of input channels, at least 1.
  int64_t out = 0;       ///< O, the number of output channels, at least 1.
  int64_t kernel = 0;    ///< K, the size of the kernel, at least 1.
  int64_t stride = 1;    ///< Distance of neighboring outputs in the input.
  int64_t padding = 0;   ///< Number of zeros on both sides.
  int64_t dilation = 1;  ///< Distance of neighboring kernel elements in the input.
  int64_t groups = 1;    ///< Number of groups of channels, a divisor of `in` and `out`.
  bool bias = true;      ///< Adds a bias.
};

/// A convolution over the last dimension, see conv1d() (ops/conv/conv.h).
class Conv1d : public Module {
 public:
  using Options = Conv1dOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1 or groups do not divide the channels.
  explicit Conv1d(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1 or groups do not divide the
  /// channels.
  Conv1d(Module& parent, std::string name, Options options);

  /// x [N, in, L] → [N, out, L'].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [out, in / groups, kernel], initially uniform in ±1/√(in / groups · kernel), as in PyTorch.
  const Tensor weight =
      parameter("weight", empty({options.out, options.in / options.groups, options.kernel}));
  /// [out], initially uniform in the same range; undefined without a bias.
  const Tensor bias = options.bias ? parameter("bias", empty({options.out})) : Tensor();
};

/// Options of Conv2d.
struct Conv2dOptions {
  int64_t in = 0;       ///< C, the number of input channels, at least 1.
  int64_t out = 0;      ///< O, the number of output channels, at least 1.
  Size2d kernel = 0;    ///< KH and KW, the size of the kernel, at least 1.
  Size2d stride = 1;    ///< Distance of neighboring outputs in the input.
  Size2d padding = 0;   ///< Number of zeros on both sides.
  Size2d dilation = 1;  ///< Distance of neighboring kernel elements in the input.
  int64_t groups = 1;   ///< Number of groups of channels, a divisor of `in` and `out`.
  bool bias = true;     ///< Adds a bias.
};

/// A convolution over the last two dimensions, see conv2d() (ops/conv/conv.h).
class Conv2d : public Module {
 public:
  using Options = Conv2dOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1 or groups do not divide the channels.
  explicit Conv2d(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1 or groups do not divide the
  /// channels.
  Conv2d(Module& parent, std::string name, Options options);

  /// x [N, in, H, W] → [N, out, H', W'].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [out, in / groups, KH, KW], initially uniform in ±1/√(in / groups · KH · KW), as in PyTorch.
  const Tensor weight = parameter("weight", empty({options.out, options.in / options.groups,
                                                   options.kernel.height, options.kernel.width}));
  /// [out], initially uniform in the same range; undefined without a bias.
  const Tensor bias = options.bias ? parameter("bias", empty({options.out})) : Tensor();
};

}  // namespace stretto::nn
