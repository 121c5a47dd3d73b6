#include "ops/indexing.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "autograd/tape.h"
#include "cuda/indexing.h"
#include "cuda/runtime/reports.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loops.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

void check_index_dtype(const char* op, const Tensor& index) {
  check_defined(op, index, "the index");
  check(is_index(index.dtype()), op, "indices are ", index.dtype(), "; accepted: i64, i32");
}

STRETTO_CLONES bool all_below(const int64_t* index, int64_t count, int64_t n) {
  uint64_t outside = 0;
  for (int64_t i = 0; i < count; ++i) outside |= uint64_t(uint64_t(index[i]) >= uint64_t(n));
  return outside == 0;
}

// "index 7 at position [0, 3] is out of range: …"
std::string out_of_range(const Shape& shape, int64_t position, int64_t value,
                         const std::string& what) {
  Shape at = shape;
  for (int64_t d = at.dim() - 1, rest = position; d >= 0; rest /= shape[d--])
    at[d] = rest % shape[d];
  return str("index ", value, " at position ", at, " is out of range: ", what);
}

}  // namespace

Tensor checked_index(const char* op, const Tensor& given, int64_t n, const std::string& target,
                     bool from_end) {
  check_index_dtype(op, given);
  Tensor index = given.detach().to(i64).contiguous();
  if (from_end) index = where(lt(index, 0), index + double(n), index);
  const auto text = [shape = index.shape(), target, n, from_end](int64_t at, int64_t value) {
    return out_of_range(shape, at, from_end && value < 0 ? value - n : value, target);
  };
  if (index.device().is_cuda() && n > 0) return cuda::checked_indices(op, index, n, 0, text);
  const Tensor here = index.to(cpu);
  const int64_t* values = here.data<int64_t>();
  if (all_below(values, here.numel(), n)) return index;
  int64_t i = 0;
  while (values[i] >= 0 && values[i] < n) ++i;
  fail(op, text(i, values[i]));
}

namespace {

Tensor checked_along(const char* op, const Tensor& index, const Tensor& x, int64_t d) {
  const int64_t n = x.shape()[d];
  return checked_index(op, index, n, str("dimension ", d, " of ", x, " has size ", n));
}

int64_t product(const Shape& shape, int64_t begin, int64_t end) {
  int64_t n = 1;
  for (int64_t d = begin; d < end; ++d) n *= shape[d];
  return n;
}

Tensor take(const char* op, const Tensor& x, int64_t d, const Tensor& ids);

// A counting sort: the positions of id v, in ascending order, are order[start[v]] …
// order[start[v + 1] − 1].
struct ByRow {
  std::vector<int64_t> start, order;

  ByRow(const int64_t* ids, int64_t n, int64_t rows)
      : start(static_cast<size_t>(rows) + 1), order(static_cast<size_t>(n)) {
    for (int64_t i = 0; i < n; ++i) ++start[size_t(ids[i]) + 1];
    for (size_t v = 0; v < size_t(rows); ++v) start[v + 1] += start[v];
    std::vector<int64_t> next(start.begin(), start.end() - 1);
    for (int64_t i = 0; i < n; ++i) order[size_t(next[size_t(ids[i])]++)] = i;
  }
};

template <class T>
STRETTO_CLONES void add_to(double* y, const T* x, int64_t n) {
  for (int64_t j = 0; j < n; ++j) y[j] += double(x[j]);
}

// y [outer, rows, inner]: row v is the sum of the slices of g [outer, n, inner] whose id is v. Sums
// are f64, because some rows have a million terms.
template <class T>
void place_kernel(const T* g, T* y, int64_t outer, int64_t n, int64_t rows, int64_t inner,
                  const int64_t* ids) {
  const ByRow by_row(ids, n, rows);
  const int64_t work = (n / std::max<int64_t>(rows, 1) + 1) * inner;  // of an average row
  parallel_for(outer * rows, rows_per_chunk(work), [&](int64_t begin, int64_t end) {
    std::vector<double> sum(static_cast<size_t>(inner));
    for (int64_t r = begin; r < end; ++r) {
      const int64_t o = r / rows, v = r % rows;
      const int64_t first = by_row.start[size_t(v)], last = by_row.start[size_t(v) + 1];
      const auto source = [&](int64_t i) { return g + (o * n + by_row.order[size_t(i)]) * inner; };
      if (last - first <= 1) {
        last == first ? std::fill_n(y + r * inner, inner, T(0.0f))
                      : std::copy_n(source(first), inner, y + r * inner);
        continue;
      }
      std::fill(sum.begin(), sum.end(), 0.0);
      for (int64_t i = first; i < last; ++i) add_to<T>(sum.data(), source(i), inner);
      std::transform(sum.begin(), sum.end(), y + r * inner, [](double value) { return T(value); });
    }
  });
}

// The same as an op: g [outer, n, inner] → [outer, rows, inner].
Tensor place_cpu(const Tensor& g, const Tensor& ids, int64_t rows) {
  Tensor y = empty_like(g, {g.size(0), rows, g.size(2)});
  dispatch_floating(g.dtype(), "place", [&]<class T>() {
    place_kernel(g.data<T>(), y.data<T>(), g.size(0), ids.numel(), rows, g.size(2),
                 ids.data<int64_t>());
  });
  return y;
}

// Returns x as [outer, size of d, inner], row-major and detached.
Tensor around(const Tensor& x, int64_t d) {
  const Shape& shape = x.shape();
  return x.detach().contiguous().view(
      {product(shape, 0, d), shape[d], product(shape, d + 1, shape.dim())});
}

// Adds the slices of the gradient at `ids` along d to zeros of `shape`. The gradient of take.
Tensor place(const char* op, const Tensor& grad, const Shape& shape, int64_t d, const Tensor& ids) {
  Tensor y = on_device(around(grad, d), place_cpu, cuda::place, ids, shape[d]).view(shape);
  return record(op, {grad}, y, [op, d, ids = Saved(ids)](Backward& b) {
    return Tensors{take(op, b.grad(), d, ids())};
  });
}

// x [outer, rows, inner] → [outer, n, inner].
Tensor take_cpu(const Tensor& x, const Tensor& ids) {
  const int64_t outer = x.size(0), rows = x.size(1), n = ids.numel();
  Tensor y = empty_like(x, {outer, n, x.size(2)});
  const size_t bytes = size_t(x.size(2) * item_size(x.dtype()));
  const char* source = static_cast<const char*>(x.raw_data());
  char* target = static_cast<char*>(y.raw_data());
  const int64_t* index = ids.data<int64_t>();
  parallel_for(bytes == 0 ? 0 : outer * n, rows_per_chunk(int64_t(bytes / 4)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t r = begin; r < end; ++r)
                   std::memcpy(target + size_t(r) * bytes,
                               source + size_t(r / n * rows + index[r % n]) * bytes, bytes);
               });
  return y;
}

// The slices of x along d at checked 1-d i64 ids.
Tensor take(const char* op, const Tensor& x, int64_t d, const Tensor& ids) {
  Shape shape = x.shape();
  shape[d] = ids.numel();
  Tensor y = on_device(around(x, d), take_cpu, cuda::take, ids).view(shape);
  return record(op, {x}, y, [op, d, ids = Saved(ids), from_shape = x.shape()](Backward& b) {
    return Tensors{place(op, b.grad(), from_shape, d, ids())};
  });
}

void check_fits(const char* op, const Tensor& index, const Tensor& x, int64_t d) {
  bool fits = index.dim() == x.dim();
  for (int64_t e = 0; fits && e < x.dim(); ++e) fits = e == d || index.shape()[e] <= x.shape()[e];
  check(fits, op, "index ", index, " into ", x, " along dimension ", d,
        "; the index must have as many dimensions and be no larger in any other dimension");
}

Shape with(Shape shape, int64_t d, int64_t value) {
  shape[d] = value;
  return shape;
}

// Calls put(y[index], source) along d, column by column. One thread has each column, in order.
template <class T, class Put>
void scatter_kernel(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source,
                    Put put) {
  const int64_t n = index.shape()[d];
  const int64_t ys = y.strides()[d], is = index.strides()[d], ss = source.strides()[d];
  const StridedLoop<3> columns(with(index.shape(), d, 1),
                               {y.strides(), index.strides(), source.strides()});
  if (n == 0) return;
  columns.run([&](auto at, int64_t width) {
    T* to = y.data<T>() + at[0];
    const int64_t* where = index.data<int64_t>() + at[1];
    const T* from = source.data<T>() + at[2];
    const auto [yc, ic, sc] = columns.inner;
    if (is == 1) {
      for (int64_t c = 0; c < width; ++c)
        for (int64_t i = 0; i < n; ++i)
          put(to[c * yc + where[c * ic + i] * ys], from[c * sc + i * ss]);
    } else {
      for (int64_t i = 0; i < n; ++i)
        for (int64_t c = 0; c < width; ++c)
          put(to[c * yc + where[c * ic + i * is] * ys], from[c * sc + i * ss]);
    }
  });
}

// x + source at index, computed in dtype `wide`, on CUDA in i64 for all integers.
Tensor scatter_cpu(const Tensor& x, int64_t d, const Tensor& index, const Tensor& source,
                   DType wide) {
  Tensor y = x.dtype() == wide ? x.clone() : x.to(wide);
  const Tensor added = source.to(wide);
  dispatch(wide, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool> && !std::is_same_v<T, BFloat16>)
      scatter_kernel<T>(y, d, index, added,
                        [](T& sum, T value) { sum = math::wrapping_add(sum, value); });
  });
  return y;
}

Tensor scatter_cuda(const Tensor& x, int64_t d, const Tensor& index, const Tensor& source,
                    DType wide) {
  if (!is_floating(wide)) wide = i64;
  Tensor y = x.dtype() == wide ? x.clone() : x.to(wide);
  cuda::scatter_add(y, d, index, source.to(wide));
  return y;
}

Tensor gather_cpu(const Tensor& x, int64_t d, const Tensor& index) {
  Tensor y = empty_like(x, index.shape());
  const int64_t step = x.strides()[d];
  const StridedLoop<3> loop(index.shape(), {y.strides(), index.strides(), with(x.strides(), d, 0)});
  dispatch(x.dtype(), [&]<class T>() {
    loop.run([&](auto at, int64_t n) {
      T* to = y.data<T>() + at[0];
      const int64_t* where = index.data<int64_t>() + at[1];
      const T* from = x.data<T>() + at[2];
      for (int64_t i = 0; i < n; ++i)
        to[i * loop.inner[0]] = from[i * loop.inner[2] + where[i * loop.inner[1]] * step];
    });
  });
  return y;
}

void check_same_dtype(const char* op, const Tensor& a, const Tensor& b) {
  check(a.dtype() == b.dtype(), op, "dtypes differ: ", a, " and ", b);
}

}  // namespace

Tensor cat(const Tensors& tensors, Int d) {
  check(!tensors.empty(), "cat", "got no tensors; accepted: at least one");
  for (const Tensor& x : tensors) check_defined("cat", x, "one of the tensors");
  const Tensor& first = tensors[0];
  d = wrap_dim("cat", d, first.dim());
  Shape shape = with(first.shape(), d, 0);
  for (const Tensor& x : tensors) {
    check_same_device("cat", {&first, &x});
    check_same_dtype("cat", first, x);
    check(x.dim() == first.dim() && with(x.shape(), d, 0) == with(first.shape(), d, 0), "cat",
          first, " and ", x, " along dimension ", d, "; all other sizes must agree");
    shape[d] += x.shape()[d];
  }
  Tensor y = empty_like(first, shape);
  int64_t at = 0;
  for (const Tensor& x : tensors) {
    make_view(y, at * y.strides()[d], x.shape(), y.strides()).copy_(x.detach());
    at += x.shape()[d];
  }
  std::vector<int64_t> sizes;
  for (const Tensor& x : tensors) sizes.push_back(x.shape()[d]);
  return record("cat", tensors, y, [d, sizes](Backward& b) {
    Tensors pieces(sizes.size());
    int64_t start = 0;
    for (size_t i = 0; i < sizes.size(); start += sizes[i++])
      if (b.needs(i)) pieces[i] = b.grad().slice(d, start, start + sizes[i]);
    return pieces;
  });
}

Tensor stack(const Tensors& tensors, Int d) {
  check(!tensors.empty(), "stack", "got no tensors; accepted: at least one");
  for (const Tensor& x : tensors) check_defined("stack", x, "one of the tensors");
  const Tensor& first = tensors[0];
  d = wrap_dim("stack", d, first.dim() + 1);
  Tensors rows;
  for (const Tensor& x : tensors) {
    check_same_device("stack", {&first, &x});
    check_same_dtype("stack", first, x);
    check(x.shape() == first.shape(), "stack", first, " and ", x, "; all shapes must agree");
    rows.push_back(x.unsqueeze(d));
  }
  return cat(rows, d);
}

Tensors split(const Tensor& x, Int size, Int d) {
  d = wrap_dim("split", d, x.dim());
  check(size >= 1, "split", "size ", size, "; must be at least 1");
  const int64_t n = x.shape()[d];
  std::vector<int64_t> sizes;  // one for an empty dimension, so that cat is the inverse of split
  int64_t at = 0;
  do {
    sizes.push_back(std::min<int64_t>(size, n - at));
    at += sizes.back();
  } while (at < n);
  return split(x, sizes, d);
}

Tensors split(const Tensor& x, const std::vector<int64_t>& sizes, Int d) {
  d = wrap_dim("split", d, x.dim());
  int64_t total = 0;
  for (int64_t size : sizes) {
    check(size >= 0, "split", "size ", size, "; must be 0 or more");
    total += size;
  }
  check(total == x.shape()[d], "split", "sizes add up to ", total, ", but dimension ", d, " of ", x,
        " has size ", x.shape()[d]);
  Tensors pieces;
  Shape shape = x.shape();
  int64_t at = x.offset();
  for (int64_t size : sizes) {
    shape[d] = size;
    pieces.push_back(make_view(x, size > 0 ? at : x.offset(), shape, x.strides()));
    at += size * x.strides()[d];
  }
  return record("split", {x}, pieces, [d, n = pieces.size()](Backward& b) {
    Tensors g;
    for (size_t i = 0; i < n; ++i) g.push_back(b.grad(i));
    return Tensors{cat(g, d)};
  });
}

Tensor gather(const Tensor& x, Int d, const Tensor& given) {
  d = wrap_dim("gather", d, x.dim());
  check_same_device("gather", {&x, &given});
  check_index_dtype("gather", given);
  check_fits("gather", given, x, d);
  const Tensor index = checked_along("gather", given, x, d);
  Tensor y = on_device(x.detach(), gather_cpu, cuda::gather, d, index);
  return record("gather", {x}, y, [d, index = Saved(index), shape = x.shape()](Backward& b) {
    const Tensor& g = b.grad();
    return Tensors{scatter_add(zeros(shape, options_of(g)), d, index(), g)};
  });
}

Tensor index_select(const Tensor& x, Int d, const Tensor& index) {
  d = wrap_dim("index_select", d, x.dim());
  check_same_device("index_select", {&x, &index});
  check_index_dtype("index_select", index);
  check(index.dim() == 1, "index_select", "index ", index, "; must have 1 dimension");
  return take("index_select", x, d, checked_along("index_select", index, x, d));
}

Tensor scatter_add(const Tensor& x, Int d, const Tensor& given, const Tensor& source) {
  d = wrap_dim("scatter_add", d, x.dim());
  check_same_device("scatter_add", {&x, &given, &source});
  check_index_dtype("scatter_add", given);
  check_same_dtype("scatter_add", x, source);
  check(x.dtype() != boolean, "scatter_add", "got bool; accepted: all other dtypes");
  check(given.shape() == source.shape(), "scatter_add", "index ", given, " for source ", source,
        "; shapes must agree");
  check_fits("scatter_add", given, x, d);
  const Tensor index = checked_along("scatter_add", given, x, d);
  // Sums are f64 if an element may have many terms.
  DType wide = is_narrow(x.dtype()) ? compute_type(x.dtype()) : x.dtype();
  if (wide == f32 && given.shape()[d] > 64) wide = f64;
  const Tensor y =
      on_device(x.detach(), scatter_cpu, scatter_cuda, d, index, source.detach(), wide);
  return record("scatter_add", {x, source}, y.to(x.dtype()),
                [d, index = Saved(index)](Backward& b) {
                  const Tensor& g = b.grad();
                  return Tensors{g, b.needs(1) ? gather(g, d, index()) : Tensor()};
                });
}

namespace {

// 1, 2, … along dimension d, expanded to a shape; i64.
Tensor positions(const Shape& shape, int64_t d, Device device) {
  Shape line = shape;
  for (int64_t e = 0; e < shape.dim(); ++e)
    if (e != d) line[e] = 1;
  return broadcast_to(arange(shape[d], {.dtype = i64, .device = device}).view(line) + 1.0, shape);
}

void store_cpu(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source) {
  dispatch(y.dtype(), [&]<class T>() {
    scatter_kernel<T>(y, d, index, source, [](T& to, T value) { to = value; });
  });
}

}  // namespace

// A stable sort shows which of the values that are stored in an element is the last. The positions
// of these values, counted from 1, are scattered; then each element gathers its value.
void scatter_by_sorting(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source) {
  const int64_t n = index.shape()[d];
  if (index.numel() == 0) return;
  const auto [ids, order] = sort(index, d);
  const Tensor last =
      cat({ne(ids.slice(d, 1), ids.slice(d, 0, n - 1)),
           ones(with(index.shape(), d, 1), {.dtype = boolean, .device = y.device()})},
          d);
  Tensor part = y;  // a view of the columns that the index has
  for (int64_t e = 0; e < y.dim(); ++e)
    if (e != d) part = part.slice(e, 0, index.shape()[e]);
  const Tensor none = zeros(part.shape(), {.dtype = i64, .device = y.device()});
  const Tensor place = scatter_add(none, d, ids, (order + 1.0) * last);
  part.copy_(where(gt(place, 0), gather(source, d, clamp(place - 1.0, 0, double(n - 1))), part));
}

void scatter_into(const Tensor& y, int64_t d, const Tensor& index, const Tensor& source) {
  NoGrad guard;
  on_device(y, store_cpu, scatter_by_sorting, d, index, source);
  ++y.storage().version;
}

Tensor scatter(const Tensor& x, Int d, const Tensor& given, const Tensor& source) {
  d = wrap_dim("scatter", d, x.dim());
  check_same_device("scatter", {&x, &given, &source});
  check_index_dtype("scatter", given);
  check_same_dtype("scatter", x, source);
  check(given.shape() == source.shape(), "scatter", "index ", given, " for source ", source,
        "; shapes must agree");
  check_fits("scatter", given, x, d);
  const Tensor index = checked_along("scatter", given, x, d);
  const Tensor y = x.detach().clone();
  scatter_into(y, d, index, source.detach());
  // Gradients: g where nothing is stored; g of the element for the value that is stored last
  return record("scatter", {x, source}, y,
                [d, index = Saved(index), shape = x.shape()](Backward& b) {
                  const Tensor& g = b.grad();
                  Tensors to(2);
                  if (b.needs(0)) to[0] = scatter(g, d, index(), 0);
                  if (b.needs(1)) {
                    const Tensor place = positions(index().shape(), d, g.device());
                    const Tensor stored = zeros(shape, options_of(place));
                    scatter_into(stored, d, index(), place);
                    to[1] = where(eq(gather(stored, d, index()), place), gather(g, d, index()),
                                  scalar(0, options_of(g)));
                  }
                  return to;
                });
}

Tensor scatter(const Tensor& x, Int d, const Tensor& index, double value) {
  check_value("scatter", x.dtype(), value);
  return scatter(x, d, index, full(index.shape(), value, options_of(x)));
}

Tensor index_add(const Tensor& x, Int d, const Tensor& given, const Tensor& source, double scale) {
  d = wrap_dim("index_add", d, x.dim());
  check_same_device("index_add", {&x, &given, &source});
  check_index_dtype("index_add", given);
  check_same_dtype("index_add", x, source);
  check(given.dim() == 1 && source.shape() == with(x.shape(), d, given.numel()), "index_add",
        "index ", given, " and source ", source, " for ", x, " along dimension ", d,
        "; the index must have 1 dimension, and the source its size along d and all other sizes");
  const Tensor index = checked_along("index_add", given, x, d);
  const Tensor added = scale == 1 ? source : (source * scale).to(x.dtype());
  if (is_floating(x.dtype())) return x + place("index_add", added, x.shape(), d, index);
  Shape column = with(x.shape(), d, index.numel());
  for (int64_t e = 0; e < x.dim(); ++e)
    if (e != d) column[e] = 1;
  return scatter_add(x, d, broadcast_to(index.view(column), source.shape()), added);
}

Tensor embedding(const Tensor& table, const Tensor& ids) {
  check(table.dim() == 2, "embedding", "table ", table, "; must have 2 dimensions, [V, D]");
  check_same_device("embedding", {&table, &ids});
  const int64_t rows = table.shape()[0];
  const Tensor index = checked_index("embedding", ids, rows, str("the table has ", rows, " rows"));
  Shape shape = ids.shape();
  shape.push_back(table.shape()[1]);
  return take("embedding", table, 0, index.view({-1})).view(shape);
}

}  // namespace stretto
