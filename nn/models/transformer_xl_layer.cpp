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
  const bool post = options.norm == NormPlace::post;
  const Tensor context = post ? all : norm1(all), queries = post    ? x
                                                            : m > 0 ? context.slice(1, m)
                                                                    : context;
  ResidualStream stream(x);
  add_branches(stream, queries,
               self_attention.attend(self_attention.project(queries, context, mask, forward)),
               forward);
  return stream.value();
}

std::string TransformerXLLayer::label() const {
  return "TransformerXL" + TransformerLayer::label().substr(std::string("Transformer").size());
}

}  // namespace stretto::nn
