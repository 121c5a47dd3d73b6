// Conformance cases: worked examples of single functions, one per file. README.md defines the file
// format and how a result is judged.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "tests/conformance/config.h"

namespace stretto::conformance {

/// Tensors by their names in a case: "in.q", "param.rel", "noise.z", "out.y", "grad.in.q".
class Tensors {
 public:
  bool has(const std::string& name) const { return map_.count(name) > 0; }
  /// Returns a tensor; throws if the case has none of this name.
  const Tensor& operator[](const std::string& name) const;
  void set(const std::string& name, const Tensor& x) { map_.insert_or_assign(name, x); }
  auto begin() const { return map_.begin(); }
  auto end() const { return map_.end(); }

 private:
  std::map<std::string, Tensor> map_;
};

struct Case {
  std::string name, subject;
  Config config;
  Tensors tensors;
};

/// Reads a case. Throws an Error with the path if the file is not a case or if its tensors
/// contradict each other.
Case load_case(const std::string& path);

/// Computes the outputs of a case, with their names in the case, from its inputs. Inputs with an
/// expected gradient are leaves that require a gradient.
using Evaluate = std::function<Tensors(const Tensors& inputs, const Config& config)>;

/// One of possibly several ways to compute a subject.
struct Candidate {
  std::string name;
  Evaluate evaluate;
  bool cpu_alone = false;  // no implementation for a GPU yet
};

struct Result {
  std::string candidate;
  Tensors computed;   // the out.* and grad.* that the case expects
  double worst = 0;   // the largest error of a tensor
  std::string where;  // its name
};

/// Runs one candidate on one case in `dtype` on `device`. The error of a tensor is
/// max |got − want| / max(1, max |want|), infinite for a NaN. Throws if the tensors of the case do
/// not fit its subject.
Result run(const Case& c, const Candidate& candidate, DType dtype,
           Device device = default_device());

/// Returns the largest allowed `worst`.
double tolerance(DType dtype);

/// True if the case is meaningful in this dtype; some are for f64 only.
bool judged(const Case& c, DType dtype);

}  // namespace stretto::conformance
