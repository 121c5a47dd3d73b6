// ViT: a Transformer encoder over the patches of an image.
//
// Reference: tests/reference/published/vit.cpp, vit()
#pragma once

#include <optional>

#include "../conv/patch_embedding.h"
#include "../stack.h"
#include "classifier.h"

namespace stretto::nn {

/// The positions that VisionTransformer adds to the vectors of patches.
enum class ImagePosition {
  learned,   ///< A trained vector for each patch and for the class token (the paper's models).
  sinusoid,  ///< sinusoids_2d() of the concatenated layout; nothing for the class token (MAE).
  none       ///< None; the encoding is in the attention: LayerOptions::attention.position.
};

/// Options of VisionTransformer.
struct VisionTransformerOptions {
  Size2d image = 224;        ///< Height and width of the images, multiples of those of a patch.
  Size2d patch = 16;         ///< Height and width of a patch, at least 1.
  int64_t channels = 3;      ///< Number of channels of the images, at least 1.
  int64_t n_classes = 1000;  ///< Number of classes; 0: no head.
  int64_t n_layers = 12;     ///< Number of layers, at least 1.
  /// Options of every layer; its dropout applies to the input too. An encoding of positions in a
  /// plane has the `rows` × `columns` of patches and, with Pooling::cls, one class token:
  /// `.position = nn::rotary_2d({.height = 14, .width = 14, .class_tokens = 1})`.
  LayerOptions layer = {};
  ImagePosition position = ImagePosition::learned;  ///< Positions added to the input.
  Pooling pooling = Pooling::cls;                   ///< The vector that represents an image.

  /// Returns the number of rows of patches.
  int64_t rows() const { return image.height / patch.height; }
  /// Returns the number of columns of patches.
  int64_t columns() const { return image.width / patch.width; }
};

/// The Vision Transformer (Dosovitskiy et al. 2021): patch embedding, a class token, positions, an
/// encoder with a final norm, and a linear layer over the pooled vector.
///
/// Parameters start as in the authors' code: projections uniform (xavier_uniform_), patches
/// lecun_normal_, learned positions with standard deviation 0.02, the class token and the head 0.
class VisionTransformer : public Module {
 public:
  using Options = VisionTransformerOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if the sizes do not fit together.
  explicit VisionTransformer(Options options);
  /// Constructs a child of `parent`. Throws if the sizes do not fit together.
  VisionTransformer(Module& parent, std::string name, Options options);

  /// Returns the logits of images [B, channels, height, width], [B, n_classes]. Throws without a
  /// head.
  Tensor operator()(const Tensor& images) const;
  /// Returns the output of the encoder for each token, [B, tokens, d_model]: with Pooling::cls the
  /// class token, then the patches in row-major order.
  Tensor tokens(const Tensor& images) const;
  /// Returns the pooled vector of each image, [B, d_model].
  Tensor encode(const Tensor& images) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// Vectors of the patches.
  PatchEmbedding patches{
      *this,
      "patches",
      {.channels = options.channels, .patch = options.patch, .d_model = options.layer.d_model}};
  const Tensor cls;  ///< The class token [d_model]; undefined unless Pooling::cls.
  /// Positions [tokens, d_model], a parameter or, for sinusoids, a buffer; undefined without.
  const Tensor positions;
  Dropout dropout{*this, "dropout", {options.layer.dropout}};  ///< Dropout of the input.
  /// The layers and the final norm.
  Encoder encoder{
      *this, "encoder", {.n_layers = options.n_layers, .layer = options.layer, .final_norm = true}};
  std::optional<Linear> head;  ///< d_model → n_classes, unless n_classes is 0.

 private:
  void make();
  Tensor make_cls();
  Tensor make_positions();
};

/// Returns the options of ViT-Ti/16 for 224 × 224 pixels (Touvron et al. 2021): 12 layers of width
/// 192, 3 heads; 5,717,416 parameters.
VisionTransformer::Options vit_tiny(int64_t n_classes = 1000);
/// Returns the options of ViT-S/16 (Touvron et al. 2021): width 384, 6 heads; 22,050,664
/// parameters.
VisionTransformer::Options vit_small(int64_t n_classes = 1000);
/// Returns the options of ViT-B/16 (Dosovitskiy et al. 2021, table 1): width 768, 12 heads;
/// 86,567,656 parameters.
VisionTransformer::Options vit_base(int64_t n_classes = 1000);
/// Returns the options of ViT-L/16 (the same): 24 layers of width 1024, 16 heads; 304,326,632
/// parameters.
VisionTransformer::Options vit_large(int64_t n_classes = 1000);

}  // namespace stretto::nn
