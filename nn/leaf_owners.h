// The owner of a leaf: the module that has it as a parameter, and whether an optimizer updates it.
//
// Module and Optimizer maintain the list. nn::Trainer reads it to report a module that gets
// gradients but was not registered in its parent.
#pragma once

#include <optional>
#include <string>
#include <typeinfo>

#include "../core/tensor.h"

namespace stretto::nn {

class Module;

struct LeafOwner {
  std::string module;    // class name without namespaces: "Linear"
  std::string name;      // name of the parameter in the module: "weight"
  bool updated = false;  // true if an optimizer updates it
};

/// Returns the name of a class without namespaces.
std::string type_name(const std::type_info& type);

/// Records that a module has this leaf as a parameter.
void add_owner(const Tensor& leaf, const Module& module, const std::string& name);
/// Removes the record. No effect if the leaf belongs to another module.
void remove_owner(const Tensor& leaf, const Module& module) noexcept;
/// Counts an optimizer that starts (1) or stops (−1) updating a leaf. No effect for a leaf without
/// a module.
void count_optimizers(const Tensor& leaf, int change) noexcept;

/// Returns the owner of the leaf with this tape entry; none if it is not a parameter
/// of an existing module.
std::optional<LeafOwner> owner_of(const TapeEntry* leaf);

}  // namespace stretto::nn
