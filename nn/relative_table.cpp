#include "nn/relative_table.h"

#include <cmath>

#include "nn/init.h"
#include "ops/create.h"

namespace stretto::nn {

MusicRelative::MusicRelative(Module& parent, HeadShape shape, Options o)
    : Position(parent), options(o) {
  check(o.length >= 1, "MusicRelative", "length ", o.length, "; needs at least 1");
  const int64_t rows = o.two_sided ? 2 * o.length - 1 : o.length;
  const Tensor value = empty({o.shared_by_heads ? 1 : shape.n_heads, rows, shape.d_key});
  normal_(value, 0, 1 / std::sqrt(double(shape.d_key)));
  table = parameter("table", value);
}

void MusicRelative::apply(AttentionCall& call) const {
  call.options.keys = {.rows = table, .zero_row = options.length - 1, .beyond = options.beyond};
}

std::string MusicRelative::label() const {
  return str("MusicRelative(length ", options.length, options.two_sided ? ", two-sided" : "",
             options.shared_by_heads ? ", shared by heads)" : ")");
}

}  // namespace stretto::nn
