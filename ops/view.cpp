#include "ops/view.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "autograd/tape.h"
#include "cuda/create.h"
#include "cuda/runtime/copy.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/in_place.h"
#include "ops/loops.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

// Copies without conversion move words of the item size.
template <class Bits>
struct [[gnu::may_alias]] Word {
  Bits bits;
};

// Copies n elements with strides `to_step` and `from_step`.
using CopyRun = void (*)(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n);

template <class To, class From>
[[gnu::always_inline]] inline void copy_each(void* to, int64_t to_step, const void* from,
                                             int64_t from_step, int64_t n) {
  To* y = static_cast<To*>(to);
  const From* x = static_cast<const From*>(from);
  if (to_step == 1 && from_step == 1) {
    for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  } else {
    for (int64_t i = 0; i < n; ++i) y[i * to_step] = convert<To>(x[i * from_step]);
  }
}

template <class To, class From>
STRETTO_CLONES void copy_run(void* to, int64_t to_step, const void* from, int64_t from_step,
                             int64_t n) {
  copy_each<To, From>(to, to_step, from, from_step, n);
}

// Conversions that are rare in training are compiled for one instruction set only.
template <class To, class From>
void rare_run(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n) {
  copy_each<To, From>(to, to_step, from, from_step, n);
}

// Returns the dimension of x with stride 1, if it is not the last dimension and both are long
// enough for tiles; else −1.
constexpr int64_t tile = 16;
int64_t transposed_dimension(const Tensor& x) {
  const int64_t last = x.dim() - 1;
  if (last < 1 || x.size(last) < tile || x.strides()[last] == 1) return -1;
  for (int64_t d = 0; d < last; ++d)
    if (x.strides()[d] == 1 && x.size(d) >= tile) return d;
  return -1;
}

// Copies rows row0 … row1 − 1 of a matrix with `columns` columns along which the source has stride
// 1. Square tiles keep the source and the destination in the cache.
template <class To, class From>
void copy_tiles(To* y, int64_t to_row, int64_t to_column, const From* x, int64_t from_row,
                int64_t row0, int64_t row1, int64_t columns) {
  for (int64_t column0 = 0; column0 < columns; column0 += tile) {
    const int64_t column1 = std::min(columns, column0 + tile);
    for (int64_t c = column0; c < column1; ++c)
      for (int64_t r = row0; r < row1; ++r)
        y[r * to_row + c * to_column] = convert<To>(x[r * from_row + c]);
  }
}

// to = from, if `from` has stride 1 along dimension t: copies matrices of dimensions t × last.
template <class To, class From>
void tiled_copy(const Tensor& to, const Tensor& from, int64_t t) {
  const int64_t last = to.dim() - 1, columns = to.size(t), rows = to.size(last);
  const int64_t to_row = to.strides()[last], to_column = to.strides()[t];
  const int64_t from_row = from.strides()[last];
  Shape outer = to.shape();
  outer[t] = 1;
  outer[last] = 1;
  const int64_t blocks = (rows + tile - 1) / tile;
  parallel_for(outer.numel() * blocks, rows_per_chunk(tile * columns),
               [&](int64_t begin, int64_t end) {
                 for (int64_t item = begin; item < end; ++item) {
                   const int64_t row0 = item % blocks * tile, row1 = std::min(rows, row0 + tile);
                   int64_t rest = item / blocks, to_at = 0, from_at = 0;
                   for (int64_t d = last; d >= 0; --d) {
                     const int64_t index = rest % outer[d];
                     rest /= outer[d];
                     to_at += index * to.strides()[d];
                     from_at += index * from.strides()[d];
                   }
                   copy_tiles(static_cast<To*>(to.raw_data()) + to_at, to_row, to_column,
                              static_cast<const From*>(from.raw_data()) + from_at, from_row, row0,
                              row1, columns);
                 }
               });
}

// The copy functions for a pair of dtypes. If `tiled` is null, the source is first made contiguous.
struct Copier {
  CopyRun run;
  void (*tiled)(const Tensor& to, const Tensor& from, int64_t t) = nullptr;
};

template <class To, class From = To>
constexpr Copier copier{copy_run<To, From>, tiled_copy<To, From>};

Copier copier_of(DType to, DType from) {
  if (to == from || (to == u8 && from == boolean)) {
    switch (item_size(to)) {
      case 1:
        return copier<Word<uint8_t>>;
      case 2:
        return copier<Word<uint16_t>>;
      case 4:
        return copier<Word<uint32_t>>;
      default:
        return copier<Word<uint64_t>>;
    }
  }
  if (to == f32 && from == bf16) return copier<float, BFloat16>;
  if (to == bf16 && from == f32) return copier<BFloat16, float>;
  if (to == f64 && from == f32) return {copy_run<double, float>};
  if (to == f32 && from == f64) return {copy_run<float, double>};
  return {dispatch(to, [&]<class To>() {
    return dispatch(from, [&]<class From>() -> CopyRun { return rare_run<To, From>; });
  })};
}

// to = from, of one shape, any strides and dtypes, both on the CPU.
void strided_copy(const Tensor& to, const Tensor& from) {
  const Copier copy = copier_of(to.dtype(), from.dtype());
  const int64_t t = transposed_dimension(from);
  if (t >= 0)
    return copy.tiled ? copy.tiled(to, from, t) : strided_copy(to, from.detach().contiguous());
  const StridedLoop<2> loop(to.shape(), {to.strides(), from.strides()});
  auto* y = static_cast<std::byte*>(to.raw_data());
  const auto* x = static_cast<const std::byte*>(from.raw_data());
  const int64_t to_size = item_size(to.dtype()), from_size = item_size(from.dtype());
  loop.run([&](auto at, int64_t n) {
    copy.run(y + at[0] * to_size, loop.inner[0], x + at[1] * from_size, loop.inner[1], n);
  });
}

void fill(const Tensor& x, double value) {
  const StridedLoop<1> loop(x.shape(), {x.strides()});
  dispatch(x.dtype(), [&]<class T>() {
    T* y = x.data<T>();
    const T v = static_cast<T>(value);
    loop.run([&](auto at, int64_t n) {
      for (int64_t i = 0; i < n; ++i) y[at[0] + i * loop.inner[0]] = v;
    });
  });
}

// to = from, on any devices and with any strides.
void copy_elements(const Tensor& to, const Tensor& from) {
  if (to.device() == from.device()) {
    on_device(to, strided_copy, cuda::strided_copy, from);
    return;
  }
  NoGrad guard;
  const Tensor source = from.detach().to(to.dtype()).contiguous();
  if (to.is_contiguous()) {
    copy_bytes(to.raw_data(), to.device(), source.raw_data(), source.device(),
               to.numel() * item_size(to.dtype()));
  } else {
    const Tensor there = empty_like(to);
    copy_elements(there, source);
    copy_elements(to, there);
  }
}

// Zeros of `shape` with g at indices start, start + step, … of dimension d. The gradient of slice.
Tensor place(const Tensor& g, const Shape& shape, int64_t d, int64_t start, int64_t step) {
  Tensor y = zeros(shape, options_of(g));
  if (g.numel() > 0) y.slice(d, start, start + (g.size(d) - 1) * step + 1, step).copy_(g.detach());
  return record("place", {g}, y, [=, n = g.size(d)](Backward& b) {
    return Tensors{b.grad().slice(d, start, n == 0 ? start : start + (n - 1) * step + 1, step)};
  });
}

}  // namespace

Tensor Tensor::view(const Shape& to) const {
  check_defined("view", *this);
  const Shape target = infer_shape("view", to, numel());
  Shape strides;
  check(reshape_strides(shape(), this->strides(), target, strides), "view", "no view of ", *this,
        " with strides ", this->strides(), " has shape ", target, "; use reshape, which copies");
  Tensor y = make_view(*this, offset(), target, strides);
  return record("view", {*this}, y,
                [from = shape()](Backward& b) { return Tensors{b.grad().reshape(from)}; });
}

Tensor Tensor::reshape(const Shape& to) const {
  check_defined("reshape", *this);
  const Shape target = infer_shape("reshape", to, numel());
  Shape strides;
  if (reshape_strides(shape(), this->strides(), target, strides)) return view(target);
  return contiguous().view(target);
}

Tensor Tensor::permute(const Shape& order) const {
  check_defined("permute", *this);
  check(order.dim() == dim(), "permute", "order ", order, " for ", *this,
        "; must contain each dimension once");
  Shape sizes = shape(), strides = shape(), inverse = order;
  bool used[Shape::max_dims] = {};
  for (int64_t d = 0; d < dim(); ++d) {
    const int64_t from = wrap_dim("permute", order[d], dim());
    check(!used[from], "permute", "order ", order, " names dimension ", from, " twice");
    used[from] = true;
    sizes[d] = shape()[from];
    strides[d] = this->strides()[from];
    inverse[from] = d;
  }
  return record("permute", {*this}, make_view(*this, offset(), sizes, strides),
                [inverse](Backward& b) { return Tensors{b.grad().permute(inverse)}; });
}

Tensor Tensor::transpose(Int d0, Int d1) const {
  check_defined("transpose", *this);
  Shape order = shape();
  for (int64_t d = 0; d < dim(); ++d) order[d] = d;
  d0 = wrap_dim("transpose", d0, dim());
  d1 = wrap_dim("transpose", d1, dim());
  std::swap(order[d0], order[d1]);
  return permute(order);
}

Tensor Tensor::expand(const Shape& to) const {
  check_defined("expand", *this);
  check(to.dim() >= dim(), "expand", *this, " does not broadcast to ", to);
  Shape target = to;
  const int64_t lead = to.dim() - dim();
  for (int64_t d = 0; d < to.dim(); ++d) {
    if (to[d] == -1 && d >= lead) target[d] = shape()[d - lead];
    check(d < lead ? target[d] >= 0 : shape()[d - lead] == target[d] || shape()[d - lead] == 1,
          "expand", *this, " does not broadcast to ", to);
  }
  return broadcast_to(*this, target);
}

Tensor broadcast_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  check(broadcast_shapes("broadcast_to", x.shape(), shape) == shape, "broadcast_to", x,
        " does not broadcast to ", shape);
  check_sizes("broadcast_to", shape);
  Tensor y = make_view(x, x.offset(), shape, broadcast_strides(x.shape(), x.strides(), shape));
  return record("broadcast_to", {x}, y,
                [from = x.shape()](Backward& b) { return Tensors{sum_to(b.grad(), from)}; });
}

Tensor sum_to(const Tensor& x, const Shape& shape) {
  if (x.shape() == shape) return x;
  const int64_t lead = x.dim() - shape.dim();
  Dims dims;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (d < lead || (shape[d - lead] == 1 && x.shape()[d] != 1)) dims.push_back(d);
  return dims.empty() ? x.reshape(shape) : sum(x, dims, true).reshape(shape);
}

Tensor Tensor::squeeze(Int d) const {
  check_defined("squeeze", *this);
  d = wrap_dim("squeeze", d, dim());
  check(shape()[d] == 1, "squeeze", "dimension ", d, " of ", *this, " is not of size 1");
  Shape sizes = shape(), strides = this->strides();
  sizes.erase(d);
  strides.erase(d);
  return record("squeeze", {*this}, make_view(*this, offset(), sizes, strides),
                [d](Backward& b) { return Tensors{b.grad().unsqueeze(d)}; });
}

Tensor Tensor::unsqueeze(Int d) const {
  check_defined("unsqueeze", *this);
  d = wrap_dim("unsqueeze", d, dim() + 1);
  Shape sizes = shape(), strides = this->strides();
  sizes.insert(d, 1);
  strides.insert(d, 1);
  return record("unsqueeze", {*this}, make_view(*this, offset(), sizes, strides),
                [d](Backward& b) { return Tensors{b.grad().squeeze(d)}; });
}

Tensor Tensor::flatten(Int first, Int last) const {
  check_defined("flatten", *this);
  if (dim() == 0) return reshape({1});
  first = wrap_dim("flatten", first, dim());
  last = wrap_dim("flatten", last, dim());
  check(first <= last, "flatten", "first dimension ", first, " is after last dimension ", last);
  Shape sizes;
  int64_t product = 1;
  for (int64_t d = 0; d < dim(); ++d) {
    if (d < first || d > last) sizes.push_back(shape()[d]);
    if (d >= first && d <= last) product *= shape()[d];
    if (d == last) sizes.push_back(product);
  }
  return reshape(sizes);
}

Tensor Tensor::slice(Int d, Int from_index, Int to_index, Int step) const {
  check_defined("slice", *this);
  d = wrap_dim("slice", d, dim());
  check(step >= 1, "slice", "step ", step, "; must be at least 1 (flip() reverses a dimension)");
  const int64_t n = shape()[d];
  const auto clipped = [n](int64_t i) { return std::clamp<int64_t>(i < 0 ? i + n : i, 0, n); };
  const int64_t start = clipped(from_index), end = std::max(clipped(to_index), start);
  Shape sizes = shape(), strides = this->strides();
  sizes[d] = (end - start) / step + ((end - start) % step != 0);
  const int64_t at = offset() + (sizes[d] > 0 ? start * strides[d] : 0);
  if (sizes[d] > 1) strides[d] *= step;
  return record(
      "slice", {*this}, make_view(*this, at, sizes, strides),
      [=, from = shape()](Backward& b) { return Tensors{place(b.grad(), from, d, start, step)}; });
}

Tensor Tensor::select(Int d, Int index) const {
  check_defined("select", *this);
  d = wrap_dim("select", d, dim());
  const int64_t n = shape()[d];
  check(index >= -n && index < n, "select", "index ", index, " is out of range for dimension ", d,
        " of ", *this);
  const int64_t at = index + (index < 0 ? n : 0);
  return slice(d, at, at + 1).squeeze(d);
}

Tensor Tensor::contiguous() const { return defined() && is_contiguous() ? *this : clone(); }

Tensor Tensor::clone() const {
  check_defined("clone", *this);
  Tensor y = empty_like(*this);
  copy_elements(y, *this);
  return record("clone", {*this}, y, [](Backward& b) { return Tensors{b.grad()}; });
}

Tensor Tensor::to(DType type) const {
  check_defined("to", *this);
  if (type == dtype()) return *this;
  Tensor y = empty(shape(), {.dtype = type, .device = device()});
  copy_elements(y, *this);
  return record("to", {*this}, y,
                [from = dtype()](Backward& b) { return Tensors{b.grad().to(from)}; });
}

Tensor Tensor::to(Device where) const {
  check_defined("to", *this);
  if (where == device()) return *this;
  check_device("to", where);
  Tensor y = empty(shape(), {.dtype = dtype(), .device = where});
  copy_elements(y, *this);
  return record("to", {*this}, y,
                [from = device()](Backward& b) { return Tensors{b.grad().to(from)}; });
}

Tensor Tensor::copy_(const Tensor& from) const {
  check_in_place("copy_", *this);
  check_not_recorded("copy_", from);
  copy_elements(*this, broadcast_to(readable_while_writing(*this, from.detach()), shape()));
  ++storage().version;
  return *this;
}

Tensor Tensor::fill_(double value) const {
  check_in_place("fill_", *this);
  check_value("fill_", dtype(), value);
  on_device(*this, fill, cuda::fill, value);
  ++storage().version;
  return *this;
}

Tensor pad(const Tensor& x, Int d, Int before, Int after, double value) {
  d = wrap_dim("pad", d, x.dim());
  check(before >= 0 && after >= 0, "pad", "padding ", before, ", ", after,
        "; must not be negative");
  Shape shape = x.shape();
  const int64_t n = shape[d];
  check(!__builtin_add_overflow(n, int64_t(before), &shape[d]) &&
            !__builtin_add_overflow(shape[d], int64_t(after), &shape[d]),
        "pad", x, " padded by ", before, " and ", after, " has too many elements");
  Tensor y = full(shape, value, options_of(x));
  y.slice(d, before, before + n).copy_(x.detach());
  // A NaN or infinite value is recorded as an input, so that anomaly detection does not report pad.
  Tensors inputs = {x};
  if (!std::isfinite(value)) inputs.push_back(scalar(value, options_of(x)));
  return record("pad", inputs, y, [=, count = inputs.size()](Backward& b) {
    Tensors gradients(count);
    gradients[0] = b.grad().slice(d, before, before + n);
    return gradients;
  });
}

Tensor flip(const Tensor& x, Int d) {
  d = wrap_dim("flip", d, x.dim());
  Tensor y = empty_like(x);
  if (x.numel() > 0) {
    // A strided copy that traverses dimension d of the source backward.
    Shape strides = x.strides();
    strides[d] = -strides[d];
    const int64_t last = x.offset() + (x.shape()[d] - 1) * x.strides()[d];
    copy_elements(y, make_view(x, last, x.shape(), strides));
  }
  return record("flip", {x}, y, [d](Backward& b) { return Tensors{flip(b.grad(), d)}; });
}

namespace {

// A mask [rows, columns] of x's last two dimensions, true where column − row > k.
Tensor above_diagonal(const char* op, const Tensor& x, int64_t k) {
  check(x.dim() >= 2, op, "got ", x, "; accepted: at least 2 dimensions");
  const int64_t rows = x.size(-2), columns = x.size(-1);
  if (x.device().is_cuda()) return cuda::above_diagonal(rows, columns, k, x.device());
  Tensor mask = empty({rows, columns}, {.dtype = boolean, .device = cpu});
  bool* m = mask.data<bool>();
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) m[i * columns + j] = j - i > k;
  return mask;
}

}  // namespace

Tensor tril(const Tensor& x, Int k) { return masked_fill(x, above_diagonal("tril", x, k), 0); }
Tensor triu(const Tensor& x, Int k) {
  const Tensor kept = above_diagonal("triu", x, std::max<int64_t>(k, INT64_MIN + 1) - 1);
  return where(kept, x, scalar(0, options_of(x)));
}

}  // namespace stretto
