// Parameter groups chosen by the names of parameters.
//
//     nn::AdamW optimizer(nn::no_decay_for_norms_and_biases(nn::parameter_groups(
//                             model, {{"embedding.*", {.lr_scale = 0.1}}})),
//                         {.lr = 3e-4, .weight_decay = 0.1});
#pragma once

#include <string>
#include <vector>

#include "../optim/optim.h"

namespace stretto::nn {

/// The settings of all parameters whose names match a pattern.
struct GroupRule {
  /// Pattern of the whole name, "layers.{}.norm1.*": "*" matches any text, "{}" a number, "[text]"
  /// an optional text (NamePattern).
  std::string names;
  ParameterGroup settings = {};  ///< Settings of the group, without parameters.
};

/// Returns the parameters of a model, one group for each rule in this order, then the others with
/// default settings. A parameter is in the group of the first rule that it matches. Groups without
/// parameters are left out. Throws Error if a pattern matches no name.
std::vector<ParameterGroup> parameter_groups(const Module& model,
                                             const std::vector<GroupRule>& rules = {});

/// Divides each group: parameters with fewer than two dimensions, which are biases and the weights
/// of norms, are in a group of their own without weight decay.
std::vector<ParameterGroup> no_decay_for_norms_and_biases(std::vector<ParameterGroup> groups);

}  // namespace stretto::nn
