#include "tests/reference/disentangled.h"

#include "ops/create.h"

namespace stretto::reference {

int64_t delta(int64_t distance, int64_t k) {
  if (distance <= -k) return 0;
  if (distance >= k) return 2 * k - 1;
  return distance + k;
}

Tensor disentangled_bias(const Tensor& q, const Tensor& k, const Tensor& key_table,
                         const RowOf& key_row, const Tensor& query_table, const RowOf& query_row,
                         double scale) {
  const int64_t batch = q.size(0), heads = q.size(1), groups = k.size(1);
  const int64_t m = q.size(2), n = k.size(2);
  std::vector<double> bias;
  for (int64_t b = 0; b < batch; ++b)
    for (int64_t h = 0; h < heads; ++h) {
      auto head = [h](const Tensor& table) {
        return table.defined() ? matrix(table[table.size(0) == 1 ? 0 : h]) : Matrix{};
      };
      const Matrix queries = matrix(q[b][h]), keys = matrix(k[b][h * groups / heads]);
      const Matrix for_keys = head(key_table), for_queries = head(query_table);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) {
          const int64_t distance = i + n - m - j;
          double sum = 0;
          for (int64_t d = 0; d < queries.columns; ++d) {
            if (key_table.defined()) sum += queries(i, d) * for_keys(key_row(distance), d);
            if (query_table.defined()) sum += keys(j, d) * for_queries(query_row(distance), d);
          }
          bias.push_back(scale * sum);
        }
    }
  return stretto::tensor(bias, {batch, heads, m, n});
}

}  // namespace stretto::reference
