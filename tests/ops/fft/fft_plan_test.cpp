// Which Fourier plans are cached, and for how long.
#include "ops/fft/fft_plan.h"

#include <atomic>
#include <thread>

#include "ops/create.h"
#include "ops/fft/fft.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::same_bits;

namespace {

// Uses lengths of no other test until only their plans are cached.
void fill_with_others() {
  for (int64_t n = 32'771, taken = 0; taken <= most_fft_plan_bytes; n += 2)
    taken += FftPlan<float>::of(n)->bytes();
}

}  // namespace

TEST_CASE("Fourier plans: the cache is bounded whatever lengths are used") {
  int64_t made = 0;
  for (int64_t n = 19'900; n < 20'100; n += 3) {
    made += RealFftPlan<float>::of(n)->bytes();
    CHECK(kept_fft_plan_bytes() <= most_fft_plan_bytes);
  }
  CHECK(made > most_fft_plan_bytes * 3 / 2);
  CHECK(kept_fft_plan_bytes() > most_fft_plan_bytes * 3 / 4);
}

TEST_CASE("Fourier plans: a plan that was evicted is computed again, identically") {
  const auto transformed = [] {
    Tensors all;
    for (const int64_t n : {1, 12, 97, 1000, 4099}) {
      all.push_back(rfft(fixed_noise({3, n}, 1)));
      all.push_back(fft(fixed_noise({3, n, 2}, 2, f32)));
    }
    return all;
  };
  const Tensors before = transformed();
  fill_with_others();
  const Tensors after = transformed();
  for (size_t i = 0; i < before.size(); ++i) CHECK(same_bits(after[i], before[i]));
}

TEST_CASE("Fourier plans: a plan in use is not evicted") {
  const auto plan = FftPlan<float>::of(4099);  // contains a plan of another length
  CHECK(FftPlan<float>::of(4099) == plan);
  const auto transformed = [&] {
    const FftWorkspace<float> work(2, plan->room());
    for (int64_t i = 0; i < 4099; ++i) {
      work[0].re[i] = float(i % 7);
      work[0].im[i] = float(i % 5);
    }
    const Planes<float> y = plan->forward(work[0], work[1], 1);
    return std::vector<float>(y.re, y.re + 4099);
  };
  const std::vector<float> before = transformed();
  fill_with_others();
  CHECK(FftPlan<float>::of(4099) != plan);
  CHECK(transformed() == before);
}

TEST_CASE("Fourier plans: a plan larger than the cache works and is evicted next") {
  fill_with_others();
  const int64_t n = 262'145;  // uses transforms of 2^20
  const Tensor x = zeros({n, 2}, {.dtype = f64});
  x[5][0].fill_(1);
  CHECK(fft(x)[0][0].item() == Approx(1));
  CHECK(FftPlan<double>::of(n)->bytes() > most_fft_plan_bytes);
  CHECK(FftPlan<double>::of(n) == FftPlan<double>::of(n));
  rfft(zeros({30}));
  CHECK(kept_fft_plan_bytes() < most_fft_plan_bytes / 2);
}

TEST_CASE("Fourier plans: many threads can use more lengths than are cached") {
  constexpr int64_t lengths = 30;
  Tensors inputs, outputs;
  for (int64_t i = 0; i < lengths; ++i) {
    inputs.push_back(fixed_noise({20'011 + 2 * i}, uint64_t(i), f32));
    outputs.push_back(rfft(inputs.back()));
  }
  std::atomic<int64_t> wrong = 0;
  std::vector<std::thread> threads;
  for (int64_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < lengths; ++i) {
        const auto at = size_t((i * 7 + t * 10) % lengths);
        if (!same_bits(rfft(inputs[at]), outputs[at])) ++wrong;
      }
    });
  for (std::thread& t : threads) t.join();
  CHECK(wrong == 0);
}
