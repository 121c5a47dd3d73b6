#include "nn/embedding.h"

#include "nn/init.h"
#include "ops/indexing.h"

namespace stretto::nn {

Embedding::Embedding(Options o) : options(o) { make(); }

Embedding::Embedding(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(o) {
  make();
}

void Embedding::make() {
  check(options.count > 0 && options.dim > 0, "Embedding", "sizes count = ", options.count,
        " and dim = ", options.dim, " must be positive");
  weight = parameter("weight", empty({options.count, options.dim}));
  normal_(weight, 0, options.std);
}

Tensor Embedding::operator()(const Tensor& ids) const { return embedding(weight, ids); }

std::string Embedding::label() const {
  return str("Embedding(", options.count, " × ", options.dim, ")");
}

}  // namespace stretto::nn
