// Tensor: a strided view of shared storage, with an optional place on the tape.
//
// A Tensor is a handle: copying it copies no data. Views (slice, transpose, …) share storage. A
// const Tensor always shows the same memory, whose values may be changed through it. The class
// itself knows memory and layout only. Members marked [ops] or [autograd] are declared here, so
// that code reads x.transpose(0, 1) and loss.backward(), and defined in the folder named.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "dtype.h"
#include "shape.h"
#include "storage.h"

namespace stretto {

struct TapeEntry;  // autograd/tape.h
struct Gradient;   // autograd/tape.h

/// dtype and device of a tensor to be made: `zeros({2, 3}, {.dtype = f64})`.
struct TensorOptions {
  DType dtype = f32;
  Device device = default_device();
  bool requires_grad = false;
};

/// What backward() and grad() may be asked for.
struct BackwardOptions {
  bool retain_graph = false;  // keep saved tensors, so that backward can run again
  bool create_graph = false;  // record the backward pass itself: gradients of gradients
};

class Tensor {
 public:
  /// An undefined tensor: `defined()` is false, everything else throws or is empty.
  Tensor() = default;
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) noexcept = default;
  /// Another handle in place of this one. Not for temporaries: x[0] = y would change nothing, where
  /// x[0].copy_(y) is meant.
  Tensor& operator=(const Tensor&) & = default;
  Tensor& operator=(Tensor&&) & noexcept = default;

  bool defined() const { return impl_ != nullptr; }
  /// Whether the value of a tensor with one element is not 0: `if (loss < best)`. Any other tensor
  /// throws, an undefined one too.
  explicit operator bool() const;

  const Shape& shape() const { return get().sizes; }
  const Shape& strides() const { return get().strides; }
  int64_t dim() const { return get().sizes.dim(); }
  int64_t size(Int d) const { return shape()[wrap_dim("size", d, dim())]; }
  int64_t numel() const { return get().numel; }
  int64_t offset() const { return get().offset; }
  DType dtype() const { return get().dtype; }
  Device device() const { return get().storage->device; }
  bool is_contiguous() const { return stretto::is_contiguous(shape(), strides()); }
  Storage& storage() const { return *get().storage; }
  const std::shared_ptr<Storage>& shared_storage() const { return get().storage; }

  /// Pointer to the first element, on whatever device it lives. Throws when T is not the dtype.
  template <class T>
  T* data() const {
    check(dtype_of<T>() == dtype(), "data", "asked for ", dtype_of<T>(), ", the tensor is ",
          dtype());
    return static_cast<T*>(get().storage->data) + offset();
  }
  void* raw_data() const {
    return static_cast<char*>(get().storage->data) + offset() * item_size(dtype());
  }

  /// The value of a tensor with one element, from any device and dtype. An i64 that T has not
  /// exactly is an error: item<int64_t>() reads it.
  template <class T = double>
  T item() const;
  /// All elements in row-major order, converted to T, from any device.
  template <class T>
  std::vector<T> to_vector() const;

  // Views and conversions [ops/view.h]; differentiable. Negative dimensions count from the end.
  Tensor reshape(const Shape& shape) const;  // copies only where no view exists; one size may be −1
  Tensor view(const Shape& shape) const;     // never copies; throws where no view exists
  Tensor transpose(Int d0, Int d1) const;
  Tensor permute(const Shape& order) const;
  Tensor expand(const Shape& shape) const;  // repeats sizes of 1; −1 keeps a size
  Tensor squeeze(Int d) const;
  Tensor unsqueeze(Int d) const;
  Tensor flatten(Int first = 0, Int last = -1) const;
  Tensor select(Int d, Int index) const;
  /// Elements start, start + step, … below end of dimension d; start and end may be negative and
  /// are clipped as in Python; step ≥ 1.
  Tensor slice(Int d, Int start, Int end = INT64_MAX, Int step = 1) const;
  Tensor operator[](Int index) const { return select(0, index); }
  Tensor contiguous() const;
  /// Floating to integer cuts fractions off, puts what is beyond the range at its nearest end and
  /// makes NaN 0; integers wrap around in narrower ones.
  Tensor to(DType dtype) const;
  Tensor to(Device device) const;
  Tensor clone() const;

  // The tape [autograd/tape.h].
  bool requires_grad() const;
  /// Marks a leaf as wanting a gradient; floating dtypes only. Returns *this.
  Tensor set_requires_grad(bool value = true) const;
  bool is_leaf() const;
  /// What backward() accumulated here, in this tensor's dtype; undefined when nothing has arrived.
  /// Later passes add to it in place. For bf16 their sum is kept in f32 from the second pass on and
  /// rounded to it after each; it begins anew with what was set_grad() or changed in place between.
  Tensor grad() const;
  void set_grad(const Tensor& gradient) const;
  /// The same data, off the tape.
  Tensor detach() const;
  /// Gradients of this tensor (one element, or with `gradient` of its shape) into all leaves.
  void backward(const Tensor& gradient = {}, BackwardOptions options = {}) const;
  /// Calls `hook` with the gradient of this tensor when backward has completed it; a defined
  /// result replaces the gradient. Hooks run in the order of registration; one that a hook
  /// registers runs from the next gradient on.
  template <class F>
  void register_hook(F hook) const;  // autograd/tape.h
  /// Of a leaf: calls `hook` when a backward pass has added all that it has for grad(), while the
  /// pass goes on, so that the gradient can be used, or sent away, meanwhile. Parameters that a
  /// function under checkpoint() reads are completed after the last such function.
  void register_post_accumulate_grad_hook(std::function<void()> hook) const;

  /// From now on this tensor, through every handle to it, is `other`'s data: storage, shape and
  /// dtype [autograd]. For leaves; its gradient is dropped. Module::to and loading use it.
  void set_data(const Tensor& other) const;

  // In place; never recorded. Throw when the tensor requires a gradient and the tape is on, so
  // parameters are changed under NoGrad, and when it shows some element more than once, as expanded
  // views do. What is read may overlap what is written: the result is that of reading all first.
  // Each bumps the storage's version and returns *this.
  Tensor fill_(double value) const;  // throws for a value that an integer dtype does not have
  Tensor zero_() const { return fill_(0); }
  Tensor copy_(const Tensor& from) const;  // broadcasts, converts, crosses devices
  Tensor add_(const Tensor& other, double scale = 1) const;  // this += scale · other
  Tensor mul_(double factor) const;

  /// Same handle, not just same values.
  bool same(const Tensor& other) const { return impl_ == other.impl_; }
  const void* id() const { return impl_.get(); }
  /// No other handle and no other view sees this memory.
  bool unique() const { return impl_.use_count() == 1 && impl_->storage.use_count() == 1; }

  // For ops: make a tensor over given storage, and reach the tape entry.
  Tensor(std::shared_ptr<Storage> storage, int64_t offset, const Shape& sizes, const Shape& strides,
         DType dtype);
  std::shared_ptr<TapeEntry>& tape() const { return get().tape; }
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

using Tensors = std::vector<Tensor>;

/// Uninitialised memory, row-major.
Tensor empty(const Shape& shape, TensorOptions options = {});
/// Uninitialised, with the dtype and device of `like`.
Tensor empty_like(const Tensor& like);
Tensor empty_like(const Tensor& like, const Shape& shape);
inline TensorOptions options_of(const Tensor& x) {
  return {.dtype = x.dtype(), .device = x.device()};
}

/// Another view of the same storage, off the tape. No bounds are checked.
Tensor make_view(const Tensor& x, int64_t offset, const Shape& sizes, const Shape& strides);

/// Whether x shows some element more than once, so that it cannot be written in place. Strides that
/// no view of the library has may count as that although they show each once.
bool overlaps_itself(const Tensor& x);

/// Whether a and b may share memory: the ranges that they span do.
bool may_overlap(const Tensor& a, const Tensor& b);

/// What an op that writes `to` element by element may read of `from` meanwhile: `from`, or a copy
/// where it shows `to`'s memory in other places than `to` does.
Tensor readable_while_writing(const Tensor& to, const Tensor& from);

/// Shape, dtype and device, as in error messages: "f32 [2, 3]" or "f32 [2, 3] on cuda:0".
void append_text(std::string& to, const Tensor& x);

/// The values as text, NumPy's way, long tensors abbreviated.
std::string to_string(const Tensor& x);

/// Throws unless all defined tensors are on one device.
void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors);
/// Throws unless x has a floating dtype.
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
