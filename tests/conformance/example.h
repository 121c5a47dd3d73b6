// Conformance cases made by a test: inputs of noise, outputs by whoever writes the formula as loops
// over numbers, cotangents, and gradients from the numbers' own tape (tests/support/number.h).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/conformance/case.h"
#include "tests/support/number.h"

namespace stretto::conformance {

class Example {
 public:
  /// All differentiable inputs are declared before the first number is computed.
  explicit Example(const std::string& subject, const std::string& config = "{}");

  /// An input with noise from [−1, 1), times `scale`, plus `shift`, that gets a gradient.
  void input(const std::string& name, const Shape& shape, double scale = 1, double shift = 0);
  /// A given input without a gradient.
  void constant(const std::string& name, const Tensor& x);
  /// An entry of an input.
  template <class... Index>
  testing::Number operator()(const std::string& name, Index... index) const {
    const Entry& e = entries_.at(name);
    int64_t at = 0, d = 0;
    ((at = at * e.shape[d++] + index), ...);
    return e.numbers[size_t(at)];
  }
  struct Output {
    std::string name;
    Shape shape;
    std::vector<testing::Number> values;
  };
  /// Adds outputs with their cotangents, and the gradients: the case is complete.
  Case finish(const std::vector<Output>& outputs);
  Case finish(const std::string& name, const Shape& shape,
              const std::vector<testing::Number>& values) {
    return finish({{name, shape, values}});
  }

 private:
  struct Entry {
    Shape shape;
    std::vector<testing::Number> numbers;
  };
  Case case_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> leaves_;
};

/// Holds every implementation of the case's subject against it, in f64, f32 and bf16.
void check_everywhere(const Case& c);

}  // namespace stretto::conformance
