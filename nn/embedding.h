// A table of vectors, one per token.
#pragma once

#include "module.h"

namespace stretto::nn {

/// Options of Embedding.
struct EmbeddingOptions {
  int64_t count = 0;  ///< Number of vectors, at least 1.
  int64_t dim = 0;    ///< Dimension of the vectors, at least 1.
  double std = 1;     ///< Initial standard deviation.
};

/// An embedding table.
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;  ///< Options of the constructor.
  /// Constructs a root module. Throws if a size is below 1.
  explicit Embedding(Options options);
  /// Constructs a child of `parent`. Throws if a size is below 1.
  Embedding(Module& parent, std::string name, Options options);

  /// ids of any shape S (i64 or i32, in [0, count)) → [S…, dim].
  Tensor operator()(const Tensor& ids) const;
  std::string label() const override;

  const Options options;  ///< As passed to the constructor.
  /// [count, dim], initially normal with standard deviation Options::std.
  const Tensor weight = parameter("weight", empty({options.count, options.dim}));
};

}  // namespace stretto::nn
