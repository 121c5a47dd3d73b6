// The owner of a leaf: the module that has it as a parameter, and the number of optimizers that
// update it.
//
// Module and Optimizer maintain the list. They read it to report a parameter whose member was
// assigned, and leaves that get gradients but are not trained.
#pragma once

#include <cstdint>
#include <string>
#include <typeinfo>
#include <vector>

#include "../core/tensor.h"

namespace stretto::nn {

class Module;

/// Returns the name of a class without namespaces.
std::string type_name(const std::type_info& type);

/// Returns the name with the smallest edit distance from a pattern, in which "*" matches any text;
/// the first of several. There must be a name.
const std::string& nearest_name(const std::string& pattern, const std::vector<std::string>& names);

/// Records that a module has this leaf as a parameter.
void add_owner(const Tensor& leaf, const Module& module, const std::string& name);
/// Removes the record. No effect if the leaf belongs to another module.
void remove_owner(const Tensor& leaf, const Module& module) noexcept;
/// Counts an optimizer that starts (1) or stops (−1) updating a leaf. No effect for a tensor that has
/// never required a gradient.
void count_optimizers(const Tensor& leaf, int change);
/// Returns the number of optimizers that update a leaf.
int optimizers_of(const Tensor& leaf);

/// Checks, if the last backward pass of this thread has reached one of `parameters`, that every
/// leaf that it has reached is trained: its module, or another module of the same tree, has a
/// parameter in an optimizer. A leaf without a module must be in an optimizer, or be made after
/// tape number `since`: inputs may require gradients.
void check_trained(const char* op, const Tensors& parameters, uint64_t since);

}  // namespace stretto::nn
