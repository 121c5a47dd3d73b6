// Shaw's attention, equation by equation, agrees with attention with clipped tables.
#include "tests/reference/relative_table.h"

#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using reference::matrix;
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
  Tensors x{fixed_noise({batch, heads, s.m, s.d}, 1), fixed_noise({batch, heads, s.n, s.d}, 2),
            fixed_noise({batch, heads, s.n, s.d_value}, 3), fixed_noise({tables, rows, s.d}, 4),
            Tensor()};
  if (s.values) x[4] = fixed_noise({tables, rows, s.d_value}, 5);
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

TEST_CASE("Shaw's attention by its equations equals attention with clipped tables") {
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
  }
}
