#include "core/gemm/gemm.h"

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "core/cpu.h"
#include "core/gemm/blocks.h"
#include "core/gemm/kernels.h"
#include "core/gemm/packed.h"
#include "core/gemm/tiles.h"
#include "core/gemm/workspace.h"
#include "core/parallel.h"

namespace stretto {
namespace {

using namespace kernels;

constexpr int64_t block_rows = 224;  // rows of a block of A, which stays in L2
constexpr int64_t least_rows = 65;   // rows of A from which B is packed once for all blocks of C

constinit thread_local Workspace of_a, of_panel, of_b;

// The arguments of a product, and the ways to compute it.
template <class T>
struct GemmCall {
  const Gemm<T>& kernel;
  T alpha, beta;
  T* c;
  int64_t ldc;
  const Epilogue<T>* epilogue = nullptr;
  int64_t first_column = 0;  // for the epilogue

  // Adds one block of k to a block of C. B is `packed` in panels [k, columns]. If `packed` is null,
  // each panel is used only once: it is read unpacked, or packed just before.
  void block(int64_t i, int64_t m, int64_t j, int64_t n, int64_t p, int64_t k, MatrixRef<T> a,
             MatrixRef<T> b, const T* packed) const {
    const int64_t columns = kernel.columns, step = part(m, kernel.rows, 1);
    const T keep = p == 0 ? beta : T(1);
    a = a.from(i, p);
    int64_t stride = a.ld, tile_stride = a.transposed ? step : step * a.ld;
    if (n > 2 * columns) {  // copy A, to avoid cache conflicts between its rows
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
      const int64_t width = std::min(columns, n - at);
      const T* panel = packed ? packed + at * k : own;
      int64_t ldb = columns;
      if (!packed && !b.transposed && width == columns && m <= 128) {
        panel = b.from(p, j + at).data;
        ldb = b.ld;
      } else if (!packed) {
        const MatrixRef<T> from = b.from(p, j + at);
        kernel.pack_b(from.data, from.ld, from.transposed, k, width, own);
      }
      kernel.panel(m, width, k, a.data, stride, a.transposed, step, tile_stride, panel, ldb, alpha,
                   keep, c + i * ldc + j + at, ldc);
    }
  }

  // The product on the calling thread.
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

  // The product with m ≤ few_rows on the calling thread, with the transpose of A [k, m].
  template <class B>
  void few(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<B> b) const {
    const T* a_transposed = a.data;
    if (a.transposed ? a.ld != m : m > 1) {
      T* const copy = of_a.reserve<T>(m * k);
      for (int64_t i = 0; i < m; ++i)
        for (int64_t p = 0; p < k; ++p) copy[p * m + i] = *a.from(i, p).data;
      a_transposed = copy;
    }
    const int64_t kc = part(k, block_k, 4);
    if constexpr (std::is_same_v<B, T>)
      kernel.few(m, n, k, kc, a_transposed, b.data, b.ld, b.transposed, alpha, beta, c, ldc);
    else
      kernel.few_of_bf16(m, n, k, kc, a_transposed, b.data, b.ld, b.transposed, alpha, beta, c,
                         ldc);
  }

  // Packs rows p … p + k − 1 and columns j … j + n − 1 of B as panels.
  void pack(int64_t j, int64_t n, int64_t p, int64_t k, MatrixRef<T> b, T* packed) const {
    for (int64_t at = 0; at < n; at += kernel.columns) {
      const MatrixRef<T> from = b.from(p, j + at);
      kernel.pack_b(from.data, from.ld, from.transposed, k, std::min(kernel.columns, n - at),
                    packed + at * k);
    }
  }

  // The product on all threads. Alternates two phases: pack a run of k-blocks of B, each panel
  // once; then add the terms of these k-blocks to every block of C.
  void parallel(int64_t m, int64_t n, int64_t k, MatrixRef<T> a, MatrixRef<T> b) const {
    const int64_t kc = part(k, block_k, 4), width = round_up(n, kernel.columns);
    const int64_t blocks = ceil_div(k, kc);
    const int64_t chunk =
        part(blocks, std::max<int64_t>(1, packed_bytes / (width * kc * int64_t(sizeof(T)))), 1);
    const Blocks c_blocks(num_threads() > 1, m, n, 128, 1, kernel.columns);
    const int64_t mc = c_blocks.rows, nc = c_blocks.columns, across = c_blocks.across();
    const int64_t panels = width / kernel.columns;
    T* const packed = of_b.reserve<T>(width * kc * chunk);
    for (int64_t first = 0; first < blocks; first += chunk) {
      const int64_t last = std::min(blocks, first + chunk);
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

// The kernels for the widest vectors in use.
template <class T>
const Gemm<T>& kernels_in_use() {
#if defined(__x86_64__)
  if (vector_isa() == Isa::avx512) return kernels::gemm_avx512<T>();
  if (vector_isa() == Isa::avx2) return kernels::gemm_avx2<T>();
#endif
  return kernels::gemm_portable<T>();
}

constinit std::atomic<Float32MatmulPrecision> precision{Float32MatmulPrecision::highest};

// The number of bf16 products that compute an f32 product; 0 if f32 kernels are used instead.
// Depends on n and k only, not on m: a row must be bit-identical alone and in a batch.
int products_of_tiles(int64_t n, int64_t k) {
  const Float32MatmulPrecision chosen = float32_matmul_precision();
  if (n < 64 || k < 32) return 0;
  if (isa() >= Isa::amx)
    return chosen == Float32MatmulPrecision::highest ? 6
           : chosen == Float32MatmulPrecision::high  ? 3
                                                     : 1;
  return chosen == Float32MatmulPrecision::medium && has_bf16_vectors() ? 1 : 0;
}

// Computes an f32 product with bf16 products. Returns false, with C unchanged, if f32 kernels must
// compute the product.
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

// True if m, n or k is 0, so that there is nothing to sum; scales C by beta in that case.
template <class T>
bool nothing_to_sum(int64_t m, int64_t n, int64_t k, T beta, T* c, int64_t ldc) {
  if (m == 0 || n == 0) return true;
  if (k > 0) return false;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) c[i * ldc + j] = beta == T(0) ? T(0) : beta * c[i * ldc + j];
  return true;
}

template <class T>
void run(int64_t m, int64_t n, int64_t k, T alpha, MatrixRef<T> a, MatrixRef<T> b, T beta, T* c,
         int64_t ldc) {
  if (nothing_to_sum(m, n, k, beta, c, ldc)) return;
  if (by_tiles(false, m, n, k, alpha, a, b, beta, c, ldc)) return;
  GemmCall<T>{kernels_in_use<T>(), alpha, beta, c, ldc}.serial(m, n, k, a, b);
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
  if (nothing_to_sum(m, n, k, beta, c, ldc)) {
    if (epilogue && m > 0 && n > 0) (*epilogue)(0, 0, m, n, c, ldc);
    return;
  }
  if (by_tiles(true, m, n, k, alpha, a, b, beta, c, ldc, epilogue)) return;
  const GemmCall<T> call{kernels_in_use<T>(), alpha, beta, c, ldc};
  if (m >= least_rows) {
    for (int64_t j = 0; j < n; j += most_columns)
      GemmCall<T>{call.kernel, alpha, beta, c + j, ldc, epilogue, j}.parallel(
          m, std::min(most_columns, n - j), k, a, b.from(0, j));
    return;
  }
  // With fewer rows a panel of B is used only once. Each thread packs the panels of its columns.
  const int64_t grain =
      m <= few_rows
          ? chunk_columns(n, k * int64_t(sizeof(T)), b.transposed, call.kernel.columns)
          : round_up(std::max<int64_t>(n / 32, 500'000 / (m * k) + 1), call.kernel.columns);
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    GemmCall<T>{call.kernel, alpha, beta, c + begin, ldc}.serial(m, end - begin, k, a,
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
  if (nothing_to_sum(m, n, k, beta, c, ldc)) return true;
  const Gemm<float>& kernel = kernels_in_use<float>();
  const int64_t grain =
      chunk_columns(n, k * int64_t(sizeof(BFloat16)), b.transposed, kernel.columns);
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    GemmCall<float>{kernel, alpha, beta, c + begin, ldc}.few(m, end - begin, k, a,
                                                             b.from(0, begin));
  });
  return true;
}

void set_float32_matmul_precision(Float32MatmulPrecision value) { precision = value; }
Float32MatmulPrecision float32_matmul_precision() {
  return precision.load(std::memory_order_relaxed);
}

// ---------------------------------------------------------------------------- PackedB

namespace {

// products_of_tiles() for a product that is large enough for tiles.
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
      return round_up(n, kernels_in_use<T>().columns) * k * int64_t(sizeof(T));
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
    GemmCall<T>{kernels_in_use<T>(), 1, 0, nullptr, 0}.pack(0, n, 0, k, b, static_cast<T*>(to));
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
    if (const Gemm<T>& kernel = kernels_in_use<T>();
        some && !products_ && j % kernel.columns == 0 && k == k_ && m <= block_rows)
      return GemmCall<T>{kernel, alpha, beta, c, ldc}.block(0, m, 0, n, 0, k, a, b_,
                                                            static_cast<const T*>(packed_) + j * k);
  stretto::gemm(m, n, k, alpha, a, b_.from(p, j), beta, c, ldc);
}

template class PackedB<float>;
template class PackedB<double>;
template class PackedB<BFloat16>;

}  // namespace stretto
