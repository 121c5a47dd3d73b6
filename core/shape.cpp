#include "core/shape.h"

#include <algorithm>
#include <ostream>

namespace stretto {

namespace {

int64_t checked_dims(int64_t n) {
  check(n <= Shape::max_dims, "Shape", "got ", n, " dimensions; at most ", Shape::max_dims,
        " are supported");
  return n;
}

}  // namespace

Shape::Shape(std::initializer_list<Int> sizes) : n_(checked_dims(int64_t(sizes.size()))) {
  std::copy(sizes.begin(), sizes.end(), v_);
}

Shape::Shape(const int64_t* sizes, Int n) : n_(checked_dims(n)) { std::copy_n(sizes, n_, v_); }

void Shape::push_back(int64_t value) { insert(n_, value); }

void Shape::insert(int64_t at, int64_t value) {
  check(n_ < max_dims, "Shape", "a shape cannot have more than ", max_dims, " dimensions");
  std::copy_backward(v_ + at, v_ + n_, v_ + n_ + 1);
  v_[at] = value;
  ++n_;
}

void Shape::erase(int64_t at) {
  std::copy(v_ + at + 1, v_ + n_, v_ + at);
  --n_;
}

int64_t Shape::numel() const {
  int64_t n = 1;
  for (int64_t size : *this) n *= size;
  return n;
}

bool Shape::operator==(const Shape& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

void append_text(std::string& to, const Shape& shape) {
  to += '[';
  for (int64_t d = 0; d < shape.dim(); ++d) {
    if (d > 0) to += ", ";
    to += std::to_string(shape[d]);
  }
  to += ']';
}

std::ostream& operator<<(std::ostream& out, const Shape& shape) { return out << str(shape); }

void check_sizes(const char* op, const Shape& sizes) {
  int64_t product = 1;
  bool overflow = false;
  for (int64_t size : sizes) {
    check(size >= 0, op, "shape ", sizes, " has a negative size");
    if (size > 0) overflow |= __builtin_mul_overflow(product, size, &product);
  }
  check(!overflow && product < (int64_t(1) << 58), op, "shape ", sizes, " has too many elements");
}

Shape contiguous_strides(const Shape& sizes) {
  Shape strides = sizes;
  int64_t step = 1;
  for (int64_t d = sizes.dim() - 1; d >= 0; --d) {
    strides[d] = step;
    step *= std::max<int64_t>(sizes[d], 1);
  }
  return strides;
}

bool is_contiguous(const Shape& sizes, const Shape& strides) {
  int64_t step = 1;
  for (int64_t d = sizes.dim() - 1; d >= 0; --d) {
    if (sizes[d] == 0) return true;
    if (sizes[d] != 1 && strides[d] != step) return sizes.numel() == 0;
    step *= sizes[d];
  }
  return true;
}

Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b) {
  Shape result = a.dim() >= b.dim() ? a : b;
  const Shape& shorter = a.dim() >= b.dim() ? b : a;
  const int64_t lead = result.dim() - shorter.dim();
  for (int64_t d = 0; d < shorter.dim(); ++d) {
    const int64_t x = result[lead + d], y = shorter[d];
    check(x == y || x == 1 || y == 1, op, "shapes ", a, " and ", b, " do not broadcast: sizes ", x,
          " and ", y, " at dimension ", lead + d,
          "; each pair of sizes, aligned at the right, must be equal or contain a 1");
    if (x == 1) result[lead + d] = y;
  }
  return result;
}

int64_t wrap_dim(const char* op, int64_t d, int64_t dim) {
  check(d >= -dim && d < dim, op, "dimension ", d, " is out of range for a tensor with ", dim,
        dim == 1 ? " dimension" : " dimensions");
  return d < 0 ? d + dim : d;
}

Shape broadcast_strides(const Shape& sizes, const Shape& strides, const Shape& to) {
  Shape result = to;
  const int64_t lead = to.dim() - sizes.dim();
  for (int64_t d = 0; d < to.dim(); ++d)
    result[d] = d < lead || sizes[d - lead] != to[d] ? 0 : strides[d - lead];
  return result;
}

void merge_dimensions(Shape& sizes, Shape* strides, int n) {
  int64_t last = -1;
  for (int64_t d = 0; d < sizes.dim(); ++d) {
    if (sizes[d] == 1) continue;
    bool merge = last >= 0;
    for (int k = 0; k < n && merge; ++k) merge = strides[k][last] == strides[k][d] * sizes[d];
    if (!merge) ++last;
    sizes[last] = merge ? sizes[last] * sizes[d] : sizes[d];
    for (int k = 0; k < n; ++k) strides[k][last] = strides[k][d];
  }
  while (sizes.dim() > last + 1) {
    sizes.erase(sizes.dim() - 1);
    for (int k = 0; k < n; ++k) strides[k].erase(strides[k].dim() - 1);
  }
}

bool reshape_strides(const Shape& sizes, const Shape& strides, const Shape& to, Shape& result) {
  if (sizes.numel() == 0 || is_contiguous(sizes, strides)) {
    result = contiguous_strides(to);
    return true;
  }
  // Compares both shapes from the last dimension on, one run of evenly spaced elements at a time.
  result = to;
  int64_t t = to.dim() - 1;
  for (int64_t d = sizes.dim() - 1; d >= 0;) {
    const int64_t base = strides[d];
    int64_t run = sizes[d--];
    while (d >= 0 && (sizes[d] == 1 || run == 1 || strides[d] == base * run)) {
      if (run == 1 && sizes[d] != 1) break;
      run *= sizes[d--];
    }
    int64_t covered = 1;
    while (t >= 0 && covered < run) {
      result[t] = base * covered;
      covered *= to[t--];
    }
    if (covered != run) return false;
  }
  for (; t >= 0; --t) {
    if (to[t] != 1) return false;
    result[t] = 1;
  }
  return true;
}

Shape infer_shape(const char* op, const Shape& shape, int64_t numel) {
  Shape result = shape;
  int64_t unknown = -1, known = 1;
  for (int64_t d = 0; d < shape.dim(); ++d) {
    if (shape[d] == -1) {
      check(unknown < 0, op, "shape ", shape, " has more than one -1");
      unknown = d;
    } else {
      check(!__builtin_mul_overflow(known, shape[d], &known), op, "shape ", shape,
            " has too many elements");
    }
  }
  if (unknown >= 0) {
    check(known != 0 && numel % known == 0, op, numel, " elements do not fit shape ", shape);
    result[unknown] = numel / known;
  }
  check_sizes(op, result);
  check(result.numel() == numel, op, numel, " elements do not fit shape ", shape);
  return result;
}

}  // namespace stretto
