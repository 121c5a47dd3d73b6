// Members of Tensor that call functions of the same names, and in-place ops that copy the result of
// a function (core/tensor.h).
#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/in_place.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace stretto {

Tensor Tensor::sum(const Shape& dims, bool keepdim) const {
  return stretto::sum(*this, dims, keepdim);
}
Tensor Tensor::mean(const Shape& dims, bool keepdim) const {
  return stretto::mean(*this, dims, keepdim);
}
Tensor Tensor::max() const { return stretto::max(*this); }
Tensor Tensor::max(Int d, bool keepdim) const { return stretto::max(*this, d, keepdim); }
Tensor Tensor::min() const { return stretto::min(*this); }
Tensor Tensor::min(Int d, bool keepdim) const { return stretto::min(*this, d, keepdim); }
Tensor Tensor::argmax() const { return stretto::argmax(*this); }
Tensor Tensor::argmax(Int d, bool keepdim) const { return stretto::argmax(*this, d, keepdim); }
Tensor Tensor::softmax(Int d) const { return stretto::softmax(*this, d); }
Tensor Tensor::matmul(const Tensor& other) const { return stretto::matmul(*this, other); }
Tensor Tensor::pow(double exponent) const { return stretto::pow(*this, exponent); }
Tensor Tensor::exp() const { return stretto::exp(*this); }
Tensor Tensor::log() const { return stretto::log(*this); }
Tensor Tensor::sqrt() const { return stretto::sqrt(*this); }
Tensor Tensor::abs() const { return stretto::abs(*this); }

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
  return replace("clamp_", *this, [&](const Tensor& x) { return clamp(x, low, high); });
}
Tensor Tensor::masked_fill_(const Tensor& mask, double value) const {
  return replace("masked_fill_", *this,
                 [&](const Tensor& x) { return masked_fill(x, mask, value); });
}

}  // namespace stretto
