// A table of vectors, one per token.
#pragma once

#include "module.h"

namespace stretto::nn {

struct EmbeddingOptions {
  int64_t count = 0;
  int64_t dim = 0;
  double std = 1;
};

/// ids of any shape S (i64 or i32, in [0, count)) → [S…, dim]; weight [count, dim] starts normal
/// with the given standard deviation.
class Embedding : public Module {
 public:
  using Options = EmbeddingOptions;
  explicit Embedding(Options options);
  Embedding(Module& parent, std::string name, Options options);

  Tensor operator()(const Tensor& ids) const;
  std::string label() const override;

  const Options options;
  const Tensor weight = parameter("weight", empty({options.count, options.dim}));
};

}  // namespace stretto::nn
