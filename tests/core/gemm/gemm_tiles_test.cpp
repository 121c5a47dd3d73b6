// Products of bf16 tiles: the tile instruction, packing, bf16 and f32 operands [core/gemm/tiles.h].
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

#include "core/cpu.h"
#include "core/error.h"
#include "core/gemm/tiles.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

using namespace kernels;

uint64_t bits_at(uint64_t stream, size_t i) {
  return random_bits({.seed = 11, .stream = stream}, i);
}
float uniform_at(uint64_t stream, size_t i) {
  return float(2 * uniform_from_bits(bits_at(stream, i)) - 1);
}
// The sum of twelve uniform values is approximately normal.
float normal_at(uint64_t stream, size_t i) {
  float sum = 0;
  for (size_t j = 0; j < 12; ++j) sum += uniform_at(stream, 12 * i + j);
  return sum / 2;
}

float wide(uint16_t x) { return std::bit_cast<float>(uint32_t(x) << 16); }
float flushed(float x) {
  return std::fabs(x) < std::numeric_limits<float>::min() ? std::copysign(0.0f, x) : x;
}

// TDPBF16PS element by element, as in Intel's manual, volume 2.
float tile_product(float c, const uint16_t* a, const uint16_t* b) {
  float chain[2] = {};
  for (int k = 0; k < 32; ++k)
    chain[k % 2] =
        flushed(std::fma(flushed(wide(a[k])), flushed(wide(b[k / 2 * 32 + k % 2])), chain[k % 2]));
  return flushed(flushed(c) + flushed(chain[0] + chain[1]));
}

std::vector<Isa> with_tiles() {
  std::vector<Isa> supported;
  for (Isa isa : {Isa::avx512, Isa::amx, Isa::emulated})
    if (const IsaCap cap(isa); stretto::isa() == isa && has_bf16_products())
      supported.push_back(isa);
  return supported;
}

// The instruction set of f32 products that do not use the emulated tiles.
Isa vectors_with_emulation() {
  const IsaCap cap(Isa::emulated);
  return vector_isa();
}

class Precision {
 public:
  explicit Precision(Float32MatmulPrecision p) : before_(float32_matmul_precision()) {
    set_float32_matmul_precision(p);
  }
  ~Precision() { set_float32_matmul_precision(before_); }
  Precision(const Precision&) = delete;
  Precision& operator=(const Precision&) = delete;

 private:
  Float32MatmulPrecision before_;
};

struct Problem {
  int64_t m, n, k;
  std::vector<float> a, b;
  std::vector<float> product() const {
    std::vector<float> c(size_t(m * n));
    gemm(m, n, k, 1.0f, {a.data(), k}, {b.data(), n}, 0.0f, c.data(), n);
    return c;
  }
};

constexpr int kinds = 7;

// The data of the error tests: normal values (0); elements (1), rows and columns (2) or terms (3)
// of very different magnitudes; sums that cancel (4); positive values (5); rows of a softmax (6).
Problem data(int kind, int64_t n, int64_t k) {
  Problem p{n, n, k, std::vector<float>(size_t(n * k)), std::vector<float>(size_t(k * n))};
  const auto scale = [](uint64_t stream, size_t i) {
    return std::ldexp(1.0f, int(bits_at(stream, i) % 81) - 40);
  };
  for (int64_t i = 0; i < n; ++i)
    for (int64_t q = 0; q < k; ++q) {
      const size_t x = size_t(i * k + q), y = size_t(q * n + i);
      p.a[x] = normal_at(1, x);
      p.b[y] = normal_at(2, y);
      if (kind == 1) p.a[x] *= scale(3, x), p.b[y] *= scale(4, y);
      if (kind == 2) p.a[x] *= scale(3, size_t(i)), p.b[y] *= scale(4, size_t(i));
      if (kind == 3) p.a[x] *= scale(3, size_t(q)), p.b[y] /= scale(3, size_t(q));
      if (kind == 4 && q >= k / 2) {
        p.a[x] = p.a[x - size_t(k / 2)] * (1 + std::ldexp(normal_at(5, x), -12));
        p.b[y] = -p.b[y - size_t(k / 2 * n)];
      }
      if (kind == 5) p.a[x] = std::fabs(uniform_at(1, x)), p.b[y] = std::fabs(uniform_at(2, y));
      if (kind == 6) p.a[x] = std::exp(2 * p.a[x]);
    }
  for (int64_t i = 0; kind == 6 && i < n; ++i) {
    float* row = p.a.data() + i * k;
    const float sum = std::accumulate(row, row + k, 0.0f);
    std::for_each(row, row + k, [&](float& x) { x /= sum; });
  }
  return p;
}

// Returns the largest error relative to Σ|a·b|.
double error(const Problem& p, const std::vector<float>& c) {
  double most = 0;
  for (int64_t i = 0; i < p.m; ++i)
    for (int64_t j = 0; j < p.n; ++j) {
      double sum = 0, magnitude = 0;
      for (int64_t q = 0; q < p.k; ++q) {
        const double term = double(p.a[size_t(i * p.k + q)]) * double(p.b[size_t(q * p.n + j)]);
        sum += term;
        magnitude += std::fabs(term);
      }
      const double relative = std::fabs(double(c[size_t(i * p.n + j)]) - sum) / magnitude;
      most = std::max(most, relative);
    }
  return most;
}

// Normal values, every 11th scaled down by a power of two, some to subnormals.
template <class T>
std::vector<T> mixed(uint64_t stream, int64_t n) {
  std::vector<T> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = T(normal_at(stream, i) * std::ldexp(1.0f, i % 11 ? 0 : -int(bits_at(9, i) % 145)));
  return x;
}

// Computes C = alpha A B + beta C [m, n], from a nonzero C, `each` rows at a time.
template <class T>
std::vector<float> by_rows(int64_t each, int64_t m, int64_t n, int64_t k, float alpha,
                           MatrixRef<T> a, MatrixRef<T> b, float beta) {
  std::vector<float> c = mixed<float>(3, m * n);
  for (int64_t i = 0; i < m; i += each)
    gemm(std::min(each, m - i), n, k, alpha, a.from(i, 0), b, beta, c.data() + i * n, n);
  return c;
}

template <class T>
void check_rows_alone(int64_t n, int64_t k) {
  constexpr int64_t m = 9;
  const std::vector<T> a = mixed<T>(1, m * k), b = mixed<T>(2, k * n);
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (const auto& [alpha, beta] : {std::pair{1.0f, 0.0f}, {1.0f, 1.0f}, {-1.5f, 2.0f}}) {
        const MatrixRef<T> left{a.data(), ta ? m : k, ta}, right{b.data(), tb ? k : n, tb};
        const std::vector<float> all = by_rows(m, m, n, k, alpha, left, right, beta);
        for (int64_t each : {1, 2, 3, 4, 8}) {
          const std::vector<float> some = by_rows(each, m, n, k, alpha, left, right, beta);
          INFO(each << " of 9 rows x " << n << " x " << k << ", transposed " << ta << tb
                    << ", alpha " << alpha << ", beta " << beta << ", " << cpu_description());
          CHECK(std::memcmp(all.data(), some.data(), all.size() * sizeof(float)) == 0);
        }
      }
}

}  // namespace

TEST_CASE("the emulated tile product is bit-identical to the instruction", "[core]") {
  int64_t wrong = 0, subnormal = 0;
  for (size_t round = 0; round < 60; ++round) {
    std::vector<uint16_t> a(2 * tile_size), b(2 * tile_size);
    std::vector<float> c(size_t(tile_block * tile_block));
    const auto number = [&](uint64_t stream, size_t i) {
      const auto x = uint16_t(bits_at(stream, i));
      switch (round % 4) {
        case 0:
          return x;  // any value
        case 1:
          return uint16_t((x & 0x80ff) | (100 + bits_at(stream + 50, i) % 56) << 7);
        case 2:
          return uint16_t((x & 0x80ff) | bits_at(stream + 50, i) % 128 << 7);  // a small value
        default:
          return BFloat16(normal_at(stream, i)).bits;
      }
    };
    for (size_t i = 0; i < a.size(); ++i) {
      a[i] = number(4 * round, i);
      b[i] = number(4 * round + 1, i);
    }
    for (size_t i = 0; i < c.size(); ++i)
      c[i] = round % 3 ? normal_at(4 * round + 2, i) : wide(number(4 * round + 2, i));
    std::vector<float> got = c;
    tiles_emulated().multiply({1,
                               1,
                               {a.data(), tile_size},
                               {b.data(), tile_size},
                               got.data(),
                               tile_block,
                               true,
                               tile_block});
    for (int64_t i = 0; i < tile_block; ++i)
      for (int64_t j = 0; j < tile_block; ++j) {
        const size_t at = size_t(i * tile_block + j);
        const float expected =
            tile_product(c[at], &a[size_t(i * 32)], &b[size_t(j / 16 * tile_size + j % 16 * 2)]);
        const bool same = std::bit_cast<uint32_t>(expected) == std::bit_cast<uint32_t>(got[at]);
        wrong += !same && !(std::isnan(expected) && std::isnan(got[at]));
        subnormal += c[at] != flushed(c[at]);
      }
  }
  CHECK(wrong == 0);
  CHECK(subnormal > 0);
  const float one = std::numeric_limits<float>::denorm_min();
  volatile float kept = one;
  CHECK(kept * 2 == 2 * one);  // denormals are not flushed in this thread afterwards
}

#if defined(__x86_64__)
TEST_CASE("AVX-512 packs tiles bit-identically to portable code", "[core]") {
  const IsaCap cap(Isa::avx512);
  if (!has_bf16_vectors()) STRETTO_SKIP("this CPU has no AVX-512 with bf16");
  for (const auto& [outer, k] : {std::pair{1, 1}, {16, 32}, {21, 47}, {64, 256}, {33, 17}}) {
    std::vector<float> x(size_t(outer * k) + 64);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = normal_at(1, i) * std::ldexp(1.0f, i % 7 == 0 ? -int(bits_at(2, i) % 150) : 0);
    const std::vector<BFloat16> y(x.begin(), x.end());
    for (bool along_k : {false, true})
      for (bool of_b : {false, true})
        for (int terms : {1, 2}) {
          const size_t size = size_t((outer + 15) / 16 * ((k + 31) / 32) * terms * tile_size);
          std::vector<uint16_t> a(size, 7), b(size, 9), c(size, 7), d(size, 9);
          const MatrixRef<float> wide{x.data(), along_k ? k : outer, !along_k};
          tiles_avx512().pack_f32(wide, of_b, outer, k, terms, a.data());
          pack_tiles_portable(wide, of_b, outer, k, terms, b.data());
          CHECK(a == b);
          if (terms > 1) continue;
          const MatrixRef<BFloat16> narrow{y.data(), wide.ld, wide.transposed};
          tiles_avx512().pack_bf16(narrow, of_b, outer, k, 1, c.data());
          pack_tiles_portable(narrow, of_b, outer, k, 1, d.data());
          CHECK(c == d);
        }
  }
}
#endif

TEST_CASE("two bf16 terms represent an f32 value up to 2^-16 of it", "[core]") {
  int64_t wrong = 0;
  for (size_t i = 0; i < 20000; ++i) {
    const float x = normal_at(1, i) * std::ldexp(1.0f, int(bits_at(2, i) % 220) - 100);
    std::vector<uint16_t> tiles(2 * tile_size);
    pack_tiles_portable<float>({&x, 1}, false, 1, 1, 2, tiles.data());
    const double sum = double(wide(tiles[0])) + double(wide(tiles[tile_size]));
    wrong +=
        std::fabs(x) >= 0x1p-103f && std::fabs(sum - double(x)) > 0x1p-16 * std::fabs(double(x));
  }
  CHECK(wrong == 0);
}

TEST_CASE("products by AMX and by its emulation have the same bits", "[core]") {
  const IsaCap hardware(Isa::amx);
  if (isa() != Isa::amx) STRETTO_SKIP("this CPU has no AMX");
  for (const auto& [m, n, k] :
       {std::tuple{1, 64, 32}, {3, 70, 301}, {33, 96, 513}, {300, 65, 2100}}) {
    const std::vector<float> a = mixed<float>(1, m * k), b = mixed<float>(2, k * n);
    const std::vector<BFloat16> x = mixed<BFloat16>(1, m * k), y = mixed<BFloat16>(2, k * n);
    for (const auto p : {Float32MatmulPrecision::high, Float32MatmulPrecision::medium}) {
      const Precision precision(p);
      const auto both = [&, m = m, n = n, k = k](Isa isa) {
        const IsaCap cap(isa);
        std::vector<float> c = by_rows<float>(m, m, n, k, 1, {a.data(), k}, {b.data(), n}, 0);
        const std::vector<float> d =
            by_rows<BFloat16>(m, m, n, k, -1.5f, {x.data(), k}, {y.data(), n}, 2);
        c.insert(c.end(), d.begin(), d.end());
        return c;
      };
      INFO(m << " x " << n << " x " << k);
      const std::vector<float> amx = both(Isa::amx), emulated = both(Isa::emulated);
      CHECK(std::memcmp(amx.data(), emulated.data(), amx.size() * sizeof(float)) == 0);
    }
  }
}

// The bound counts the omitted terms (for x = hi + lo + rest, |lo| ≤ 2^-8 |x| and |rest| ≤ 2^-16 |x|)
// and the roundings of an element: 16 in each chain of a tile, then those of the sum of the two
// chains, 3 · 8 in the sum over the tiles of a block of 256 terms, and one for each block.
TEST_CASE("the error of f32 products of tiles is bounded", "[core][exhaustive]") {
  for (int64_t k : {64, 512, 4096})
    for (int kind = 0; kind < kinds; ++kind) {
      const Problem p = data(kind, 96, k);
      const int64_t blocks = (k + 255) / 256;
      const double roundings = double(16 + 2 + 3 * 8 + blocks + 1) * 0x1p-24;
      INFO("data " << kind << ", k " << k);
      const IsaCap cap(Isa::emulated);
      const Precision high(Float32MatmulPrecision::high);
      CHECK(error(p, p.product()) <= roundings + 3 * 0x1p-16 + 0x1p-24);
      const Precision medium(Float32MatmulPrecision::medium);
      CHECK(error(p, p.product()) <= roundings + 2 * 0x1p-8 + 0x1p-16);
    }
}

TEST_CASE("values outside the range of bf16 are multiplied by the f32 kernels", "[core]") {
  const Precision high(Float32MatmulPrecision::high);
  const float inf = std::numeric_limits<float>::infinity();
  for (float x : {inf, -inf, std::nanf(""), std::numeric_limits<float>::max(), 3.4e38f}) {
    Problem p = data(0, 64, 64);
    p.a[100] = x;
    p.b[7] = 1.25f;
    const auto by = [&](Isa isa) {
      const IsaCap cap(isa);
      return p.product();
    };
    const std::vector<float> plain = by(vectors_with_emulation()), tiles = by(Isa::emulated);
    CHECK(std::memcmp(plain.data(), tiles.data(), plain.size() * sizeof(float)) == 0);
    std::swap(p.a, p.b);
    const std::vector<float> plain_b = by(vectors_with_emulation()), tiles_b = by(Isa::emulated);
    CHECK(std::memcmp(plain_b.data(), tiles_b.data(), plain_b.size() * sizeof(float)) == 0);
  }
  // The largest value that rounds to a finite bf16 does not give NaN.
  Problem p = data(0, 64, 64);
  p.a[100] = 3.389e38f;
  const IsaCap cap(Isa::emulated);
  const std::vector<float> c = p.product();
  CHECK(std::all_of(c.begin(), c.end(), [](float x) { return !std::isnan(x); }));
}

TEST_CASE("f32 products with AMX are those without, unless fewer bits are allowed", "[core]") {
  for (const auto& [n, k] : {std::pair{64, 32}, {70, 301}, {270, 1031}}) {
    const Problem p = data(0, n, k);
    const auto by = [&](Isa isa) {
      const IsaCap cap(isa);
      return p.product();
    };
    for (const Isa isa : {Isa::amx, Isa::emulated}) {
      const IsaCap cap(isa);
      CHECK((p.product() == by(vector_isa())));
    }
    const std::vector<float> highest = by(Isa::emulated);
    const Precision high(Float32MatmulPrecision::high);
    CHECK((by(Isa::emulated) != highest));
  }
}

TEST_CASE("the precision of f32 products is a global setting", "[core]") {
  CHECK(float32_matmul_precision() == Float32MatmulPrecision::highest);
  const Problem p = data(0, 64, 64);
  const IsaCap cap(Isa::emulated);
  const std::vector<float> highest = p.product();
  {
    const Precision high(Float32MatmulPrecision::high);
    CHECK(float32_matmul_precision() == Float32MatmulPrecision::high);
    const std::vector<float> c = p.product();
    CHECK(c != highest);
    const IsaCap none(Isa::avx2);
    const std::vector<float> plain = p.product();
    const Precision exact(Float32MatmulPrecision::highest);
    CHECK(plain == p.product());
  }
  CHECK(p.product() == highest);
}

TEST_CASE("bf16 products agree with sums in f64", "[core]") {
  const int before = num_threads();
  for (Isa isa : with_tiles()) {
    const IsaCap cap(isa);
    INFO(cpu_description());
    for (const auto& [m, n, k] : {std::tuple{1, 1, 1},
                                  {5, 7, 0},
                                  {33, 47, 75},
                                  {300, 65, 31},
                                  {15, 96, 513},
                                  {70, 1100, 40},
                                  {7, 1100, 520}}) {
      std::vector<BFloat16> a(size_t(m * k)), b(size_t(k * n)), bias(size_t(n + 0));
      for (size_t i = 0; i < a.size(); ++i) a[i] = BFloat16(normal_at(1, i));
      for (size_t i = 0; i < b.size(); ++i) b[i] = BFloat16(normal_at(2, i));
      for (size_t i = 0; i < bias.size(); ++i) bias[i] = BFloat16(normal_at(3, i));
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          INFO(m << " x " << n << " x " << k << ", transposed " << ta << tb);
          const MatrixRef<BFloat16> left{a.data(), std::max(ta ? m : k, 1), ta};
          const MatrixRef<BFloat16> right{b.data(), std::max(tb ? k : n, 1), tb};
          const int64_t gap = 3, ldc = n + gap;
          std::vector<float> c(size_t(m * ldc), 0.5f);
          gemm(m, n, k, -1.5f, left, right, 2.0f, c.data(), ldc);
          std::vector<BFloat16> whole(size_t(m * n)), alone(size_t(m * n)), two(size_t(m * n));
          gemm(m, n, k, left, right, bias.data(), whole.data(), n);
          for (int64_t i = 0; i < m; ++i)
            gemm(1, n, k, left.from(i, 0), right, bias.data(), alone.data() + i * n, n);
          for (int threads : {1, 2, 4}) {
            set_num_threads(threads);
            gemm_parallel(m, n, k, left, right, bias.data(), two.data(), n);
            CHECK(std::memcmp(whole.data(), two.data(), whole.size() * 2) == 0);
          }
          CHECK(std::memcmp(whole.data(), alone.data(), whole.size() * 2) == 0);
          int64_t wrong = 0;
          for (int64_t i = 0; i < m; ++i) {
            for (int64_t j = 0; j < n; ++j) {
              double sum = 0, magnitude = 0;
              for (int64_t q = 0; q < k; ++q) {
                const double x = double(float(a[size_t(ta ? q * m + i : i * k + q)]));
                const double y = double(float(b[size_t(tb ? j * k + q : q * n + j)]));
                sum += x * y;
                magnitude += std::fabs(x * y);
              }
              const double u = double(k + 4) * 0x1p-24, x = double(c[size_t(i * ldc + j)]);
              wrong += !(std::fabs(x - (1 - 1.5 * sum)) <= u * (1.5 * magnitude + 1));
              const double shift = double(float(bias[size_t(j)]));
              const double y = double(float(whole[size_t(i * n + j)]));
              wrong += !(std::fabs(y - sum - shift) <=
                         0x1p-8 * std::fabs(sum + shift) + 2 * u * (magnitude + std::fabs(shift)));
            }
            for (int64_t j = n; j < ldc; ++j) wrong += c[size_t(i * ldc + j)] != 0.5f;
          }
          CHECK(wrong == 0);
        }
    }
  }
  set_num_threads(before);
}

TEST_CASE("products of a few rows are bit-identical to the whole product", "[core][exhaustive]") {
  for (Isa isa : with_tiles()) {
    const IsaCap cap(isa);
    for (const auto& [n, k] : {std::pair{1, 1}, {64, 32}, {70, 301}, {270, 1031}, {65, 513}}) {
      check_rows_alone<BFloat16>(n, k);
      for (auto p : {Float32MatmulPrecision::highest, Float32MatmulPrecision::high,
                     Float32MatmulPrecision::medium}) {
        const Precision precision(p);
        check_rows_alone<float>(n, k);
      }
    }
  }
}

TEST_CASE("two rows times a B with a value outside the range of bf16 have the bits of f32 kernels",
          "[core][exhaustive]") {
  const Precision high(Float32MatmulPrecision::high);
  const int before = num_threads();
  for (float x : {std::numeric_limits<float>::infinity(), std::nanf(""), 3.4e38f})
    for (size_t at : {size_t(0), size_t(599 * 1000 + 7)}) {
      const int64_t m = 2, n = 600, k = 1000, ldc = n + 3;
      const std::vector<float> a = mixed<float>(1, m * k), c = mixed<float>(3, m * ldc);
      std::vector<float> b = mixed<float>(2, n * k);
      b[at] = x;
      const auto by = [&](Isa isa, float beta) {
        const IsaCap cap(isa);
        std::vector<float> y = c;
        gemm_parallel<float>({m, n, k, 1, {a.data(), k}, {b.data(), k, true}, beta, y.data(), ldc});
        return y;
      };
      for (int threads : {1, 2, 4})
        for (float beta : {0.0f, 1.0f}) {
          set_num_threads(threads);
          const std::vector<float> plain = by(vectors_with_emulation(), beta),
                                   tiles = by(Isa::emulated, beta);
          CHECK(std::memcmp(plain.data(), tiles.data(), plain.size() * sizeof(float)) == 0);
        }
    }
  set_num_threads(before);
}

TEST_CASE("products of bf16 without hardware support are an error", "[core]") {
  const IsaCap cap(Isa::avx2);
  CHECK(!has_bf16_products());
  const BFloat16 x(1.0f);
  float c = 0;
  CHECK_THROWS_WITH(
      gemm(1, 1, 1, 1.0f, MatrixRef<BFloat16>{&x, 1}, {&x, 1}, 0.0f, &c, 1),
      Containing(str("[gemm] products of bf16 are not supported on ", cpu_description())));
}

}  // namespace stretto
