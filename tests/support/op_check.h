// Shared by the tests over the op table: iterating over it, comparing results with the reference,
// and comparing them bit by bit.
#pragma once

#include <string>
#include <vector>

#include "core/storage.h"
#include "tests/support/catch.h"
#include "tests/support/op_table.h"

namespace stretto::testing {

/// Calls f(op, sample) for each op and sample. Every failure names both. Checks that the bytes in
/// use are the same before and after.
template <class F>
void for_each_sample(F f, bool large = false) {
  for (const Op& op : op_table()) {
    const std::vector<Sample> samples = large ? std::vector<Sample>{op.large} : op.samples;
    for (const Sample& sample : samples) {
      INFO("op " << describe(op, sample));
      const int64_t live = memory_stats().live;
      try {
        f(op, sample);
      } catch (const std::exception& error) {
        FAIL_CHECK("threw: " << error.what());
      }
      CHECK(memory_stats().live == live);
    }
  }
}

/// The result and the gradients of the floating-point inputs, in order, of one forward
/// and backward pass.
struct Outcome {
  Tensor y;
  Tensors gradients;
};

/// Runs op on `inputs`. Floating-point inputs are leaves if the op is differentiable; the incoming
/// gradient is layout(fixed noise).
Outcome run(const Op& op, const Tensors& inputs,
            const std::function<Tensor(const Tensor&)>& layout = nullptr);

/// True if shapes, dtypes and elements are bit-identical; all NaNs are equal. Otherwise describes
/// the first difference in `difference`.
bool same_bits(const Tensor& a, const Tensor& b, std::string& difference);
bool same_bits(const Outcome& a, const Outcome& b, std::string& difference);

/// The largest errors as fractions of the allowed error, and where they occurred.
struct Usage {
  double values = 0, gradients = 0;
  std::string values_at, gradients_at;
};

/// Checks values and gradients of op against its reference, in `dtype` on `device`. The allowed
/// error is twice the first-order bound of number.h; in f64 four times, as the reference has the
/// same rounding errors. Results must be exact if no operation rounds.
void check_against_reference(const Op& op, const Sample& sample, DType dtype, Device device,
                             Usage& usage);

/// Checks the result `got` of op for these inputs against its reference.
void check_value(const Op& op, const Tensors& inputs, const Tensor& got);

/// Returns the op of the table with this name.
const Op& find_op(const std::string& name);

/// Checks `got` against `expected` within its bounds. Returns the largest error as a fraction of
/// the allowed one.
double hold_against(const std::string& what, const Tensor& got, const Array& expected, DType dtype);

}  // namespace stretto::testing
