// Names that others gave to the same weights: how a file's tensors become a model's.
#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "nn/module.h"

namespace stretto::nn {

/// Rules from a file's names to a model's. "{}" in a pattern stands for a number, and in what
/// replaces it for the same one, in order:
///
///     NameMap map;
///     map.rename("h.{}.mlp.fc.weight", "layers.{}.linear1.weight")
///        .split("h.{}.attn.qkv.weight", {"layers.{}.q.weight", "layers.{}.k.weight",
///        "layers.{}.v.weight"}) .drop("h.{}.attn.mask");
///
/// The first rule whose pattern is the whole name counts; a name without one stays as it is.
class NameMap {
 public:
  NameMap() = default;
  /// {{from, to}, …}: renames; to "" drops.
  NameMap(std::initializer_list<std::pair<std::string, std::string>> renames);

  NameMap& rename(std::string from, std::string to);
  NameMap& drop(std::string from);
  /// Cuts dimension 0 in as many equal parts as there are targets.
  NameMap& split(std::string from, std::vector<std::string> to);
  /// Puts f(value) under the new name.
  NameMap& convert(std::string from, std::string to, std::function<Tensor(const Tensor&)> f);

  /// What the model gets from one tensor of a file; several after a split, none when dropped.
  /// Throws when it cannot be cut in equal parts.
  std::vector<NamedTensor> operator()(const NamedTensor& source) const;

 private:
  struct Rule {
    std::string from;
    std::vector<std::string> to;
    std::function<Tensor(const Tensor&)> f = {};
  };
  NameMap& add(Rule rule);
  std::vector<Rule> rules_;
};

}  // namespace stretto::nn
