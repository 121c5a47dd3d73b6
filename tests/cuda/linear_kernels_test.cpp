// Matrix products with an epilogue by cuBLASLt [cuda/linear.h]: unaligned operands, and the
// fallback without an epilogue.
#include <algorithm>
#include <array>
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

TEST_CASE("one launch computes the gradients of a layer's weight and bias in bf16", "[cuda]") {
  NEEDS_GPU();
  // In f32 from the same values: the sums have one rounding to bf16.
  const auto gradients = [](int64_t n, int64_t in, int64_t out, DType t, Device device) {
    Tensors leaves;
    for (const Shape& shape : {Shape{n, in}, Shape{out, in}, Shape{out}})
      leaves.push_back(
          noise(shape, 310 + leaves.size(), bf16).to(t).to(device).detach().set_requires_grad());
    const Tensor y = linear(leaves[0], leaves[1], leaves[2]);
    return grad({y}, leaves, {noise(y.shape(), 320, bf16).to(t).to(device)});
  };
  for (const std::array<int64_t, 3>& sizes : std::vector<std::array<int64_t, 3>>{
           {1, 1, 1}, {300, 24, 40}, {37, 7, 9}, {64, 128, 8}, {0, 4, 4}, {5, 0, 4}, {5, 4, 0}}) {
    const int64_t n = sizes[0], in = sizes[1], out = sizes[2];
    CAPTURE(n, in, out);
    const Tensors exact = gradients(n, in, out, f32, cpu), got = gradients(n, in, out, bf16, gpu);
    for (const size_t i : {1, 2}) {
      CAPTURE(i);
      const auto want = exact[i].to_vector<double>();
      check_close(exact[i], got[i], [&](size_t k) {
        return 1.01 * unit(bf16) * std::abs(want[k]) + double(n) * 32 * unit(f32);
      });
    }
    CHECK(same_values(got[2], gradients(n, in, out, bf16, gpu)[2]));
  }
  if (!has_counters()) return;
  const auto launches = [&](int64_t n) {
    return launches_of([&] { gradients(n, 16, 24, bf16, gpu); }).all;
  };
  const int64_t together = launches(33);
  ::setenv("PTX_NO_EPILOGUES", "1", 1);  // support is queried once per shape
  const int64_t apart = launches(34);
  ::unsetenv("PTX_NO_EPILOGUES");
  CHECK(apart > together);
}

TEST_CASE("products add the gradients of layers with one input", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const bool held : {false, true}) {  // a held gradient must not change
      CAPTURE(name(t), held);
      const auto results = [&](DType type, Device device) {
        const auto on = [&](const Shape& shape, uint64_t stream) {
          return noise(shape, stream, t).to(type).to(device);
        };
        const Tensor leaf = on({3, 5, 24}, 330).set_requires_grad(), x = leaf * 1.0;
        Tensors outputs, slopes;
        for (uint64_t i = 0; i < 3; ++i) {
          outputs.push_back(linear(x, on({16, 24}, 340 + i)));
          slopes.push_back(on(outputs.back().shape(), 350 + i));
        }
        // Its gradient arrives first; a sum passes on the tensor itself.
        outputs.push_back(held ? x + on(x.shape(), 361) : x * 1.0);
        slopes.push_back(on(x.shape(), 360));
        const Tensor before = slopes.back().clone();
        Tensor got = grad(outputs, {leaf}, slopes)[0];
        CHECK(same_values(slopes.back(), before));
        return got;
      };
      const Tensor exact = results(f64, cpu), got = results(t, gpu);
      check_close(exact, got, [&](size_t) { return 64 * unit(t == bf16 ? bf16 : t); });
      CHECK(same_values(got, results(t, gpu)));
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
