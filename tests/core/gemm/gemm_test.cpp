// Matrix products with every instruction set of this processor [core/gemm/gemm.h], against sums of
// products in f64.
#include "core/gemm/gemm.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/cpu.h"
#include "core/digest.h"
#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/catch.h"
#include "tests/support/implementations.h"

namespace stretto {
namespace {

template <class T>
std::vector<T> noise(int64_t n, uint64_t stream) {
  std::vector<T> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = T(2 * uniform_from_bits(random_bits({.seed = 9, .stream = stream}, i)) - 1);
  return x;
}

// Skips unsupported instruction sets: their cap selects the best supported one instead.
std::vector<Isa> instruction_sets() {
  std::vector<Isa> supported;
  for (Isa isa : {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512, Isa::amx, Isa::emulated})
    if (const IsaCap cap(isa); stretto::isa() == isa) supported.push_back(isa);
  return supported;
}

// Stores x [rows, columns], or its transpose, with `ld` elements per row; the gaps are NaN.
template <class T>
std::vector<T> stored(const std::vector<T>& x, int64_t rows, int64_t columns, int64_t ld,
                      bool transposed) {
  std::vector<T> y(size_t((transposed ? columns : rows) * ld) + 1,
                   std::numeric_limits<T>::quiet_NaN());
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < columns; ++j)
      y[size_t(transposed ? j * ld + i : i * ld + j)] = x[size_t(i * columns + j)];
  return y;
}

struct Product {
  std::vector<double> value, magnitude;  // Σ a·b and Σ |a·b|
};
template <class T>
Product product(const std::vector<T>& a, const std::vector<T>& b, int64_t m, int64_t n, int64_t k) {
  Product p{std::vector<double>(size_t(m * n)), std::vector<double>(size_t(m * n))};
  for (int64_t i = 0; i < m; ++i)
    for (int64_t q = 0; q < k; ++q) {
      const double x = double(a[size_t(i * k + q)]);
      for (int64_t j = 0; j < n; ++j) {
        const double term = x * double(b[size_t(q * n + j)]);
        p.value[size_t(i * n + j)] += term;
        p.magnitude[size_t(i * n + j)] += std::fabs(term);
      }
    }
  return p;
}

struct Variant {
  bool a_transposed, b_transposed;
  double alpha, beta;
  int64_t gap;  // added to each leading dimension
};

// The number of roundings of an element, apart from those of the f64 reference: each product and
// each sum within a block of at most 256 terms, then each block, alpha and beta.
int64_t roundings(int64_t k) { return 2 * std::min<int64_t>(k, 256) + (k + 255) / 256 + 2; }

// Returns the number of wrong elements of C and of changed elements in its gaps. The allowed error
// is the number of roundings (see above) times the unit roundoff times the sum of magnitudes
// (Higham §3.1), plus the error of the f64 reference.
template <class T>
int64_t wrong_elements(const std::vector<T>& a, const std::vector<T>& b, const Product& p,
                       int64_t m, int64_t n, int64_t k, const Variant& v) {
  const int64_t lda = std::max<int64_t>(v.a_transposed ? m : k, 1) + v.gap;
  const int64_t ldb = std::max<int64_t>(v.b_transposed ? k : n, 1) + v.gap;
  const int64_t ldc = std::max<int64_t>(n, 1) + v.gap;
  const std::vector<T> ma = stored(a, m, k, lda, v.a_transposed);
  const std::vector<T> mb = stored(b, k, n, ldb, v.b_transposed);
  const T sentinel = T(-77);
  std::vector<T> before = noise<T>(m * n, 3);
  // beta = 0 must not read C.
  if (v.beta == 0) before.assign(before.size(), std::numeric_limits<T>::quiet_NaN());
  std::vector<T> c(size_t(m * ldc) + 1, sentinel);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[size_t(i * ldc + j)] = before[size_t(i * n + j)];

  gemm(m, n, k, T(v.alpha), {ma.data(), lda, v.a_transposed}, {mb.data(), ldb, v.b_transposed},
       T(v.beta), c.data(), ldc);

  const double u = std::is_same_v<T, float> ? 0x1p-24 : 0x1p-53;
  int64_t wrong = c.back() != sentinel;
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const auto at = size_t(i * n + j);
      const double old = v.beta == 0 ? 0 : double(T(v.beta)) * double(before[at]);
      const double expected = double(T(v.alpha)) * p.value[at] + old;
      const double scale = std::fabs(v.alpha) * p.magnitude[at] + std::fabs(old);
      const double allowed = (double(roundings(k)) * u + double(k + 2) * 0x1p-53) * scale;
      wrong += !(std::fabs(double(c[size_t(i * ldc + j)]) - expected) <= allowed);
    }
    for (int64_t j = n; j < ldc; ++j) wrong += c[size_t(i * ldc + j)] != sentinel;
  }
  return wrong;
}

template <class T>
void check_against_naive(int64_t m, int64_t n, int64_t k) {
  const std::vector<T> a = noise<T>(m * k, 1), b = noise<T>(k * n, 2);
  const Product p = product(a, b, m, n, k);
  for (bool ta : {false, true})
    for (bool tb : {false, true})
      for (const auto& [alpha, beta, gap] :
           {std::tuple{1.0, 0.0, 0}, {1.0, 1.0, 3}, {-1.5, 0.0, 5}, {0.5, -0.25, 0}}) {
        const int64_t wrong = wrong_elements(a, b, p, m, n, k, {ta, tb, alpha, beta, gap});
        if (wrong > 0)
          FAIL_CHECK(wrong << " wrong: [" << m << ", " << k << "]" << (ta ? "ᵀ" : "") << " · [" << k
                           << ", " << n << "]" << (tb ? "ᵀ" : "") << ", alpha " << alpha
                           << ", beta " << beta << ", gap " << gap << ", " << cpu_description());
      }
}

struct Size {
  int64_t m, n, k;
};

// C = A B + C / 2 by all threads, by one call, or row by row.
template <class T>
struct Operands {
  Operands(const Size& size, bool ta, bool tb)
      : s(size),
        a(noise<T>(s.m * s.k, 1)),
        b(noise<T>(s.k * s.n, 2)),
        lda(std::max<int64_t>(ta ? s.m : s.k, 1) + 2),
        ldb(std::max<int64_t>(tb ? s.k : s.n, 1) + 1),
        ma(stored(a, s.m, s.k, lda, ta)),
        mb(stored(b, s.k, s.n, ldb, tb)),
        left{ma.data(), lda, ta},
        right{mb.data(), ldb, tb} {}

  std::vector<T> parallel(int threads) const {
    set_num_threads(threads);
    std::vector<T> c = noise<T>(s.m * s.n, 3);
    gemm_parallel<T>({s.m, s.n, s.k, T(1), left, right, T(0.5), c.data(), ldc()});
    return c;
  }
  std::vector<T> rows(int64_t each) const {
    std::vector<T> c = noise<T>(s.m * s.n, 3);
    for (int64_t i = 0; i < s.m; i += each)
      gemm(std::min(each, s.m - i), s.n, s.k, T(1), left.from(i, 0), right, T(0.5),
           c.data() + i * s.n, ldc());
    return c;
  }
  int64_t ldc() const { return std::max<int64_t>(s.n, 1); }

  Size s;
  std::vector<T> a, b;
  int64_t lda, ldb;
  std::vector<T> ma, mb;
  MatrixRef<T> left, right;
};

// A copy that ends where the memory that may be read ends.
template <class T>
class BeforeGuard {
 public:
  explicit BeforeGuard(const std::vector<T>& x) {
    const size_t page = size_t(::sysconf(_SC_PAGE_SIZE)), bytes = x.size() * sizeof(T);
    const size_t readable = (bytes + page - 1) / page * page;
    size_ = readable + page;
    memory_ = static_cast<char*>(
        ::mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    REQUIRE(memory_ != MAP_FAILED);
    REQUIRE(::mprotect(memory_ + readable, page, PROT_NONE) == 0);
    at_ = reinterpret_cast<T*>(memory_ + readable - bytes);
    std::copy(x.begin(), x.end(), at_);
  }
  BeforeGuard(const BeforeGuard&) = delete;
  BeforeGuard& operator=(const BeforeGuard&) = delete;
  ~BeforeGuard() { ::munmap(memory_, size_); }
  T* data() { return at_; }

 private:
  size_t size_ = 0;
  char* memory_ = nullptr;
  T* at_ = nullptr;
};

template <class T>
bool same_bits(const std::vector<T>& x, const std::vector<T>& y) {
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(T)) == 0);
}

}  // namespace

TEMPLATE_TEST_CASE("gemm agrees with a naive product", "[core]", float, double) {
  const std::vector<int64_t> sizes = testing::emulator
                                         ? std::vector<int64_t>{0, 1, 9, 33, 129}
                                         : std::vector<int64_t>{0, 1, 2, 9, 31, 33, 127, 129};
  for (Isa isa : instruction_sets()) {
    const IsaCap cap(isa);
    for (int64_t m : sizes)
      for (int64_t n : sizes)
        for (int64_t k : sizes) check_against_naive<TestType>(m, n, k);
  }
}

TEMPLATE_TEST_CASE("gemm agrees with a naive product for matrices that are larger than its blocks",
                   "[core]", float, double) {
  for (Isa isa : instruction_sets()) {
    const IsaCap cap(isa);
    for (const auto& [m, n, k] :
         {Size{225, 40, 300}, Size{3, 1100, 5}, Size{461, 1057, 17}, Size{20, 33, 1031},
          Size{130, 97, 257}, Size{1, 1041, 523}, Size{3, 37, 1031}, Size{8, 530, 300}})
      check_against_naive<TestType>(m, n, k);
  }
}

TEMPLATE_TEST_CASE("gemm is bit-identical for any number of threads and of rows",
                   "[core][exhaustive]", float, double) {
  using T = TestType;
  const int before = num_threads();
  for (const Size& s :
       {Size{0, 5, 3}, Size{5, 7, 0}, Size{1, 1, 1}, Size{33, 127, 65}, Size{600, 70, 90},
        Size{70, 600, 90}, Size{1, 3000, 700}, Size{300, 1, 700}, Size{257, 263, 251},
        Size{100, 40, 3000}, Size{130, 2100, 270}, Size{8, 96, 512}, Size{12, 1100, 517}})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const Operands<T> o(s, ta, tb);
        const Product p = product(o.a, o.b, s.m, s.n, s.k);
        const std::vector<T> c = noise<T>(s.m * s.n, 3);
        for (Isa isa : instruction_sets()) {
          const IsaCap cap(isa);
          INFO(s.m << " x " << s.n << " x " << s.k << ", transposed " << ta << tb << ", "
                   << cpu_description());
          const bool large = s.m * s.n * s.k >= 20'000'000;
          const std::vector<T> one = o.parallel(1);
          for (int threads : {2, 3, 4})
            if (!large || threads == 3) CHECK(same_bits(one, o.parallel(threads)));
          CHECK(same_bits(one, o.rows(s.m + 1)));
          if (!large) CHECK(same_bits(one, o.rows(1)));
          CHECK(same_bits(one, o.rows(7)));
          const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
          int64_t wrong = 0;
          for (size_t i = 0; i < c.size(); ++i) {
            const double old = 0.5 * double(c[i]);
            wrong += !(std::fabs(double(one[i]) - p.value[i] - old) <=
                       (double(roundings(s.k)) * u + double(s.k + 2) * 0x1p-53) *
                           (p.magnitude[i] + std::fabs(old)));
          }
          CHECK(wrong == 0);
        }
      }
  set_num_threads(before);
}

// Compared across processors by a digest: none of them has all three.
TEMPLATE_TEST_CASE("NEON, AVX2 and AVX-512 give bit-identical products", "[core]", float, double) {
  for (Isa isa : {Isa::neon, Isa::avx2, Isa::avx512}) {
    const IsaCap cap(isa);
    if (stretto::isa() != isa) continue;
    Digest digest;
    for (const Size& s : {Size{45, 77, 600}, Size{5, 100, 31}}) {
      const std::vector<TestType> c = Operands<TestType>(s, false, true).rows(s.m);
      digest.add(c.data(), int64_t(c.size() * sizeof(TestType)));
    }
    CHECK(digest.text() == (sizeof(TestType) == 4 ? "429802f516c7d12f" : "ae6e3fbb4994a33f"));
  }
}

TEMPLATE_TEST_CASE("gemm reads and writes nothing beyond its operands", "[core]", float, double) {
  using T = TestType;
  for (const auto& [m, n, k] :
       {Size{1, 37, 19}, Size{3, 33, 8}, Size{9, 37, 19}, Size{20, 65, 33}, Size{130, 39, 7}}) {
    const std::vector<T> a = noise<T>(m * k, 1), b = noise<T>(k * n, 2);
    BeforeGuard<T> left(a), right(b);
    for (Isa isa : instruction_sets()) {
      const IsaCap cap(isa);
      for (bool ta : {false, true})
        for (bool tb : {false, true}) {
          std::vector<T> want = noise<T>(m * n, 3);
          BeforeGuard<T> c(want);
          const int64_t lda = ta ? m : k, ldb = tb ? k : n;
          gemm(m, n, k, T(1), {left.data(), lda, ta}, {right.data(), ldb, tb}, T(1), c.data(), n);
          gemm(m, n, k, T(1), {a.data(), lda, ta}, {b.data(), ldb, tb}, T(1), want.data(), n);
          CHECK(same_bits(want, std::vector<T>(c.data(), c.data() + m * n)));
        }
    }
  }
}

TEST_CASE("a bf16 B that is widened while it is read gives the bits of one widened beforehand",
          "[core]") {
  const int before = num_threads();
  for (Isa isa : {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512}) {
    const IsaCap cap(isa);
    for (const auto& [m, n, k] : {Size{1, 1, 1}, Size{1, 1041, 523}, Size{3, 37, 1031},
                                  Size{8, 530, 300}, Size{2, 5, 0}, Size{2, 0, 5}, Size{9, 70, 40}})
      for (bool ta : {false, true})
        for (bool tb : {false, true})
          for (float beta : {0.0f, 0.5f}) {
            const std::vector<float> a = noise<float>(m * k, 1);
            std::vector<BFloat16> b(size_t(k * n));
            for (size_t i = 0; i < b.size(); ++i) b[i] = BFloat16(float(i % 257) / 64 - 2);
            const std::vector<float> wide(b.begin(), b.end());
            const int64_t lda = std::max<int64_t>(ta ? m : k, 1),
                          ldb = std::max<int64_t>(tb ? k : n, 1), ldc = std::max<int64_t>(n, 1);
            std::vector<float> expected = noise<float>(m * n, 3), c = expected;
            const std::vector<float> untouched = c;
            const MatrixRef<float> left{a.data(), lda, ta};
            gemm_parallel<float>(
                {m, n, k, 1.5f, left, {wide.data(), ldb, tb}, beta, expected.data(), ldc});
            for (int threads : {1, 2, 4}) {
              set_num_threads(threads);
              c = untouched;
              const bool done =
                  gemm_widening({m, n, k, 1.5f, left, {b.data(), ldb, tb}, beta, c.data(), ldc});
              CHECK(done == (m <= 8));
              CHECK(same_bits(c, done ? expected : untouched));
            }
          }
  }
  set_num_threads(before);
}

TEST_CASE("NaN, infinity, zeros and subnormals pass through gemm", "[core]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float inf = std::numeric_limits<float>::infinity();
  const float tiny = std::numeric_limits<float>::denorm_min();
  for (Isa isa : instruction_sets()) {
    const IsaCap cap(isa);
    INFO(cpu_description());
    const std::vector<float> a = {1, nan, 0, 2}, b = {3, 4, 0, 5};
    std::vector<float> c(4, 7);
    gemm(2, 2, 2, 1.0f, {a.data(), 2}, {b.data(), 2}, 0.0f, c.data(), 2);
    CHECK(std::isnan(c[0]));
    CHECK(std::isnan(c[1]));
    CHECK(c[2] == 0);
    CHECK(c[3] == 10);
    // Whole tiles and edges; an infinity in A affects only its own row of C.
    for (int64_t n : {1, 40, 130}) {
      std::vector<float> x(size_t(n * n), 1), y(size_t(n * n), 1), z(size_t(n * n), nan);
      x[0] = inf;
      x[size_t(n * n - 1)] = n > 1 ? -inf : inf;
      gemm(n, n, n, 1.0f, {x.data(), n}, {y.data(), n}, 0.0f, z.data(), n);
      CHECK(z[0] == inf);
      CHECK(z[size_t(n * n - 1)] == (n > 1 ? -inf : inf));
      if (n > 2) CHECK(z[size_t(n + 1)] == float(n));
      std::fill(x.begin(), x.end(), -0.0f);
      gemm(n, n, n, 1.0f, {x.data(), n}, {y.data(), n}, 0.0f, z.data(), n);
      CHECK(z[0] == 0);
      std::fill(x.begin(), x.end(), 0.0f);
      for (int64_t i = 0; i < n; ++i) x[size_t(i * n + i)] = tiny;
      gemm(n, n, n, 1.0f, {x.data(), n}, {y.data(), n}, 0.0f, z.data(), n);
      CHECK(z[size_t(n * n - 1)] == tiny);
    }
  }
}

}  // namespace stretto
