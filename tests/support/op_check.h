// What the suites over the op table share: walking it, holding results against the reference, and
// comparing bits.
#pragma once

#include <string>
#include <vector>

#include "core/storage.h"
#include "tests/support/catch.h"
#include "tests/support/op_table.h"

namespace stretto::testing {

/// f(op, sample) for each op and sample. A failure names both, whatever goes wrong; the bytes in
/// use must be the same before and after.
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

/// Result and gradients (of the floating inputs, in order) of one forward and backward.
struct Outcome {
  Tensor y;
  Tensors gradients;
};

/// Runs op on `inputs`, floating ones made leaves where the op is differentiable; the incoming
/// gradient is fixed noise, as `layout` of it.
Outcome run(const Op& op, const Tensors& inputs,
            const std::function<Tensor(const Tensor&)>& layout = nullptr);

/// Same shapes, dtypes and bits; any NaN equals any NaN. Otherwise says in `difference` what is
/// not.
bool same_bits(const Tensor& a, const Tensor& b, std::string& difference);
bool same_bits(const Outcome& a, const Outcome& b, std::string& difference);

/// The largest part of the allowed error that was used, and where.
struct Usage {
  double values = 0, gradients = 0;
  std::string values_at, gradients_at;
};

/// Holds values and gradients of op against its reference, in `dtype` on `device`. The allowed
/// error is twice the first-order bound of number.h; in f64 the reference itself may be as wrong
/// again. Exact where no operation rounds.
void check_against_reference(const Op& op, const Sample& sample, DType dtype, Device device,
                             Usage& usage);

/// Holds the result `got` of op for these inputs against its reference.
void check_value(const Op& op, const Tensors& inputs, const Tensor& got);

/// The op of the table with this name.
const Op& find_op(const std::string& name);

/// Reports `got` against numbers with bounds; returns the part of the allowed error that was used.
double hold_against(const std::string& what, const Tensor& got, const Array& expected, DType dtype);

}  // namespace stretto::testing
