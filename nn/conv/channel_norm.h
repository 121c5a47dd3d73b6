// Normalization of channels, for tensors [N, C, …].
#pragma once

#include "../../ops/create.h"
#include "../module.h"

namespace stretto::nn {

/// Options of GroupNorm.
struct GroupNormOptions {
  int64_t groups = 1;  ///< Number of groups, a divisor of dim.
  int64_t dim = 0;     ///< C, the number of channels, at least 1.
  double eps = 1e-5;   ///< ε.
  bool affine = true;  ///< Multiplies by a weight and adds a bias.
};

/// Group normalization, see group_norm() (ops/channel_norm.h).
class GroupNorm : public Module {
 public:
  using Options = GroupNormOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if dim is below 1 or groups do not divide it.
  explicit GroupNorm(Options options);
  /// Constructs a child of `parent`. Throws if dim is below 1 or groups do not divide it.
  GroupNorm(Module& parent, std::string name, Options options);

  /// x [N, dim, …] → [N, dim, …].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [dim], initially 1; undefined without `affine`.
  const Tensor weight = options.affine ? parameter("weight", ones({options.dim})) : Tensor();
  /// [dim], initially 0; undefined without `affine`.
  const Tensor bias = options.affine ? parameter("bias", zeros({options.dim})) : Tensor();
};

/// Options of BatchNorm.
struct BatchNormOptions {
  int64_t dim = 0;        ///< C, the number of channels, at least 1.
  double momentum = 0.1;  ///< Weight of a batch in the running statistics.
  double eps = 1e-5;      ///< ε.
  bool affine = true;     ///< Multiplies by a weight and adds a bias.
};

/// Batch normalization, see batch_norm() (ops/channel_norm.h), for x [N, C], [N, C, L] and
/// [N, C, H, W]: PyTorch's BatchNorm1d and BatchNorm2d, with their names of parameters and buffers.
///
/// In training it normalizes with the statistics of the batch and updates the running statistics;
/// in evaluation it uses the running statistics. With micro-batches (nn/training/trainer.h) each is
/// normalized by itself, and the running statistics of a step are those of its first micro-batch.
class BatchNorm : public Module {
 public:
  using Options = BatchNormOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if dim is below 1.
  explicit BatchNorm(Options options);
  /// Constructs a child of `parent`. Throws if dim is below 1.
  BatchNorm(Module& parent, std::string name, Options options);

  /// x [N, dim, …] → [N, dim, …].
  Tensor operator()(const Tensor& x) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [dim], initially 1; undefined without `affine`.
  const Tensor weight = options.affine ? parameter("weight", ones({options.dim})) : Tensor();
  /// [dim], initially 0; undefined without `affine`.
  const Tensor bias = options.affine ? parameter("bias", zeros({options.dim})) : Tensor();
  /// [dim], a buffer, initially 0; f32 in bf16 modules.
  const Tensor running_mean =
      buffer("running_mean", zeros({options.dim}), {.dtype = BufferDtype::at_least_f32});
  /// [dim], a buffer, initially 1; f32 in bf16 modules.
  const Tensor running_var =
      buffer("running_var", ones({options.dim}), {.dtype = BufferDtype::at_least_f32});
  /// 0-d i64, a buffer: the number of batches in training.
  const Tensor num_batches_tracked = buffer("num_batches_tracked", zeros({}, {.dtype = i64}));
};

}  // namespace stretto::nn
