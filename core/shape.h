// Shapes and strides: pure integer arithmetic, no data and no device.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <iosfwd>
#include <string>
#include <type_traits>
#include <vector>

#include "error.h"

namespace stretto {

/// Types of dimensions, indices and sizes: integers and unscoped enums, but not bool.
template <class T>
concept WholeNumber = !std::same_as<T, bool> && std::convertible_to<T, int64_t> &&
                      (std::integral<T> || std::is_enum_v<T>);

/// An int64 argument that accepts only integers. Floating-point and bool arguments do not compile:
/// max(x, 0.0), sum(x, {0, true}), x[0.5].
class Int {
 public:
  /// Converts from an integer or unscoped enum.
  template <WholeNumber T>
  constexpr Int(T value) : value_(static_cast<int64_t>(value)) {}
  /// Returns the value.
  constexpr operator int64_t() const { return value_; }

 private:
  int64_t value_;
};

/// The sizes or strides of a tensor, outermost dimension first: at most 8 integers.
class Shape {
 public:
  static constexpr int max_dims = 8;  ///< The largest number of dimensions.

  Shape() = default;
  /// Makes a shape from a list; throws if it has more than max_dims entries.
  Shape(std::initializer_list<Int> sizes);
  /// Makes a shape from a vector.
  explicit Shape(const std::vector<int64_t>& sizes) : Shape(sizes.data(), sizes.size()) {}
  /// Makes a shape from n integers.
  Shape(const int64_t* sizes, Int n);

  /// Returns the number of dimensions.
  int64_t dim() const { return n_; }
  /// True if there are no dimensions.
  bool empty() const { return n_ == 0; }
  /// Entries, as of a std::vector; dimensions are not checked.
  /// @{
  int64_t operator[](int64_t d) const { return v_[d]; }
  int64_t& operator[](int64_t d) { return v_[d]; }
  int64_t back() const { return v_[n_ - 1]; }
  int64_t& back() { return v_[n_ - 1]; }
  const int64_t* begin() const { return v_; }
  const int64_t* end() const { return v_ + n_; }
  int64_t* begin() { return v_; }
  int64_t* end() { return v_ + n_; }
  /// @}
  /// Adds a dimension after the last one.
  void push_back(int64_t value);
  /// Adds a dimension at position `at`.
  void insert(int64_t at, int64_t value);
  /// Removes dimension `at`.
  void erase(int64_t at);

  /// Returns the product of all entries (1 for a 0-d shape).
  int64_t numel() const;
  /// True if both shapes have the same dimensions: equally many, with the same sizes.
  bool operator==(const Shape& other) const;

 private:
  int64_t v_[max_dims] = {};
  int64_t n_ = 0;
};

/// Appends "[2, 3]".
void append_text(std::string& to, const Shape& shape);
/// Writes "[2, 3]".
std::ostream& operator<<(std::ostream& out, const Shape& shape);

/// Throws unless every size is ≥ 0 and the product of the nonzero sizes is less than 2⁵⁸.
void check_sizes(const char* op, const Shape& sizes);

/// Returns the row-major strides of a shape, in elements.
Shape contiguous_strides(const Shape& sizes);

/// True if the elements lie in row-major order without gaps; sizes of 1 may have any stride.
bool is_contiguous(const Shape& sizes, const Shape& strides);

/// Returns the shape to which NumPy broadcasts a and b; throws if they do not broadcast.
Shape broadcast_shapes(const char* op, const Shape& a, const Shape& b);

/// Converts a dimension counted from either end to 0 … dim − 1; throws if it is out of range.
int64_t wrap_dim(const char* op, int64_t d, int64_t dim);

/// Returns the strides of a view that broadcasts `sizes`, with `strides`, to the shape `to`: 0 in
/// dimensions that repeat elements.
Shape broadcast_strides(const Shape& sizes, const Shape& strides, const Shape& to);

/// Drops sizes of 1, and merges neighboring dimensions that all n operands, with strides[0] …
/// strides[n − 1], traverse with a constant step. Contiguous operands end with one dimension, or
/// with none if they have a single element.
void merge_dimensions(Shape& sizes, Shape* strides, int n);

/// Computes the strides of a view with shape `to` of the same elements; false if only a copy can
/// have that shape.
bool reshape_strides(const Shape& sizes, const Shape& strides, const Shape& to, Shape& result);

/// Replaces a single −1 so that the shape has `numel` elements; throws if that is impossible.
Shape infer_shape(const char* op, const Shape& shape, int64_t numel);

}  // namespace stretto
