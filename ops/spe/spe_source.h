// What codes of stochastic positional encoding have in common: they are made from small tensors
// into differentiable tensors for the composed form, into rows for the fused one. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code()
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "ops/attention/heads.h"
#include "ops/attention/side.h"
#include "ops/spe/spe.h"

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
  /// From here on it is about head h, dimension d and these positions.
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

struct SpeCall;  // ops/spe/spe_fused.h

/// A code with its parameters and noise. The factor (RD)^(−¼) is in what it makes.
struct SpeSource {
  static constexpr int64_t most_dims = 16;
  const int64_t heads, d, realizations;
  const Tensor parameter;   // one of them, for dtype and device
  const int64_t segment;    // positions to prepare at once, so that it all stays in the cache
  const int64_t dims;       // whose rows a thread has ready side by side, at most most_dims
  const SpeSpan reach;      // positions that there are,
  const std::string limit;  // and what says so

  SpeSource(int64_t n_heads, int64_t d_head, int64_t r, Tensor x, int64_t n, int64_t n_dims,
            SpeSpan positions = {0, INT64_MAX}, std::string why = "")
      : heads(n_heads),
        d(d_head),
        realizations(r),
        parameter(std::move(x)),
        segment(n),
        dims(n_dims),
        reach(positions),
        limit(std::move(why)) {}
  virtual ~SpeSource() = default;
  /// What codes and rows are made from: small tensors, by differentiable ops, of dtype f32 or f64.
  virtual Tensors inputs(DType dtype) const = 0;
  /// The code at positions p0 … p0 + n − 1, by differentiable ops → [H, D, n, R].
  virtual Tensor codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const = 0;
  /// P_d(τ), −n < τ < n → [H, D, 2n − 1], differentiable.
  virtual Tensor lags(int64_t n) const = 0;
  /// A maker of rows from inputs that are contiguous and off the tape, by their dtype. `gradients`
  /// are zeroed tensors of their shapes, or none where no gradients are wanted.
  virtual SpeRowsPtr<float> rows(const Tensors& inputs, const Tensors& gradients, float) const = 0;
  virtual SpeRowsPtr<double> rows(const Tensors& inputs, const Tensors& gradients,
                                  double) const = 0;
  /// Whether it sums the gradients of its inputs itself, after the last call of a backward pass:
  /// from the operands and their gradients, which each call leaves here.
  virtual bool takes(const SpeCall&, uint64_t) const { return false; }

  void check_reach(const char* op, SpeSpan span) const {
    check(span.size() == 0 || (reach.p0 <= span.p0 && span.p1 <= reach.p1), op, limit,
          ", the call needs positions ", span.p0, " to ", span.p1 - 1);
  }
  /// (RD)^(−¼).
  double scale() const { return std::pow(double(realizations) * double(d), -0.25); }
  /// f32 or f64, for the parameters.
  DType own_dtype() const { return parameter.dtype() == f64 ? f64 : f32; }
};

}  // namespace stretto
