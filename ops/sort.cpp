// sort and topk (ops/reduce.h).
#include "cuda/sort.h"

#include <algorithm>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "ops/loops.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

template <class T>
struct Entry {
  compute_t<T> value;
  int64_t index;
};

// Equal values, and all NaNs, are ordered by index. The order is total, so any sorting
// algorithm is stable.
template <class T, bool descending>
bool before(const Entry<T>& a, const Entry<T>& b) {
  const auto less = [](const Entry<T>& p, const Entry<T>& q) {
    if constexpr (std::is_integral_v<T>)
      return p.value < q.value;
    else
      return p.value < q.value || (q.value != q.value && p.value == p.value);
  };
  if (descending ? less(b, a) : less(a, b)) return true;
  return !(descending ? less(a, b) : less(b, a)) && a.index < b.index;
}

// Writes the first k elements of each sorted row of x [rows, n].
template <class T, bool descending>
void sort_rows(const Tensor& x, const Tensor& values, const Tensor& indices, int64_t n, int64_t k) {
  const int64_t rows = k == 0 ? 0 : values.numel() / k;
  parallel_for(rows, rows_per_chunk(8 * n), [&](int64_t begin, int64_t end) {
    std::vector<Entry<T>> entries(static_cast<size_t>(n));
    for (int64_t r = begin; r < end; ++r) {
      const T* from = x.data<T>() + r * n;
      for (int64_t i = 0; i < n; ++i) entries[size_t(i)] = {compute_t<T>(from[i]), i};
      const auto middle = entries.begin() + k;
      if (k < n) {
        std::partial_sort(entries.begin(), middle, entries.end(), before<T, descending>);
      } else {
        std::sort(entries.begin(), entries.end(), before<T, descending>);
      }
      for (int64_t i = 0; i < k; ++i) {
        indices.data<int64_t>()[r * k + i] = entries[size_t(i)].index;
        values.data<T>()[r * k + i] = from[entries[size_t(i)].index];
      }
    }
  });
}

void sorted_cpu(const Tensor& rows, const Tensor& values, const Tensor& indices, bool descending) {
  dispatch(rows.dtype(), [&]<class T>() {
    const auto run = descending ? sort_rows<T, true> : sort_rows<T, false>;
    run(rows, values, indices, rows.size(-1), values.size(-1));
  });
}

void sorted_cuda(const Tensor& rows, const Tensor& values, const Tensor& indices, bool descending) {
  const DType type = is_floating(rows.dtype()) ? rows.dtype() : i64;
  if (type == rows.dtype()) return cuda::sort_rows(rows, descending, values, indices);
  const Tensor wide = empty(values.shape(), {.dtype = type, .device = rows.device()});
  cuda::sort_rows(rows.to(type), descending, wide, indices);
  values.copy_(wide);
}

Sorted first_sorted(const char* op, const Tensor& x, int64_t k, int64_t d, bool descending) {
  Shape order, back;
  for (int64_t i = 0; i < x.dim(); ++i)
    if (i != d) order.push_back(i);
  order.push_back(d);
  for (int64_t i = 0; i < x.dim(); ++i) back.push_back(i < d ? i : i == d ? x.dim() - 1 : i - 1);

  const Tensor rows = x.detach().permute(order).contiguous();
  Shape shape = rows.shape();
  shape.back() = k;
  Tensor values = empty_like(x, shape),
         indices = empty(shape, {.dtype = i64, .device = x.device()});
  on_device(rows, sorted_cpu, sorted_cuda, values, indices, descending);
  values = values.permute(back).contiguous();
  indices = indices.permute(back).contiguous();
  const auto backward = [indices = Saved(indices), d, from = x.shape()](Backward& b) {
    const Tensor& g = b.grad();
    return Tensors{scatter_add(zeros(from, options_of(g)), d, indices(), g)};
  };
  return {record(op, {x}, values, backward), indices};
}

}  // namespace

Sorted sort(const Tensor& x, Int d, bool descending) {
  d = wrap_dim("sort", d, x.dim());
  return first_sorted("sort", x, x.shape()[d], d, descending);
}

Sorted topk(const Tensor& x, Int k, Int d) {
  d = wrap_dim("topk", d, x.dim());
  check(k >= 0 && k <= x.shape()[d], "topk", "k = ", k, " of dimension ", d, " of ", x,
        "; accepted: 0 to ", x.shape()[d]);
  return first_sorted("topk", x, k, d, true);
}

}  // namespace stretto
