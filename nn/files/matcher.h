// A file's tensors against a model's: for nn/files/weights.cpp and nn/training/checkpoint.cpp.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "../module.h"

namespace stretto::nn::files {

/// Parameters, then buffers.
std::vector<NamedTensor> state_of(const Module& model);

/// The names of a model's tensors: of one that is shared, the first of its names stands for all.
class FirstNames {
 public:
  explicit FirstNames(const Module& model);
  /// The first name of the tensor that has this one, or `name` where the model has none.
  const std::string& operator()(const std::string& name) const;

 private:
  std::unordered_map<std::string, std::string> first_;  // of the other names
};

/// Collects all that does not fit before it throws.
class Matcher {
 public:
  Matcher(std::string path, bool allow_not_finite)
      : path_(std::move(path)), allow_not_finite_(allow_not_finite) {}

  /// `name_in_file`: where it differs, it is told when the tensor is not wanted or does not fit.
  /// Weights that two layers share may be in the file once for each.
  void offer(const NamedTensor& value, const std::string& name_in_file);
  void offer(const NamedTensor& value) { offer(value, value.name); }
  /// One that is not wanted; `what` has its dtype and shape.
  void leave(const std::string& name, const std::string& name_in_file, const std::string& what);

  /// The name, and in brackets the one in the file where that is another.
  std::string named(const std::string& name) const;
  /// The tensor of that name, which counts as wanted; undefined when it is missing. `what`: the
  /// dtype and shape that are looked for.
  Tensor take(const std::string& name, const std::string& what = "");

  void problem(std::string text) { problems_.push_back(std::move(text)); }
  void need_finite(const std::string& name, const Tensor& value);

  /// Call when all is taken, before anything is changed. Throws for problems, and where `strict`
  /// for names that one side lacks.
  void finish(bool strict = true);
  /// The model's names and the file's that have no counterpart; after `finish`.
  std::vector<std::string> missing() const;
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
  std::unordered_map<std::string, std::string> origins_;
  std::vector<std::string> order_, problems_;
  std::vector<Named> missing_, left_;
};

struct Assignment {
  Tensor to, from;
};
/// Pairs the model's tensors with the file's; floating dtypes may differ where they are converted.
std::vector<Assignment> match_model(const Module& model, Matcher& matcher, bool convert);
/// On the CPU this cannot fail, so that a model is never left half loaded.
void assign(const std::vector<Assignment>& assignments);

}  // namespace stretto::nn::files
