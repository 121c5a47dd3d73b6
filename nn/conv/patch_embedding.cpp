#include "nn/conv/patch_embedding.h"

namespace stretto::nn {

PatchEmbedding::PatchEmbedding(Options o) : options(o) {}

PatchEmbedding::PatchEmbedding(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {}

Tensor PatchEmbedding::operator()(const Tensor& images) const {
  const Size2d patch = options.patch;
  check(images.dim() == 4 && images.size(1) == options.channels &&
            images.size(2) % patch.height == 0 && images.size(3) % patch.width == 0,
        "PatchEmbedding", "images ", images, "; must be [B, ", options.channels,
        ", height, width], whole patches of ", patch.height, " x ", patch.width);
  const Tensor y = projection(images);  // [B, d_model, rows, columns]
  return y.reshape({y.size(0), y.size(1), y.size(2) * y.size(3)}).transpose(1, 2);
}

std::string PatchEmbedding::label() const {
  return str("PatchEmbedding(", options.patch.height, " x ", options.patch.width, ", ",
             options.channels, " → ", options.d_model, ")");
}

}  // namespace stretto::nn
