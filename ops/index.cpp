// Indexing by tensors (ops/index.h), and ops whose result depends on which elements are not 0
// (ops/indexing.h).
#include "ops/index.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/in_place.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {

TensorIndex::TensorIndex(const char* ellipsis) : kind(Kind::ellipsis) {
  check(ellipsis != nullptr && std::strcmp(ellipsis, "...") == 0, "index",
        "got a text; the only text that is an index is \"...\"");
}

namespace {

// The columns of the indices of all nonzero elements, each [n].
std::vector<Tensor> nonzero_columns(const Tensor& x) {
  NoGrad guard;
  const Tensor mask = ne(x.detach(), 0).to(cpu).contiguous();
  const bool* set = mask.data<bool>();
  const int64_t dims = x.dim();
  std::vector<std::vector<int64_t>> columns(static_cast<size_t>(dims));
  for (int64_t i = 0; i < mask.numel(); ++i) {
    if (!set[i]) continue;
    int64_t rest = i;
    for (int64_t d = dims - 1; d >= 0; rest /= x.shape()[d--])
      columns[size_t(d)].push_back(rest % x.shape()[d]);
  }
  std::vector<Tensor> tensors;
  for (const auto& column : columns)
    tensors.push_back(tensor(column, {int64_t(column.size())}, x.device()));
  return tensors;
}

// x after all integers and slices were applied, and the index tensors of its dimensions.
struct Selection {
  Tensor x;
  std::vector<Tensor> indices;  // by dimension of x; undefined: the whole dimension

  Selection(const char* op, const Tensor& given, const std::vector<TensorIndex>& list) : x(given) {
    int64_t named = 0;
    bool ellipsis = false;
    for (const TensorIndex& i : list) {
      check(i.kind != TensorIndex::Kind::ellipsis || !ellipsis, op, "\"...\" occurs twice");
      ellipsis = ellipsis || i.kind == TensorIndex::Kind::ellipsis;
      named += width(i);
    }
    check(named <= given.dim(), op, named, " dimensions are indexed, ", given, " has ",
          given.dim());
    for (const TensorIndex& i : list) add(op, i, given.dim() - named);
    indices.resize(size_t(x.dim()));
  }

 private:
  static bool is_mask_index(const TensorIndex& i) {
    return i.kind == TensorIndex::Kind::tensor && i.tensor.defined() && is_mask(i.tensor.dtype());
  }
  static int64_t width(const TensorIndex& i) {
    return i.kind == TensorIndex::Kind::ellipsis ? 0 : is_mask_index(i) ? i.tensor.dim() : 1;
  }

  void add(const char* op, const TensorIndex& i, int64_t skipped) {
    const auto d = int64_t(indices.size());
    switch (i.kind) {
      case TensorIndex::Kind::integer:
        x = x.select(d, i.at);
        break;
      case TensorIndex::Kind::slice:
        x = x.slice(d, i.range.start, i.range.end, i.range.step);
        indices.emplace_back();
        break;
      case TensorIndex::Kind::ellipsis:
        indices.resize(size_t(d + skipped));
        break;
      case TensorIndex::Kind::tensor:
        check_same_device(op, {&x, &i.tensor});
        is_mask_index(i) ? add_mask(op, i.tensor, d) : add_indices(op, i.tensor, d);
    }
  }

  void add_indices(const char* op, const Tensor& index, int64_t d) {
    const int64_t n = x.shape()[d];
    indices.push_back(
        checked_index(op, index, n, str("dimension ", d, " of ", x, " has size ", n), true));
  }

  void add_mask(const char* op, const Tensor& mask, int64_t d) {
    for (int64_t e = 0; e < mask.dim(); ++e)
      check(mask.shape()[e] == x.shape()[d + e], op, "mask ", mask, " for ", x, " from dimension ",
            d, " on; the sizes must be equal");
    check(mask.dim() > 0, op, "mask ", mask, "; must have at least 1 dimension");
    for (Tensor& column : nonzero_columns(mask)) indices.push_back(std::move(column));
  }
};

// The indexed dimensions of x as one dimension, at position `front`: view [.., rows, ..] and ids in
// [0, rows), row-major in the broadcast shape of the indices.
struct Rows {
  Tensor view;        // of x, with the indexed dimensions next to each other
  int64_t front = 0;  // their first dimension in view
  int64_t count = 0;  // their number
  Shape picked;       // the shape of the ids
  Tensor ids;         // 1-d

  Rows(const char* op, const Selection& s) {
    Shape order, rest;
    std::vector<int64_t> places;  // of index tensors that are not 0-d, among the other dimensions
    for (int64_t d = 0; d < s.x.dim(); ++d) {
      const Tensor& index = s.indices[size_t(d)];
      if (index.defined() && index.dim() > 0) places.push_back(rest.dim());
      (index.defined() ? order : rest).push_back(d);
    }
    count = order.dim();
    front = !places.empty() && places.front() == places.back() ? places.front() : 0;
    for (int64_t i = 0; i < rest.dim(); ++i) order.insert(i < front ? i : order.dim(), rest[i]);
    view = s.x.permute(order);
    for (int64_t d = front; d < front + count; ++d)
      picked = broadcast_shapes(op, picked, s.indices[size_t(order[d])].shape());
    for (int64_t d = front; d < front + count; ++d) {
      const Tensor& index = s.indices[size_t(order[d])];
      ids = ids.defined() ? ids * double(view.shape()[d]) + index : index;
    }
    ids = broadcast_to(ids, picked).reshape({-1});
  }

  // The shape of view, or of the result if `middle` is picked, with `middle` for the indexed
  // dimensions.
  Shape with(const Shape& middle) const {
    Shape shape;
    for (int64_t d = 0; d < front; ++d) shape.push_back(view.shape()[d]);
    for (int64_t size : middle) shape.push_back(size);
    for (int64_t d = front + count; d < view.dim(); ++d) shape.push_back(view.shape()[d]);
    return shape;
  }
  Shape row_shape() const {
    int64_t rows = 1;
    for (int64_t d = front; d < front + count; ++d) rows *= view.shape()[d];
    return with({rows});
  }
};

}  // namespace

Tensor Tensor::index(const std::vector<TensorIndex>& list) const {
  const Selection s("index", *this, list);
  const auto defined = [](const Tensor& i) { return i.defined(); };
  if (std::none_of(s.indices.begin(), s.indices.end(), defined)) return s.x;
  const Rows rows("index", s);
  return index_select(rows.view.reshape(rows.row_shape()), rows.front, rows.ids)
      .reshape(rows.with(rows.picked));
}

Tensor Tensor::index_put_(const std::vector<TensorIndex>& list, const Tensor& values,
                          bool accumulate) const {
  check_in_place("index_put_", *this);
  check_not_recorded("index_put_", values);
  check_same_device("index_put_", {this, &values});
  NoGrad guard;
  const Selection s("index_put_", detach(), list);
  const auto defined = [](const Tensor& i) { return i.defined(); };
  Tensor given = values.detach().to(dtype());
  if (may_overlap(*this, given)) given = given.clone();  // elements are not written in its order
  if (std::none_of(s.indices.begin(), s.indices.end(), defined)) {
    s.x.copy_(accumulate ? s.x + broadcast_to(given, s.x.shape()) : given);
    return *this;
  }
  const Rows rows("index_put_", s);
  const Tensor source =
      broadcast_to(given, rows.with(rows.picked)).reshape(rows.with({rows.ids.numel()}));
  Tensor target = rows.view.reshape(rows.row_shape());  // a view if there is one
  if (accumulate) {
    target = index_add(target, rows.front, rows.ids, source);
  } else {
    Shape line = source.shape();
    for (int64_t d = 0; d < line.dim(); ++d)
      if (d != rows.front) line[d] = 1;
    scatter_into(target, rows.front, broadcast_to(rows.ids.view(line), source.shape()), source);
  }
  if (&target.storage() != &storage()) rows.view.copy_(target.view(rows.view.shape()));
  return *this;
}

Tensor Tensor::index_put_(const std::vector<TensorIndex>& list, double value) const {
  check_value("index_put_", dtype(), value);
  return index_put_(list, scalar(value, options_of(*this)));
}

Tensor nonzero(const Tensor& x) {
  if (x.dim() == 0) return zeros({x ? 1 : 0, 0}, {.dtype = i64, .device = x.device()});
  return stack(nonzero_columns(x), 1);
}

Tensor masked_select(const Tensor& x, const Tensor& mask) {
  check(is_mask(mask.dtype()), "masked_select", "mask is ", mask, "; accepted: bool, u8");
  check_same_device("masked_select", {&x, &mask});
  const Shape shape = broadcast_shapes("masked_select", x.shape(), mask.shape());
  const Tensor set = broadcast_to(mask, shape).reshape({-1});
  return index_select(broadcast_to(x, shape).reshape({-1}), 0, nonzero_columns(set)[0]);
}

namespace {

// The largest id + 1, or 0 if there is none; copied to the host.
int64_t count_of_ids(const char* op, const Tensor& ids) {
  check(is_index(ids.dtype()), op, "ids are ", ids.dtype(), "; accepted: i64, i32");
  return ids.numel() == 0 ? 0 : std::max<int64_t>(max(ids).item<int64_t>(), -1) + 1;
}

}  // namespace

Tensor one_hot(const Tensor& ids, Int classes) {
  check(classes >= -1, "one_hot", classes, " classes; must not be negative");
  const int64_t n = classes == -1 ? count_of_ids("one_hot", ids) : int64_t(classes);
  const Tensor checked = checked_index("one_hot", ids, n, str("there are ", n, " classes"));
  return eq(checked.unsqueeze(-1), arange(n, {.dtype = i64, .device = ids.device()})).to(i64);
}

Tensor bincount(const Tensor& ids, const Tensor& weights, Int min_length) {
  check(ids.dim() == 1, "bincount", "ids ", ids, "; must have 1 dimension");
  check(!weights.defined() || weights.shape() == ids.shape(), "bincount", "weights ", weights,
        " for ids ", ids, "; shapes must agree");
  check(min_length >= 0, "bincount", "min_length ", min_length, "; must not be negative");
  const int64_t n = std::max<int64_t>(count_of_ids("bincount", ids), min_length);
  const Tensor checked = checked_index("bincount", ids, n, "ids must not be negative");
  const Tensor terms =
      weights.defined() ? weights : ones(ids.shape(), {.dtype = i64, .device = ids.device()});
  return index_add(zeros({n}, options_of(terms)), 0, checked, terms);
}

}  // namespace stretto
