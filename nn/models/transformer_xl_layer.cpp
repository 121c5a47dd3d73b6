#include "nn/models/transformer_xl_layer.h"

#include "ops/indexing.h"

namespace stretto::nn {

Tensor TransformerXLLayer::operator()(const Tensor& x, const Tensor& memory,
                                      const AttentionMask& mask,
                                      const ForwardContext& forward) const {
  check(!memory.defined() || (memory.dim() == 3 && memory.size(0) == x.size(0)),
        "TransformerXLLayer", "memory ", memory, " for x ", x, "; must be [B, m, d_model]");
  const int64_t m = memory.defined() ? memory.size(1) : 0;
  const Tensor all = m > 0 ? cat({memory.detach(), x}, 1) : x;
  auto attend = [&](const Tensor& queries, const Tensor& context) {
    const Tensor y = self_attention.attend(self_attention.project(queries, context, mask, forward));
    return dropout.add(norm1_out ? (*norm1_out)(y) : y, x, forward);
  };
  if (options.norm == NormPlace::post) return feed(x, norm1(attend(x, all)), x, forward);
  const Tensor context = norm1(all), normed = context.slice(1, m);
  return feed(x, attend(normed, context), normed, forward);
}

std::string TransformerXLLayer::label() const {
  return "TransformerXL" + TransformerLayer::label().substr(std::string("Transformer").size());
}

}  // namespace stretto::nn
