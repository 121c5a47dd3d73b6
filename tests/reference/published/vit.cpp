// ViT (Dosovitskiy et al. 2021; modeling_vit.py) with a classifier.
#include <cmath>

#include "tests/reference/published/published.h"

namespace stretto::reference {

Matrix vit(const Weights& w, const Tensor& image, int64_t patch, int64_t layers, int64_t heads) {
  constexpr double eps = 1e-12;
  const int64_t channels = image.size(0), height = image.size(1), width = image.size(2);
  const std::vector<double> pixels = image.to_vector<double>();
  const std::string input = "vit.embeddings.";

  // One row per patch: its pixels, channel by channel.
  Matrix patches{height / patch * (width / patch), channels * patch * patch};
  for (int64_t i = 0; i < patches.rows; ++i)
    for (int64_t j = 0; j < patches.columns; ++j) {
      const int64_t c = j / (patch * patch);
      const int64_t y = i / (width / patch) * patch + j / patch % patch;
      const int64_t x = i % (width / patch) * patch + j % patch;
      patches(i, j) = pixels[size_t((c * height + y) * width + x)];
    }
  const Matrix vectors = linear(w, patches, input + "patch_embeddings.projection");
  Matrix x = w[input + "position_embeddings"];  // [1 + patches, D]
  for (int64_t j = 0; j < x.columns; ++j) {
    x(0, j) += w[input + "cls_token"](0, j);
    for (int64_t i = 0; i < vectors.rows; ++i) x(1 + i, j) += vectors(i, j);
  }

  const int64_t d = x.columns / heads;
  for (int64_t n = 0; n < layers; ++n) {
    const std::string layer = "vit.encoder.layer." + std::to_string(n) + ".";
    const std::string self = layer + "attention.attention.";
    const Matrix before = layer_norm(w, x, layer + "layernorm_before", eps);
    const Matrix q = linear(w, before, self + "query"), k = linear(w, before, self + "key");
    const Matrix joined = attend(x.rows, heads, linear(w, before, self + "value"), heads,
                                 [&](int64_t h, int64_t i, int64_t j) {
                                   return dot(q, i, h, k, j, h, d) / std::sqrt(double(d));
                                 });
    x = x + linear(w, joined, layer + "attention.output.dense");
    const Matrix after = layer_norm(w, x, layer + "layernorm_after", eps);
    const Matrix hidden = map(linear(w, after, layer + "intermediate.dense"), gelu);
    x = x + linear(w, hidden, layer + "output.dense");
  }
  return linear(w, rows(layer_norm(w, x, "vit.layernorm", eps), {0}), "classifier");
}

}  // namespace stretto::reference
