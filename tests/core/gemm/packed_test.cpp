// Operands that are packed once: products with parts of them equal gemm bit for bit
// [core/gemm/packed.h].
#include "core/gemm/packed.h"

#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "core/cpu.h"
#include "core/random.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

template <class T>
std::vector<T> noise(int64_t n, uint64_t stream) {
  std::vector<T> x(size_t(n) + 1);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = convert<T>(2 * uniform_from_bits(random_bits({.seed = 13, .stream = stream}, i)) - 1);
  return x;
}

struct Part {
  int64_t p, k, j, n;
};

// Whole tiles and panels, and parts that begin or end within one.
std::vector<Part> parts_of(int64_t k, int64_t n) {
  std::vector<Part> all{{0, k, 0, n}};
  for (const Part& part :
       {Part{0, k, 32, 64}, Part{0, k, 64, 7}, Part{0, k, 5, 70}, Part{32, 64, 0, n},
        Part{64, k - 64, 0, n}, Part{32, 40, 32, 32}, Part{3, 50, 0, n}, Part{64, 65, 0, n},
        Part{0, 0, 0, n}, Part{0, k, 0, 0}})
    if (part.k >= 0 && part.p + part.k <= k && part.j + part.n <= n) all.push_back(part);
  return all;
}

// Returns the number of products with parts of B [k, n] that differ from gemm's.
template <class T>
int differences(int64_t k, int64_t n, bool transposed, double large, bool& packs) {
  using C = compute_t<T>;
  constexpr int64_t most_m = 67;
  const int64_t ld = (transposed ? k : n) + 3;
  std::vector<T> b = noise<T>((transposed ? n : k) * ld, 1);
  const std::vector<T> a = noise<T>(most_m * (k + most_m), 2);
  const std::vector<C> before = noise<C>(most_m * n, 3);
  // The last row and column: products that do not include them must not read them.
  b[size_t((transposed ? n - 1 : k - 1) * ld + (transposed ? k - 1 : n - 1))] = convert<T>(large);
  const MatrixRef<T> right{b.data(), ld, transposed};
  const int64_t bytes = PackedB<T>::bytes(k, n, transposed);
  packs |= bytes > 0;
  const std::unique_ptr<void, void (*)(void*)> memory(
      std::aligned_alloc(64, size_t(bytes + 127) / 64 * 64), std::free);
  PackedB<T> packed;
  packed.pack(k, n, right, memory.get());
  int different = 0;
  for (const Part& part : parts_of(k, n))
    for (const int64_t m : {1, 32, 67})
      for (const bool transposed_a : {false, true})
        for (const auto& [alpha, beta] :
             {std::pair{1.0, 0.0}, std::pair{1.0, 1.0}, std::pair{0.3, 0.5}}) {
          const MatrixRef<T> left{a.data(), transposed_a ? most_m : std::max<int64_t>(part.k, 1),
                                  transposed_a};
          std::vector<C> got = before, want = before;
          packed.from(part.p, part.j)
              .gemm(m, part.n, part.k, C(alpha), left, C(beta), got.data(), n);
          gemm(m, part.n, part.k, C(alpha), left, right.from(part.p, part.j), C(beta), want.data(),
               n);
          different += std::memcmp(got.data(), want.data(), want.size() * sizeof(C)) != 0;
        }
  return different;
}

template <class T>
void check_packed(Isa isa) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  bool packs = false;
  for (const auto& [k, n] : {std::pair<int64_t, int64_t>{64, 200}, {130, 96}, {1, 33}, {600, 64}})
    for (const bool transposed : {false, true})
      for (const double large : {1.0, 3.4e38, infinity}) {
        INFO(cpu_description() << ": B [" << k << ", " << n << "]"
                               << (transposed ? ", transposed" : "") << " with " << large);
        CHECK(differences<T>(k, n, transposed, large, packs) == 0);
      }
  if (isa != Isa::portable) CHECK(packs);
}

}  // namespace

TEST_CASE("products with parts of a packed operand equal gemm bit for bit", "[core][exhaustive]") {
  const Float32MatmulPrecision before = float32_matmul_precision();
  for (const Isa isa :
       {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512, Isa::amx, Isa::emulated}) {
    const IsaCap cap(isa);
    if (stretto::isa() != isa) continue;
    check_packed<double>(isa);
    for (const auto precision : {Float32MatmulPrecision::highest, Float32MatmulPrecision::high,
                                 Float32MatmulPrecision::medium}) {
      set_float32_matmul_precision(precision);
      check_packed<float>(isa);
    }
    set_float32_matmul_precision(before);
    if (has_bf16_products()) check_packed<BFloat16>(isa);
  }
}

TEST_CASE("packed panels have the width of the kernels for the vectors in use", "[core]") {
  for (const auto& [isa, columns] :
       {std::pair{Isa::neon, 16}, {Isa::avx2, 16}, {Isa::avx512, 32}}) {
    const IsaCap cap(isa);
    if (stretto::isa() != isa) continue;
    CHECK(PackedB<float>::bytes(3, 1, true) == columns * 3 * int64_t(sizeof(float)));
    CHECK(PackedB<double>::bytes(3, 1, true) == columns / 2 * 3 * int64_t(sizeof(double)));
  }
}

TEST_CASE("an operand without memory for packing is multiplied unpacked", "[core]") {
  const std::vector<float> a = noise<float>(6 * 8, 1), b = noise<float>(8 * 40, 2);
  std::vector<float> got(6 * 40), want(6 * 40);
  PackedB<float> packed;
  packed.pack(8, 40, {b.data(), 8, true}, nullptr);
  packed.gemm(6, 40, 8, 1, {a.data(), 8}, 0, got.data(), 40);
  gemm(6, 40, 8, 1, {a.data(), 8}, {b.data(), 8, true}, 0, want.data(), 40);
  CHECK(got == want);
}

}  // namespace stretto
