// The worked examples of the papers' notes, element by element, and the closed forms of every skew.
#include "ops/attention/skew.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using reference::Matrix;
using testing::fixed_noise;

namespace {

Matrix rows(std::initializer_list<std::vector<double>> list) {
  Matrix m{int64_t(list.size()), int64_t(list.begin()->size()), {}};
  for (const std::vector<double>& row : list)
    m.values.insert(m.values.end(), row.begin(), row.end());
  return m;
}

// Returns a column of the integers first … last.
Matrix column(int64_t first, int64_t last) {
  Matrix m{last - first + 1, 1};
  for (int64_t i = 0; i < m.rows; ++i) m(i, 0) = double(first + i);
  return m;
}

// Returns X[i, c] = 100 i + c, so that every element shows its original place.
Matrix labeled(int64_t m, int64_t w) {
  Matrix x{m, w};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t c = 0; c < w; ++c) x(i, c) = double(100 * i + c);
  return x;
}

Matrix noise(int64_t m, int64_t w, uint64_t stream) {
  return reference::matrix(fixed_noise({m, w}, stream));
}

Matrix skew_op(const Matrix& x, int64_t n_keys) {
  return reference::matrix(skew(reference::tensor(x), n_keys));
}

void check_close(const Matrix& a, const Matrix& b) {
  REQUIRE(a.rows == b.rows);
  REQUIRE(a.columns == b.columns);
  double worst = 0;
  for (size_t i = 0; i < a.values.size(); ++i)
    worst = std::max(worst, std::fabs(a.values[i] - b.values[i]));
  CHECK(worst < 1e-13);
}

}  // namespace

TEST_CASE("the Music Transformer notebook: global attention, L = 5") {
  const Matrix q{5, 1, {1, 1, 1, 1, 1}};
  const Matrix e = column(-4, 0);
  CHECK(e == Matrix{5, 1, {-4, -3, -2, -1, 0}});

  const Matrix qe = reference::times_transposed(q, e);
  CHECK(qe == rows({{-4, -3, -2, -1, 0},
                    {-4, -3, -2, -1, 0},
                    {-4, -3, -2, -1, 0},
                    {-4, -3, -2, -1, 0},
                    {-4, -3, -2, -1, 0}}));

  const Matrix masked = reference::mask_upper_left(qe);
  CHECK(masked == rows({{0, 0, 0, 0, 0},
                        {0, 0, 0, -1, 0},
                        {0, 0, -2, -1, 0},
                        {0, -3, -2, -1, 0},
                        {-4, -3, -2, -1, 0}}));

  const Matrix s_rel = rows({{0, 0, 0, 0, 0},
                             {-1, 0, 0, 0, 0},
                             {-2, -1, 0, 0, 0},
                             {-3, -2, -1, 0, 0},
                             {-4, -3, -2, -1, 0}});
  CHECK(reference::skew(masked) == s_rel);
  CHECK(skew_op(masked, 5) == s_rel);
  CHECK(skew_op(qe, 5) == s_rel);  // the op needs no mask
  CHECK(reference::relative_logits_by_gather(q, e) == s_rel);
}

TEST_CASE("the Music Transformer notebook: local attention, N = 5") {
  const Matrix q{5, 1, {1, 1, 1, 1, 1}};
  const Matrix e = column(-9, -1);
  CHECK(e == Matrix{9, 1, {-9, -8, -7, -6, -5, -4, -3, -2, -1}});

  const Matrix qe = reference::times_transposed(q, e);
  CHECK(qe == rows({{-9, -8, -7, -6, -5, -4, -3, -2, -1},
                    {-9, -8, -7, -6, -5, -4, -3, -2, -1},
                    {-9, -8, -7, -6, -5, -4, -3, -2, -1},
                    {-9, -8, -7, -6, -5, -4, -3, -2, -1},
                    {-9, -8, -7, -6, -5, -4, -3, -2, -1}}));

  const Matrix masked = reference::mask_both_corners(qe);
  CHECK(masked == rows({{0, 0, 0, 0, -5, -4, -3, -2, -1},
                        {0, 0, 0, -6, -5, -4, -3, -2, 0},
                        {0, 0, -7, -6, -5, -4, -3, 0, 0},
                        {0, -8, -7, -6, -5, -4, 0, 0, 0},
                        {-9, -8, -7, -6, -5, 0, 0, 0, 0}}));

  const Matrix s_rel = rows({{-5, -4, -3, -2, -1},
                             {-6, -5, -4, -3, -2},
                             {-7, -6, -5, -4, -3},
                             {-8, -7, -6, -5, -4},
                             {-9, -8, -7, -6, -5}});
  CHECK(reference::skew_local(masked) == s_rel);
  CHECK(reference::skew_local(qe) == s_rel);
  CHECK(skew_op(masked, 5) == s_rel);
  CHECK(skew_op(qe, 5) == s_rel);
}

TEST_CASE("causal skew: the place of every element for L = 5") {
  const Matrix x = labeled(5, 5);
  CHECK(reference::skew(x) == rows({{4, 0, 100, 101, 102},
                                    {103, 104, 0, 200, 201},
                                    {202, 203, 204, 0, 300},
                                    {301, 302, 303, 304, 0},
                                    {400, 401, 402, 403, 404}}));
  CHECK(skew_op(x, 5) == rows({{4, 0, 0, 0, 0},
                               {103, 104, 0, 0, 0},
                               {202, 203, 204, 0, 0},
                               {301, 302, 303, 304, 0},
                               {400, 401, 402, 403, 404}}));
}

TEST_CASE("causal skew equals its closed form, and the op is 0 above the diagonal") {
  const int64_t l = GENERATE(1, 2, 3, 5, 8, 33, 64, 65);
  const Matrix x = labeled(l, l), y = reference::skew(x), op = skew_op(x, l);
  Matrix expected{l, l}, upper = expected;
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j) {
      if (j <= i) expected(i, j) = upper(i, j) = x(i, j - i + l - 1);
      if (j > i + 1)
        expected(i, j) = x(i + 1, j - i - 2);  // values of the next row; (i, i + 1) is the padding
    }
  CHECK(y == expected);
  CHECK(op == upper);
  CHECK(reference::skew(reference::mask_upper_left(x)) ==
        skew_op(reference::mask_upper_left(x), l));
}

TEST_CASE("bidirectional and local skew equal their closed form, and so does the op") {
  const int64_t l = GENERATE(1, 2, 3, 4, 7, 32, 65);
  const Matrix x = labeled(l, 2 * l - 1);
  Matrix expected{l, l};
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j) expected(i, j) = x(i, j - i + l - 1);
  CHECK(reference::skew_local(x) == expected);
  CHECK(reference::skew_local(reference::mask_both_corners(x)) == expected);
  CHECK(skew_op(x, l) == expected);
}

TEST_CASE("skew with memory: the place of every element for 3 queries and 7 keys") {
  CHECK(reference::skew_with_memory(labeled(3, 7)) == rows({{2, 3, 4, 5, 6, 0, 100},
                                                            {101, 102, 103, 104, 105, 106, 0},
                                                            {200, 201, 202, 203, 204, 205, 206}}));
}

TEST_CASE("skew with memory equals its closed form, and the op is 0 for keys after the query") {
  const auto [m, n] = GENERATE(table<int64_t, int64_t>(
      {{1, 1}, {1, 9}, {2, 2}, {3, 7}, {5, 6}, {8, 8}, {7, 64}, {64, 65}, {33, 130}}));
  const Matrix x = labeled(m, n), y = reference::skew_with_memory(x), op = skew_op(x, n);
  Matrix expected{m, n}, seen = expected;
  const int64_t memory = n - m;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      if (j <= i + memory) expected(i, j) = seen(i, j) = x(i, j - i + m - 1);
      if (j > i + memory + 1) expected(i, j) = x(i + 1, j - i - memory - 2);
    }
  CHECK(y == expected);
  CHECK(op == seen);
}

TEST_CASE("local attention in blocks of 3: its logits have the right relative positions") {
  const Matrix q{6, 1, {1, 1, 1, 1, 1, 1}};
  const Matrix s = reference::local_logits(q, column(-5, 0), 3);
  CHECK(s == rows({{0, 0, 0, 0, 0, 0},
                   {-1, 0, 0, 0, 0, 0},
                   {-2, -1, 0, 0, 0, 0},
                   {-3, -2, -1, 0, 0, 0},
                   {-4, -3, -2, -1, 0, 0},
                   {-5, -4, -3, -2, -1, 0}}));
}

TEST_CASE("the skew equals the product with the gathered tensor R") {
  const int64_t l = GENERATE(1, 2, 5, 12), d = GENERATE(1, 4);
  const Matrix q = noise(l, d, 1), past = noise(l, d, 2), both = noise(2 * l - 1, d, 3);
  const Matrix qe = reference::times_transposed(q, past);
  check_close(reference::skew(reference::mask_upper_left(qe)),
              reference::relative_logits_by_gather(q, past));
  check_close(skew_op(qe, l), reference::relative_logits_by_gather(q, past));
  check_close(reference::skew_local(reference::times_transposed(q, both)),
              reference::relative_logits_by_gather(q, both));
  // If no distance exceeds k, clipping changes nothing.
  check_close(reference::clipped_logits_by_gather(q, both),
              reference::relative_logits_by_gather(q, both));
}

TEST_CASE("attention by loops equals softmax(Q Kᵀ + S_rel) for every S_rel of the papers") {
  const int64_t l = 12, d = 4, block = 4, clip = 3;
  const Matrix q = noise(l, d, 4), k = noise(l, d, 5), e = noise(l, d, 6);
  const Matrix local = noise(2 * block, d, 7), w = noise(2 * clip + 1, d, 8);
  auto head = [](const Matrix& x) { return reference::tensor(x).unsqueeze(0).unsqueeze(0); };
  auto rows_of = [](const Matrix& x) { return reference::tensor(x).unsqueeze(0); };
  auto check_weights = [&](const Matrix& s_rel, const AttentionOptions& o) {
    Matrix scores = reference::times_transposed(q, k);
    for (size_t i = 0; i < scores.values.size(); ++i) {
      scores.values[i] = (scores.values[i] + s_rel.values[i]) / 2;  // √D
    }
    Matrix expected{l, l};
    for (int64_t i = 0; i < l; ++i) {
      const int64_t begin = o.mask.block > 0 ? std::max<int64_t>(0, (i / block - 1) * block) : 0;
      const int64_t end = o.mask.causal || o.mask.block > 0 ? i + 1 : l;
      double total = 0;
      for (int64_t j = begin; j < end; ++j) total += expected(i, j) = std::exp(scores(i, j));
      for (int64_t j = begin; j < end; ++j) expected(i, j) /= total;
    }
    check_close(reference::matrix(reference::attention_weights(head(q), head(k), o)[0][0]),
                expected);
  };
  const RelativeTable past{rows_of(e), l - 1}, blocks{rows_of(local), 2 * block - 1},
      clipped{rows_of(w), clip, OutOfRange::clip};
  check_weights(reference::skew(reference::times_transposed(q, e)),
                {.mask = {.causal = true}, .relative_keys = past});
  check_weights(reference::local_logits(q, local, block),
                {.mask = {.block = block}, .relative_keys = blocks});
  check_weights(reference::clipped_logits_by_gather(q, w), {.relative_keys = clipped});
  check_weights(reference::clipped_logits_by_gather(q, w),
                {.mask = {.causal = true}, .relative_keys = clipped});
}
