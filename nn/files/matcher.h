// Matches the tensors of a file with those of a model, for weights.cpp and training/checkpoint.cpp.
#pragma once

#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "../module.h"

namespace stretto::nn::files {

/// Returns the parameters of a model, then its persistent buffers.
std::vector<NamedTensor> state_of(const Module& model);

/// Maps each name of a shared tensor to the first of its names.
class FirstNames {
 public:
  explicit FirstNames(const Module& model);
  /// Returns the first name of the tensor that has this name; `name` itself if the model has none.
  const std::string& operator()(const std::string& name) const;

 private:
  std::unordered_map<std::string, std::string> first_;  // by the other names
};

/// True if no value of a tensor on the CPU is NaN or infinite.
bool has_finite_values(const Tensor& value);

/// Matches tensors by name and collects all problems before it throws.
class Matcher {
 public:
  Matcher(std::string path, bool allow_not_finite)
      : path_(std::move(path)), allow_not_finite_(allow_not_finite) {}

  /// Adds a tensor of the file. If `name_in_file` differs, errors show both names. A shared tensor
  /// may be in the file several times, with equal values.
  void offer(const NamedTensor& value, const std::string& name_in_file);
  void offer(const NamedTensor& value) { offer(value, value.name); }
  /// Adds a tensor of the file that the model does not have; `what` has its dtype and shape.
  void leave(const std::string& name, const std::string& name_in_file, const std::string& what);

  /// Returns the name, followed by the name in the file in parentheses if that differs.
  std::string named(const std::string& name) const;
  /// Takes the tensor of a name; undefined if it is missing, which finish() reports. `what` is the
  /// expected dtype and shape.
  Tensor take(const std::string& name, const std::string& what = "");

  /// Adds a problem for finish() to report.
  void problem(std::string text) { problems_.push_back(std::move(text)); }
  /// Notes if a value that will be offered is finite, while it is in the processor's cache.
  void check_finite(const NamedTensor& value);
  /// True if check_finite() has found that the value of this name is finite.
  bool is_finite(const std::string& name) const { return finite_.contains(name); }
  /// Adds a problem if the value has NaN or infinity, unless these are allowed.
  void need_finite(const std::string& name, const Tensor& value);

  /// Call after the last take(), before anything is changed. Throws Error if there are problems,
  /// or, with `strict`, names without a counterpart.
  void finish(bool strict = true);
  /// Returns the names in the model without a counterpart; call after finish().
  std::vector<std::string> missing() const;
  /// Returns the names in the file without a counterpart; call after finish().
  std::vector<std::string> unused() const;

 private:
  struct Named {
    std::string name, name_in_file, what;
    std::string shown() const;
  };
  std::string nearest(const Named& missing) const;

  std::string path_;
  bool allow_not_finite_;
  std::unordered_map<std::string, Tensor> found_;
  std::unordered_set<std::string> finite_;
  std::unordered_map<std::string, std::string> origins_;
  std::vector<std::string> order_, problems_;
  std::vector<Named> missing_, left_;
};

/// A tensor of the model and its new value.
struct Assignment {
  Tensor to, from;
};
/// Pairs tensors of the model with those of the file. With `convert`, floating dtypes may differ;
/// the new values have the dtype of the model's tensor, or of the file if that is `loaded`.
std::vector<Assignment> match_tensors(const std::vector<NamedTensor>& tensors, Matcher& matcher,
                                      bool convert, std::optional<DType> loaded = {});
/// Assigns the new values. On the CPU this cannot fail, so a model is never partially loaded. With
/// `replace`, a tensor on the CPU may take over the memory of its new value instead of a copy; not
/// if a view of the tensor or a gradient exists.
void assign(const std::vector<Assignment>& assignments, bool replace = false);

}  // namespace stretto::nn::files
