// The matrix product against sums of products in f64 [core/blas.h].
#include "core/blas.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/parallel.h"
#include "core/random.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

template <class T>
std::vector<T> noise(int64_t n, uint64_t stream) {
  std::vector<T> x(static_cast<size_t>(n));
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = T(2 * uniform_from_bits(random_bits({.seed = 9, .stream = stream}, i)) - 1);
  return x;
}

// x [rows, columns] with rows of `ld` elements, or its transpose stored so; gaps hold NaN.
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
  int64_t gap;  // leading dimensions are larger by this
};

// The number of wrong elements, with every element of C's gaps untouched. Allowed: k + 3 roundings
// of the sum of magnitudes (Higham §3.1), k more for the reference in f64.
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
      const double allowed = double(2 * k + 3) * u * scale;
      wrong += !(std::fabs(double(c[size_t(i * ldc + j)]) - expected) <= allowed);
    }
    for (int64_t j = n; j < ldc; ++j) wrong += c[size_t(i * ldc + j)] != sentinel;
  }
  return wrong;
}

template <class T>
void check_sizes_against_naive() {
  constexpr int64_t sizes[] = {0, 1, 2, 9, 31, 33, 127, 129};
  for (int64_t m : sizes)
    for (int64_t n : sizes)
      for (int64_t k : sizes) {
        const std::vector<T> a = noise<T>(m * k, 1), b = noise<T>(k * n, 2);
        const Product p = product(a, b, m, n, k);
        for (bool ta : {false, true})
          for (bool tb : {false, true})
            for (const auto& [alpha, beta, gap] :
                 {std::tuple{1.0, 0.0, 0}, {1.0, 1.0, 3}, {-1.5, 0.0, 5}, {0.5, -0.25, 0}}) {
              const int64_t wrong = wrong_elements(a, b, p, m, n, k, {ta, tb, alpha, beta, gap});
              if (wrong > 0)
                FAIL_CHECK(wrong << " wrong: [" << m << ", " << k << "]" << (ta ? "ᵀ" : "")
                                 << " · [" << k << ", " << n << "]" << (tb ? "ᵀ" : "") << ", alpha "
                                 << alpha << ", beta " << beta << ", gap " << gap);
            }
      }
}

}  // namespace

TEST_CASE("gemm in f32 agrees with a naive product", "[core]") {
  check_sizes_against_naive<float>();
  CHECK(std::string(blas_description()) != "");
}

TEST_CASE("gemm in f64 agrees with a naive product", "[core]") {
  check_sizes_against_naive<double>();
}

TEST_CASE("NaN and infinity pass through gemm", "[core]") {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {1, nan, 0, 2}, b = {3, 4, 0, 5};
  std::vector<float> c(4, 7);
  gemm(2, 2, 2, 1.0f, {a.data(), 2}, {b.data(), 2}, 0.0f, c.data(), 2);
  CHECK(std::isnan(c[0]));
  CHECK(std::isnan(c[1]));
  CHECK(c[2] == 0);
  CHECK(c[3] == 10);
}

TEMPLATE_TEST_CASE("gemm_parallel gives the same bits on any number of threads", "[core]", float,
                   double) {
  using T = TestType;
  const int before = num_threads();
  struct Size {
    int64_t m, n, k;
  };
  for (const Size& s :
       {Size{0, 5, 3}, Size{5, 7, 0}, Size{1, 1, 1}, Size{33, 127, 65}, Size{600, 70, 90},
        Size{70, 600, 90}, Size{1, 3000, 700}, Size{3000, 1, 700}, Size{257, 263, 251}}) {
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        INFO(s.m << " x " << s.n << " x " << s.k << ", transposed " << ta << tb);
        const std::vector<T> a = noise<T>(s.m * s.k, 1), b = noise<T>(s.k * s.n, 2);
        const int64_t lda = std::max<int64_t>(ta ? s.m : s.k, 1) + 2;
        const int64_t ldb = std::max<int64_t>(tb ? s.k : s.n, 1) + 1;
        const std::vector<T> ma = stored(a, s.m, s.k, lda, ta), mb = stored(b, s.k, s.n, ldb, tb);
        std::vector<std::vector<T>> results;
        for (int threads : {1, 2, 3}) {
          set_num_threads(threads);
          std::vector<T> c = noise<T>(s.m * s.n, 3);
          gemm_parallel<T>(s.m, s.n, s.k, T(1), {ma.data(), lda, ta}, {mb.data(), ldb, tb}, T(0.5),
                           c.data(), std::max<int64_t>(s.n, 1));
          results.push_back(c);
        }
        const size_t bytes = results[0].size() * sizeof(T);
        CHECK((bytes == 0 || std::memcmp(results[0].data(), results[1].data(), bytes) == 0));
        CHECK((bytes == 0 || std::memcmp(results[0].data(), results[2].data(), bytes) == 0));
        const Product p = product(a, b, s.m, s.n, s.k);
        const std::vector<T> c = noise<T>(s.m * s.n, 3);
        const double u = sizeof(T) == 4 ? 0x1p-24 : 0x1p-53;
        int64_t wrong = 0;
        for (size_t i = 0; i < c.size(); ++i) {
          const double old = 0.5 * double(c[i]);
          wrong += !(std::fabs(double(results[0][i]) - p.value[i] - old) <=
                     double(2 * s.k + 3) * u * (p.magnitude[i] + std::fabs(old)));
        }
        CHECK(wrong == 0);
      }
  }
  set_num_threads(before);
}

}  // namespace stretto
