// Matrix products: gradients, and single rows against the same rows in a batch [ops/matmul.h].
#include "ops/matmul.h"

#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace stretto {

using testing::same_bits;

TEST_CASE("linear: the gradient of a bias alone does not read the input", "[ops]") {
  const Tensor x = ones({3, 2}), w = ones({4, 2}), b = zeros({4}).set_requires_grad();
  const Tensor y = linear(x, w, b);
  x.add_(ones({2}));
  sum(y).backward();
  CHECK(b.grad().to_vector<double>() == std::vector<double>(4, 3));
}

TEST_CASE("linear: a single row is bit-identical to the same row in a batch", "[ops]") {
  const int before = num_threads();
  for (Isa isa : {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512, Isa::amx, Isa::emulated})
    for (DType t : {f32, bf16, f64}) {
      const IsaCap cap(isa);
      if (stretto::isa() != isa) continue;
      const auto normal = [&](const Shape& shape, uint64_t stream) {
        return randn(shape, RandomKey{3, stream}).to(t);
      };
      for (bool transposed : {false, true})
        for (const Tensor& bias : {Tensor(), normal({700}, 2)}) {
          const Tensor x = normal({20, 530}, 0), w = transposed
                                                         ? normal({530, 700}, 1).transpose(0, 1)
                                                         : normal({700, 530}, 1);
          const Tensor all = linear(x, w, bias);
          for (int threads : {1, 2, 4})
            for (int64_t rows : {1, 3, 8}) {
              set_num_threads(threads);
              INFO(rows << " rows, " << name(t) << ", " << cpu_description());
              CHECK(same_bits(linear(x.slice(0, 5, 5 + rows), w, bias), all.slice(0, 5, 5 + rows)));
            }
        }
    }
  set_num_threads(before);
}

}  // namespace stretto
