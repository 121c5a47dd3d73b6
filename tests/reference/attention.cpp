#include "tests/reference/attention.h"

#include "ops/create.h"
#include "ops/view.h"

namespace stretto::reference {

Matrix matrix(const Tensor& x) { return {x.size(0), x.size(1), x.to_vector<double>()}; }

Tensor tensor(const Matrix& x) { return stretto::tensor(x.values, {x.rows, x.columns}); }

Matrix times_transposed(const Matrix& a, const Matrix& b) {
  Matrix product{a.rows, b.rows};
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < b.rows; ++j) product(i, j) = dot(a, i, 0, b, j, 0, a.columns);
  return product;
}

std::vector<double> softmax(std::vector<double> scores, double sink) {
  double largest = sink, total = 0;
  for (const double score : scores) largest = std::max(largest, score);
  if (std::isinf(largest)) return std::vector<double>(scores.size());
  total = std::exp(sink - largest);
  for (double& score : scores) total += score = std::exp(score - largest);
  for (double& score : scores) score /= total;
  return scores;
}

double dot(const Matrix& a, int64_t i, int64_t head_a, const Matrix& b, int64_t j, int64_t head_b,
           int64_t d) {
  double sum = 0;
  for (int64_t c = 0; c < d; ++c) sum += a(i, head_a * d + c) * b(j, head_b * d + c);
  return sum;
}

Matrix attend(int64_t m, int64_t heads, const Matrix& v, int64_t groups,
              const std::function<double(int64_t, int64_t, int64_t)>& score) {
  const int64_t n = v.rows, d = v.columns / groups;
  Matrix joined{m, heads * d};
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t first = h * groups / heads * d;
    const Matrix y{m, d,
                   attend(
                       m, n, d, [&](int64_t i, int64_t j) { return score(h, i, j); },
                       [&](int64_t, int64_t j, int64_t c) { return v(j, first + c); })};
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = 0; c < d; ++c) joined(i, h * d + c) = y(i, c);
  }
  return joined;
}

// ------------------------------------------------------------------- one row per pair

Matrix relative_logits_by_gather(const Matrix& q, const Matrix& e) {
  Matrix s{q.rows, q.rows};
  for (int64_t i = 0; i < q.rows; ++i)
    for (int64_t j = 0; j < q.rows; ++j)
      if (const int64_t row = j - i + q.rows - 1; row < e.rows)
        s(i, j) = dot(q, i, 0, e, row, 0, q.columns);
  return s;
}

Matrix clipped_logits_by_gather(const Matrix& q, const Matrix& w) {
  const int64_t k = (w.rows - 1) / 2;
  Matrix s{q.rows, q.rows};
  for (int64_t i = 0; i < q.rows; ++i)
    for (int64_t j = 0; j < q.rows; ++j)
      s(i, j) = dot(q, i, 0, w, std::clamp(j - i, -k, k) + k, 0, q.columns);
  return s;
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
    if (mask_.causal && r > 0 && double(j) >= prefix_(b)) return false;
    const bool outside = (mask_.window > 0 && -r >= mask_.window) ||
                         (mask_.window_after > 0 && r >= mask_.window_after);
    const bool global = global_(b, j) != 0 || global_(b, position) != 0;
    if (outside && !global) return false;
    if (segments_(b, j) != segments_(b, position) || padding_(b, j) != 0) return false;
    return hidden_(b, h, i, j) == 0;
  }

 private:
  const AttentionMask mask_;
  const Values padding_, segments_, prefix_, global_, hidden_;
  const int64_t shift_;
};

// Returns the score of query i and key j as a function of (b, h, i, j).
auto scores_of(const Tensor& queries, const Tensor& keys, const AttentionOptions& o) {
  const int64_t heads = queries.size(1), groups = keys.size(1), size = queries.size(3);
  const Tensor& position = o.relative_query.defined() ? o.relative_query : queries;
  const Shape shape{queries.size(0), heads, queries.size(2), keys.size(2)};
  return [=, q = Values(queries), k = Values(keys), p = Values(position),
          width = o.relative_keys.defined() ? position.size(3) : 0,
          bias = Values(o.bias.defined() ? broadcast_to(o.bias, shape) : Tensor()),
          key_table = Table(o.relative_keys), relative_bias = Table(o.relative_bias),
          visible = Visible(o.mask, shape), scale = o.scale.value_or(1 / std::sqrt(double(size)))](
             int64_t b, int64_t h, int64_t i, int64_t j) {
    if (!visible(b, h, i, j)) return unseen;
    // The queries are the last M of the N positions; H / G query heads share a key head.
    const int64_t r = j - (i + shape[3] - shape[2]), g = h * groups / heads;
    double product = 0;
    for (int64_t d = 0; d < size; ++d) product += q(b, h, i, d) * k(b, g, j, d);
    for (int64_t d = 0; d < width; ++d) product += p(b, h, i, d) * key_table(h, r, d);
    const double score = scale * product + relative_bias(h, r) + bias(b, h, i, j);
    return o.soft_cap > 0 ? o.soft_cap * std::tanh(score / o.soft_cap) : score;
  };
}

// The score of the sink of a query.
double sink_of(const Values& sinks, int64_t b, int64_t h, int64_t i) {
  return sinks.shape.dim() == 3 ? sinks(b, h, i) : sinks(h);
}

}  // namespace

Tensor attention_weights(const Tensor& queries, const Tensor& keys, const AttentionOptions& o) {
  const int64_t batch = queries.size(0), heads = queries.size(1);
  const int64_t m = queries.size(2), n = keys.size(2);
  const auto score = scores_of(queries, keys, o);
  const Values sinks(o.sinks, unseen);
  std::vector<double> weights;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t i = 0; i < m; ++i) {
        std::vector<double> row;
        for (int64_t j = 0; j < n; ++j) row.push_back(score(b, h, i, j));
        row = softmax(row, sink_of(sinks, b, h, i));
        weights.insert(weights.end(), row.begin(), row.end());
      }
  return stretto::tensor(weights, {batch, heads, m, n});
}

Tensor attention(const Tensor& queries, const Tensor& keys, const Tensor& values,
                 const AttentionOptions& o) {
  const int64_t batch = queries.size(0), heads = queries.size(1), groups = keys.size(1);
  const int64_t m = queries.size(2), n = keys.size(2), width = values.size(3);
  const auto score = scores_of(queries, keys, o);
  const Values v(values), sinks(o.sinks, unseen);
  const Table value_table(o.relative_values);
  std::vector<double> out;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      const int64_t g = h * groups / heads;
      for (int64_t i = 0; i < m; ++i) {
        const std::vector<double> y = attend(
            1, n, width, [&](int64_t, int64_t j) { return score(b, h, i, j); },
            [&](int64_t, int64_t j, int64_t d) {
              return v(b, g, j, d) + value_table(h, j - (i + n - m), d);
            },
            sink_of(sinks, b, h, i));
        out.insert(out.end(), y.begin(), y.end());
      }
    }
  return stretto::tensor(out, {batch, heads, m, width});
}

}  // namespace stretto::reference
