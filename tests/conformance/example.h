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
  /// With bf16 for `dtype` the case tells what arithmetic on bf16 tensors makes of the same inputs
  /// at best: inputs, cotangents, outputs, gradients and what passes through stored() are rounded
  /// once, the rest is exact. `seed` chooses the noise.
  explicit Example(const std::string& subject, const std::string& config = "{}", DType dtype = f64,
                   uint64_t seed = 0);

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
  /// What one op hands to the next.
  testing::Number stored(const testing::Number& x) const {
    return dtype_ == f64 ? x : testing::stored_number(x);
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
  DType dtype_;
  uint64_t seed_;
  std::map<std::string, Entry> entries_;
  std::vector<std::string> leaves_;
};

/// Holds every candidate of the case's subject against it, in f64, f32 and bf16.
void check_everywhere(const Case& c);

}  // namespace stretto::conformance
