// Shapes and strides: pure integer arithmetic, no data and no device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <vector>

#include "error.h"

namespace stretto {

/// What may be a dimension, an index or a size: whole numbers, but no bool.
template <class T>
concept WholeNumber = !std::same_as<T, bool> && std::convertible_to<T, int64_t> &&
                      (std::integral<T> || std::is_enum_v<T>);

/// An int64 argument that only a whole number becomes: a fraction or a bool does not compile, as in
/// max(x, 0.0), sum(x, {0, true}) or x[0.5].
class Int {
 public:
  template <WholeNumber T>
  constexpr Int(T value) : value_(static_cast<int64_t>(value)) {}
  constexpr operator int64_t() const { return value_; }

 private:
  int64_t value_;
};

/// A short list of int64: sizes or strides of a tensor, outermost first. Holds at most 8.
class Shape {
 public:
  static constexpr int max_dims = 8;

  Shape() = default;
  Shape(std::initializer_list<Int> sizes);
  explicit Shape(const std::vector<int64_t>& sizes) : Shape(sizes.data(), sizes.size()) {}
  Shape(const int64_t* sizes, Int n);

  int64_t dim() const { return n_; }
  bool empty() const { return n_ == 0; }
  int64_t operator[](int64_t d) const { return v_[d]; }
  int64_t& operator[](int64_t d) { return v_[d]; }
  int64_t back() const { return v_[n_ - 1]; }
  int64_t& back() { return v_[n_ - 1]; }
  const int64_t* begin() const { return v_; }
  const int64_t* end() const { return v_ + n_; }
  int64_t* begin() { return v_; }
  int64_t* end() { return v_ + n_; }
  void push_back(int64_t value);
  void insert(int64_t at, int64_t value);
  void erase(int64_t at);

  /// Product of all entries (1 for a 0-d shape).
  int64_t numel() const;
  bool operator==(const Shape& other) const;

 private:
  int64_t v_[max_dims] = {};
  int64_t n_ = 0;
};

/// "[2, 3]".
void append_text(std::string& to, const Shape& shape);

/// Throws unless every size is ≥ 0 and the product fits an int64.
void check_sizes(const char* op, const Shape& sizes);

/// Row-major strides in elements.
Shape contiguous_strides(const Shape& sizes);

/// True when elements lie row-major without gaps; sizes of 1 may have any stride.
bool is_contiguous(const Shape& sizes, const Shape& strides);

/// NumPy broadcasting of two shapes; throws naming `op` when they do not agree.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

/// A dimension counted from either end, as 0 … dim−1; throws naming `op` when out of range.
int64_t wrap_dim(const char* op, int64_t d, int64_t dim);

/// Strides that show `sizes` with `strides` as the broadcast shape `to` (stride 0 where repeated).
Shape broadcast_strides(const Shape& sizes, const Shape& strides, const Shape& to);

/// Drops sizes of 1, and merges neighbouring dimensions where all of `n` operands, with strides
/// [n], step through them evenly: contiguous operands are left with one dimension, or none if they
/// have one element.
void merge_dimensions(Shape& sizes, Shape* strides, int n);

/// Strides of a view of another shape with the same elements, if one exists without copying.
bool reshape_strides(const Shape& sizes, const Shape& strides, const Shape& to, Shape& result);

/// Replaces a single −1 by what makes the product `numel`; throws when that is impossible.
Shape infer_shape(const char* op, const Shape& shape, int64_t numel);

}  // namespace stretto
