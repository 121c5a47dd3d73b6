// Layer norm and RMS norm: CUDA against the formula in f64.
#include <cmath>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Checks values and gradients of a norm in t on the GPU against f64 on the CPU, and that gradients
// are bit-identical when repeated. Half of the cases have a residual branch, whose gradient the
// backward kernel adds.
void compare_norm(const Shape& shape, DType t, bool center, bool affine, uint64_t stream) {
  CAPTURE(str(shape), name(t), center, affine);
  const Shape last{shape.back()};
  const Tensor x = noise(shape, stream, t), g = noise(shape, stream + 1, t);
  const Tensor w = noise(last, stream + 2, t), b = noise(last, stream + 3, t),
               more = noise(shape, stream + 500, t);
  struct Result {
    Tensor y;
    Tensors gradients;
  };
  const auto run = [&](Device device, DType type) {
    Tensors leaves;
    for (const Tensor& v : {x, w, b})
      leaves.push_back(v.to(type).to(device).detach().set_requires_grad());
    if (!affine) leaves.resize(1);
    if (affine && !center) leaves.resize(2);
    const Tensor weight = affine ? leaves[1] : Tensor(), in = leaves[0] * 1.0;
    const Tensor y =
        center ? layer_norm(in, weight, affine ? leaves[2] : Tensor()) : rms_norm(in, weight);
    Tensors outputs{y}, slopes{g.to(type).to(device)};
    if (center == affine) {
      outputs.push_back(in * 1.0);
      slopes.push_back(more.to(type).to(device));
    }
    return Result{y.detach(), grad(outputs, leaves, slopes)};
  };
  const Result exact = run(cpu, f64), got = run(gpu, t), again = run(gpu, t);
  const double n = double(shape.back()), rows = double(x.numel()) / std::max(n, 1.0);
  // Sums over a row have a depth of n/32 and a few levels, sums over rows as many levels as rows.
  // Elements are of order 1, a sum of k elements of order √k.
  const double fine = unit(t == f64 ? f64 : f32), coarse = t == bf16 ? unit(bf16) : 0;
  const double row = (n / 16 + 64) * fine * (t == f64 ? 4 : 1);
  const auto ey = exact.y.to_vector<double>();
  check_close(exact.y, got.y, [&](size_t i) {
    return row * (8 + std::abs(ey[i])) + 1.01 * coarse * std::abs(ey[i]);
  });
  for (size_t k = 0; k < exact.gradients.size(); ++k) {
    CAPTURE(k);
    const auto e = exact.gradients[k].to_vector<double>();
    const double scale = center || n > 4 ? 1 : 1e3;  // short rows can have a tiny variance or power
    const double allowed = k == 0 ? row * 32 * scale : (row + (rows / 64 + 300) * fine) * rows * 4;
    check_close(exact.gradients[k], got.gradients[k], [&](size_t i) {
      return allowed * (1 + std::abs(e[i])) + 1.01 * coarse * std::abs(e[i]);
    });
    CHECK(same_values(got.gradients[k], again.gradients[k]));
  }
}

}  // namespace

TEST_CASE("norms and their gradients agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  uint64_t stream = 1000;
  for (const Shape& shape : {Shape{0, 4}, Shape{5, 8}, Shape{3, 31}, Shape{700, 64},
                             Shape{2, 3, 512}, Shape{9, 513}, Shape{3, 1024}, Shape{300, 1001},
                             Shape{2, 5001}, Shape{3, 4608}, Shape{3, 8208}, Shape{9, 2048}})
    for (const DType t : floating)
      for (const bool center : {true, false})
        for (const bool affine : {true, false}) compare_norm(shape, t, center, affine, stream += 4);
}

TEST_CASE("norms are correct for more rows than one grid covers", "[cuda][large]") {
  NEEDS_GPU();
  compare_norm({40000, 12}, f32, true, true, 2000);
  compare_norm({270, 4100}, f32, true, true, 2010);
  compare_norm({2200, 40}, bf16, true, true, 2020);
  compare_norm({270, 1032}, bf16, true, true, 2030);
}

TEST_CASE("layer_norm is accurate for rows whose mean is far from 0", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating)
    for (const int64_t n : {31, 768, 8208})  // a warp, a block, and rows too long for registers
      for (const double mean : {30000.37, -1e10, 1e20}) {
        CAPTURE(name(t), n, mean);
        const Tensor constant = full({3, n}, mean, {.dtype = t, .device = gpu});
        CHECK(max(abs(layer_norm(constant))).item() == 0);
        if (t != f32) continue;
        // Deviations of a few units from the mean: as on the CPU, x̂ and the gradients do not
        // depend on the size of the mean.
        const Tensor x =
            (noise({3, n}, 31).to(f64) * (3 * std::abs(mean) * 0x1p-23) + mean).to(f32);
        const auto slopes = [&](Device device, DType type) {
          const Tensor leaf = x.to(type).to(device).detach().set_requires_grad();
          const Tensor y = layer_norm(leaf);
          const Tensor g = noise({3, n}, 32).to(type).to(device);
          return Tensors{y.detach(), grad({y}, {leaf}, {g})[0]};
        };
        const Tensors exact = slopes(cpu, f64), got = slopes(gpu, f32);
        for (size_t k = 0; k < 2; ++k) {
          const double size = max(abs(exact[k])).item();
          check_close(exact[k], got[k].to(f64), [&](size_t) { return 1e-4 * size; });
        }
      }
}
