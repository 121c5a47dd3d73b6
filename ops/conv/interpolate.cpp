#include "ops/conv/interpolate.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto {
namespace {

Tensor nearest(const Tensor& x, int64_t d, int64_t size) {
  std::vector<int64_t> index;
  for (int64_t i = 0; i < size; ++i) index.push_back(i * x.size(d) / size);
  return index_select(x, d, tensor(index, {size}, x.device()));
}

Tensor linear(const Tensor& x, int64_t d, int64_t size, bool align_corners) {
  const int64_t last = x.size(d) - 1;
  std::vector<int64_t> before, after;
  std::vector<double> weight;  // of the element after
  for (int64_t i = 0; i < size; ++i) {
    const double at = align_corners ? (size > 1 ? double(i) * double(last) / double(size - 1) : 0)
                                    : (double(i) + 0.5) * double(last + 1) / double(size) - 0.5;
    const double inside = std::clamp(at, 0.0, double(last));
    before.push_back(int64_t(inside));
    after.push_back(std::min(before.back() + 1, last));
    weight.push_back(inside - double(before.back()));
  }
  Shape along = x.shape();
  for (int64_t e = 0; e < x.dim(); ++e) along[e] = e == d ? size : 1;
  const Tensor w = tensor(weight, along, cpu).to(x.dtype()).to(x.device());
  return index_select(x, d, tensor(before, {size}, x.device())) * (1.0 - w) +
         index_select(x, d, tensor(after, {size}, x.device())) * w;
}

}  // namespace

Tensor interpolate(const Tensor& x, const Shape& size, InterpolateOptions o) {
  const char* op = "interpolate";
  check((x.dim() == 3 || x.dim() == 4) && is_floating(x.dtype()), op, "x ", x,
        "; must be a floating-point tensor [N, C, L] or [N, C, H, W]");
  check(size.dim() == x.dim() - 2, op, "sizes ", size, " for x ", x,
        "; must be one for each spatial dimension");
  check(o.mode == InterpolateMode::linear || !o.align_corners, op,
        "align_corners for InterpolateMode::nearest; it needs InterpolateMode::linear");
  for (int64_t d = 2; d < x.dim(); ++d)
    check(size[d - 2] >= 1 && x.size(d) >= 1, op, "sizes ", size, " for x ", x,
          "; must be at least 1");
  Tensor y = x.to(compute_type(x.dtype()));  // so that gradients are rounded once
  for (int64_t d = 2; d < x.dim(); ++d)
    if (size[d - 2] != x.size(d))
      y = o.mode == InterpolateMode::linear ? linear(y, d, size[d - 2], o.align_corners)
                                            : nearest(y, d, size[d - 2]);
  return y.to(x.dtype());
}

}  // namespace stretto
