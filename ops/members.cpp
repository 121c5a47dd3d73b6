// Members of Tensor that call functions of the same names, and in-place ops that copy the result of
// a function (core/tensor.h).
#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/in_place.h"
#include "ops/index.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace stretto {

Tensor Tensor::neg() const { return stretto::neg(*this); }
Tensor Tensor::exp() const { return stretto::exp(*this); }
Tensor Tensor::log() const { return stretto::log(*this); }
Tensor Tensor::log1p() const { return stretto::log1p(*this); }
Tensor Tensor::expm1() const { return stretto::expm1(*this); }
Tensor Tensor::sin() const { return stretto::sin(*this); }
Tensor Tensor::cos() const { return stretto::cos(*this); }
Tensor Tensor::tanh() const { return stretto::tanh(*this); }
Tensor Tensor::sigmoid() const { return stretto::sigmoid(*this); }
Tensor Tensor::erf() const { return stretto::erf(*this); }
Tensor Tensor::abs() const { return stretto::abs(*this); }
Tensor Tensor::relu() const { return stretto::relu(*this); }
Tensor Tensor::gelu() const { return stretto::gelu(*this); }
Tensor Tensor::gelu_tanh() const { return stretto::gelu_tanh(*this); }
Tensor Tensor::silu() const { return stretto::silu(*this); }
Tensor Tensor::softplus() const { return stretto::softplus(*this); }
Tensor Tensor::square() const { return stretto::square(*this); }
Tensor Tensor::sqrt() const { return stretto::sqrt(*this); }
Tensor Tensor::rsqrt() const { return stretto::rsqrt(*this); }
Tensor Tensor::heaviside() const { return stretto::heaviside(*this); }
Tensor Tensor::sign() const { return stretto::sign(*this); }
Tensor Tensor::floor() const { return stretto::floor(*this); }
Tensor Tensor::ceil() const { return stretto::ceil(*this); }
Tensor Tensor::trunc() const { return stretto::trunc(*this); }
Tensor Tensor::round() const { return stretto::round(*this); }
Tensor Tensor::isnan() const { return stretto::isnan(*this); }
Tensor Tensor::isinf() const { return stretto::isinf(*this); }
Tensor Tensor::isfinite() const { return stretto::isfinite(*this); }
Tensor Tensor::logical_not() const { return stretto::logical_not(*this); }
Tensor Tensor::pow(double exponent) const { return stretto::pow(*this, exponent); }
Tensor Tensor::clamp(double low, double high) const { return stretto::clamp(*this, low, high); }
Tensor Tensor::masked_fill(const Tensor& mask, double value) const {
  return stretto::masked_fill(*this, mask, value);
}
Tensor Tensor::sum(const Shape& dims, bool keepdim) const {
  return stretto::sum(*this, dims, keepdim);
}
Tensor Tensor::mean(const Shape& dims, bool keepdim) const {
  return stretto::mean(*this, dims, keepdim);
}
Tensor Tensor::prod(const Shape& dims, bool keepdim) const {
  return stretto::prod(*this, dims, keepdim);
}
Tensor Tensor::any(const Shape& dims, bool keepdim) const {
  return stretto::any(*this, dims, keepdim);
}
Tensor Tensor::all(const Shape& dims, bool keepdim) const {
  return stretto::all(*this, dims, keepdim);
}
Tensor Tensor::var(const Shape& dims, double correction, bool keepdim) const {
  return stretto::var(*this, dims, correction, keepdim);
}
Tensor Tensor::std(const Shape& dims, double correction, bool keepdim) const {
  return stretto::std(*this, dims, correction, keepdim);
}
Tensor Tensor::norm(double p, const Shape& dims, bool keepdim) const {
  return stretto::norm(*this, p, dims, keepdim);
}
Tensor Tensor::max() const { return stretto::max(*this); }
Tensor Tensor::max(Int d, bool keepdim) const { return stretto::max(*this, d, keepdim); }
Tensor Tensor::min() const { return stretto::min(*this); }
Tensor Tensor::min(Int d, bool keepdim) const { return stretto::min(*this, d, keepdim); }
Tensor Tensor::argmax() const { return stretto::argmax(*this); }
Tensor Tensor::argmax(Int d, bool keepdim) const { return stretto::argmax(*this, d, keepdim); }
Tensor Tensor::argmin() const { return stretto::argmin(*this); }
Tensor Tensor::argmin(Int d, bool keepdim) const { return stretto::argmin(*this, d, keepdim); }
Tensor Tensor::logsumexp(Int d, bool keepdim) const {
  return stretto::logsumexp(*this, d, keepdim);
}
Tensor Tensor::cumsum(Int d) const { return stretto::cumsum(*this, d); }
Tensor Tensor::cumprod(Int d) const { return stretto::cumprod(*this, d); }
Tensor Tensor::softmax(Int d) const { return stretto::softmax(*this, d); }
Tensor Tensor::log_softmax(Int d) const { return stretto::log_softmax(*this, d); }
Tensor Tensor::matmul(const Tensor& other) const { return stretto::matmul(*this, other); }
Tensor Tensor::operator[](const Tensor& indices) const { return index({indices}); }

namespace {

// Copies f(x) to x, unless x is an integer tensor and f(x) is not.
template <class F>
Tensor replace(const char* op, const Tensor& x, F f) {
  check_in_place(op, x);
  NoGrad guard;
  const Tensor y = f(x.detach());
  check(is_floating(x.dtype()) || !is_floating(y.dtype()), op, "the result for ", x, " is ",
        y.dtype(), ", not an integer tensor; convert the tensor to a floating-point dtype first");
  return x.copy_(y);
}

}  // namespace

Tensor Tensor::add_(double value) const {
  return replace("add_", *this, [&](const Tensor& x) { return x + value; });
}
Tensor Tensor::mul_(const Tensor& other) const {
  check_not_recorded("mul_", other);
  return replace("mul_", *this, [&](const Tensor& x) { return x * other; });
}
Tensor Tensor::div_(double divisor) const {
  return replace("div_", *this, [&](const Tensor& x) { return x / divisor; });
}
Tensor Tensor::div_(const Tensor& other) const {
  check_not_recorded("div_", other);
  return replace("div_", *this, [&](const Tensor& x) { return x / other; });
}
Tensor Tensor::clamp_(double low, double high) const {
  return replace("clamp_", *this, [&](const Tensor& x) { return stretto::clamp(x, low, high); });
}
Tensor Tensor::masked_fill_(const Tensor& mask, double value) const {
  return replace("masked_fill_", *this,
                 [&](const Tensor& x) { return stretto::masked_fill(x, mask, value); });
}

}  // namespace stretto
