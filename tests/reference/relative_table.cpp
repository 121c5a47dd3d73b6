#include "tests/reference/relative_table.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"

namespace stretto::reference {

Matrix shaw_attention(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& w_keys,
                      const Matrix& w_values, bool causal) {
  const int64_t m = q.rows, n = k.rows, clip = (w_keys.rows - 1) / 2;
  Matrix z{m, v.columns};
  for (int64_t i = 0; i < m; ++i) {
    const int64_t position = i + n - m, visible = causal ? position + 1 : n;
    auto a = [&](int64_t j) { return std::clamp(j - position, -clip, clip) + clip; };
    std::vector<double> alpha(static_cast<size_t>(visible));
    double total = 0;
    for (int64_t j = 0; j < visible; ++j) {
      double e = 0;
      for (int64_t d = 0; d < q.columns; ++d) e += q(i, d) * (k(j, d) + w_keys(a(j), d));
      total += alpha[size_t(j)] = std::exp(e / std::sqrt(double(q.columns)));
    }
    for (int64_t j = 0; j < visible; ++j)
      for (int64_t d = 0; d < v.columns; ++d) {
        const double a_value = w_values.rows > 0 ? w_values(a(j), d) : 0;
        z(i, d) += alpha[size_t(j)] / total * (v(j, d) + a_value);
      }
  }
  return z;
}

namespace {

// Returns the rows of a table [T, R, D] for all pairs of the queries first … first + count − 1 and
// the N keys, query by query: [T, count · N, D].
Tensor pair_rows(const Tensor& table, int64_t first, int64_t count, int64_t m, int64_t n) {
  const int64_t clip = (table.size(1) - 1) / 2;
  std::vector<int64_t> rows;
  for (int64_t i = first; i < first + count; ++i)
    for (int64_t j = 0; j < n; ++j) rows.push_back(std::clamp(j - (i + n - m), -clip, clip) + clip);
  return index_select(table, 1, stretto::tensor(rows, {count * n}));
}

Tensor weights_of(const Tensor& scores, int64_t d, bool causal) {
  const Tensor scaled = scores / std::sqrt(double(d));
  if (!causal) return softmax(scaled, -1);
  const Tensor mask = attention_mask(scores.size(-2), scores.size(-1), {.causal = true});
  return softmax(masked_fill(scaled, mask, -std::numeric_limits<double>::infinity()), -1);
}

}  // namespace

Tensor shaw_by_gather(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                      const Tensor& w_values, bool causal) {
  const int64_t m = q.size(2), n = k.size(2);
  auto pairs = [&](const Tensor& table) {
    return pair_rows(table, 0, m, m, n).reshape({table.size(0), m, n, table.size(2)});
  };
  const Tensor relative = sum(q.unsqueeze(3) * pairs(w_keys), {-1});
  const Tensor alpha = weights_of(matmul(q, k.transpose(-1, -2)) + relative, q.size(3), causal);
  const Tensor z = matmul(alpha, v);
  return w_values.defined() ? z + sum(alpha.unsqueeze(4) * pairs(w_values), {-2}) : z;
}

Tensor shaw_by_products(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& w_keys,
                        const Tensor& w_values, bool causal) {
  const int64_t batch = q.size(0), heads = q.size(1), m = q.size(2), n = k.size(2);
  // Multiplies x [B, H, M, ..] by the table rows of each query, with
  // product(x [T, B·H / T, ..], rows [T, N, ..]) for T tables.
  auto each_query = [&](const Tensor& x, const Tensor& table, auto product) {
    const int64_t tables = table.size(0), d = x.size(3);
    Tensors results;
    for (int64_t i = 0; i < m; ++i) {
      const Tensor all_batches = x.select(2, i).transpose(0, 1);  // [H, B, ..]
      const Tensor y = product(all_batches.reshape({tables, batch * heads / tables, d}),
                               pair_rows(table, i, 1, m, n));
      results.push_back(y.reshape({heads, batch, y.size(2)}).transpose(0, 1));
    }
    return stack(results, 2);
  };
  const Tensor relative = each_query(q, w_keys, [](const Tensor& x, const Tensor& rows) {
    return matmul(x, rows.transpose(-1, -2));
  });
  const Tensor alpha = weights_of(matmul(q, k.transpose(-1, -2)) + relative, q.size(3), causal);
  const Tensor z = matmul(alpha, v);
  if (!w_values.defined()) return z;
  return z + each_query(alpha, w_values,
                        [](const Tensor& x, const Tensor& rows) { return matmul(x, rows); });
}

}  // namespace stretto::reference
