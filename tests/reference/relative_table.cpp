#include "tests/reference/relative_table.h"

namespace stretto::reference {

Matrix shaw_attention(const Matrix& q, const Matrix& k, const Matrix& v, const Matrix& w_keys,
                      const Matrix& w_values, bool causal) {
  const int64_t m = q.rows, n = k.rows, clip = (w_keys.rows - 1) / 2;
  const auto row = [&](int64_t i, int64_t j) {
    return std::clamp(j - (i + n - m), -clip, clip) + clip;
  };
  const auto score = [&](int64_t i, int64_t j) {  // eq. 4
    if (causal && j > i + n - m) return unseen;
    double e = 0;
    for (int64_t d = 0; d < q.columns; ++d) e += q(i, d) * (k(j, d) + w_keys(row(i, j), d));
    return e / std::sqrt(double(q.columns));
  };
  const auto value = [&](int64_t i, int64_t j, int64_t d) {  // eq. 3
    return v(j, d) + (w_values.rows > 0 ? w_values(row(i, j), d) : 0);
  };
  return {m, v.columns, attend(m, n, v.columns, score, value)};
}

}  // namespace stretto::reference
