// Copies of transposed tensors use tiles; sizes around the edge of a tile against element access.
#include "ops/create.h"
#include "ops/view.h"
#include "tests/support/catch.h"

using namespace stretto;

namespace {

// True if y[a, b, c] has the numbers 0, 1, … in the layout of x, the tensor before transposition.
bool is_transposed(const std::vector<double>& y, const Shape& before, int64_t d0, int64_t d1) {
  Shape after = before;
  std::swap(after[d0], after[d1]);
  int64_t flat = 0;
  for (int64_t a = 0; a < after[0]; ++a)
    for (int64_t b = 0; b < after[1]; ++b)
      for (int64_t c = 0; c < after[2]; ++c, ++flat) {
        int64_t at[] = {a, b, c};
        std::swap(at[d0], at[d1]);
        const int64_t value = (at[0] * before[1] + at[1]) * before[2] + at[2];
        if (y[size_t(flat)] != double(value)) return false;
      }
  return true;
}

}  // namespace

TEST_CASE("transposed copies are right at the edges of tiles") {
  for (const int64_t rows : {1, 15, 16, 17, 33})
    for (const int64_t columns : {1, 15, 16, 31, 48})
      for (const int64_t batch : {1, 3}) {
        const Shape shape{batch, rows, columns};
        const Tensor x = arange(0, double(shape.numel()), 1, {.dtype = f32}).reshape(shape);
        INFO(str(shape));
        CHECK(is_transposed(x.transpose(1, 2).contiguous().to_vector<double>(), shape, 1, 2));
        CHECK(is_transposed(x.transpose(0, 2).contiguous().to_vector<double>(), shape, 0, 2));
        // Another dtype, and a destination that is not contiguous.
        CHECK(is_transposed(x.transpose(1, 2).to(i64).to_vector<double>(), shape, 1, 2));
        const Tensor wide = zeros({batch, columns, 2 * rows}, {.dtype = f64});
        wide.slice(2, 1, 2 * rows, 2).copy_(x.transpose(1, 2));
        CHECK(is_transposed(wide.slice(2, 1, 2 * rows, 2).to_vector<double>(), shape, 1, 2));
        CHECK(wide.slice(2, 0, 2 * rows, 2).to_vector<double>() ==
              std::vector<double>(size_t(shape.numel()), 0.0));
      }
}
