// Ladders: one function in several ways, from the definition to what the library does, each step
// with the reason why it is taken. tests/benchmarks/ladders_test.cpp compares the steps, the
// program `ladders` times them.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace stretto::ladders {

/// The steps of a ladder take the same inputs, contiguous f32 tensors on the CPU, and give the same
/// result.
struct Step {
  std::string name;
  std::function<Tensor(const Tensors& inputs)> run;
};

struct Ladder {
  std::string name;
  std::vector<Step> steps;                     // the first is the definition
  std::function<Tensors(int64_t n)> inputs;    // at size n, the same each time
  int64_t size;                                // n at which the steps are timed
  std::string unit;                            // of work per second, "GFLOP/s" or "GB/s"
  std::function<double(int64_t n)> work;       // of one run, as the definition counts it, in 1e9
  std::function<double(int64_t n)> tolerance;  // by how much steps may differ, from rounding
};

Ladder matmul();
Ladder softmax();
Ladder layer_norm();
Ladder relative_attention();
Ladder causal_linear_attention();

inline std::vector<Ladder> all() {
  return {matmul(), softmax(), layer_norm(), relative_attention(), causal_linear_attention()};
}

/// Uniform in [low, high).
Tensor noise(const Shape& shape, uint64_t stream, double low = -1, double high = 1);

constexpr double unit_roundoff = 0x1p-24;  // of f32

}  // namespace stretto::ladders
