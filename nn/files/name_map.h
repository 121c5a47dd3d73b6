// Maps from the tensor names of a file to those of a model, and back.
#pragma once

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "../module.h"
#include "name_pattern.h"

namespace stretto::nn {

/// A conversion of values between file and model.
struct Conversion {
  std::string name;                                 ///< Shown by NameMap::describe().
  std::function<Tensor(const Tensor&)> there = {};  ///< From the file to the model.
  /// From the model to the file; without it the tensor cannot be saved under the file's name.
  std::function<Tensor(const Tensor&)> back = {};
  /// The values are only moved, never computed, so that loading may convert them to the model's
  /// dtype before, while it reads them.
  bool moves_only = false;
};

/// Returns the conversion between [in, out], e.g. of GPT-2's Conv1D, and [out, in].
Conversion transposed();

/// Rules that map the names of a file to those of a model. In a pattern, "{}" matches a number, "*"
/// any text, and "[model.]" an optional text, which saving writes. In the replacement, "{}" and "*"
/// stand for the matched numbers and texts, in order:
///
///     NameMap map;
///     map.rename("[model.]h.{}.mlp.fc.weight", "layers.{}.linear1.weight")
///         .split("[model.]h.{}.attn.qkv.weight",
///                {{"layers.{}.q.weight", 4}, "layers.{}.k.weight", "layers.{}.v.weight"})
///         .drop("*.attn.mask");
///
/// The first rule whose pattern matches the whole name is applied; other names are not changed.
class NameMap {
 public:
  /// A map without rules.
  NameMap() = default;
  /// A map of renames {{from, to}, …}; to = "" drops the tensor.
  NameMap(std::initializer_list<std::pair<std::string, std::string>> renames);

  /// Renames a tensor.
  NameMap& rename(std::string from, std::string to);
  /// Drops a tensor. It is not read, and its dtype may be unsupported.
  NameMap& drop(std::string from);
  /// Copies one tensor to several tensors of the model.
  NameMap& copy(std::string from, std::vector<std::string> to);

  /// One part of a split tensor.
  struct Part {
    /// A part with share 1.
    Part(const char* to_) : to(to_) {}
    /// A part with its share of the dimension.
    Part(std::string to_, int64_t share_ = 1) : to(std::move(to_)), share(share_) {}
    std::string to;     ///< Name in the model.
    int64_t share = 1;  ///< Relative size, e.g. in rows or heads; the same unit for all parts.
  };
  /// How a tensor is split.
  struct SplitOptions {
    int64_t dim = 0;  ///< Dimension to split.
    /// Number of groups that the dimension consists of, each with its own chunk of every part; H
    /// for rows in the order [H, 3, D] (BLOOM, GPT-NeoX).
    int64_t groups = 1;
    Conversion first = {};  ///< Applied to the whole tensor before the split.
  };
  /// Splits a tensor along a dimension.
  NameMap& split(std::string from, std::vector<Part> parts, SplitOptions options);
  /// Splits a tensor along dimension 0.
  NameMap& split(std::string from, std::vector<Part> parts);
  /// Concatenates all tensors that map to `to` along dimension 0, in the order of their numbers
  /// (the last "{}"). To save the tensor again, `shares` must have the sizes of parts 0, 1, ….
  NameMap& join(std::string from, std::string to, std::vector<int64_t> shares = {});
  /// Concatenates the tensors `from` along dimension 0 in this order, each after the conversion. To
  /// save the tensor again, `shares` must have the sizes of the parts.
  NameMap& join_named(const std::vector<std::string>& from, const std::string& to,
                      const std::vector<int64_t>& shares = {}, const Conversion& conversion = {});
  /// Renames a tensor and converts its value by conversion.there.
  NameMap& convert(std::string from, std::string to, Conversion conversion);
  /// Renames a tensor and converts its value by `f`, which has no inverse: the tensor cannot be
  /// saved under the file's name.
  NameMap& convert(std::string from, std::string to, std::function<Tensor(const Tensor&)> f);

  /// Removes the prefix from every name that begins with it, before any rule; saving adds it to
  /// every name. A prefix that some names of a file lack belongs in the rules, as "[model.]".
  NameMap& strip(std::string prefix);
  /// Inserts the rules of another map before the present ones, so that they take precedence.
  NameMap& prefer(const NameMap& rules);
  /// Sets the map of the names that the program's modules have, where its files have others (Inkling
  /// 2 in transformers); for LoRA.
  NameMap& set_modules(NameMap map);
  /// Returns that map; by default this one.
  const NameMap& modules() const { return modules_ ? *modules_ : *this; }

  /// Returns all rules, one per line, in the order in which they are tried:
  ///
  ///     [model.]h.{}.mlp.fc.weight    → layers.{}.linear1.weight
  std::string describe() const;
  /// Returns the names in the model for a tensor of a file; empty if it is dropped.
  std::vector<std::string> targets(const std::string& name) const;

  /// Returns the name in the file of a tensor of the model; nothing if it is a part of a tensor of
  /// the file, or joined from several. Throws Error if the rule is not invertible.
  std::optional<std::string> source(const std::string& name) const;

  /// Returns the name in the file of a tensor of the model, or of the tensor that it is a part of;
  /// nothing if it is joined from several. Throws Error if the rule is not invertible.
  std::optional<std::string> whole(const std::string& name) const;

  /// Splits x as the outputs of a matrix of a file are split, along dimension 0: one part for each
  /// of targets(name), without conversion. For the factors of LoRA. Throws Error if the matrix is
  /// joined, or split along its inputs.
  std::vector<NamedTensor> split_outputs(const std::string& name, const Tensor& x) const;

  /// True if the values of this tensor of a file are not computed with: its rule has no conversion,
  /// or one that only moves values.
  bool moves_only(const std::string& name) const;
  /// True if this tensor of a file is joined with others.
  bool is_joined(const std::string& name) const;

  /// A tensor for the model.
  struct Mapped {
    NamedTensor tensor;  ///< Under its name in the model.
    std::string origin;  ///< Name in the file.
  };
  /// Maps the tensors of a file to a model. Throws Error if a tensor cannot be split or converted,
  /// or if tensors to be joined have incompatible shapes or dtypes.
  std::vector<Mapped> operator()(const std::vector<NamedTensor>& file) const;
  /// Maps the tensors of a model to the names of the file, by the first rule that yields each name.
  /// Dropped tensors are not recreated. Throws Error if a rule is not invertible.
  std::vector<NamedTensor> backwards(const std::vector<NamedTensor>& model) const;

 private:
  enum class Kind { rename, drop, copy, split, join };
  struct Rule {
    Kind kind;
    NamePattern from;
    std::vector<Part> to;
    SplitOptions cut = {};
    std::vector<int64_t> shares = {};      // for join
    std::vector<NamePattern> joined = {};  // for join_named: all parts, and which one `from` is
    int64_t number = 0;
  };
  struct Found {
    const Rule* rule = nullptr;  // null: no rule matches, the name is not changed
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
  std::shared_ptr<const NameMap> modules_;
};

}  // namespace stretto::nn
