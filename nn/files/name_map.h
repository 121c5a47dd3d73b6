// Names that others gave to the same weights: how a file's tensors become a model's, and back.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "../module.h"
#include "name_pattern.h"

namespace stretto::nn {

/// What is done to a value on its way into the model. Without `back` it cannot be saved again.
struct Conversion {
  std::string name;  // for NameMap::describe()
  std::function<Tensor(const Tensor&)> there = {}, back = {};
};

/// A matrix [in, out], as GPT-2's Conv1D has it, to [out, in].
Conversion transposed();

/// Rules from a file's names to a model's. "{}" in a pattern stands for a number, "*" for any text,
/// and in what replaces it for the same one, in order; "[model.]" for text that a file may have or
/// not, and that saving writes:
///
///     NameMap map;
///     map.rename("[model.]h.{}.mlp.fc.weight", "layers.{}.linear1.weight")
///         .split("[model.]h.{}.attn.qkv.weight",
///                {{"layers.{}.q.weight", 4}, "layers.{}.k.weight", "layers.{}.v.weight"})
///         .drop("*.attn.mask");
///
/// The first rule whose pattern is the whole name counts; a name without one stays as it is.
class NameMap {
 public:
  NameMap() = default;
  /// {{from, to}, …}: renames; to "" drops.
  NameMap(std::initializer_list<std::pair<std::string, std::string>> renames);

  NameMap& rename(std::string from, std::string to);
  /// Of a dropped tensor neither values nor dtype matter.
  NameMap& drop(std::string from);
  /// One tensor for several of the model.
  NameMap& copy(std::string from, std::vector<std::string> to);

  /// A part of a split tensor, and its share of the dimension: rows, heads, or whatever all parts
  /// are counted in.
  struct Part {
    Part(const char* to_) : to(to_) {}
    Part(std::string to_, int64_t share_ = 1) : to(std::move(to_)), share(share_) {}
    std::string to;
    int64_t share = 1;
  };
  struct SplitOptions {
    int64_t dim = 0;
    /// Of the dimension; each has a piece of every part: [H, 3, D] rows (BLOOM, GPT-NeoX) are H.
    int64_t groups = 1;
    Conversion first = {};  // done to the whole
  };
  /// Cuts a dimension in parts, by default dimension 0 in equal ones.
  NameMap& split(std::string from, std::vector<Part> parts, SplitOptions options);
  NameMap& split(std::string from, std::vector<Part> parts);
  /// The other way round: what goes to one name is put together along dimension 0, in the order of
  /// the numbers. With the parts' shares, in that order from number 0 on, it can be saved again.
  NameMap& join(std::string from, std::string to, std::vector<int64_t> shares = {});
  /// Puts conversion.there(value) under the new name.
  NameMap& convert(std::string from, std::string to, Conversion conversion);
  NameMap& convert(std::string from, std::string to, std::function<Tensor(const Tensor&)> f);

  /// Takes the prefix off every name that begins with it, before any rule; saving puts it on every
  /// name. A prefix that some names lack in one file belongs into the rules, as "[model.]".
  NameMap& strip(std::string prefix);
  /// Puts the rules of another map before the rules so far, which then count where no other does.
  NameMap& prefer(const NameMap& rules);

  /// All rules, one a line, in the order in which they are tried:
  ///     [model.]h.{}.mlp.fc.weight    → layers.{}.linear1.weight
  std::string describe() const;
  /// Where a tensor of a file goes; empty when it is dropped.
  std::vector<std::string> targets(const std::string& name) const;

  /// A tensor for the model, and its name in the file.
  struct Mapped {
    NamedTensor tensor;
    std::string origin;
  };
  /// What a file has for a model. Throws where a tensor cannot be cut or converted, or where those
  /// to be joined do not fit each other.
  std::vector<Mapped> operator()(const std::vector<NamedTensor>& file) const;
  /// The other direction: a model's tensors under the file's names, by the first rule that gives
  /// the name; dropped ones are not made up. Throws where a rule has no way back.
  std::vector<NamedTensor> backwards(const std::vector<NamedTensor>& model) const;

 private:
  enum class Kind { rename, drop, copy, split, join };
  struct Rule {
    Kind kind;
    NamePattern from;
    std::vector<Part> to;
    SplitOptions cut = {};
    std::vector<int64_t> shares = {};  // of a join
  };
  struct Found {
    const Rule* rule = nullptr;  // null: the name stays
    NamePattern::Holes holes = {};
    std::string name;  // without prefixes
  };
  NameMap& add(Rule rule);
  Found find(const std::string& name) const;
  Found find_back(const std::string& name, size_t& part) const;
  std::string with_prefixes(std::string name) const;
  std::vector<NamedTensor> unjoin(const Rule& rule, const NamedTensor& whole,
                                  NamePattern::Holes holes) const;
  Tensor assembled(const std::string& name, const Rule& rule,
                   const std::map<size_t, NamedTensor>& parts) const;

  std::vector<Rule> rules_;
  std::vector<std::string> prefixes_;
};

}  // namespace stretto::nn
