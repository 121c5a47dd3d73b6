// A GPU with less shared memory per block than the kernels are designed for, e.g. of compute
// capability 12: kernels that do not fit are replaced by composed ops or other kernels.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>

#include "autograd/tape.h"
#include "cuda/orthogonal.h"
#include "cuda/runtime/composed.h"
#include "ops/attention/attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/attention/random_features.h"
#include "ops/elementwise.h"
#include "ops/fft/fft.h"
#include "ops/fft/fft_conv.h"
#include "ops/orthogonal.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/error_of.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

constexpr int64_t limited_bytes = 99 << 10;

// Limits the shared memory of the PTX interpreter to 99 KiB per block during its lifetime.
struct SharedMemoryLimit {
  SharedMemoryLimit() { ::setenv("PTX_SHARED", "99", 1); }
  ~SharedMemoryLimit() { ::unsetenv("PTX_SHARED"); }
};

// A function of one tensor; it runs on the device of the tensor.
struct Case {
  const char* name;
  Tensor x;
  std::function<Tensor(const Tensor&)> f;
  double bound;
};

std::vector<Case> cases() {
  const auto rows = [](const Shape& shape, DType t = f32) { return noise(shape, 5, t); };
  const auto like = [](const Shape& shape, uint64_t stream, const Tensor& x) {
    return noise(shape, stream, x.dtype()).to(x.device());
  };
  const SpeNoise draws(RandomKey{5, 8}, 20);
  return {
      {"attention f32", rows({1, 2, 300, 64}),
       [](const Tensor& x) { return attention(x, x, x, {.mask = {.causal = true}}); }, 1e-5},
      {"attention bf16", rows({1, 2, 130, 64}, bf16),
       [like](const Tensor& x) {
         AttentionOptions options{.mask = {.causal = true}};
         options.relative_keys = {like({2, 130, 64}, 6, x), 129};
         return attention(x, x, x, options);
       },
       0.02},
      {"linear attention", rows({1, 2, 200, 64}),
       [](const Tensor& x) {
         const Tensor f = square(x);
         return linear_attention(f, f, x, {.mask = {.causal = true}});
       },
       1e-5},
      {"random features", rows({1, 2, 70, 128}),
       [like](const Tensor& x) {
         return random_features(x, like({256, 128}, 7, x) * 0.1);
       },
       1e-5},
      {"sineSPE", rows({1, 1, 40, 16}),
       [=](const Tensor& x) {
         const Tensor f = like({1, 16, 3}, 8, x);
         return spe(x, x, SpeCode::sine(f, f, f, draws)).q;
       },
       1e-4},
      {"convSPE", rows({1, 1, 40, 16}),
       [=](const Tensor& x) {
         const Tensor w = like({1, 16, 5}, 8, x);
         return spe(x, x, SpeCode::conv(w, w, draws)).q;
       },
       1e-5},
      {"fft_conv", rows({2, 8192}),
       [like](const Tensor& x) {
         return fft_conv(x, like({2, 8192}, 9, x));
       },
       1e-5},
      {"rfft", rows({2, 8192}, f64), [](const Tensor& x) { return rfft(x); }, 1e-12},
      {"orthogonal_rows", rows({1, 120, 120}, f64),
       [](const Tensor& x) { return orthogonal_rows(x.detach()); }, 1e-8},
  };
}

double off(const Tensor& exact, const Tensor& got) {
  const auto norm = [](const Tensor& x) {
    return std::sqrt(sum(square(x.to(cpu).to(f64))).item());
  };
  return norm(got.to(cpu).to(f64) - exact.to(cpu).to(f64)) / norm(exact);
}

}  // namespace

TEST_CASE("results are correct on a GPU with less shared memory", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the PTX interpreter, which can limit shared memory");
  double most = 0;
  for (const Case& c : cases()) {
    CAPTURE(c.name);
    // The result and, if it has one, the gradient.
    const auto run = [&](Device device) {
      const Tensor x = c.x.to(device).detach().set_requires_grad();
      const Tensor y = c.f(x);
      if (!y.requires_grad()) return Tensors{y};
      return Tensors{y.detach(), grad({sum(square(y.to(f32)))}, {x})[0]};
    };
    const auto largest = [&](Tensors& results) {
      double bytes = 0;
      for (const KernelCounts& k : counts_of([&] { results = run(gpu); }))
        bytes = std::max(bytes, k["shared_bytes"]);
      return bytes;
    };
    Tensors all, limited;
    most = std::max(most, largest(all));
    {
      const SharedMemoryLimit limit;
      CHECK(largest(limited) <= double(limited_bytes));
    }
    const Tensors exact = run(cpu);
    REQUIRE(limited.size() == exact.size());
    for (size_t i = 0; i < exact.size(); ++i) {
      CAPTURE(i);
      CHECK(limited[i].device() == gpu);
      CHECK(off(exact[i], limited[i]) <= c.bound);
      CHECK(off(exact[i], all[i]) <= c.bound);
    }
  }
  CHECK(most > double(limited_bytes));
}

TEST_CASE("on a GPU with less shared memory ops are composed, or report what does not fit",
          "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the PTX interpreter, which can limit shared memory");
  CHECK_FALSE(cuda::composed("attention", gpu));
  const SharedMemoryLimit limit;
  CHECK(cuda::composed("attention", gpu));
  CHECK_FALSE(cuda::composed("elu_features", gpu));
  CHECK_FALSE(cuda::orthogonal_rows_fit(120, 120, gpu));
  const Tensor x = noise({120, 120}, 5, f64).to(gpu);
  CHECK(error_of<Error>([&] { cuda::orthogonal_rows(x); }) ==
        "[orthogonal_rows] its kernel needs 116160 bytes of shared memory per block; cuda:0 has "
        "101376");
}
