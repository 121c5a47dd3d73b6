#include "nn/embedding.h"

#include "nn/init.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

const Embedding::Options& checked(const Embedding::Options& o) {
  check(o.count > 0 && o.dim > 0, "Embedding", "sizes count = ", o.count, " and dim = ", o.dim,
        " must be positive");
  return o;
}

}  // namespace

Embedding::Embedding(Options o) : options(checked(o)) { normal_(weight, 0, options.std); }

Embedding::Embedding(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  normal_(weight, 0, options.std);
}

Tensor Embedding::operator()(const Tensor& ids) const { return embedding(weight, ids); }

std::string Embedding::label() const {
  return str("Embedding(", options.count, " × ", options.dim, ")");
}

}  // namespace stretto::nn
