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
  /// The other way round: what goes to one name is put together along dimension 0, in the order of
  /// the numbers.
  NameMap& join(std::string from, std::string to);
  /// Puts f(value) under the new name.
  NameMap& convert(std::string from, std::string to, std::function<Tensor(const Tensor&)> f);

  /// A tensor for the model, and its name in the file.
  struct Mapped {
    NamedTensor tensor;
    std::string origin;
  };
  /// What a file has for a model. Throws where a tensor cannot be cut in equal parts, or where
  /// those to be joined do not fit each other.
  std::vector<Mapped> operator()(const std::vector<NamedTensor>& file) const;

 private:
  struct Rule {
    std::string from;
    std::vector<std::string> to;
    std::function<Tensor(const Tensor&)> f = {};
    bool joins = false;
  };
  NameMap& add(Rule rule);
  std::vector<Rule> rules_;
};

}  // namespace stretto::nn
