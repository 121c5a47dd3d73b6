#include "nn/training/parameter_groups.h"

#include <utility>

#include "nn/files/name_pattern.h"
#include "nn/leaf_owners.h"

namespace stretto::nn {

std::vector<ParameterGroup> parameter_groups(const Module& model,
                                             const std::vector<GroupRule>& rules) {
  constexpr const char* op = "parameter_groups";
  std::vector<NamePattern> patterns;
  std::vector<ParameterGroup> groups;
  for (const GroupRule& rule : rules) {
    check(rule.settings.parameters.empty(), op, "the rule \"", rule.names,
          "\" has parameters; its pattern must choose them");
    patterns.emplace_back(rule.names);
    groups.push_back(rule.settings);
  }
  groups.emplace_back();  // of the other parameters
  std::vector<bool> matched(rules.size());
  std::vector<std::string> names;
  for (const auto& [name, parameter] : model.named_parameters()) {
    names.push_back(name);
    size_t group = rules.size();
    for (size_t i = rules.size(); i-- > 0;) {
      if (!patterns[i].match(name)) continue;
      matched[i] = true;
      group = i;
    }
    groups[group].parameters.push_back(parameter);
  }
  for (size_t i = 0; i < rules.size(); ++i)
    check(matched[i], op, "no parameter of ", model.label(), " matches \"", rules[i].names, "\"",
          names.empty() ? "" : "; a similar name is " + nearest_name(rules[i].names, names),
          "; describe() lists all names");
  std::erase_if(groups, [](const ParameterGroup& group) { return group.parameters.empty(); });
  return groups;
}

std::vector<ParameterGroup> no_decay_for_norms_and_biases(std::vector<ParameterGroup> groups) {
  std::vector<ParameterGroup> divided;
  for (ParameterGroup& group : groups) {
    ParameterGroup vectors = group;
    vectors.weight_decay = 0;
    std::erase_if(vectors.parameters, [](const Tensor& p) { return p.dim() >= 2; });
    std::erase_if(group.parameters, [](const Tensor& p) { return p.dim() < 2; });
    for (ParameterGroup* part : {&group, &vectors})
      if (!part->parameters.empty()) divided.push_back(std::move(*part));
  }
  return divided;
}

}  // namespace stretto::nn
