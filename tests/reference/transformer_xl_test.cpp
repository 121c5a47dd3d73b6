// The four terms and the shift of Transformer-XL agree with each other.
#include "tests/reference/transformer_xl.h"

#include <cmath>

#include "nn/positions/sinusoid.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using reference::Matrix;
using testing::fixed_noise;
using testing::worst_error;

namespace {

Matrix noise(int64_t m, int64_t w, uint64_t stream) {
  return reference::matrix(fixed_noise({m, w}, stream));
}

}  // namespace

TEST_CASE("Transformer-XL: the shift moves every distance to its place in the formula") {
  const int64_t m = GENERATE(1, 2, 3, 8), memory = GENERATE(0, 1, 4, 9), n = m + memory;
  const Matrix q = noise(m, 5, 1), k = noise(n, 5, 2), w = noise(5, 6, 3);
  const Matrix u = noise(1, 5, 4), v = noise(1, 5, 5);
  const auto t = reference::xl_terms(q, k, w, u, v);
  const Matrix shifted = reference::xl_position_terms_by_shift(q, w, v, n);
  double worst = 0;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j <= i + memory; ++j)
      worst = std::max(worst, std::fabs(t.b(i, j) + t.d(i, j) - shifted(i, j)));
  CHECK(worst < 1e-13);
}

TEST_CASE(
    "Transformer-XL: c and d do not depend on the query's content, b and d not on the key's") {
  const Matrix q = noise(3, 4, 1), k = noise(5, 4, 2), w = noise(4, 6, 3);
  const Matrix u = noise(1, 4, 4), v = noise(1, 4, 5);
  const auto t = reference::xl_terms(q, k, w, u, v);
  const auto other = reference::xl_terms(noise(3, 4, 6), k, w, u, v);
  CHECK(t.c == other.c);
  CHECK(t.d == other.d);
  CHECK_FALSE(t.a == other.a);
  const auto third = reference::xl_terms(q, noise(5, 4, 7), w, u, v);
  CHECK(t.b == third.b);
  CHECK(t.d == third.d);
  CHECK_FALSE(t.c == third.c);
  for (int64_t i = 1; i < 3; ++i)
    for (int64_t j = 1; j < 5; ++j) CHECK(t.d(i, j) == t.d(i - 1, j - 1));  // only the distance
}

TEST_CASE("Transformer-XL: sinusoids equal those of nn, and distances are clamped") {
  for (const int64_t distance : {-7, -1, 0, 1, 3, 900}) {
    const Tensor row = nn::sinusoids(1, 8, nn::Sinusoid::concatenated, distance, 1, {.dtype = f64});
    CHECK(worst_error(row, reference::tensor(reference::distance_sinusoid(distance, 8))) < 1e-13);
  }
  CHECK(reference::distance_sinusoid(9, 6, 5) == reference::distance_sinusoid(5, 6));
  CHECK(reference::distance_sinusoid(-9, 6, 5) == reference::distance_sinusoid(-5, 6));
  CHECK(reference::distance_sinusoid(4, 6, 5) == reference::distance_sinusoid(4, 6));
}
