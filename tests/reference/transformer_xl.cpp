#include "tests/reference/transformer_xl.h"

namespace stretto::reference {
namespace {

Matrix plus(const Matrix& a, const Matrix& b) {
  Matrix sum = a;
  for (int64_t i = 0; i < a.rows; ++i)
    for (int64_t j = 0; j < a.columns; ++j) sum(i, j) += b(b.rows == 1 ? 0 : i, j);
  return sum;
}

Matrix stacked(const Matrix& above, const Matrix& below) {
  if (above.rows == 0) return below;
  Matrix all{above.rows + below.rows, below.columns, above.values};
  all.values.insert(all.values.end(), below.values.begin(), below.values.end());
  return all;
}

Matrix columns(const Matrix& x, int64_t first, int64_t count) {
  Matrix y{x.rows, count};
  for (int64_t i = 0; i < x.rows; ++i)
    for (int64_t j = 0; j < count; ++j) y(i, j) = x(i, first + j);
  return y;
}

Matrix rows(const Matrix& x, int64_t first, int64_t count) {
  Matrix y{count, x.columns};
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < x.columns; ++j) y(i, j) = x(first + i, j);
  return y;
}

Matrix layer_norm(const Matrix& x, const Matrix& weight, const Matrix& bias) {
  Matrix y = x;
  for (int64_t i = 0; i < x.rows; ++i) {
    double mean = 0, variance = 0;
    for (int64_t j = 0; j < x.columns; ++j) mean += x(i, j) / double(x.columns);
    for (int64_t j = 0; j < x.columns; ++j)
      variance += (x(i, j) - mean) * (x(i, j) - mean) / double(x.columns);
    for (int64_t j = 0; j < x.columns; ++j)
      y(i, j) = (x(i, j) - mean) / std::sqrt(variance + 1e-5) * weight(0, j) + bias(0, j);
  }
  return y;
}

}  // namespace

Matrix distance_sinusoid(int64_t distance, int64_t d, int64_t clamp) {
  if (clamp > 0) distance = std::clamp(distance, -clamp, clamp);
  Matrix r{1, d};
  for (int64_t i = 0; i < d / 2; ++i) {
    const double angle = double(distance) / std::pow(10000.0, 2 * double(i) / double(d));
    r(0, i) = std::sin(angle);
    r(0, d / 2 + i) = std::cos(angle);
  }
  return r;
}

XLTerms xl_terms(const Matrix& q, const Matrix& k, const Matrix& w, const Matrix& u,
                 const Matrix& v, int64_t clamp) {
  const int64_t m = q.rows, n = k.rows, size = q.columns;
  XLTerms t{{m, n}, {m, n}, {m, n}, {m, n}};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      // W_{k,R} R_{i−j}, computed again for every pair.
      const Matrix r = times_transposed(distance_sinusoid(i + n - m - j, w.columns, clamp), w);
      for (int64_t e = 0; e < size; ++e) {
        t.a(i, j) += q(i, e) * k(j, e);
        t.b(i, j) += q(i, e) * r(0, e);
        t.c(i, j) += u(0, e) * k(j, e);
        t.d(i, j) += v(0, e) * r(0, e);
      }
    }
  return t;
}

Matrix xl_position_terms_by_shift(const Matrix& q, const Matrix& w, const Matrix& v,
                                  int64_t n_keys) {
  Matrix table{0, w.columns};
  for (int64_t distance = n_keys - 1; distance >= 0; --distance)
    table = stacked(table, distance_sinusoid(distance, w.columns));
  return skew_with_memory(times_transposed(plus(q, v), times_transposed(table, w)));
}

Matrix xl_attention(const XLTerms& t, const Matrix& values, int64_t size,
                    const std::function<bool(int64_t, int64_t)>& hidden) {
  const auto score = [&](int64_t i, int64_t j) {
    if (hidden(i, j)) return unseen;
    return (t.a(i, j) + t.b(i, j) + t.c(i, j) + t.d(i, j)) / std::sqrt(double(size));
  };
  return {t.a.rows, values.columns,
          attend(t.a.rows, t.a.columns, values.columns, score,
                 [&](int64_t, int64_t j, int64_t e) { return values(j, e); })};
}

Matrix xl_layer(const XLLayer& l, const Matrix& x, const Matrix& memory) {
  const int64_t m = memory.rows, size = l.q.rows / l.heads;
  Matrix all = stacked(memory, x);  // h̃ = [SG(m) ∘ h]
  if (l.pre_norm) all = layer_norm(all, l.norm1_weight, l.norm1_bias);
  const Matrix q = times_transposed(rows(all, m, x.rows), l.q);
  const Matrix k = times_transposed(all, l.k), v = times_transposed(all, l.v);

  Matrix joined{x.rows, l.heads * size};
  for (int64_t h = 0; h < l.heads; ++h) {
    const XLTerms terms =
        xl_terms(columns(q, h * size, size), columns(k, h * size, size), rows(l.r, h * size, size),
                 rows(l.u, h, 1), rows(l.v_bias, h, 1), l.clamp);
    const Matrix a = xl_attention(
        terms, columns(v, h * size, size), size,
        [&](int64_t i, int64_t j) { return j > i + m || (l.hidden && l.hidden(i, j, m)); });
    for (int64_t i = 0; i < x.rows; ++i)
      for (int64_t e = 0; e < size; ++e) joined(i, h * size + e) = a(i, e);
  }

  Matrix o = plus(x, times_transposed(joined, l.out));
  if (!l.pre_norm) o = layer_norm(o, l.norm1_weight, l.norm1_bias);
  Matrix f = l.pre_norm ? layer_norm(o, l.norm2_weight, l.norm2_bias) : o;
  f = plus(times_transposed(f, l.linear1), l.bias1);
  for (double& y : f.values) y = std::max(y, 0.0);
  f = plus(o, plus(times_transposed(f, l.linear2), l.bias2));
  return l.pre_norm ? f : layer_norm(f, l.norm2_weight, l.norm2_bias);
}

}  // namespace stretto::reference
