// Whose a leaf is: the module that has it as a parameter, and whether an optimizer updates it.
//
// Module and Optimizer keep the list; nn::Trainer reads it, to report a module that gets gradients
// but was never declared to its parent.
#pragma once

#include <optional>
#include <string>
#include <typeinfo>

#include "../core/tensor.h"

namespace stretto::nn {

class Module;

struct LeafOwner {
  std::string module;    // its type, without namespaces: "Linear"
  std::string name;      // the parameter's, there: "weight"
  bool updated = false;  // by some optimizer
};

/// The name of a class, without namespaces.
std::string type_name(const std::type_info& type);

void add_owner(const Tensor& leaf, const Module& module, const std::string& name);
/// Without effect where the leaf is another module's.
void remove_owner(const Tensor& leaf, const Module& module) noexcept;
/// An optimizer begins (1) or ends (−1) to update a leaf. Without effect for a leaf of no module.
void count_optimizers(const Tensor& leaf, int change) noexcept;

/// Of the leaf with this place on the tape; none if it is no parameter of a living module.
std::optional<LeafOwner> owner_of(const TapeEntry* leaf);

}  // namespace stretto::nn
