// Convolutions [ops/conv/conv.h]: the CPU kernels against the composed functions of a GPU, at sizes
// with several tiles. Values, gradients, layouts and errors are in the op table
// (tests/reference/op_table_conv.cpp).
#include "ops/conv/conv.h"

#include <vector>

#include "core/cpu.h"
#include "core/parallel.h"
#include "ops/conv/conv_kernels.h"
#include "ops/create.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

// Several tiles of positions, of the depth and of images; a pointwise kernel; patches; depthwise
// planes; more padding than the kernel reads.
std::vector<ConvSizes> all_sizes() {
  return {{2, 2, 1, 3, 5, {70, 75}, {3, 3}, {70, 75}, {1, 1}, {1, 1}, {1, 1}},
          {1, 2, 1, 420, 3, {1, 40}, {1, 3}, {1, 19}, {1, 2}, {0, 0}, {1, 1}},
          {1, 9, 2, 7, 4, {1, 33}, {1, 1}, {1, 33}, {1, 1}, {0, 0}, {1, 1}},
          {2, 3, 1, 2, 9, {24, 21}, {5, 4}, {4, 5}, {5, 4}, {0, 0}, {1, 1}},
          {2, 3, 2, 2, 3, {9, 8}, {2, 3}, {6, 5}, {2, 3}, {2, 4}, {2, 1}},
          {2, 2, 5, 1, 1, {19, 17}, {5, 3}, {19, 23}, {1, 1}, {4, 5}, {2, 2}},
          {1, 2, 3, 1, 1, {1, 500}, {1, 31}, {1, 500}, {1, 1}, {0, 15}, {1, 1}}};
}

struct Operands {
  Tensor x, w, bias, g;
  explicit Operands(const ConvSizes& s, DType dtype = f64)
      : x(fixed_noise(s.x_shape(), 1, dtype)),
        w(fixed_noise(s.w_shape(), 2, dtype)),
        bias(fixed_noise({s.groups * s.out}, 3, dtype)),
        g(fixed_noise(s.y_shape(), 4, dtype)) {}
};

Tensors results_cpu(const Operands& o, const ConvSizes& s) {
  return {conv_cpu::forward(o.x, o.w, o.bias, s), conv_cpu::input_gradient(o.g, o.w, s),
          conv_cpu::weight_gradient(o.x, o.g, s)};
}

Tensors results_composed(const Operands& o, const ConvSizes& s) {
  return {conv_composed::forward(o.x, o.w, o.bias, s), conv_composed::input_gradient(o.g, o.w, s),
          conv_composed::weight_gradient(o.x, o.g, s)};
}

}  // namespace

TEST_CASE("Kernels of convolutions agree with the composed functions", "[ops]") {
  for (const Isa most : {Isa::portable, Isa::avx2, Isa::emulated}) {
    const IsaCap cap(most);
    for (const ConvSizes& s : all_sizes())
      for (const DType dtype : {f64, f32}) {
        const Operands o(s, dtype);
        const Tensors got = results_cpu(o, s), expected = results_composed(Operands(s), s);
        for (size_t i = 0; i < got.size(); ++i) {
          INFO(str(dtype, ", image ", s.x_shape(), ", kernel ", s.w_shape(), ", result ", int(i)));
          REQUIRE(got[i].shape() == expected[i].shape());
          // Terms are at most 1 in magnitude; each of n additions rounds by u times their sum.
          const double n = double(i == 0   ? s.depth()
                                  : i == 1 ? s.taps() * s.out
                                           : s.batch * s.positions()) +
                           1;
          CHECK(worst_error(got[i], expected[i]) <= n * n * (dtype == f64 ? 0x1p-53 : 0x1p-24));
        }
      }
  }
}

TEST_CASE("Convolutions are bit-identical with 1 to 4 threads", "[ops]") {
  const int before = num_threads();
  for (const ConvSizes& s : all_sizes()) {
    const Operands o(s, f32);
    set_num_threads(1);
    const Tensors one = results_cpu(o, s);
    for (const int threads : {2, 3, 4}) {
      set_num_threads(threads);
      const Tensors more = results_cpu(o, s);
      for (size_t i = 0; i < one.size(); ++i) CHECK(equal(one[i], more[i]));
    }
  }
  set_num_threads(before);
}

TEST_CASE("A convolution with a kernel as large as the image is a linear layer", "[ops]") {
  const Tensor x = fixed_noise({3, 2, 4, 5}, 1), w = fixed_noise({6, 2, 4, 5}, 2);
  const Tensor y = linear(x.reshape({3, 40}), w.reshape({6, 40}));
  CHECK(worst_error(conv2d(x, w).reshape({3, 6}), y) < 1e-13);
}

}  // namespace stretto::testing
