// Matrix products with an epilogue by cuBLASLt [cuda/linear.h]: unaligned operands, and the
// fallback without an epilogue.
#include <algorithm>
#include <cstdlib>
#include <string>

#include "autograd/tape.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Gradients and output of a feed-forward network with 8 inputs and 24 output features.
Tensors feed_forward_results(DType t, int64_t rows, int64_t offset, int64_t hidden = 16,
                             Device device = gpu) {
  Tensors in;
  uint64_t stream = 300;
  for (const Shape& shape :
       {Shape{rows, 8}, Shape{hidden, 8}, Shape{hidden}, Shape{24, hidden}, Shape{24}}) {
    const Tensor x = noise(shape, ++stream, t);
    in.push_back((device == cpu ? x : begins_at(offset, x)).set_requires_grad());
  }
  const Tensor y = feed_forward(in[0], in[1], in[2], in[3], in[4], Activation::gelu_tanh);
  Tensors all = grad({y}, in, {noise(y.shape(), ++stream, t).to(device)});
  all.push_back(y);
  return all;
}

}  // namespace

TEST_CASE("linear layers accept operands at any offset", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const int64_t offset : {1, 2, 3, 4, 8}) {
      CAPTURE(name(t), offset);
      const auto product = [&](int64_t at) {
        return linear(begins_at(at, noise({6, 40}, 290, t)), begins_at(at, noise({9, 40}, 291, t)),
                      begins_at(at, noise({9}, 292, t)));
      };
      CHECK(same_values(product(0), product(offset)));
      const Tensors expected = feed_forward_results(t, 5, 0),
                    got = feed_forward_results(t, 5, offset);
      for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(expected[i], got[i]));
    }
}

// cuBLASLt requires that a column of the saved arguments of GELU has a multiple of 8 elements; in f32
// it approximates tanh.
TEST_CASE("feed-forward networks of any width agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const int64_t hidden : {12, 15, 16, 40}) {
      CAPTURE(name(t), hidden);
      const Tensors expected = feed_forward_results(t, 6, 0, hidden, cpu),
                    got = feed_forward_results(t, 6, 0, hidden);
      for (size_t i = 0; i < got.size(); ++i) {
        CAPTURE(i);
        double most = 0;
        for (const double x : expected[i].to_vector<double>()) most = std::max(most, std::abs(x));
        // Sums of at most 40 products; in bf16 two roundings of intermediate tensors.
        check_close(expected[i], got[i],
                    [&](size_t) { return most * (t == f32 ? 64 * unit(f32) : 4 * unit(bf16)); });
      }
    }
}

TEST_CASE("feed-forward networks are composed if cuBLASLt lacks the epilogue", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the PTX interpreter, which can disable epilogues");
  const auto results = [](int64_t rows, bool composed) {  // support is queried once per shape
    if (composed) ::setenv("PTX_NO_EPILOGUES", "1", 1);
    Tensors all;
    const auto kernels = counts_of([&] { all = feed_forward_results(bf16, rows, 0); });
    ::unsetenv("PTX_NO_EPILOGUES");
    const bool apart = std::any_of(kernels.begin(), kernels.end(), [](const KernelCounts& k) {
      return k["launches"] > 0 && k.kernel.find("Gelu") != std::string::npos;
    });
    CHECK(apart == composed);
    return all;
  };
  const Tensors expected = results(5, false), got = results(7, true);
  // The first rows of a larger batch agree up to the bf16 rounding of 16 hidden activations.
  const auto want = expected.back().to_vector<double>(), have = got.back().to_vector<double>();
  for (size_t i = 0; i < want.size(); ++i)
    CHECK(have[i] == Approx(want[i]).epsilon(0x1p-7).margin(16 * 0x1p-8));
}
