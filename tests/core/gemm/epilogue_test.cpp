// Epilogues, which process each block of a product as soon as it is computed [core/gemm/gemm.h].
#include <algorithm>
#include <mutex>
#include <vector>

#include "core/cpu.h"
#include "core/gemm/gemm.h"
#include "core/parallel.h"
#include "tests/support/catch.h"

using namespace stretto;

namespace {

template <class T>
std::vector<T> values(int64_t n) {
  std::vector<T> all;
  for (int64_t i = 0; i < n; ++i) all.push_back(T(float(i * 7919 % 127) / 64 - 1));
  return all;
}

// The blocks that an epilogue has received, and how often each element of C was in one.
struct Parts {
  int64_t n;
  std::vector<float> sums;
  std::vector<int> times;
  mutable std::mutex mutex;

  Parts(int64_t rows, int64_t columns)
      : n(columns), sums(size_t(rows * columns)), times(size_t(rows * columns)) {}
  template <class T>
  void take(int64_t i, int64_t j, int64_t rows, int64_t columns, const T* from, int64_t ld) {
    const std::lock_guard lock(mutex);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < columns; ++c) {
        sums[size_t((i + r) * n + j + c)] = float(from[r * ld + c]);
        ++times[size_t((i + r) * n + j + c)];
      }
  }
  bool each_once() const {
    return std::all_of(times.begin(), times.end(), [](int t) { return t == 1; });
  }
};

struct Size {
  int64_t m, n, k;
};
const std::vector<Size> sizes{{1, 1, 1},    {1, 600, 40},     {3, 70, 300},
                              {64, 33, 64}, {65, 64, 32},     {130, 100, 0},
                              {2, 3, 0},    {300, 1100, 600}, {70, 8300, 5}};
const std::vector<Isa> all_isas{Isa::portable, Isa::neon, Isa::avx2,
                                Isa::avx512,   Isa::amx,  Isa::emulated};

template <class T>
void check_parts() {
  for (const Isa most : all_isas) {
    const IsaCap cap(most);
    if (isa() != most) continue;
    for (const auto& [m, n, k] : sizes) {
      if (isa() == Isa::emulated && m * n * k > 1'000'000) continue;  // slow
      const std::vector<T> a = values<T>(m * k), b = values<T>(k * n);
      std::vector<T> plain(size_t(m * n)), c(size_t(m * n));
      const int64_t lda = std::max<int64_t>(k, 1);
      gemm_parallel<T>({m, n, k, 1, {a.data(), lda}, {b.data(), n}, 0, plain.data(), n});
      Parts parts(m, n);
      const auto half = [&](int64_t i, int64_t j, int64_t rows, int64_t columns, T* sums,
                            int64_t ld) {
        parts.take(i, j, rows, columns, sums, ld);
        for (int64_t r = 0; r < rows; ++r)
          for (int64_t q = 0; q < columns; ++q) sums[r * ld + q] /= 2;
      };
      const auto epilogue = epilogue_of<T>(half);
      gemm_parallel<T>({m, n, k, 1, {a.data(), lda}, {b.data(), n}, 0, c.data(), n}, &epilogue);
      INFO(cpu_description() << ": " << m << " x " << n << " x " << k);
      CHECK(parts.each_once());
      bool same = true, halved = true;
      for (size_t i = 0; i < plain.size(); ++i) {
        same = same && parts.sums[i] == float(plain[i]);
        halved = halved && c[i] == plain[i] / 2;
      }
      CHECK(same);
      CHECK(halved);
    }
  }
}

}  // namespace

TEST_CASE("an epilogue receives each sum of a product once, and may change it", "[gemm]") {
  check_parts<float>();
  check_parts<double>();
}

TEST_CASE("an epilogue receives the f32 sums of bf16 products", "[gemm]") {
  for (const Isa most : all_isas) {
    const IsaCap cap(most);
    if (!has_bf16_products()) continue;
    for (const auto& [m, n, k] : sizes) {
      if (isa() == Isa::emulated && m * n * k > 1'000'000) continue;  // slow
      const std::vector<BFloat16> a = values<BFloat16>(m * k), b = values<BFloat16>(k * n);
      std::vector<float> plain(size_t(m * n));
      const int64_t lda = std::max<int64_t>(k, 1);
      const MatrixRef<BFloat16> left{a.data(), lda}, right{b.data(), n};
      gemm(m, n, k, 1.0f, left, right, 0.0f, plain.data(), n);
      Parts parts(m, n);
      const auto take = [&](int64_t i, int64_t j, int64_t rows, int64_t columns, const float* sums,
                            int64_t ld) { parts.take(i, j, rows, columns, sums, ld); };
      gemm_parallel(m, n, k, left, right, epilogue_of<float>(take));
      INFO(cpu_description() << ": " << m << " x " << n << " x " << k);
      CHECK(parts.each_once());
      CHECK(parts.sums == plain);
    }
  }
}
