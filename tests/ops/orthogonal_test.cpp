// Orthonormal rows: orthogonality, the QR factorization with a positive diagonal, views, empty
// inputs and errors.
#include "ops/orthogonal.h"

#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE(
    "orthogonal_rows returns the Q of a factorization whose triangle has a positive diagonal") {
  for (const auto& [n, m] : {std::pair<int64_t, int64_t>{1, 1}, {3, 3}, {5, 17}, {64, 64}}) {
    INFO(n << " rows of " << m);
    const Tensor x = randn({2, n, m}, {5, uint64_t(n)}, {.dtype = f64}), q = orthogonal_rows(x);
    const Tensor one = eye(n, {.dtype = f64});
    const Tensor r = matmul(x, q.transpose(1, 2));  // x = r q
    for (int64_t b = 0; b < 2; ++b) {
      CHECK(worst_error(matmul(q, q.transpose(1, 2)).select(0, b), one) < 1e-14);
      for (int64_t i = 0; i < n; ++i) {
        CHECK(r.select(0, b).select(0, i).select(0, i).item() > 0);
        for (int64_t j = i + 1; j < n; ++j)
          CHECK(std::abs(r.select(0, b).select(0, i).select(0, j).item()) < 1e-12);
      }
    }
  }
}

TEST_CASE("orthogonal_rows: views, empty inputs and errors") {
  const Tensor x = randn({6, 4, 3}, {5, 1}, {.dtype = f64});
  const Tensor transposed = x.transpose(1, 2);
  CHECK(same_bits(orthogonal_rows(transposed), orthogonal_rows(transposed.contiguous())));
  CHECK(same_bits(orthogonal_rows(transposed.select(0, 5)),
                  orthogonal_rows(transposed).select(0, 5)));
  CHECK(same_bits(x, randn({6, 4, 3}, {5, 1}, {.dtype = f64})));  // x is unchanged
  CHECK(orthogonal_rows(zeros({0, 3}, {.dtype = f64})).shape() == Shape{0, 3});
  CHECK(orthogonal_rows(zeros({0, 3, 3}, {.dtype = f64})).shape() == Shape{0, 3, 3});
  for (const Tensor& bad : {x, x.select(0, 0).select(0, 0), transposed.to(f32)})
    CHECK_THROWS_WITH(orthogonal_rows(bad), Containing("[orthogonal_rows] x ") &&
                                                Containing("must be f64 [..., n, m] with n ≤ m"));
}
