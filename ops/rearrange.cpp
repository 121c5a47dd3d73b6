// Views of windows and diagonals, splitting, and repetition (ops/view.h, ops/indexing.h).
#include <algorithm>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto {

Tensor movedim(const Tensor& x, Int from, Int to) {
  from = wrap_dim("movedim", from, x.dim());
  to = wrap_dim("movedim", to, x.dim());
  Shape order = x.shape();
  for (int64_t d = 0; d < x.dim(); ++d) order[d] = d;
  order.erase(from);
  order.insert(to, from);
  return x.permute(order);
}

Tensor unflatten(const Tensor& x, Int d, const Shape& sizes) {
  d = wrap_dim("unflatten", d, x.dim());
  const Shape inner = infer_shape("unflatten", sizes, x.shape()[d]);
  Shape shape = x.shape();
  shape.erase(d);
  for (int64_t e = 0; e < inner.dim(); ++e) shape.insert(d + e, inner[e]);
  return x.reshape(shape);
}

namespace {

// Zeros of `shape` with g on a diagonal. The gradient of diagonal.
Tensor place_diagonal(const Tensor& g, const Shape& shape, int64_t k, int64_t d0, int64_t d1) {
  Tensor y = zeros(shape, options_of(g));
  diagonal(y, k, d0, d1).copy_(g.detach());
  return record("place_diagonal", {g}, y,
                [=](Backward& b) { return Tensors{diagonal(b.grad(), k, d0, d1)}; });
}

// The sums of all windows of g at their places in zeros of `shape`. The gradient of unfold.
Tensor fold(const Tensor& g, const Shape& shape, int64_t d, int64_t size, int64_t step) {
  NoGrad guard;
  Tensor y = zeros(shape, {.dtype = compute_type(g.dtype()), .device = g.device()});
  const int64_t reach = (g.shape()[d] - 1) * step + 1;
  for (int64_t i = 0; i < size && g.numel() > 0; ++i)
    y.slice(d, i, i + reach, step).add_(g.detach().select(-1, i));
  return y.to(g.dtype());
}

}  // namespace

Tensor diagonal(const Tensor& x, Int k, Int first, Int second) {
  const int64_t d0 = wrap_dim("diagonal", first, x.dim());
  const int64_t d1 = wrap_dim("diagonal", second, x.dim());
  check(d0 != d1, "diagonal", "dimensions ", first, " and ", second, " of ", x, " are the same");
  const int64_t row = std::max<int64_t>(-k, 0), column = std::max<int64_t>(k, 0);
  const int64_t n = std::min(x.shape()[d0] - row, x.shape()[d1] - column);
  Shape sizes = x.shape(), strides = x.strides();
  for (int64_t d : {std::max(d0, d1), std::min(d0, d1)}) {
    sizes.erase(d);
    strides.erase(d);
  }
  sizes.push_back(std::max<int64_t>(n, 0));
  strides.push_back(x.strides()[d0] + x.strides()[d1]);
  const int64_t at =
      n > 0 ? x.offset() + row * x.strides()[d0] + column * x.strides()[d1] : x.offset();
  return record("diagonal", {x}, make_view(x, at, sizes, strides),
                [=, from = x.shape()](Backward& b) {
                  return Tensors{place_diagonal(b.grad(), from, k, d0, d1)};
                });
}

Tensor unfold(const Tensor& x, Int d, Int size, Int step) {
  d = wrap_dim("unfold", d, x.dim());
  const int64_t n = x.shape()[d];
  check(size >= 0 && size <= n && step >= 1, "unfold", "windows of size ", size, " and step ", step,
        " of dimension ", d, " of ", x, "; accepted: sizes 0 to ", n, " and steps of at least 1");
  Shape sizes = x.shape(), strides = x.strides();
  sizes[d] = (n - size) / step + 1;
  sizes.push_back(size);
  strides.push_back(strides[d]);
  strides[d] = sizes[d] > 1 ? strides[d] * step : strides[d];
  // Gradients: the sums of all windows of g at their places
  return record(
      "unfold", {x}, make_view(x, x.offset(), sizes, strides), [=, from = x.shape()](Backward& b) {
        const Tensor& g = b.grad();
        return Tensors{record("fold", {g}, fold(g, from, d, size, step), [=](Backward& c) {
          return Tensors{unfold(c.grad(), d, size, step)};
        })};
      });
}

namespace {

// x as [outer, size of d, inner].
Tensor around(const Tensor& x, int64_t d) {
  int64_t outer = 1;
  for (int64_t e = 0; e < d; ++e) outer *= x.shape()[e];
  int64_t inner = 1;
  for (int64_t e = d + 1; e < x.dim(); ++e) inner *= x.shape()[e];
  return x.reshape({outer, x.shape()[d], inner});
}

Shape scaled(Shape shape, int64_t d, int64_t n) {
  check(!__builtin_mul_overflow(shape[d], n, &shape[d]), "repeat", "too many elements");
  return shape;
}

}  // namespace

Tensors chunk(const Tensor& x, Int n, Int d) {
  d = wrap_dim("chunk", d, x.dim());
  check(n >= 1, "chunk", n, " chunks; must be at least 1");
  return split(x, std::max<int64_t>((x.shape()[d] + n - 1) / n, 1), d);
}

Tensors unbind(const Tensor& x, Int d) {
  d = wrap_dim("unbind", d, x.dim());
  Tensors entries;
  for (int64_t i = 0; i < x.shape()[d]; ++i) entries.push_back(x.select(d, i));
  return entries;
}

Tensor roll(const Tensor& x, const Shape& shifts, const Shape& dims) {
  check(shifts.dim() == dims.dim(), "roll", "shifts ", shifts, " for dimensions ", dims,
        "; accepted: one shift for each dimension");
  Tensor y = x;
  for (int64_t i = 0; i < dims.dim(); ++i) {
    const int64_t d = wrap_dim("roll", dims[i], x.dim()), n = x.shape()[d];
    const int64_t shift = n == 0 ? 0 : (shifts[i] % n + n) % n;
    if (shift != 0) y = cat({y.slice(d, n - shift), y.slice(d, 0, n - shift)}, d);
  }
  return y.same(x) ? x.clone() : y;
}

Tensor repeat(const Tensor& x, const Shape& counts) {
  check(counts.dim() >= x.dim(), "repeat", "counts ", counts, " for ", x,
        "; accepted: at least one for each dimension");
  Shape shape = x.shape();
  while (shape.dim() < counts.dim()) shape.insert(0, 1);
  Tensor y = x.reshape(shape);
  for (int64_t d = 0; d < counts.dim(); ++d) {
    check(counts[d] >= 0, "repeat", "counts ", counts, "; must not be negative");
    if (counts[d] == 1) continue;
    const Shape to = scaled(y.shape(), d, counts[d]);
    const Tensor rows = around(y, d).unsqueeze(1);
    y = broadcast_to(rows, {rows.size(0), counts[d], rows.size(2), rows.size(3)}).reshape(to);
  }
  return y.same(x) ? x.clone() : y;
}

Tensor repeat_interleave(const Tensor& x, Int n, Int d) {
  d = wrap_dim("repeat_interleave", d, x.dim());
  check(n >= 0, "repeat_interleave", n, " repetitions; must not be negative");
  const Tensor y = around(x, d).unsqueeze(2);
  return broadcast_to(y, {y.size(0), y.size(1), n, y.size(3)}).reshape(scaled(x.shape(), d, n));
}

Tensor repeat_interleave(const Tensor& x, const Tensor& counts, Int d) {
  d = wrap_dim("repeat_interleave", d, x.dim());
  check(is_index(counts.dtype()) && counts.shape() == Shape{x.shape()[d]}, "repeat_interleave",
        "counts ", counts, " for dimension ", d, " of ", x,
        "; accepted: one i64 or i32 for each entry");
  std::vector<int64_t> ids;
  const std::vector<int64_t> times = counts.to_vector<int64_t>();
  for (size_t i = 0; i < times.size(); ++i) {
    check(times[i] >= 0, "repeat_interleave", times[i], " repetitions; must not be negative");
    ids.insert(ids.end(), size_t(times[i]), int64_t(i));
  }
  return index_select(x, d, tensor(ids, {int64_t(ids.size())}, x.device()));
}

Tensors meshgrid(const Tensors& axes) {
  Shape shape;
  for (const Tensor& axis : axes) {
    check(axis.dim() == 1, "meshgrid", "axis ", axis, "; must have 1 dimension");
    shape.push_back(axis.numel());
  }
  Tensors grids;
  for (int64_t d = 0; d < shape.dim(); ++d) {
    Shape line = shape;
    for (int64_t e = 0; e < shape.dim(); ++e)
      if (e != d) line[e] = 1;
    grids.push_back(broadcast_to(axes[size_t(d)].reshape(line), shape));
  }
  return grids;
}

}  // namespace stretto
