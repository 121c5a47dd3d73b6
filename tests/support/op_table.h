// The table of ops for the generic tests (tests/ops/op_table_test.cpp and other files there). An
// entry is an op with fixed parameters: the function to call, the same formula as scalar loops, and
// sample inputs. The table is in op_table_*.cpp, one file per family of ops.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "tests/support/number.h"

namespace stretto::testing {

/// Row-major values of a reference.
struct Array {
  Shape shape;
  std::vector<Number> values;

  /// The element at an index of a shape that this one broadcasts to.
  const Number& at(const Shape& index) const;
};
using Arrays = std::vector<Array>;

/// The range of sample values. No floating-point value is within 0.01 of 0, ±0.75 or ±1.5, where
/// ops of the table have kinks.
enum class Domain {
  any,          // ±[0.05, 2]
  positive,     // [0.05, 2]
  probability,  // [0.02, 0.85]
  index,        // integers in [0, classes), i64
  index32,      // the same, i32
  mask,         // bool
};

struct Input {
  Shape shape;
  Domain domain = Domain::any;
  int64_t classes = 0;
};

using Sample = std::vector<Input>;

struct ErrorCase {
  std::function<void()> call;
  std::string text;
};

struct Op {
  std::string name;
  std::function<Tensor(const Tensors&)> call;
  std::function<Array(const Arrays&)> reference;
  std::vector<Sample> samples;
  Sample large;  // enough elements for several threads
  bool differentiable = true;
  bool elementwise = false;      // result i depends only on operand i: a NaN stays in its place
  bool any_layout_exact = true;  // bit-identical for all strides of the inputs
  std::string tight = {};        // the reason if errors exceed half of the allowed error
  std::vector<ErrorCase> errors = {};
};

/// The whole table.
const std::vector<Op>& op_table();

/// Returns e.g. "add, sample 3: [2, 1], [2]".
std::string describe(const Op& op, size_t sample);
std::string describe(const Op& op, const Sample& sample);

/// Returns the inputs of a sample, the same in every call. Floating-point values are
/// rounded to `dtype`.
Tensors inputs_of(const Sample& sample, DType dtype);

// The families [op_table_<name>.cpp; those with a reference in tests/reference/ are there].
void add_unary_ops(std::vector<Op>& table);
void add_binary_ops(std::vector<Op>& table);
void add_view_ops(std::vector<Op>& table);
void add_rearranging_ops(std::vector<Op>& table);
void add_reduce_ops(std::vector<Op>& table);
void add_scan_ops(std::vector<Op>& table);
void add_indexing_ops(std::vector<Op>& table);
void add_index_ops(std::vector<Op>& table);
void add_einsum_ops(std::vector<Op>& table);
void add_model_ops(std::vector<Op>& table);
void add_loss_ops(std::vector<Op>& table);
void add_fft_ops(std::vector<Op>& table);
void add_conv_ops(std::vector<Op>& table);
void add_ctc_ops(std::vector<Op>& table);

// ---------------------------------------------------------------------------- for the references

/// NumPy's broadcasting rule, implemented independently of the library; shapes must be compatible.
Shape broadcast_of(const Shape& a, const Shape& b);

/// Returns an array of `shape` with elements f(index), in row-major order.
template <class F>
Array build(const Shape& shape, F f) {
  Array y{shape, {}};
  const int64_t n = shape.numel();
  y.values.reserve(size_t(n));
  Shape index = shape;
  for (int64_t& i : index) i = 0;
  for (int64_t i = 0; i < n; ++i) {
    y.values.push_back(f(std::as_const(index)));
    for (int64_t d = shape.dim() - 1; d >= 0 && ++index[d] == shape[d]; --d) index[d] = 0;
  }
  return y;
}

/// Element k of a row-major array.
inline const Number& flat(const Array& x, int64_t k) { return x.values[size_t(k)]; }

inline Shape with_entry(Shape shape, int64_t d, int64_t value) {
  shape[d] = value;
  return shape;
}

/// Applies f to every slice of x along d; the resulting slices may have another length.
template <class F>
Array along(const Array& x, int64_t d, F f) {
  const int64_t n = x.shape[d];
  std::vector<std::vector<Number>> slices;
  const Array starts = build(with_entry(x.shape, d, 1), [&](const Shape& index) {
    std::vector<Number> slice;
    for (int64_t i = 0; i < n; ++i) slice.push_back(x.at(with_entry(index, d, i)));
    slices.push_back(f(slice));
    return Number(double(slices.size() - 1));
  });
  const int64_t length =
      int64_t(slices.empty() ? f(std::vector<Number>(size_t(n))).size() : slices[0].size());
  return build(with_entry(x.shape, d, length), [&](const Shape& index) {
    const Number& slice = starts.at(with_entry(index, d, 0));
    return slices[size_t(slice.value)][size_t(index[d])];
  });
}

/// Reduces the given dimensions by f(elements); all dimensions if none are given.
template <class F>
Array reduced(const Array& x, const std::vector<int64_t>& dims, bool keepdim, F f) {
  std::vector<bool> gone(size_t(x.shape.dim()), dims.empty());
  for (int64_t d : dims) gone[size_t(d < 0 ? d + x.shape.dim() : d)] = true;
  Shape kept = x.shape, dropped, inner = x.shape;
  for (int64_t d = 0; d < x.shape.dim(); ++d) {
    (gone[size_t(d)] ? kept : inner)[d] = 1;
    if (!gone[size_t(d)]) dropped.push_back(x.shape[d]);
  }
  Array y = build(kept, [&](const Shape& outer) {
    std::vector<Number> elements;
    build(inner, [&](const Shape& index) {
      Shape at = outer;
      for (int64_t d = 0; d < at.dim(); ++d) at[d] += index[d];
      elements.push_back(x.at(at));
      return Number();
    });
    return f(elements);
  });
  if (!keepdim) y.shape = dropped;
  return y;
}

inline Number total(const std::vector<Number>& values) {
  Number sum;
  for (const Number& v : values) sum = sum + v;
  return sum;
}
inline double largest(const std::vector<Number>& values) {
  double top = -HUGE_VAL;
  for (const Number& v : values) top = v.value > top ? v.value : top;
  return top;
}

/// x · wᵀ, plus the bias unless it is null.
Array linear_reference(const Array& x, const Array& w, const Array* bias);
Number gelu_reference(const Number& x);
Number gelu_tanh_reference(const Number& x);

}  // namespace stretto::testing
