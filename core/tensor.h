// Tensor: a strided view of shared storage, with an optional entry on the tape.
//
// A Tensor is a handle: copying it copies no data. Views (slice, transpose, …) share storage. The
// values of a const Tensor can be changed; only set_data() makes it refer to other memory. The
// class itself deals with memory and layout only. Members marked [ops] or [autograd] are declared
// here, so that code reads x.transpose(0, 1) and loss.backward(), and defined in that directory.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "shape.h"
#include "storage.h"

namespace stretto {

struct TapeEntry;   // autograd/tape.h
struct Gradient;    // autograd/tape.h
class TensorIndex;  // ops/index.h

/// The dtype and device of a new tensor: `zeros({2, 3}, {.dtype = f64})`.
struct TensorOptions {
  DType dtype = f32;                 ///< The element type.
  Device device = default_device();  ///< The device that holds the elements.
  bool requires_grad = false;        ///< Makes the tensor a leaf that collects gradients.
};

/// Options of backward() and grad().
struct BackwardOptions {
  bool retain_graph = false;  ///< Keeps the saved tensors, so that backward() can run again.
  bool create_graph = false;  ///< Records the backward pass itself, for gradients of gradients.
};

/// A handle to a strided view of shared storage: elements of one dtype on one device. A
/// default-constructed tensor is undefined: using it throws.
class Tensor {
 public:
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  // Makes this a handle of the other tensor. Not for temporaries: x[0] = y would change nothing;
  // write x[0].copy_(y).
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

  /// True unless this is a default-constructed or moved-from handle.
  bool defined() const { return impl_ != nullptr; }
  /// True if the only element is not 0: `if (loss < best)`. Throws if the tensor is undefined or
  /// does not have exactly one element.
  explicit operator bool() const;

  /// Returns the sizes, outermost dimension first.
  const Shape& shape() const { return get().sizes; }
  /// Returns the distance in elements between neighbors along each dimension.
  const Shape& strides() const { return get().strides; }
  /// Returns the number of dimensions, 0 to Shape::max_dims.
  int64_t dim() const { return get().sizes.dim(); }
  /// Returns the size of dimension d; a negative d counts from the end.
  int64_t size(Int d) const { return shape()[wrap_dim("size", d, dim())]; }
  /// Returns the number of elements.
  int64_t numel() const { return get().numel; }
  /// Returns the index of the first element in the storage, in elements.
  int64_t offset() const { return get().offset; }
  /// Returns the element type.
  DType dtype() const { return get().dtype; }
  /// Returns the device that holds the elements.
  Device device() const { return get().storage->device; }
  /// True if the elements lie in row-major order without gaps.
  bool is_contiguous() const { return stretto::is_contiguous(shape(), strides()); }
  /// Returns the memory that this tensor views.
  Storage& storage() const { return *get().storage; }
  /// Returns the same memory as a shared pointer, for new views of it.
  const std::shared_ptr<Storage>& shared_storage() const { return get().storage; }

  /// Returns a pointer to the first element, in the memory of device(). Throws if T is not the
  /// C++ type of dtype().
  template <class T>
  T* data() const {
    check(dtype_of<T>() == dtype(), "data", "the C++ type is ", dtype_of<T>(), ", the tensor is ",
          dtype());
    return static_cast<T*>(get().storage->data) + offset();
  }
  /// Returns an untyped pointer to the first element.
  void* raw_data() const {
    return static_cast<char*>(get().storage->data) + offset() * item_size(dtype());
  }

  /// Returns the only element, from any device and dtype; T is double, float or int64_t. Throws
  /// unless the tensor has one element. An i64 or i32 that T cannot represent exactly is an error:
  /// read it with item<int64_t>().
  template <class T = double>
  T item() const;
  /// Returns all elements in row-major order, converted to T, from any device; T is double, float,
  /// int64_t, int32_t or uint8_t (for bool too).
  template <class T>
  std::vector<T> to_vector() const;

  // Views and conversions [ops/view.h]; differentiable. Negative dimensions count from the end.

  /// Returns the elements with another shape: a view if one exists, else a copy. One size may be
  /// −1: it is inferred.
  Tensor reshape(const Shape& shape) const;
  /// Returns a view with another shape; throws if only a copy could have it. One size may be −1.
  Tensor view(const Shape& shape) const;
  /// Returns a view with dimensions d0 and d1 exchanged.
  Tensor transpose(Int d0, Int d1) const;
  /// Returns transpose(0, 1) of a matrix.
  Tensor t() const;
  /// Returns a view whose dimension i is dimension order[i] of this tensor.
  Tensor permute(const Shape& order) const;
  /// Returns a view with shape `shape` in which dimensions of size 1 are repeated. New dimensions
  /// are added in front. A size of −1 in `shape` means the tensor's own size.
  Tensor expand(const Shape& shape) const;
  /// Returns a view without dimension d; throws unless its size is 1.
  Tensor squeeze(Int d) const;
  /// Returns a view without the dimensions of size 1.
  Tensor squeeze() const;
  /// Returns a view with a new dimension of size 1 at position d.
  Tensor unsqueeze(Int d) const;
  /// Returns the tensor with dimensions first … last merged into one, as reshape does.
  Tensor flatten(Int first = 0, Int last = -1) const;
  /// Returns a view of entry `index` of dimension d, without that dimension. A negative index
  /// counts from the end.
  Tensor select(Int d, Int index) const;
  /// Returns a view of elements start, start + step, … below end of dimension d; start and end may
  /// be negative and are clipped as in Python; step ≥ 1.
  Tensor slice(Int d, Int start, Int end = INT64_MAX, Int step = 1) const;
  /// Returns select(0, index).
  Tensor operator[](Int index) const { return select(0, index); }
  /// Returns index({indices}): the entries of dimension 0, or the elements that a mask selects.
  Tensor operator[](const Tensor& indices) const;
  /// Returns this tensor if it is contiguous, else a row-major copy.
  Tensor contiguous() const;
  /// Returns the elements in another dtype, or this tensor if it already has that dtype. Conversion
  /// from floating-point to integer dtypes truncates, saturates and maps NaN to 0; conversion to a
  /// narrower integer dtype wraps around.
  Tensor to(DType dtype) const;
  /// Returns the elements on another device, or this tensor if it is already there.
  Tensor to(Device device) const;
  /// Returns a row-major copy.
  Tensor clone() const;
  /// Returns the elements that integers, slices and index tensors select: x[idx], x[mask],
  /// x[:, idx] [ops/index.h].
  Tensor index(const std::vector<TensorIndex>& indices) const;

  // Every elementwise function, reduction and scan of one tensor is a member too [ops/elementwise.h,
  // ops/reduce.h, ops/softmax.h]. Each calls the free function of its name, with the same arguments.

  Tensor neg() const;                           ///< Returns stretto::neg(*this).
  Tensor exp() const;                           ///< Returns stretto::exp(*this).
  Tensor log() const;                           ///< Returns stretto::log(*this).
  Tensor log1p() const;                         ///< Returns stretto::log1p(*this).
  Tensor expm1() const;                         ///< Returns stretto::expm1(*this).
  Tensor sin() const;                           ///< Returns stretto::sin(*this).
  Tensor cos() const;                           ///< Returns stretto::cos(*this).
  Tensor tanh() const;                          ///< Returns stretto::tanh(*this).
  Tensor sigmoid() const;                       ///< Returns stretto::sigmoid(*this).
  Tensor erf() const;                           ///< Returns stretto::erf(*this).
  Tensor abs() const;                           ///< Returns stretto::abs(*this).
  Tensor relu() const;                          ///< Returns stretto::relu(*this).
  Tensor gelu() const;                          ///< Returns stretto::gelu(*this).
  Tensor gelu_tanh() const;                     ///< Returns stretto::gelu_tanh(*this).
  Tensor silu() const;                          ///< Returns stretto::silu(*this).
  Tensor softplus() const;                      ///< Returns stretto::softplus(*this).
  Tensor square() const;                        ///< Returns stretto::square(*this).
  Tensor sqrt() const;                          ///< Returns stretto::sqrt(*this).
  Tensor rsqrt() const;                         ///< Returns stretto::rsqrt(*this).
  Tensor heaviside() const;                     ///< Returns stretto::heaviside(*this).
  Tensor sign() const;                          ///< Returns stretto::sign(*this).
  Tensor floor() const;                         ///< Returns stretto::floor(*this).
  Tensor ceil() const;                          ///< Returns stretto::ceil(*this).
  Tensor trunc() const;                         ///< Returns stretto::trunc(*this).
  Tensor round() const;                         ///< Returns stretto::round(*this).
  Tensor isnan() const;                         ///< Returns stretto::isnan(*this).
  Tensor isinf() const;                         ///< Returns stretto::isinf(*this).
  Tensor isfinite() const;                      ///< Returns stretto::isfinite(*this).
  Tensor logical_not() const;                   ///< Returns stretto::logical_not(*this).
  Tensor pow(double exponent) const;            ///< Returns stretto::pow(*this, exponent).
  Tensor clamp(double low, double high) const;  ///< Returns stretto::clamp(*this, low, high).
  /// Returns stretto::masked_fill(*this, mask, value).
  Tensor masked_fill(const Tensor& mask, double value) const;
  /// Returns stretto::sum(*this, dims, keepdim).
  Tensor sum(const Shape& dims = {}, bool keepdim = false) const;
  /// Returns stretto::mean(*this, dims, keepdim).
  Tensor mean(const Shape& dims = {}, bool keepdim = false) const;
  /// Returns stretto::prod(*this, dims, keepdim).
  Tensor prod(const Shape& dims = {}, bool keepdim = false) const;
  /// Returns stretto::any(*this, dims, keepdim).
  Tensor any(const Shape& dims = {}, bool keepdim = false) const;
  /// Returns stretto::all(*this, dims, keepdim).
  Tensor all(const Shape& dims = {}, bool keepdim = false) const;
  /// Returns stretto::var(*this, dims, correction, keepdim).
  Tensor var(const Shape& dims = {}, double correction = 1, bool keepdim = false) const;
  /// Returns stretto::std(*this, dims, correction, keepdim).
  Tensor std(const Shape& dims = {}, double correction = 1, bool keepdim = false) const;
  /// Returns stretto::norm(*this, p, dims, keepdim).
  Tensor norm(double p = 2, const Shape& dims = {}, bool keepdim = false) const;
  Tensor max() const;  ///< Returns stretto::max(*this).
  /// Returns stretto::max(*this, d, keepdim).
  Tensor max(Int d, bool keepdim = false) const;
  Tensor min() const;  ///< Returns stretto::min(*this).
  /// Returns stretto::min(*this, d, keepdim).
  Tensor min(Int d, bool keepdim = false) const;
  Tensor argmax() const;  ///< Returns stretto::argmax(*this).
  /// Returns stretto::argmax(*this, d, keepdim).
  Tensor argmax(Int d, bool keepdim = false) const;
  Tensor argmin() const;  ///< Returns stretto::argmin(*this).
  /// Returns stretto::argmin(*this, d, keepdim).
  Tensor argmin(Int d, bool keepdim = false) const;
  Tensor logsumexp(Int d, bool keepdim = false) const;  ///< Returns stretto::logsumexp of d.
  Tensor cumsum(Int d) const;                           ///< Returns stretto::cumsum(*this, d).
  Tensor cumprod(Int d) const;                          ///< Returns stretto::cumprod(*this, d).
  Tensor softmax(Int d = -1) const;                     ///< Returns stretto::softmax(*this, d).
  Tensor log_softmax(Int d = -1) const;                 ///< Returns stretto::log_softmax(*this, d).
  Tensor matmul(const Tensor& other) const;             ///< Returns stretto::matmul(*this, other).

  // The tape [autograd/tape.h].

  /// True if backward() computes a gradient for this tensor: a leaf marked with
  /// set_requires_grad(), or the result of a recorded op.
  bool requires_grad() const;
  /// Marks a leaf to collect a gradient, or clears the mark; returns *this. Throws if the dtype is
  /// not floating or the tensor is not a leaf.
  Tensor set_requires_grad(bool value = true) const;
  /// True unless the tensor is the result of a recorded op.
  bool is_leaf() const;
  /// Returns the gradient that backward() has accumulated for this leaf, in its dtype; undefined if
  /// there is none yet. Later backward passes add to it in place. A bf16 gradient is accumulated in
  /// f32 from the second backward pass on, and rounded after each one. After set_grad() or an
  /// in-place change of the gradient, accumulation restarts from the new value.
  Tensor grad() const;
  /// Replaces the gradient; an undefined tensor clears it. Throws if the shape differs.
  void set_grad(const Tensor& gradient) const;
  /// Returns a view of the same elements that is not on the tape.
  Tensor detach() const;
  /// Adds the gradients of this tensor to grad() of all leaves from which it was computed.
  /// `gradient` is the gradient of this tensor, of the same shape. It may be omitted if this tensor
  /// has a single element, and is then 1.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;
  /// Calls `hook` with the complete gradient of this tensor in every backward pass; a defined
  /// result replaces the gradient. Hooks run in the order of registration; a hook registered by
  /// another hook first runs for the next gradient. The tensor owns its hooks: a hook that captures
  /// a handle of the tensor keeps it in memory for ever; capture detach() or a reference.
  template <class F>
  void register_hook(F hook) const;  // autograd/tape.h
  /// Calls `hook` as soon as a backward pass has added its whole gradient to grad() of this leaf.
  /// The backward pass is then still running, so that the gradient can be used or sent while other
  /// gradients are computed.
  void register_post_accumulate_grad_hook(std::function<void()> hook) const;

  /// Makes this tensor, through every handle to it, a view of `other`'s data: storage, shape and
  /// dtype [autograd]. For leaves only; the gradient is dropped. Used by Module::to and loading.
  void set_data(const Tensor& other) const;

  // In-place ops; never recorded. While recording is on they throw if the tensor, or a tensor of
  // new values, requires a gradient (use NoGrad or detach()). They also throw if several elements
  // are at one address, as in expanded views. Source and destination may overlap; the result is as
  // if the source were read first. Each op increments the storage's version and returns *this.

  /// Sets every element to `value`; throws if an integer dtype cannot represent it.
  Tensor fill_(double value) const;
  /// Sets every element to 0.
  Tensor zero_() const { return fill_(0); }
  /// Copies `from`, broadcast to this shape and converted to this dtype, from any device.
  Tensor copy_(const Tensor& from) const;
  /// Adds scale · other, with `other` broadcast to this shape. Throws unless the dtype is floating.
  Tensor add_(const Tensor& other, double scale = 1) const;
  /// Subtracts scale · other, with `other` broadcast to this shape. Throws unless the dtype is
  /// floating.
  Tensor sub_(const Tensor& other, double scale = 1) const { return add_(other, -scale); }
  /// Multiplies every element by `factor`; for integer tensors it must be a whole number.
  Tensor mul_(double factor) const;
  // The following ops compute the result as the op without underscore does, and convert it to this
  // dtype. They throw if an integer tensor would receive the floating-point result.

  Tensor add_(double value) const;               ///< Adds `value` to every element.
  Tensor mul_(const Tensor& other) const;        ///< Multiplies by `other`, broadcast.
  Tensor div_(double divisor) const;             ///< Divides every element by `divisor`.
  Tensor div_(const Tensor& other) const;        ///< Divides by `other`, broadcast.
  Tensor clamp_(double low, double high) const;  ///< Clamps every element, see clamp().
  /// Sets the elements at which `mask` is true to `value`; the mask is broadcast, see
  /// masked_fill().
  Tensor masked_fill_(const Tensor& mask, double value) const;
  /// Sets the elements that index(indices) selects to `values`, broadcast to the shape of the
  /// selection; or adds `values` if `accumulate` is true. If an element is selected several times,
  /// the last of its values is stored, or all are added [ops/index.h].
  Tensor index_put_(const std::vector<TensorIndex>& indices, const Tensor& values,
                    bool accumulate = false) const;
  /// Sets the elements that index(indices) selects to `value`.
  Tensor index_put_(const std::vector<TensorIndex>& indices, double value) const;

  /// True if one is a copy of the other: both are handles of one tensor. A second view of the same
  /// elements is another tensor.
  bool same(const Tensor& other) const { return impl_ == other.impl_; }
  /// Returns an address that identifies the tensor, the same for all copies; null if undefined.
  const void* id() const { return impl_.get(); }
  /// Returns the number of handles of this tensor.
  int64_t n_handles() const { return impl_.use_count(); }
  /// True if no other handle, no other view and no other library (DLPack) refers to this memory.
  bool unique() const {
    return impl_.use_count() == 1 && impl_->storage.use_count() == 1 &&
           !impl_->storage->is_borrowed();
  }

  // For ops.

  /// Makes a tensor that views `storage` from element `offset` on. Checks no bounds.
  Tensor(std::shared_ptr<Storage> storage, int64_t offset, const Shape& sizes, const Shape& strides,
         DType dtype);
  /// Returns the entry on the tape; null if the tensor is not on it.
  std::shared_ptr<TapeEntry>& tape() const { return get().tape; }
  /// Returns the accumulated gradient of a leaf; null if it has none.
  std::shared_ptr<Gradient>& gradient() const { return get().grad; }

 private:
  struct Impl {
    std::shared_ptr<Storage> storage;
    int64_t offset = 0;
    int64_t numel = 0;
    Shape sizes, strides;
    DType dtype = f32;
    std::shared_ptr<TapeEntry> tape;
    std::shared_ptr<Gradient> grad;
  };
  Impl& get() const {
    if (!impl_) [[unlikely]]
      fail("Tensor", "an undefined tensor was used");
    return *impl_;
  }
  std::shared_ptr<Impl> impl_;
};

/// A list of tensors: the inputs or outputs of an op.
using Tensors = std::vector<Tensor>;

/// Returns a row-major tensor with uninitialized elements.
Tensor empty(const Shape& shape, TensorOptions options = {});
/// Returns an uninitialized tensor with the shape, dtype and device of `like`.
Tensor empty_like(const Tensor& like);
/// Returns an uninitialized tensor with the dtype and device of `like`.
Tensor empty_like(const Tensor& like, const Shape& shape);
/// Returns the dtype and device of x as options; requires_grad is false.
inline TensorOptions options_of(const Tensor& x) {
  return {.dtype = x.dtype(), .device = x.device()};
}

/// Returns another view of x's storage, not on the tape. Checks no bounds.
Tensor make_view(const Tensor& x, int64_t offset, const Shape& sizes, const Shape& strides);

/// Splits x along dimension d into views of the given sizes. Each is a tensor with a separate
/// storage, although the memory is that of x: an in-place change of one does not count as one of
/// another (Storage::version), and may_overlap() is false for two of them. x must not be used any
/// more.
Tensors split_into_parts(const Tensor& x, Int d, const Shape& sizes);

/// Returns the view that consists of `parts`, in their order along dimension d, if they lie in one
/// block of memory as split_into_parts() leaves them; else undefined.
Tensor join_parts(const Tensors& parts, Int d);

/// True if several elements of x are at one address, so that x cannot be written in place. May also
/// be true for unusual strides without repetition, which no view of the library has.
bool overlaps_itself(const Tensor& x);

/// True if a and b may share memory: their address ranges intersect. Also for tensors of several
/// storages with the same memory: those of other libraries (DLPack), and a part and its whole.
bool may_overlap(const Tensor& a, const Tensor& b);

/// Returns a tensor with the values of `from` that can be read while `to` is written element by
/// element: a copy if `from` overlaps `to` with another layout, else `from` itself.
Tensor readable_while_writing(const Tensor& to, const Tensor& from);

/// Appends dtype, shape and device, as in error messages: "f32 [2, 3]" or "f32 [2, 3] on cuda:0".
/// The default device is omitted.
void append_text(std::string& to, const Tensor& x);

/// Returns the values as text in NumPy's layout, followed by dtype and shape. Floating-point values
/// have `precision` significant digits; dimensions longer than 8 are abbreviated.
std::string to_string(const Tensor& x, int precision = 4);
/// Writes to_string(x) with the precision of the stream.
std::ostream& operator<<(std::ostream& out, const Tensor& x);

/// Throws unless all defined tensors are on the same device.
void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors);
/// Throws unless x is defined: "[op] NAME is undefined".
void check_defined(const char* op, const Tensor& x, const char* name = "the tensor");
/// Throws unless x has a floating-point dtype.
void check_floating(const char* op, const Tensor& x);

extern template std::vector<float> Tensor::to_vector() const;
extern template std::vector<double> Tensor::to_vector() const;
extern template std::vector<int64_t> Tensor::to_vector() const;
extern template std::vector<int32_t> Tensor::to_vector() const;
extern template std::vector<uint8_t> Tensor::to_vector() const;
extern template double Tensor::item() const;
extern template float Tensor::item() const;
extern template int64_t Tensor::item() const;

}  // namespace stretto
