// The subjects by family, and helpers that the families share.
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

/// Returns attention inputs without positions: q, k, v and the masks of a case. Throws if the sizes
/// in its config are not those of its tensors.
nn::AttentionInputs plain_call(const Tensors& x, const Config& config);
nn::HeadShape heads_of(const nn::AttentionInputs& inputs);

/// Returns the outputs of a subject that has a single one.
Tensors only(const char* name, const Tensor& x);

/// Throws unless the sizes that a config has are these sizes of the tensors.
void check_sizes(const Config& config, const std::vector<std::pair<const char*, int64_t>>& sizes);

/// Throws unless the tensor has this shape.
void check_shape(const Tensors& x, const std::string& name, const Shape& shape);

/// Returns a mask or indices of any integer or boolean dtype in the dtype that the library accepts.
Tensor mask(const Tensors& x, const std::string& name);
Tensor indices(const Tensors& x, const std::string& name);

/// Replaces the data of a module's parameter by a tensor of the case of the same shape.
void connect(const Tensor& parameter, const Tensors& x, const std::string& name);

}  // namespace stretto::conformance
