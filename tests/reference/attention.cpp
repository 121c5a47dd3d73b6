#include "tests/reference/attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/create.h"
#include "ops/view.h"

namespace stretto::reference {

Matrix matrix(const Tensor& x) { return {x.size(0), x.size(1), x.to_vector<double>()}; }

Tensor tensor(const Matrix& x) { return stretto::tensor(x.values, {x.rows, x.columns}); }

Matrix times_transposed(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.rows};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j)
      for (int64_t d = 0; d < a.columns; ++d) product(i, j) += a(i, d) * b(j, d);
  return product;
}

// ------------------------------------------------------------------- with the tensor R in memory

namespace {

// Returns Σ_d q[i, d] R[i, j, d], where R[i, j] is row `row(j − i)` of E, or zeros past its end.
template <class Row>
Matrix gather_and_multiply(const Matrix& q, const Matrix& e, Row row) {
  const int64_t l = q.rows, d = q.columns;
  std::vector<double> r(size_t(l * l * d));
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j)
      if (const int64_t at = row(j - i); at < e.rows)
        for (int64_t c = 0; c < d; ++c) r[size_t((i * l + j) * d + c)] = e(at, c);

  Matrix s{l, l};
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j)
      for (int64_t c = 0; c < d; ++c) s(i, j) += q(i, c) * r[size_t((i * l + j) * d + c)];
  return s;
}

}  // namespace

Matrix relative_logits_by_gather(const Matrix& q, const Matrix& e) {
  return gather_and_multiply(q, e, [&](int64_t relative) { return relative + q.rows - 1; });
}

Matrix clipped_logits_by_gather(const Matrix& q, const Matrix& w) {
  const int64_t k = (w.rows - 1) / 2;
  return gather_and_multiply(q, w,
                             [&](int64_t relative) { return std::clamp(relative, -k, k) + k; });
}

// ------------------------------------------------------------------- the same by pad and reshape

namespace {

// Returns x with columns of zeros before and after it.
Matrix pad_columns(const Matrix& x, int64_t before, int64_t after) {
  Matrix y{x.rows, before + x.columns + after};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < x.columns; ++j) y(i, before + j) = x(i, j);
  return y;
}

// Returns the elements of x in row-major order, with another number of columns.
Matrix reshape(const Matrix& x, int64_t rows, int64_t columns) {
  check(rows * columns == x.rows * x.columns, "reference", "reshape changes the count");
  return {rows, columns, x.values};
}

Matrix flatten(const Matrix& x) { return reshape(x, 1, x.rows * x.columns); }

// Returns the `rows` × `columns` block of x that starts at (i0, j0).
Matrix slice(const Matrix& x, int64_t i0, int64_t j0, int64_t rows, int64_t columns) {
  Matrix y{rows, columns};
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j) y(i, j) = x(i0 + i, j0 + j);
  return y;
}

}  // namespace

Matrix mask_upper_left(const Matrix& qe) {
  const int64_t l = qe.rows;
  Matrix y = qe;
  for (int64_t i = 0; i < l; ++i)
    for (int64_t c = 0; c < l - 1 - i; ++c) y(i, c) = 0;  // relative position c − (L − 1) < −i
  return y;
}

Matrix skew(const Matrix& qe) {
  const int64_t l = qe.rows;
  const Matrix padded = pad_columns(qe, 1, 0);        // 1. a dummy column on the left: [L, L + 1]
  const Matrix reshaped = reshape(padded, l + 1, l);  // 2. [L + 1, L]
  return slice(reshaped, 1, 0, l, l);                 // 3. without the first row: [L, L]
}

Matrix mask_both_corners(const Matrix& qe) {
  const int64_t n = qe.rows;
  Matrix y = qe;
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t c = 0; c < n - 1 - i; ++c) y(i, c) = 0;              // keys before that block
    for (int64_t c = 2 * n - 1 - i; c < 2 * n - 1; ++c) y(i, c) = 0;  // keys after it
  }
  return y;
}

Matrix skew_local(const Matrix& qe) {
  const int64_t n = qe.rows;
  const Matrix padded = pad_columns(qe, 0, 1);                   // 1. a dummy column: [N, 2N]
  const Matrix longer = pad_columns(flatten(padded), 0, n - 1);  // 2. flat, N − 1 more
  const Matrix reshaped = reshape(longer, n + 1, 2 * n - 1);     // 3. [N + 1, 2N − 1]
  return slice(reshaped, 0, n - 1, n, n);                        // 4. first N rows, last N columns
}

Matrix local_logits(const Matrix& q, const Matrix& e, int64_t n) {
  Matrix s{q.rows, q.rows};
  for (int64_t first = 0; first < q.rows; first += n) {
    const Matrix block = slice(q, first, 0, n, q.columns);
    const Matrix qe = times_transposed(block, e);                     // −(2N − 1) … 0
    const Matrix own = skew(slice(qe, 0, n, n, n));                   // −(N − 1) … 0
    const Matrix before = skew_local(slice(qe, 0, 0, n, 2 * n - 1));  // −(2N − 1) … −1
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j <= i; ++j) s(first + i, first + j) = own(i, j);
      for (int64_t j = 0; j < n && first > 0; ++j) s(first + i, first - n + j) = before(i, j);
    }
  }
  return s;
}

Matrix skew_with_memory(const Matrix& x) {
  const int64_t m = x.rows, n = x.columns;
  // Dropping the first M elements of the padded rows moves row i by M − 1 − i columns to the left.
  const Matrix padded = pad_columns(x, 1, 0);         // [M, N + 1]
  const Matrix reshaped = reshape(padded, n + 1, m);  // [N + 1, M]
  const Matrix rest = slice(reshaped, 1, 0, n, m);    // [N, M]
  return reshape(rest, m, n);
}

// ------------------------------------------------------------------- attention by loops

namespace {

// The elements of a tensor of any shape, read as x(b, h, i, d).
class Values {
 public:
  explicit Values(const Tensor& x) {
    if (!x.defined()) return;
    shape_ = x.shape();
    values_ = x.to_vector<double>();
  }
  template <class... Index>
  double operator()(Index... index) const {
    int64_t at = 0, d = 0;
    ((at = at * shape_[d++] + index), ...);
    return values_[size_t(at)];
  }

 private:
  Shape shape_;
  std::vector<double> values_;
};

// A table over relative positions. table(h, r, d) is element d of the row that head h has for
// relative position r: 0 or the nearest row if r is out of range, by the table's policy.
class Table {
 public:
  explicit Table(const RelativeTable& table)
      : rows_(table.rows),
        zero_row_(table.zero_row),
        clip_(table.out_of_range == OutOfRange::clip) {
    if (!table.defined()) return;
    heads_ = table.rows.size(0);
    count_ = table.rows.size(1);
  }
  template <class... Index>
  double operator()(int64_t h, int64_t r, Index... d) const {
    int64_t row = zero_row_ + r;
    if (clip_ && count_ > 0) row = std::clamp<int64_t>(row, 0, count_ - 1);
    if (row < 0 || row >= count_) return 0;
    return rows_(heads_ == 1 ? 0 : h, row, d...);
  }

 private:
  Values rows_;
  int64_t zero_row_, heads_ = 0, count_ = 0;
  bool clip_;
};

// The mask as a function of query and key.
class Visible {
 public:
  Visible(const AttentionMask& mask, const Shape& scores)
      : mask_(mask),
        padding_(mask.key_padding),
        segments_(mask.segments),
        prefix_(mask.prefix_lengths),
        global_(mask.global_tokens),
        hidden_(mask.hidden.defined() ? broadcast_to(mask.hidden, scores) : Tensor()),
        shift_(scores[3] - scores[2]) {}

  // True if query i, at key position i + N − M, sees key j.
  bool operator()(int64_t b, int64_t h, int64_t i, int64_t j) const {
    const int64_t position = i + shift_, r = j - position;
    if (mask_.block > 0 && (r > 0 || j / mask_.block < position / mask_.block - 1)) return false;
    if (mask_.causal && r > 0 && !(mask_.prefix_lengths.defined() && j < prefix_(b))) return false;
    const bool outside = (mask_.window > 0 && -r >= mask_.window) ||
                         (mask_.window_after > 0 && r >= mask_.window_after);
    const bool global =
        mask_.global_tokens.defined() && (global_(b, j) != 0 || global_(b, position) != 0);
    if (outside && !global) return false;
    if (mask_.segments.defined() && segments_(b, j) != segments_(b, position)) return false;
    if (mask_.key_padding.defined() && padding_(b, j) != 0) return false;
    return !mask_.hidden.defined() || hidden_(b, h, i, j) == 0;
  }

 private:
  const AttentionMask& mask_;
  const Values padding_, segments_, prefix_, global_, hidden_;
  const int64_t shift_;
};

// Replaces the scores of a row by their softmax, together with one more score, `sink`, that is not
// in the row. A row of only −∞ becomes zeros.
void softmax(std::vector<double>& row, double sink) {
  double largest = sink, total = 0;
  for (double s : row) largest = std::max(largest, s);
  if (!std::isinf(sink)) total = std::exp(sink - largest);
  for (double& s : row) total += s = std::isinf(s) ? 0 : std::exp(s - largest);
  for (double& s : row) s = total > 0 ? s / total : 0;
}

}  // namespace

Tensor attention_weights(const Tensor& queries, const Tensor& keys, const AttentionOptions& o) {
  const int64_t batch = queries.size(0), heads = queries.size(1), groups = keys.size(1);
  const int64_t m = queries.size(2), n = keys.size(2), size = queries.size(3);
  const double scale = o.scale.value_or(1 / std::sqrt(double(size)));
  const Values q(queries), k(keys), sinks(o.sinks);
  const Visible visible(o.mask, {batch, heads, m, n});
  const Values p(o.relative_query.defined() ? o.relative_query : queries);
  const Values bias(o.bias.defined() ? broadcast_to(o.bias, {batch, heads, m, n}) : Tensor());
  const Table key_table(o.relative_keys), relative_bias(o.relative_bias);

  std::vector<double> weights;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i) {
        // The queries are the last M of the N positions; H / G query heads share a key head.
        const int64_t position = i + n - m, g = h * groups / heads;
        std::vector<double> row;
        for (int64_t j = 0; j < n; ++j) {
          const int64_t r = j - position;
          double score = -std::numeric_limits<double>::infinity();
          if (visible(b, h, i, j)) {
            double product = 0;
            for (int64_t d = 0; d < size; ++d)
              product += q(b, h, i, d) * k(b, g, j, d) + p(b, h, i, d) * key_table(h, r, d);
            score = scale * product + relative_bias(h, r);
            if (o.bias.defined()) score += bias(b, h, i, j);
            if (o.soft_cap > 0) score = o.soft_cap * std::tanh(score / o.soft_cap);
          }
          row.push_back(score);
        }
        softmax(row, o.sinks.defined() ? sinks(h) : -std::numeric_limits<double>::infinity());
        weights.insert(weights.end(), row.begin(), row.end());
      }
  return stretto::tensor(weights, {batch, heads, m, n});
}

Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& o) {
  const int64_t batch = queries.size(0), heads = queries.size(1), groups = keys.size(1);
  const int64_t m = queries.size(2), n = keys.size(2), size = values.size(3);
  const Values weights(reference::attention_weights(queries, keys, o)), v(values);
  const Table value_table(o.relative_values);

  std::vector<double> out;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t d = 0; d < size; ++d) {
          const int64_t position = i + n - m, g = h * groups / heads;
          double sum = 0;
          for (int64_t j = 0; j < n; ++j)
            sum += weights(b, h, i, j) * (v(b, g, j, d) + value_table(h, j - position, d));
          out.push_back(sum);
        }
  return stretto::tensor(out, {batch, heads, m, size});
}

}  // namespace stretto::reference
