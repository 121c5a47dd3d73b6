// The interface of the codes of stochastic positional encoding, the random numbers by which queries
// and keys are multiplied (ops/spe/spe.h). A code has small input tensors.
// From these it computes differentiable tensors for the composed implementation, and rows for the
// fused implementation. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code()
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <variant>
#include <vector>

#include "../attention/heads.h"
#include "../attention/side.h"
#include "spe.h"

namespace stretto {

/// Positions p0 … p1 − 1.
struct SpeSpan {
  int64_t p0 = 0, p1 = 0;
  int64_t size() const { return std::max<int64_t>(0, p1 - p0); }
  SpeSpan operator&(SpeSpan o) const { return {std::max(p0, o.p0), std::min(p1, o.p1)}; }
  /// The smallest span that contains both.
  SpeSpan operator|(SpeSpan o) const {
    if (size() == 0) return o;
    return o.size() == 0 ? *this : SpeSpan{std::min(p0, o.p0), std::max(p1, o.p1)};
  }
};

/// Computes rows of a code, R elements each, for one head and dimension at a time, in one thread.
template <class T>
class SpeRows {
 public:
  virtual ~SpeRows() = default;
  /// Selects head h, dimension d and positions of one segment for the calls that follow.
  virtual void prepare(int64_t h, int64_t d, SpeSpan span) = 0;
  /// Returns rows [positions, R] of prepared positions; valid until the next call of a member.
  virtual const T* rows(Side side, SpeSpan span) = 0;
  /// Accumulates the gradient g of the rows of `span`.
  virtual void add_gradient(Side side, SpeSpan span, const T* g) = 0;
  /// Writes the gradients of (h, d) to the gradient tensors, after all of its rows.
  virtual void finish_gradient() = 0;
};
template <class T>
using SpeRowsPtr = std::unique_ptr<SpeRows<T>>;
using AnySpeRows = std::variant<SpeRowsPtr<float>, SpeRowsPtr<double>>;

/// Constructs Rows<T>(source, inputs, gradients) for the dtype T of the inputs.
template <template <class> class Rows, class Source>
AnySpeRows rows_of(const Source& s, const Tensors& inputs, const Tensors& gradients) {
  if (inputs[0].dtype() == f64) return std::make_unique<Rows<double>>(s, inputs, gradients);
  return std::make_unique<Rows<float>>(s, inputs, gradients);
}

struct SpeCall;  // ops/spe/spe_fused.h

struct SpeSizes {
  int64_t heads, d, realizations;
  /// Number of positions that are prepared at once and fit in the cache. Segments start at its
  /// multiples.
  int64_t segment;
  int64_t dims;  ///< Dimensions whose rows a thread computes at once, at most most_dims.
  SpeSpan reach = {0, INT64_MAX};  ///< Positions that the code has.
  std::string limit = {};          ///< Start of the error text for other positions.
};

/// A code with its parameters and noise. Codes and rows include the factor (RD)^(−¼).
struct SpeSource : SpeSizes {
  static constexpr int64_t most_dims = 16;
  const Tensor parameter;  // any one of the parameters, for dtype and device

  SpeSource(SpeSizes sizes, Tensor x) : SpeSizes(std::move(sizes)), parameter(std::move(x)) {}
  virtual ~SpeSource() = default;
  /// Returns the inputs of codes and rows: small tensors of dtype f32 or f64,
  /// from differentiable ops.
  virtual Tensors inputs(DType dtype) const = 0;
  /// Returns the code at positions p0 … p0 + n − 1, from differentiable ops → [H, D, n, R].
  virtual Tensor codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const = 0;
  /// Returns the template P_d(τ), −n < τ < n → [H, D, 2n − 1], differentiable.
  virtual Tensor lags(int64_t n) const = 0;
  /// Returns the computation of rows from contiguous, detached inputs. `gradients` are zeroed
  /// tensors of the shapes of the inputs, or empty if no gradients are needed.
  virtual AnySpeRows rows(const Tensors& inputs, const Tensors& gradients) const = 0;
  /// Called in the backward closure of an spe(), with the number of the backward pass. True if the
  /// source stored the operands and their gradients, to compute the gradients of its inputs itself
  /// after the last spe() of the backward pass.
  virtual bool takes(const SpeCall&, uint64_t) const { return false; }

  /// True if caching this number of positions is faster than computing them again.
  virtual bool keeps(int64_t) const { return parameter.device().is_cpu(); }

  /// True if there are CUDA kernels for operands of this dtype, which then replace rows().
  virtual bool on_cuda(DType) const { return false; }
  virtual void forward_on_cuda(const Tensors&, const SpeCall&) const {}
  virtual void backward_on_cuda(const Tensors&, const SpeCall&, const Tensors&) const {}

  void check_reach(const char* op, SpeSpan span) const {
    check(span.size() == 0 || (reach.p0 <= span.p0 && span.p1 <= reach.p1), op, limit,
          ", but positions ", span.p0, " to ", span.p1 - 1, " are needed");
  }
  /// Returns the first position of the segment of a position.
  int64_t begin(int64_t position) const { return position / segment * segment; }
  /// Returns (RD)^(−¼).
  double scale() const { return std::pow(double(realizations) * double(d), -0.25); }
  /// Returns the compute dtype of the parameters, f32 or f64.
  DType own_dtype() const { return compute_type(parameter.dtype()); }
};

}  // namespace stretto
