// The subjects by family, and what the families share.
#pragma once

#include "nn/positions/positional_encoding.h"
#include "ops/attention/attention.h"
#include "tests/conformance/case.h"

namespace stretto::conformance {

/// Subjects with every way to compute them, the fastest first.
using Subjects = std::map<std::string, std::vector<Candidate>>;

Subjects attention_subjects();
Subjects linear_subjects();
Subjects layer_subjects();
Subjects op_subjects();
Subjects spe_subjects();

/// The implementations of attention that are evaluated one by one.
struct NamedImplementation {
  const char* name;
  Implementation implementation;
};
inline constexpr NamedImplementation attention_implementations[] = {
    {"automatic", Implementation::automatic}, {"composed", Implementation::composed}};

/// Plain attention: q, k, v and the masks of a case. Error where the sizes in its config are not
/// those of its tensors.
nn::AttentionInputs plain_call(const Tensors& x, const Config& config);
nn::HeadShape heads_of(const nn::AttentionInputs& inputs);

/// A single output.
Tensors only(const char* name, const Tensor& x);

/// Error unless the tensor has this shape.
void check_shape(const Tensors& x, const std::string& name, const Shape& shape);

/// A mask or indices of any integer or boolean dtype, in the one that the library takes.
Tensor mask(const Tensors& x, const std::string& name);
Tensor indices(const Tensors& x, const std::string& name);

/// Puts a tensor of the case, which must have its shape, in the place of a module's parameter.
void connect(const Tensor& parameter, const Tensors& x, const std::string& name);

}  // namespace stretto::conformance
