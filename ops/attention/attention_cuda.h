// The fused form of attention on a GPU (cuda/attention/attention.h). Internal to ops/.
//
// Reference: tests/reference/attention.cpp, attention()
#pragma once

#include <optional>

#include "attention_terms.h"

namespace stretto {

/// Nothing where the kernels do not serve: the composed form does. Arguments are checked and
/// options completed by attention().
std::optional<Tensor> cuda_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                     const AttentionOptions& options);

}  // namespace stretto
