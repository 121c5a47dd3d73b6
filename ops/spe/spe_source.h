// What codes of stochastic positional encoding have in common: they are made from small tensors
// into differentiable tensors for the composed form, into rows for the fused one. Internal to ops/.
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
  /// From the first to the last of both.
  SpeSpan operator|(SpeSpan o) const {
    if (size() == 0) return o;
    return o.size() == 0 ? *this : SpeSpan{std::min(p0, o.p0), std::max(p1, o.p1)};
  }
};

/// Rows of a code for one head and dimension at a time, made by one thread. Rows hold R numbers.
template <class T>
class SpeRows {
 public:
  virtual ~SpeRows() = default;
  /// From here on it is about head h, dimension d and these positions of one segment.
  virtual void prepare(int64_t h, int64_t d, SpeSpan span) = 0;
  /// [positions, R] of positions that were prepared; good until the next call.
  virtual const T* rows(Side side, SpeSpan span) = 0;
  /// Takes in the gradient of such rows.
  virtual void add_gradient(Side side, SpeSpan span, const T* g) = 0;
  /// Writes the gradients of (h, d) to where they belong, after all of its rows.
  virtual void finish_gradient() = 0;
};
template <class T>
using SpeRowsPtr = std::unique_ptr<SpeRows<T>>;
using AnySpeRows = std::variant<SpeRowsPtr<float>, SpeRowsPtr<double>>;

/// Rows<T>(source, inputs, gradients), T by the dtype of the inputs.
template <template <class> class Rows, class Source>
AnySpeRows rows_of(const Source& s, const Tensors& inputs, const Tensors& gradients) {
  if (inputs[0].dtype() == f64) return std::make_unique<Rows<double>>(s, inputs, gradients);
  return std::make_unique<Rows<float>>(s, inputs, gradients);
}

struct SpeCall;  // ops/spe/spe_fused.h

struct SpeSizes {
  int64_t heads, d, realizations;
  int64_t segment;  // positions to prepare at once, so that it all stays in the cache; they begin
                    // at multiples of it
  int64_t dims;     // whose rows a thread has ready side by side, at most most_dims
  SpeSpan reach = {0, INT64_MAX};  // positions that there are,
  std::string limit = {};          // and what says so
};

/// A code with its parameters and noise. The factor (RD)^(−¼) is in what it makes.
struct SpeSource : SpeSizes {
  static constexpr int64_t most_dims = 16;
  const Tensor parameter;  // one of them, for dtype and device

  SpeSource(SpeSizes sizes, Tensor x) : SpeSizes(std::move(sizes)), parameter(std::move(x)) {}
  virtual ~SpeSource() = default;
  /// What codes and rows are made from: small tensors, by differentiable ops, of dtype f32 or f64.
  virtual Tensors inputs(DType dtype) const = 0;
  /// The code at positions p0 … p0 + n − 1, by differentiable ops → [H, D, n, R].
  virtual Tensor codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const = 0;
  /// P_d(τ), −n < τ < n → [H, D, 2n − 1], differentiable.
  virtual Tensor lags(int64_t n) const = 0;
  /// A maker of rows from inputs that are contiguous and off the tape, by their dtype. `gradients`
  /// are zeroed tensors of their shapes, or none where no gradients are wanted.
  virtual AnySpeRows rows(const Tensors& inputs, const Tensors& gradients) const = 0;
  /// Whether it sums the gradients of its inputs itself, after the last call of a backward pass:
  /// from the operands and their gradients, which each call leaves here.
  virtual bool takes(const SpeCall&, uint64_t) const { return false; }

  /// Whether it takes less time to keep so many positions of the code than to make them again.
  virtual bool keeps(int64_t) const { return parameter.device().is_cpu(); }

  /// Whether CUDA has kernels for it, for operands of this dtype: then these take the place of
  /// rows().
  virtual bool on_cuda(DType) const { return false; }
  virtual void forward_on_cuda(const Tensors&, const SpeCall&) const {}
  virtual void backward_on_cuda(const Tensors&, const SpeCall&, const Tensors&) const {}

  void check_reach(const char* op, SpeSpan span) const {
    check(span.size() == 0 || (reach.p0 <= span.p0 && span.p1 <= reach.p1), op, limit,
          ", the call needs positions ", span.p0, " to ", span.p1 - 1);
  }
  /// Where the segment of a position begins.
  int64_t begin(int64_t position) const { return position / segment * segment; }
  /// (RD)^(−¼).
  double scale() const { return std::pow(double(realizations) * double(d), -0.25); }
  /// f32 or f64, for the parameters.
  DType own_dtype() const { return compute_type(parameter.dtype()); }
};

}  // namespace stretto
