// What a code of stochastic positional encoding is made from: as differentiable tensors for the
// composed form, as rows for the streamed one. Internal to ops/.
//
// Reference: tests/reference/spe.cpp, sine_code(), conv_code()
#pragma once

#include "ops/spe/spe.h"

namespace stretto {

enum class SpeSide { query, key };
inline constexpr SpeSide spe_sides[] = {SpeSide::query, SpeSide::key};

/// Rows of a code for one head and dimension at a time, computed by one thread. Positions p run
/// from p0 to p1 − 1, and rows hold R numbers.
template <class T>
class SpeRows {
 public:
  virtual ~SpeRows() = default;
  /// From here on it is about head h, dimension d and these positions.
  virtual void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) = 0;
  /// [p1 − p0, R] of positions that were prepared; good until the next call.
  virtual const T* rows(SpeSide side, int64_t p0, int64_t p1) = 0;
  /// Takes in the gradient of such rows.
  virtual void add_gradient(SpeSide side, int64_t p0, int64_t p1, const T* g) = 0;
  /// Writes the gradients of (h, d) to where they belong, after all of its rows.
  virtual void finish_gradient() = 0;
};

/// The sine or conv code with its parameters and noise. The factor (RD)^(−¼) is in the code.
class SpeSource {
 public:
  SpeSource(int64_t n_heads, int64_t d_head, int64_t r)
      : heads(n_heads), d(d_head), realizations(r) {}
  virtual ~SpeSource() = default;
  const int64_t heads, d, realizations;

  /// One of its parameters, for dtype and device.
  virtual const Tensor& parameter() const = 0;
  /// Error unless there are positions 0 … end − 1.
  virtual void check_reach(const char* op, int64_t end) const = 0;
  /// Codes of positions p0 … p0 + n − 1 in differentiable ops → [H, D, n, R].
  virtual Tensor codes(SpeSide side, int64_t p0, int64_t n, DType dtype) const = 0;
  /// P_d(τ), −n < τ < n → [H, D, 2n − 1], differentiable.
  virtual Tensor lags(int64_t n) const = 0;

  /// What rows are made from: small tensors, by differentiable ops, of dtype f32 or f64.
  virtual Tensors inputs(DType dtype) const = 0;
  /// Positions to prepare at once, so that what they take stays in the cache.
  virtual int64_t segment() const = 0;
  /// Dimensions, at most 16, whose rows a thread has ready side by side.
  virtual int64_t dims() const = 0;
  /// A maker of rows from those inputs (contiguous, off the tape). `gradients` are zeroed tensors
  /// of the inputs' shapes; none where no gradients are wanted.
  virtual std::unique_ptr<SpeRows<float>> rows_f32(const Tensors& inputs,
                                                   const Tensors& gradients) const = 0;
  virtual std::unique_ptr<SpeRows<double>> rows_f64(const Tensors& inputs,
                                                    const Tensors& gradients) const = 0;
  template <class T>
  std::unique_ptr<SpeRows<T>> rows(const Tensors& inputs, const Tensors& gradients) const {
    if constexpr (std::is_same_v<T, float>)
      return rows_f32(inputs, gradients);
    else
      return rows_f64(inputs, gradients);
  }

  /// (RD)^(−¼).
  double scale() const;

 protected:
  DType own_dtype() const { return parameter().dtype() == bf16 ? f32 : parameter().dtype(); }
};

/// The code's parts, for the ops in this folder.
struct SpeAccess {
  static SpeCode make(std::shared_ptr<const SpeSource> source) {
    SpeCode code;
    code.source_ = std::move(source);
    return code;
  }
  static SpeCode make_kept(const SpeCode& code, std::shared_ptr<KeptCodes> kept, Tensor handle) {
    SpeCode copy = code;
    copy.kept_ = std::move(kept);
    copy.handle_ = std::move(handle);
    return copy;
  }
  static const SpeSource& source(const SpeCode& code) {
    check(code.source_ != nullptr, "SpeCode",
          "the code is empty; make one with SpeCode::sine or conv");
    return *code.source_;
  }
  static const std::shared_ptr<const SpeSource>& shared_source(const SpeCode& code) {
    return code.source_;
  }
  static const std::shared_ptr<KeptCodes>& kept(const SpeCode& code) { return code.kept_; }
  static const Tensor& handle(const SpeCode& code) { return code.handle_; }
};

}  // namespace stretto
