// Ladders: one function implemented step by step, from the definition to the library's method. Each
// step states the reason for it. tests/benchmarks/ladders_test.cpp compares the steps; the program
// `ladders` times them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace stretto::ladders {

/// One implementation. All steps of a ladder accept the same inputs, contiguous f32 tensors on the
/// CPU, and return the same result up to rounding.
struct Step {
  std::string name;
  std::function<Tensor(const Tensors& inputs)> run;
};

/// The implementations of one function.
struct Ladder {
  std::string name;
  std::vector<Step> steps;                     // the first is the definition
  std::function<Tensors(int64_t n)> inputs;    // inputs of size n, the same each time
  int64_t size;                                // the n at which the steps are timed
  std::string unit;                            // "GFLOP/s" or "GB/s"
  std::function<double(int64_t n)> work;       // of one run, in units of 1e9, by the definition
  std::function<double(int64_t n)> tolerance;  // largest difference of steps due to rounding
};

Ladder matmul();
Ladder softmax();
Ladder layer_norm();
Ladder relative_attention();
Ladder causal_linear_attention();

inline std::vector<Ladder> all() {
  return {matmul(), softmax(), layer_norm(), relative_attention(), causal_linear_attention()};
}

/// Returns random numbers, uniform in [low, high).
Tensor noise(const Shape& shape, uint64_t stream, double low = -1, double high = 1);

constexpr double unit_roundoff = 0x1p-24;  // largest relative rounding error of f32

}  // namespace stretto::ladders
