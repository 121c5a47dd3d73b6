// Patches of images as tokens.
//
// Reference: tests/reference/published/vit.cpp, vit()
#pragma once

#include "conv.h"

namespace stretto::nn {

/// Options of PatchEmbedding.
struct PatchEmbeddingOptions {
  int64_t channels = 3;  ///< C, the number of channels of the images, at least 1.
  Size2d patch = 16;     ///< Height and width of a patch, at least 1.
  int64_t d_model = 0;   ///< Dimension of the vectors, at least 1.
  bool bias = true;      ///< Adds a bias.
};

/// Cuts images into patches that do not overlap, and projects the pixels of each patch linearly to
/// a vector (ViT, Dosovitskiy et al. 2021, eq. 1).
class PatchEmbedding : public Module {
 public:
  using Options = PatchEmbeddingOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit PatchEmbedding(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  PatchEmbedding(Module& parent, std::string name, Options options);

  /// Images [B, C, height, width] → [B, rows · columns, d_model], patches in row-major order.
  /// Throws unless the patches divide height and width.
  Tensor operator()(const Tensor& images) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// The projection, a convolution whose stride is the size of its kernel.
  Conv2d projection{*this,
                    "projection",
                    {.in = options.channels,
                     .out = options.d_model,
                     .kernel = options.patch,
                     .stride = options.patch,
                     .bias = options.bias}};
};

}  // namespace stretto::nn
