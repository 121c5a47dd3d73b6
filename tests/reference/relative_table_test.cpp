// The three ways to compute Shaw's attention agree with the library's two implementations.
#include "tests/reference/relative_table.h"

#include <cmath>

#include "autograd/tape.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using reference::matrix;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::worst_error;

namespace {

struct Setup {
  int64_t m, n, d, d_value, clip;
  bool values = true, shared = false, causal = false;
};

constexpr int64_t batch = 2, heads = 3;

// Returns q, k, v, the table of keys and the table of values (may be undefined).
Tensors make_inputs(const Setup& s) {
  const int64_t tables = s.shared ? 1 : heads, rows = 2 * s.clip + 1;
  Tensors x{fixed_leaf({batch, heads, s.m, s.d}, 1), fixed_leaf({batch, heads, s.n, s.d}, 2),
            fixed_leaf({batch, heads, s.n, s.d_value}, 3), fixed_leaf({tables, rows, s.d}, 4),
            Tensor()};
  if (s.values) x[4] = fixed_leaf({tables, rows, s.d_value}, 5);
  return x;
}

const Setup setups[] = {
    {1, 1, 4, 4, 2},
    {5, 5, 4, 6, 0},
    {7, 7, 4, 6, 3},
    {7, 7, 41, 5, 6, true, true},  // no distance is clipped
    {9, 9, 4, 6, 20, false},       // and not all rows are used
    {9, 9, 5, 3, 2, true, false, true},
    {9, 9, 4, 4, 1, false, true, true},
    {3, 8, 4, 6, 2, true, false, true},  // queries at the last positions
    {3, 8, 4, 6, 2, true, true},
    {1, 8, 4, 6, 3, true, false, true},
};

}  // namespace

TEST_CASE("Shaw's attention by loops, gather and products equals attention with clipped tables") {
  for (const Setup& s : setups) {
    INFO("M " << s.m << ", N " << s.n << ", D " << s.d << ", clip " << s.clip);
    const Tensors x = make_inputs(s);
    AttentionOptions o{.mask = {.causal = s.causal},
                       .relative_keys = {x[3], s.clip, OutOfRange::clip}};
    if (s.values) o.relative_values = {x[4], s.clip, OutOfRange::clip};
    const Tensor y = attention(x[0], x[1], x[2], o);

    for (int64_t b = 0; b < batch; ++b)
      for (int64_t h = 0; h < heads; ++h) {
        auto table = [&](const Tensor& t) { return matrix(t[s.shared ? 0 : h]); };
        const reference::Matrix z = reference::shaw_attention(
            matrix(x[0][b][h]), matrix(x[1][b][h]), matrix(x[2][b][h]), table(x[3]),
            s.values ? table(x[4]) : reference::Matrix{}, s.causal);
        CHECK(worst_error(y[b][h], reference::tensor(z)) < 1e-13);
      }

    const Tensor w = fixed_noise(y.shape(), 6);
    auto gradients = [&](const Tensor& result) {
      return grad({result}, Tensors(x.begin(), x.end() - (s.values ? 0 : 1)), {w});
    };
    const Tensors want = gradients(y);
    for (const auto implementation : {reference::shaw_by_gather, reference::shaw_by_products}) {
      const Tensor z = implementation(x[0], x[1], x[2], x[3], x[4], s.causal);
      CHECK(worst_error(z, y) < 1e-13);
      const Tensors got = gradients(z);
      REQUIRE(got.size() == want.size());
      for (size_t i = 0; i < got.size(); ++i) CHECK(worst_error(got[i], want[i]) < 1e-12);
    }
  }
}

TEST_CASE("Shaw's scores by loops equal those with gathered rows") {
  const int64_t l = 9, d = 4, clip = 2;
  const Tensor q = fixed_noise({l, d}, 1), w = fixed_noise({2 * clip + 1, d}, 2);
  // With k = 0 and unit vectors as values the output is softmax(Q Rᵀ / √D).
  reference::Matrix unit{l, l};
  for (int64_t i = 0; i < l; ++i) unit(i, i) = 1;
  const reference::Matrix alpha = reference::shaw_attention(matrix(q), {l, d}, unit, matrix(w), {});
  const reference::Matrix scores = reference::clipped_logits_by_gather(matrix(q), matrix(w));
  for (int64_t i = 0; i < l; ++i)
    for (int64_t j = 0; j < l; ++j)  // logarithms of ratios are differences of scores
      CHECK(std::log(alpha(i, j) / alpha(i, 0)) ==
            Approx((scores(i, j) - scores(i, 0)) / 2).margin(1e-13));
}
