// Comparisons of two tensors.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/tensor.h"

namespace stretto::testing {

/// Returns max |got − want| / max(1, max |want|), as tests/conformance does; infinity if the shapes
/// differ or only one of two elements is NaN.
inline double worst_error(const Tensor& got, const Tensor& want) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  if (!got.defined() || !want.defined() || !(got.shape() == want.shape())) return infinity;
  const std::vector<double> a = got.to_vector<double>(), b = want.to_vector<double>();
  double worst = 0, largest = 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (std::isnan(a[i]) || std::isnan(b[i])) return infinity;
    if (a[i] == b[i]) continue;  // equal infinities
    worst = std::max(worst, std::fabs(a[i] - b[i]));
  }
  for (double x : b) largest = std::max(largest, std::fabs(x));
  return worst / largest;
}

/// True if shapes, dtypes and elements are bit-identical; strides may differ.
inline bool same_bits(const Tensor& a, const Tensor& b) {
  if (!(a.shape() == b.shape()) || a.dtype() != b.dtype()) return false;
  const Tensor x = a.detach().to(cpu).contiguous(), y = b.detach().to(cpu).contiguous();
  const auto bytes = size_t(x.numel() * item_size(x.dtype()));
  return bytes == 0 || std::memcmp(x.raw_data(), y.raw_data(), bytes) == 0;
}

}  // namespace stretto::testing
