// The noise of convSPE: CUDA against the CPU's draws, bit for bit.
#include <vector>

#include "cuda/spe.h"
#include "ops/create.h"
#include "tests/cuda/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("rows of normal draws have the CPU's bits, wherever a row begins", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{5, 6};
  const int64_t blocks = 3;
  for (const DType t : {f32, f64})
    for (const int64_t rows : {1, 4})
      for (const int64_t n : {1, 3, 4, 130, 1027})
        for (const int64_t first : {0, 1, 2, 3, 1022})
          for (const int64_t pitch : {int64_t(0), n, int64_t(1) << 33}) {
            CAPTURE(name(t), rows, n, first, pitch);
            const int64_t apart = (int64_t(1) << 40) + 2;
            const Tensor out = empty({blocks, rows, n}, {.dtype = t, .device = gpu});
            cuda::fill_normal_rows(out, key, apart, first, pitch);
            std::vector<float> draws(static_cast<size_t>(n));
            std::vector<double> expected;
            for (int64_t k = 0; k < blocks; ++k)
              for (int64_t i = 0; i < rows; ++i) {
                normal_draws(key, k * apart + first + i * pitch, n, draws.data());
                expected.insert(expected.end(), draws.begin(), draws.end());
              }
            CHECK(same_values(out.to_vector<double>(), expected));
          }
}

TEST_CASE("rows of normal draws beyond a launch's blocks are like the first", "[cuda][large]") {
  NEEDS_GPU();
  const RandomKey key{5, 7};
  for (const Shape& shape : {Shape{4099, 1, 2}, Shape{1, 4099, 2}}) {
    const Tensor out = empty(shape, {.device = gpu});
    cuda::fill_normal_rows(out, key, 2, 0, 2);  // one sequence, whichever way it is cut
    check_equal(randn({4099 * 2}, key), out.flatten());
  }
}

TEST_CASE("rows of normal draws: nothing to draw", "[cuda]") {
  NEEDS_GPU();
  for (const Shape& shape : {Shape{0, 2, 3}, Shape{2, 0, 3}, Shape{2, 3, 0}})
    cuda::fill_normal_rows(empty(shape, {.device = gpu}), {1, 2}, 8, 0, 4);
  synchronize(gpu);
}
