#include "core/tensor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

namespace stretto {

Tensor::Tensor(std::shared_ptr<Storage> storage, int64_t offset, const Shape& sizes,
               const Shape& strides, DType dtype)
    : impl_(std::make_shared<Impl>()) {
  impl_->storage = std::move(storage);
  impl_->offset = offset;
  impl_->numel = sizes.numel();
  impl_->sizes = sizes;
  impl_->strides = strides;
  impl_->dtype = dtype;
}

Tensor empty(const Shape& shape, TensorOptions options) {
  check_sizes("empty", shape);
  check_device("empty", options.device);
  auto storage =
      std::make_shared<Storage>(shape.numel() * item_size(options.dtype), options.device);
  Tensor x(std::move(storage), 0, shape, contiguous_strides(shape), options.dtype);
  if (options.requires_grad) x.set_requires_grad();
  return x;
}

Tensor empty_like(const Tensor& like) { return empty(like.shape(), options_of(like)); }
Tensor empty_like(const Tensor& like, const Shape& shape) { return empty(shape, options_of(like)); }

Tensor make_view(const Tensor& x, int64_t offset, const Shape& sizes, const Shape& strides) {
  return Tensor(x.shared_storage(), offset, sizes, strides, x.dtype());
}

Tensors split_into_parts(const Tensor& x, Int d, const Shape& sizes) {
  const int64_t at = wrap_dim("split_into_parts", d, x.dim());
  Tensors parts;
  int64_t offset = x.offset();
  Shape shape = x.shape();
  for (const int64_t size : sizes) {
    shape[at] = size;
    parts.emplace_back(std::make_shared<Storage>(x.shared_storage()), offset, shape, x.strides(),
                       x.dtype());
    offset += size * x.strides()[at];
  }
  return parts;
}

Tensor join_parts(const Tensors& parts, Int d) {
  const Tensor& first = parts.front();
  const int64_t at = wrap_dim("join_parts", d, first.dim());
  const auto block = [](const Tensor& x) {
    const std::shared_ptr<Storage>& own = x.shared_storage();
    return own->whole ? own->whole : own;
  };
  // The stride of a dimension of size 1 may be any number.
  Shape shape = first.shape(), strides = first.strides();
  if (shape[at] == 1 && parts.size() > 1) strides[at] = parts[1].offset() - first.offset();
  shape[at] = 0;
  for (const Tensor& x : parts) {
    if (x.dtype() != first.dtype() || x.dim() != first.dim() || block(x) != block(first) ||
        x.offset() != first.offset() + shape[at] * strides[at])
      return {};
    for (int64_t i = 0; i < x.dim(); ++i)
      if ((i != at && x.size(i) != first.size(i)) ||
          (x.size(i) > 1 && x.strides()[i] != strides[i]))
        return {};
    shape[at] += x.size(at);
  }
  return Tensor(block(first), first.offset(), shape, strides, first.dtype());
}

bool overlaps_itself(const Tensor& x) {
  if (x.numel() <= 1 || x.is_contiguous()) return false;
  // Sort dimensions by stride. If each stride exceeds the extent of all smaller ones, no two
  // elements have the same address.
  Shape sizes = x.shape(), strides = x.strides();
  for (int64_t d = 0; d < x.dim(); ++d)
    for (int64_t e = d + 1; e < x.dim(); ++e)
      if (strides[e] < strides[d]) {
        std::swap(strides[d], strides[e]);
        std::swap(sizes[d], sizes[e]);
      }
  int64_t extent = 0;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (sizes[d] == 1) continue;
    if (strides[d] <= extent) return true;
    extent += (sizes[d] - 1) * strides[d];
  }
  return false;
}

namespace {

// The addresses of the first and the last byte of x's elements.
std::pair<intptr_t, intptr_t> span_of(const Tensor& x) {
  int64_t first = 0, last = 0;
  for (int64_t d = 0; d < x.dim(); ++d) {
    const int64_t extent = (x.shape()[d] - 1) * x.strides()[d];
    (extent < 0 ? first : last) += extent;
  }
  const int64_t bytes = item_size(x.dtype());
  const auto address = reinterpret_cast<intptr_t>(x.raw_data());
  return {address + first * bytes, address + (last + 1) * bytes - 1};
}

bool may_share_memory(const Storage& a, const Storage& b) {
  if (&a == &b) return true;
  const bool one_block =
      (a.whole && a.whole == b.whole) || a.whole.get() == &b || b.whole.get() == &a;
  return one_block || a.is_borrowed() || b.is_borrowed();
}

}  // namespace

bool may_overlap(const Tensor& a, const Tensor& b) {
  if (!may_share_memory(a.storage(), b.storage()) || a.numel() == 0 || b.numel() == 0) return false;
  const auto [first_a, last_a] = span_of(a);
  const auto [first_b, last_b] = span_of(b);
  return first_a <= last_b && first_b <= last_a;
}

Tensor readable_while_writing(const Tensor& to, const Tensor& from) {
  const bool same_view = from.raw_data() == to.raw_data() && from.dtype() == to.dtype() &&
                         from.shape() == to.shape() && from.strides() == to.strides();
  return same_view || !may_overlap(to, from) ? from : from.clone();
}

namespace {

// Returns the elements on the host, row-major, in the tensor's dtype.
Tensor host_copy(const Tensor& x) { return x.detach().contiguous().to(cpu); }

}  // namespace

template <class T>
std::vector<T> Tensor::to_vector() const {
  const Tensor host = host_copy(*this);
  std::vector<T> values(static_cast<size_t>(numel()));
  dispatch(dtype(), [&]<class S>() {
    const S* from = host.data<S>();
    for (size_t i = 0; i < values.size(); ++i) values[i] = convert<T>(from[i]);
  });
  return values;
}

template std::vector<float> Tensor::to_vector() const;
template std::vector<double> Tensor::to_vector() const;
template std::vector<int64_t> Tensor::to_vector() const;
template std::vector<int32_t> Tensor::to_vector() const;
template std::vector<uint8_t> Tensor::to_vector() const;

template <class T>
T Tensor::item() const {
  check(numel() == 1, "item", "the tensor must have one element; got ", *this);
  if constexpr (std::is_floating_point_v<T>) {
    if (is_index(dtype())) {
      const int64_t value = to_vector<int64_t>()[0];
      const T rounded = T(value);
      check(rounded < T(0x1p63) && int64_t(rounded) == value, "item", value,
            " cannot be represented exactly in ", dtype_of<T>(), "; read it with item<int64_t>()");
      return rounded;
    }
  }
  return to_vector<T>()[0];
}

template double Tensor::item() const;
template float Tensor::item() const;
template int64_t Tensor::item() const;

Tensor::operator bool() const {
  check(defined(), "bool", "an undefined tensor does not convert to bool; use defined()");
  check(numel() == 1, "bool", "only a tensor with one element converts to bool; got ", *this);
  return is_index(dtype()) ? item<int64_t>() != 0 : item() != 0;
}

void append_text(std::string& to, const Tensor& x) {
  if (!x.defined()) {
    to += "undefined";
    return;
  }
  append_text(to, x.dtype());
  to += ' ';
  append_text(to, x.shape());
  if (!(x.device() == default_device())) {
    to += " on ";
    append_text(to, x.device());
  }
}

std::string to_string(const Tensor& x, int precision) {
  if (!x.defined()) return "undefined";
  const bool whole = !is_floating(x.dtype());
  const std::vector<double> values = whole ? std::vector<double>() : x.to_vector<double>();
  const std::vector<int64_t> integers = whole ? x.to_vector<int64_t>() : std::vector<int64_t>();
  const Shape& shape = x.shape();
  constexpr int64_t edge = 3, limit = 8;
  std::string text;
  auto number = [&](int64_t at) {
    if (whole) {
      text += std::to_string(integers[size_t(at)]);
      return;
    }
    char buffer[40];  // a sign, 17 digits, a point and an exponent
    std::snprintf(buffer, sizeof buffer, "%.*g", std::clamp(precision, 1, 17), values[size_t(at)]);
    text += buffer;
  };
  auto print = [&](auto&& self, int64_t d, int64_t at, int64_t count) -> void {
    if (d == shape.dim()) return number(at);
    text += '[';
    const int64_t step = shape[d] == 0 ? 0 : count / shape[d];
    for (int64_t i = 0; i < shape[d]; ++i) {
      if (i > 0) {
        text += d + 1 == shape.dim() ? ", " : ",\n";
        if (d + 1 < shape.dim()) text.append(size_t(d + 1), ' ');
      }
      if (shape[d] > limit && i == edge) {
        text += "...";
        i = shape[d] - edge - 1;
        continue;
      }
      self(self, d + 1, at + i * step, step);
    }
    text += ']';
  };
  print(print, 0, 0, x.numel());
  return str(text, "  ", x);
}

std::ostream& operator<<(std::ostream& out, const Tensor& x) {
  return out << to_string(x, int(out.precision()));
}

void check_defined(const char* op, const Tensor& x, const char* name) {
  check(x.defined(), op, name, " is undefined");
}

void check_floating(const char* op, const Tensor& x) {
  check_defined(op, x);
  check(is_floating(x.dtype()), op, "got ", x, "; accepted: f32, f64, bf16");
}

void check_same_device(const char* op, std::initializer_list<const Tensor*> tensors) {
  const Tensor* first = nullptr;
  for (const Tensor* x : tensors) {
    if (!x->defined()) continue;
    if (!first) first = x;
    check(x->device() == first->device(), op,
          "the tensors are on different devices: ", first->dtype(), " ", first->shape(), " on ",
          first->device(), " and ", x->dtype(), " ", x->shape(), " on ", x->device());
  }
}

}  // namespace stretto
