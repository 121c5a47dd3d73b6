#include "core/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "core/cpu.h"
#include "core/gemm/blocks.h"
#include "core/gemm/kernels.h"
#include "core/gemm/packed.h"
#include "core/gemm/tiles.h"
#include "core/parallel.h"

namespace stretto {
namespace {

using namespace kernels;

constexpr int64_t block_rows = 224;  // of A, whose block stays in the second cache
constexpr int64_t least_rows = 65;   // for a B that is packed as a whole

thread_local Workspace of_a, of_panel, of_b;

template <class T>
struct Call {
  const Gemm<T>& kernel;
  T alpha, beta;
  T* c;
  int64_t ldc;
  const Epilogue<T>* epilogue = nullptr;
  int64_t first_column = 0;  // for the epilogue

  // One block of k and of rows. B is `packed`, in panels [k, columns], or null: then its panels are
  // read where they are or packed one by one, as each is used here once.
  void block(int64_t i, int64_t m, int64_t j, int64_t n, int64_t p, int64_t k, MatrixRef<T> a,
             MatrixRef<T> b, const T* packed) const {
    const int64_t columns = kernel.columns, step = part(m, kernel.rows, 1);
    const T keep = p == 0 ? beta : T(1);
    a = a.from(i, p);
    int64_t stride = a.ld, tile_stride = a.transposed ? step : step * a.ld;
    if (n > 2 * columns) {  // worth a copy whose rows do not meet in the cache
      stride = a.transposed ? kernel.rows : k;
      tile_stride = a.transposed ? k * stride : step * k;
      T* copy = of_a.reserve<T>(ceil_div(m, step) * kernel.rows * k);
      if (a.transposed)
        kernel.pack_a(a.data, a.ld, m, k, step, copy);
      else
        for (int64_t r = 0; r < m; ++r) std::copy_n(a.data + r * a.ld, k, copy + r * k);
      a.data = copy;
    }
    T* const own = packed ? nullptr : of_panel.reserve<T>(columns * k);
    for (int64_t at = 0; at < n; at += columns) {
      const int64_t here = std::min(columns, n - at);
      const T* panel = packed ? packed + at * k : own;
      int64_t ldb = columns;
      if (!packed && !b.transposed && here == columns && m <= 128) {
        panel = b.from(p, j + at).data;
        ldb = b.ld;
      } else if (!packed) {
        const MatrixRef<T> from = b.from(p, j + at);
        kernel.pack_b(from.data, from.ld, from.transposed, k, here, own);
      }
      kernel.panel(m, here, k, a.data, stride, a.transposed, step, tile_stride, panel, ldb, alpha,
                   keep, c + i * ldc + j + at, ldc);
    }
  }

  void serial(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b) const {
    if (m <= few_rows) return few(m, n, k, a, b);
    const int64_t kc = part(k, block_k, 4);
    if (m <= block_rows) {
      for (int64_t p = 0; p < k; p += kc) block(0, m, 0, n, p, std::min(kc, k - p), a, b, nullptr);
      return;
    }
    const int64_t nc = part(n, block_columns, kernel.columns),
                  mc = part(m, block_rows, kernel.rows);
    T* const packed = of_b.reserve<T>(round_up(nc, kernel.columns) * kc);
    for (int64_t j = 0; j < n; j += nc)
      for (int64_t p = 0; p < k; p += kc) {
        const int64_t columns = std::min(nc, n - j), depth = std::min(kc, k - p);
        pack(j, columns, p, depth, b, packed);
        for (int64_t i = 0; i < m; i += mc)
          block(i, std::min(mc, m - i), j, columns, p, depth, a, b, packed);
      }
  }

  template <class B>
  void few(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<B> b) const {
    const T* turned = a.data;
    if (a.transposed ? a.ld != m : m > 1) {
      T* const copy = of_a.reserve<T>(m * k);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t p = 0; p < k; ++p) copy[p * m + i] = *a.from(i, p).data;
      turned = copy;
    }
    const int64_t kc = part(k, block_k, 4);
    if constexpr (std::is_same_v<B, T>)
      kernel.few(m, n, k, kc, turned, b.data, b.ld, b.transposed, alpha, beta, c, ldc);
    else
      kernel.few_of_bf16(m, n, k, kc, turned, b.data, b.ld, b.transposed, alpha, beta, c, ldc);
  }

  void pack(int64_t j, int64_t n, int64_t p, int64_t k, MatrixRef<T> b, T* packed) const {
    for (int64_t at = 0; at < n; at += kernel.columns) {
      const MatrixRef<T> from = b.from(p, j + at);
      kernel.pack_b(from.data, from.ld, from.transposed, k, std::min(kernel.columns, n - at),
                    packed + at * k);
    }
  }

  // In turns: all panels of some blocks of k of B are packed, each once, then all blocks of C take
  // their terms from them.
  void parallel(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b) const {
    const int64_t kc = part(k, block_k, 4), width = round_up(n, kernel.columns);
    const int64_t blocks = ceil_div(k, kc);
    const int64_t turn =
        part(blocks, std::max<int64_t>(1, packed_bytes / (width * kc * int64_t(sizeof(T)))), 1);
    const Blocks c_blocks(num_threads() > 1, m, n, 128, 1, kernel.columns);
    const int64_t mc = c_blocks.rows, nc = c_blocks.columns, across = c_blocks.across();
    const int64_t panels = width / kernel.columns;
    T* const packed = of_b.reserve<T>(width * kc * turn);
    for (int64_t first = 0; first < blocks; first += turn) {
      const int64_t last = std::min(blocks, first + turn);
      parallel_for((last - first) * panels, 4, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          const int64_t p = (first + at / panels) * kc, j = at % panels * kernel.columns;
          pack(j, std::min(kernel.columns, n - j), p, std::min(kc, k - p), b,
               packed + (p - first * kc) * width + j * std::min(kc, k - p));
        }
      });
      parallel_for(c_blocks.count(), 1, [&](int64_t at, int64_t) {
        const int64_t i = at / across * mc, j = at % across * nc;
        for (int64_t p = first * kc; p < std::min(k, last * kc); p += kc) {
          const int64_t depth = std::min(kc, k - p);
          block(i, std::min(mc, m - i), j, std::min(nc, n - j), p, depth, a, b,
                packed + (p - first * kc) * width + j * depth);
        }
        if (epilogue && last == blocks)
          (*epilogue)(i, first_column + j, std::min(mc, m - i), std::min(nc, n - j),
                      c + i * ldc + j, ldc);
      });
    }
  }
};

template <class T>
const Gemm<T>& serving() {
#if defined(__x86_64__)
  if (vector_isa() == Isa::avx512) return kernels::gemm_avx512<T>();
  if (vector_isa() == Isa::avx2) return kernels::gemm_avx2<T>();
#endif
  return kernels::gemm_portable<T>();
}

constinit std::atomic<Float32MatmulPrecision> precision{Float32MatmulPrecision::highest};

// Products of bf16 that make one of f32; 0 where f32 kernels are as fast or the only ones. By n and
// k alone: a row alone must have the bits that it has in a batch.
int products_of_tiles(int64_t n, int64_t k) {
  const Float32MatmulPrecision wanted = float32_matmul_precision();
  if (n < 64 || k < 32) return 0;
  if (isa() >= Isa::amx)
    return wanted == Float32MatmulPrecision::highest ? 6
           : wanted == Float32MatmulPrecision::high  ? 3
                                                     : 1;
  return wanted == Float32MatmulPrecision::medium && has_bf16_vectors() ? 1 : 0;
}

bool by_tiles(bool threads, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a,
              MatrixRef<float> b, float beta, float* c, int64_t ldc,
              const Epilogue<float>* epilogue = nullptr) {
  const int products = products_of_tiles(n, k);
  return products && tiles_gemm(threads, products, m, n, k, alpha, a, b, beta, c, ldc, epilogue);
}
bool by_tiles(bool, int64_t, int64_t, int64_t, double, MatrixRef<double>, MatrixRef<double>, double,
              double*, int64_t, const Epilogue<double>* = nullptr) {
  return false;
}

// Whether anything is to be summed; C is scaled where not.
template <class T>
bool terms(int64_t m, int64_t n, int64_t k, T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return false;
  if (k > 0) return true;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
  return false;
}

// Columns for a thread at a time where B is only read: so much of it that its bytes, not the work,
// are the time.
template <class B>
int64_t columns_of_few(int64_t m, int64_t n, int64_t k, MatrixRef<B> b) {
  const int64_t enough = few_bytes * m / (k * int64_t(sizeof(B)));
  return std::max({n / 32, enough, b.transposed ? int64_t(1) : few_columns});
}

template <class T>
void run(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta, T* c,
         int64_t ldc) {
  if (!terms(m, n, k, beta, c, ldc)) return;
  if (by_tiles(false, m, n, k, alpha, a, b, beta, c, ldc)) return;
  Call<T>{serving<T>(), alpha, beta, c, ldc}.serial(m, n, k, a, b);
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc) {
  run(m, n, k, alpha, a, b, beta, c, ldc);
}

void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc) {
  run(m, n, k, alpha, a, b, beta, c, ldc);
}

template <class T>
void gemm_parallel(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta,
                   T* c, int64_t ldc, const Epilogue<T>* epilogue) {
  if (!terms(m, n, k, beta, c, ldc)) {
    if (epilogue && m > 0 && n > 0) (*epilogue)(0, 0, m, n, c, ldc);
    return;
  }
  if (by_tiles(true, m, n, k, alpha, a, b, beta, c, ldc, epilogue)) return;
  const Call<T> call{serving<T>(), alpha, beta, c, ldc};
  if (m >= least_rows) {
    for (int64_t j = 0; j < n; j += most_columns)
      Call<T>{call.kernel, alpha, beta, c + j, ldc, epilogue, j}.parallel(
          m, std::min(most_columns, n - j), k, a, b.from(0, j));
    return;
  }
  // Few rows: a panel of B is used once, wherever it is packed, so threads take columns.
  const int64_t least =
      m <= few_rows ? columns_of_few(m, n, k, b) : std::max<int64_t>(n / 32, 500'000 / (m * k) + 1);
  parallel_for(n, round_up(least, call.kernel.columns), [&](int64_t begin, int64_t end) {
    Call<T>{call.kernel, alpha, beta, c + begin, ldc}.serial(m, end - begin, k, a,
                                                             b.from(0, begin));
    if (epilogue) (*epilogue)(0, begin, m, end - begin, c + begin, ldc);
  });
}

template void gemm_parallel(int64_t, int64_t, int64_t, float, MatrixRef<float>, MatrixRef<float>,
                            float, float*, int64_t, const Epilogue<float>*);
template void gemm_parallel(int64_t, int64_t, int64_t, double, MatrixRef<double>, MatrixRef<double>,
                            double, double*, int64_t, const Epilogue<double>*);

bool gemm_widening(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a,
                   MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc) {
  if (m > few_rows || products_of_tiles(n, k)) return false;
  if (!terms(m, n, k, beta, c, ldc)) return true;
  const Gemm<float>& kernel = serving<float>();
  const int64_t grain = round_up(columns_of_few(m, n, k, b), kernel.columns);
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    Call<float>{kernel, alpha, beta, c + begin, ldc}.few(m, end - begin, k, a, b.from(0, begin));
  });
  return true;
}

void set_float32_matmul_precision(Float32MatmulPrecision wanted) { precision = wanted; }
Float32MatmulPrecision float32_matmul_precision() {
  return precision.load(std::memory_order_relaxed);
}

// ---------------------------------------------------------------------------- packed once

namespace {

// Products of tiles for as many columns and terms as need be.
template <class T>
int products_packed() {
  if constexpr (std::is_same_v<T, BFloat16>)
    return has_bf16_products() ? 1 : 0;
  else
    return std::is_same_v<T, float> && tile_kernels() ? products_of_tiles(block_k, block_k) : 0;
}

}  // namespace

template <class T>
int64_t PackedB<T>::bytes(int64_t k, int64_t n, bool transposed) {
  if (k == 0 || n == 0) return 0;
  if (const int products = products_packed<T>()) return packed_tiles_bytes(products, k, n);
  if constexpr (!std::is_same_v<T, BFloat16>)
    if (transposed && k <= block_k)
      return round_up(n, serving<T>().columns) * k * int64_t(sizeof(T));
  return 0;
}

template <class T>
void PackedB<T>::pack(int64_t k, int64_t n, MatrixRef<T> b, void* to) {
  b_ = b, k_ = k, n_ = n, packed_ = nullptr, products_ = products_packed<T>();
  if (!to || bytes(k, n, b.transposed) == 0) return;
  if constexpr (!std::is_same_v<T, double>)
    if (products_) {
      if (pack_tiles(products_, k, n, b, static_cast<uint16_t*>(to))) packed_ = to;
      return;
    }
  if constexpr (!std::is_same_v<T, BFloat16>)
    Call<T>{serving<T>(), 1, 0, nullptr, 0}.pack(0, n, 0, k, b, static_cast<T*>(to));
  packed_ = to;
}

template <class T>
void PackedB<T>::gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a,
                      int64_t p, int64_t j, compute_t<T> beta, compute_t<T>* c, int64_t ldc) const {
  const bool some = packed_ && m > 0 && n > 0 && k > 0;
  if constexpr (!std::is_same_v<T, double>)
    if (some && products_ && j % tile_block == 0 && p % tile_k == 0 &&
        (k % tile_k == 0 || p + k == k_)) {
      const uint16_t* const b = static_cast<const uint16_t*>(packed_);
      if (std::is_same_v<T, BFloat16> || products_of_tiles(n, k) == products_)
        if (packed_tiles_gemm(products_, m, n, k, alpha, a, k_, b, p, j, beta, c, ldc)) return;
    }
  if constexpr (!std::is_same_v<T, BFloat16>)
    if (const Gemm<T>& kernel = serving<T>();
        some && !products_ && j % kernel.columns == 0 && k == k_ && m <= block_rows)
      return Call<T>{kernel, alpha, beta, c, ldc}.block(0, m, 0, n, 0, k, a, b_,
                                                        static_cast<const T*>(packed_) + j * k);
  stretto::gemm(m, n, k, alpha, a, b_.from(p, j), beta, c, ldc);
}

template class PackedB<float>;
template class PackedB<double>;
template class PackedB<BFloat16>;

}  // namespace stretto
