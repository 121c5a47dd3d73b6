#include "core/blas.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/parallel.h"

namespace stretto {
namespace {

enum { row_major = 101, no_transpose = 111, transpose = 112 };
using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int,
                       float, float*, int);
using Dgemm = void (*)(int, int, int, int, int, int, double, const double*, int, const double*, int,
                       double, double*, int);

struct Library {
  Sgemm sgemm = nullptr;
  Dgemm dgemm = nullptr;
  std::string description = "built-in";

  Library() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
      setenv("OPENBLAS_CORETYPE", "SkylakeX", 0);
#endif
    setenv("OPENBLAS_NUM_THREADS", "1", 1);
    void* handle = nullptr;
    for (const char* file : {"libopenblas.so.0", "libopenblas.so"})
      if (!handle) handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return;
    sgemm = reinterpret_cast<Sgemm>(dlsym(handle, "cblas_sgemm"));
    dgemm = reinterpret_cast<Dgemm>(dlsym(handle, "cblas_dgemm"));
    auto config = reinterpret_cast<char* (*)()>(dlsym(handle, "openblas_get_config"));
    auto core = reinterpret_cast<char* (*)()>(dlsym(handle, "openblas_get_corename"));
    if (!sgemm || !dgemm) {
      sgemm = nullptr;
      dgemm = nullptr;
      return;
    }
    if (auto set_threads =
            reinterpret_cast<void (*)(int)>(dlsym(handle, "openblas_set_num_threads")))
      set_threads(1);
    description = config ? config() : "OpenBLAS";
    description = description.substr(0, description.find(' ', description.find(' ') + 1));
    if (core) description += std::string(" ") + core();
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

// The stand-in without OpenBLAS: rows of C as sums of scaled rows of B.
template <class T>
void plain_gemm(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T* c,
                int64_t ldc) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t p = 0; p < k; ++p) {
      const T x = alpha * (a.transposed ? a.data[p * a.ld + i] : a.data[i * a.ld + p]);
      T* row = c + i * ldc;
      if (b.transposed) {
        for (int64_t j = 0; j < n; ++j) row[j] += x * b.data[j * b.ld + p];
      } else {
        const T* from = b.data + p * b.ld;
        for (int64_t j = 0; j < n; ++j) row[j] += x * from[j];
      }
    }
  }
}

template <class T>
void scale_rows(int64_t m, int64_t n, T beta, T* c, int64_t ldc) {
  if (beta == T(1)) return;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
}

template <class T, class Blas>
void run(Blas blas, int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b,
         T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return;
  if (k == 0 || !blas) {
    scale_rows(m, n, beta, c, ldc);
    if (k > 0) plain_gemm(m, n, k, alpha, a, b, c, ldc);
    return;
  }
  check(std::max({m, n, k, a.ld, b.ld, ldc}) <= INT32_MAX, "matmul", "a size or stride of [", m,
        ", ", k, "] @ [", k, ", ", n, "] is beyond the 2^31 - 1 that BLAS can count");
  blas(row_major, a.transposed ? transpose : no_transpose, b.transposed ? transpose : no_transpose,
       int(m), int(n), int(k), alpha, a.data, int(a.ld), b.data, int(b.ld), beta, c, int(ldc));
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc) {
  run(library().sgemm, m, n, k, alpha, a, b, beta, c, ldc);
}

void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc) {
  run(library().dgemm, m, n, k, alpha, a, b, beta, c, ldc);
}

namespace {

// A small C summed over a long k, as in the gradient of a weight: the terms are cut into `parts`
// sums of their own, which are then added in order.
template <class T>
void gemm_long_sum(int64_t m, int64_t n, int64_t k, int64_t parts, T alpha, MatrixRef<T> a,
                   MatrixRef<T> b, T beta, T* c, int64_t ldc) {
  std::vector<T> partial(size_t(parts * m * n));
  const int64_t each = (k + parts - 1) / parts;
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t first = p * each, count = std::max<int64_t>(0, std::min(each, k - first));
      gemm(m, n, count, alpha,
           MatrixRef<T>{a.data + first * (a.transposed ? a.ld : 1), a.ld, a.transposed},
           MatrixRef<T>{b.data + first * (b.transposed ? 1 : b.ld), b.ld, b.transposed}, T(0),
           partial.data() + p * m * n, n);
    }
  });
  parallel_for(m, std::max<int64_t>(1, 32768 / std::max<int64_t>(n, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t i = begin; i < end; ++i) {
                   T* row = c + i * ldc;
                   if (beta == T(0))
                     std::fill(row, row + n, T(0));
                   else if (beta != T(1))
                     std::transform(row, row + n, row, [&](T v) { return beta * v; });
                   for (int64_t p = 0; p < parts; ++p) {
                     const T* from = partial.data() + (p * m + i) * n;
                     for (int64_t j = 0; j < n; ++j) row[j] += from[j];
                   }
                 }
               });
}

}  // namespace

template <class T>
void gemm_parallel(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta,
                   T* c, int64_t ldc) {
  if (k >= 2048 && m * n <= 512 * 512) return gemm_long_sum(m, n, k, 8, alpha, a, b, beta, c, ldc);
  // Tiles along the longer side, at most 16 and none below 64 rows or columns.
  const bool by_rows = m >= n;
  const int64_t side = by_rows ? m : n;
  const int64_t work = std::max<int64_t>(1, 2 * std::min(m, n) * k);
  const int64_t least = std::max<int64_t>(64, 2'000'000 / work);
  const int64_t tile = (std::max(least, (side + 15) / 16) + 31) / 32 * 32;
  parallel_for(side, tile, [&](int64_t begin, int64_t end) {
    if (by_rows) {
      const T* rows = a.data + begin * (a.transposed ? 1 : a.ld);
      gemm(end - begin, n, k, alpha, MatrixRef<T>{rows, a.ld, a.transposed}, b, beta,
           c + begin * ldc, ldc);
    } else {
      const T* columns = b.data + begin * (b.transposed ? b.ld : 1);
      gemm(m, end - begin, k, alpha, a, MatrixRef<T>{columns, b.ld, b.transposed}, beta, c + begin,
           ldc);
    }
  });
}

template void gemm_parallel(int64_t, int64_t, int64_t, float, MatrixRef<float>, MatrixRef<float>,
                            float, float*, int64_t);
template void gemm_parallel(int64_t, int64_t, int64_t, double, MatrixRef<double>, MatrixRef<double>,
                            double, double*, int64_t);

const char* blas_description() { return library().description.c_str(); }

}  // namespace stretto
