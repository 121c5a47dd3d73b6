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

// A product by panels of B, and the ways to compute it.
template <class T>
struct PanelGemm {
  const Gemm<T>& kernel;
  MatrixProduct<T> product;
  const Epilogue<T>* epilogue = nullptr;
  int64_t first_column = 0;  // for the epilogue

  // Adds the terms of one block of k to a block of C. B is `packed` in panels [terms, columns]. If
  // `packed` is null, each panel is used only once: it is read unpacked, or packed just before.
  void block(Range rows, Range columns, Range terms, const T* packed) const {
    const int64_t k = terms.size;
    MatrixProduct<T> o = product.block(rows.begin, columns.begin, rows.size, 0);
    o.k = k, o.a = o.a.from(0, terms.begin);
    if (terms.begin > 0) o.beta = T(1);
    TileRows tiles{part(o.m, kernel.rows, 1), 0};
    tiles.stride = o.a.transposed ? tiles.rows : tiles.rows * o.a.ld;
    if (columns.size > 2 * kernel.columns) {  // copy A, to avoid cache conflicts between its rows
      T* const copy = of_a.reserve<T>(ceil_div(o.m, tiles.rows) * kernel.rows * k);
      if (o.a.transposed)
        kernel.pack_a(o.a, o.m, k, tiles.rows, copy);
      else
        for (int64_t r = 0; r < o.m; ++r) std::copy_n(o.a.data + r * o.a.ld, k, copy + r * k);
      o.a = {copy, o.a.transposed ? kernel.rows : k, o.a.transposed};
      tiles.stride = k * (o.a.transposed ? kernel.rows : tiles.rows);
    }
    T* const own = packed ? nullptr : of_panel.reserve<T>(kernel.columns * k);
    for (int64_t at = 0; at < columns.size; at += kernel.columns) {
      o.n = std::min(kernel.columns, columns.size - at);
      o.b = {packed ? packed + at * k : own, kernel.columns};
      if (!packed) {
        const MatrixRef<T> b = product.b.from(terms.begin, columns.begin + at);
        if (!b.transposed && o.n == kernel.columns && o.m <= 128)
          o.b = b;
        else
          kernel.pack_b(b, k, o.n, own);
      }
      kernel.panel(o, tiles);
      o.c += kernel.columns;
    }
  }

  // The product on the calling thread, with more than few_rows rows.
  void serial() const {
    const int64_t m = product.m, n = product.n, k = product.k;
    const int64_t kc = part(k, block_k, 4);
    if (m <= block_rows) {
      for (int64_t p = 0; p < k; p += kc) block({0, m}, {0, n}, {p, std::min(kc, k - p)}, nullptr);
      return;
    }
    const int64_t nc = part(n, block_columns, kernel.columns),
                  mc = part(m, block_rows, kernel.rows);
    T* const packed = of_b.reserve<T>(round_up(nc, kernel.columns) * kc);
    for (int64_t j = 0; j < n; j += nc)
      for (int64_t p = 0; p < k; p += kc) {
        const Range columns{j, std::min(nc, n - j)}, terms{p, std::min(kc, k - p)};
        pack(columns, terms, packed);
        for (int64_t i = 0; i < m; i += mc) block({i, std::min(mc, m - i)}, columns, terms, packed);
      }
  }

  // Packs a block of B as panels.
  void pack(Range columns, Range terms, T* packed) const {
    for (int64_t at = 0; at < columns.size; at += kernel.columns)
      kernel.pack_b(product.b.from(terms.begin, columns.begin + at), terms.size,
                    std::min(kernel.columns, columns.size - at), packed + at * terms.size);
  }

  // The product on all threads. Alternates two phases: pack a run of k-blocks of B, each panel
  // once; then add the terms of these k-blocks to every block of C.
  void parallel() const {
    const int64_t m = product.m, n = product.n, k = product.k;
    const int64_t kc = part(k, block_k, 4), width = round_up(n, kernel.columns);
    const int64_t blocks = ceil_div(k, kc);
    const int64_t chunk =
        part(blocks, std::max<int64_t>(1, packed_bytes / (width * kc * int64_t(sizeof(T)))), 1);
    const Blocks c_blocks(num_threads() > 1, m, n, 128, 1, kernel.columns);
    const int64_t panels = width / kernel.columns;
    T* const packed = of_b.reserve<T>(width * kc * chunk);
    for (int64_t first = 0; first < blocks; first += chunk) {
      const int64_t last = std::min(blocks, first + chunk);
      // The packed block of B of one block of k, from column j on.
      const auto packed_at = [&](Range terms, int64_t j) {
        return packed + (terms.begin - first * kc) * width + j * terms.size;
      };
      parallel_for((last - first) * panels, 4, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          const int64_t p = (first + at / panels) * kc, j = at % panels * kernel.columns;
          const Range terms{p, std::min(kc, k - p)};
          pack({j, std::min(kernel.columns, n - j)}, terms, packed_at(terms, j));
        }
      });
      parallel_for(c_blocks.count(), 1, [&](int64_t at, int64_t) {
        const auto [rows, columns] = c_blocks.at(at);
        for (int64_t p = first * kc; p < std::min(k, last * kc); p += kc) {
          const Range terms{p, std::min(kc, k - p)};
          block(rows, columns, terms, packed_at(terms, columns.begin));
        }
        if (epilogue && last == blocks) {
          T* const sums = product.c + rows.begin * product.ldc + columns.begin;
          (*epilogue)(rows.begin, first_column + columns.begin, rows.size, columns.size, sums,
                      product.ldc);
        }
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
#elif defined(__aarch64__)
  if (vector_isa() == Isa::neon) return kernels::gemm_neon<T>();
#endif
  return kernels::gemm_portable<T>();
}

constinit std::atomic<Float32MatmulPrecision> precision{Float32MatmulPrecision::highest};

// The number of bf16 products that compute an f32 product; 0 if f32 kernels are used instead.
// Depends on n and k only, not on m: a row must be bit-identical alone and in a batch.
int products_of_tiles(int64_t n, int64_t k) {
  const Float32MatmulPrecision chosen = float32_matmul_precision();
  if (chosen == Float32MatmulPrecision::highest || n < 64 || k < 32) return 0;
  if (includes(isa(), Isa::amx)) return chosen == Float32MatmulPrecision::high ? 3 : 1;
  return chosen == Float32MatmulPrecision::medium && has_bf16_vectors() ? 1 : 0;
}

// Computes an f32 product with bf16 products. Returns false, with C unchanged, if f32 kernels must
// compute the product.
bool by_tiles(bool threads, const MatrixProduct<float>& o, const Epilogue<float>* epilogue) {
  const int products = products_of_tiles(o.n, o.k);
  return products && tiles_gemm(threads, products, o, epilogue);
}
bool by_tiles(bool, const MatrixProduct<double>&, const Epilogue<double>*) { return false; }

// True if m, n or k is 0, so that there is nothing to sum; scales C by beta in that case.
template <class T, class B>
bool nothing_to_sum(const MatrixProduct<T, B>& o) {
  if (o.m == 0 || o.n == 0) return true;
  if (o.k > 0) return false;
  for (int64_t i = 0; i < o.m; ++i)
    for (int64_t j = 0; j < o.n; ++j) {
      T& c = o.c[i * o.ldc + j];
      c = o.beta == T(0) ? T(0) : o.beta * c;
    }
  return true;
}

// Computes a product with m ≤ few_rows, on the calling thread or in chunks of columns on all.
template <class T, class B>
void few_rows_gemm(bool threads, const MatrixProduct<T, B>& product,
                   const Epilogue<T>* epilogue = nullptr) {
  const Gemm<T>& kernel = kernels_in_use<T>();
  MatrixProduct<T, B> o = product;
  if (o.a.transposed ? o.a.ld != o.m : o.m > 1) {
    T* const transposed = of_a.reserve<T>(o.m * o.k);
    for (int64_t i = 0; i < o.m; ++i)
      for (int64_t p = 0; p < o.k; ++p)
        transposed[p * o.m + i] = *o.a.from(i, p).data;  // NOLINT: not null
    o.a.data = transposed;
  }
  o.a.ld = o.m, o.a.transposed = true;
  const int64_t kc = part(o.k, block_k, 4);
  each_range(threads, o.n, chunk_columns(o, kernel.columns), [&](int64_t begin, int64_t end) {
    const MatrixProduct<T, B> chunk = o.columns(begin, end - begin);
    if constexpr (std::is_same_v<B, T>)
      kernel.few(chunk, kc);
    else
      kernel.few_of_bf16(chunk, kc);
    if (epilogue) (*epilogue)(0, begin, chunk.m, chunk.n, chunk.c, chunk.ldc);
  });
}

template <class T>
void serial(const MatrixProduct<T>& product) {
  if (nothing_to_sum(product) || by_tiles(false, product, nullptr)) return;
  if (product.m <= few_rows) return few_rows_gemm(false, product);
  PanelGemm<T>{kernels_in_use<T>(), product}.serial();
}

}  // namespace

void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
          float beta, float* c, int64_t ldc) {
  serial<float>({m, n, k, alpha, a, b, beta, c, ldc});
}

void gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a, MatrixRef<double> b,
          double beta, double* c, int64_t ldc) {
  serial<double>({m, n, k, alpha, a, b, beta, c, ldc});
}

template <class T>
void gemm_parallel(const MatrixProduct<T>& product, const Epilogue<T>* epilogue) {
  const int64_t m = product.m, n = product.n;
  if (nothing_to_sum(product)) {
    if (epilogue && m > 0 && n > 0) (*epilogue)(0, 0, m, n, product.c, product.ldc);
    return;
  }
  if (by_tiles(true, product, epilogue)) return;
  if (m <= few_rows) return few_rows_gemm(true, product, epilogue);
  const Gemm<T>& kernel = kernels_in_use<T>();
  if (m >= least_rows) {
    for (int64_t j = 0; j < n; j += most_columns)
      PanelGemm<T>{kernel, product.columns(j, std::min(most_columns, n - j)), epilogue, j}
          .parallel();
    return;
  }
  // With fewer rows a panel of B is used only once. Each thread packs the panels of its columns.
  const int64_t grain =
      round_up(std::max<int64_t>(n / 32, 500'000 / (m * product.k) + 1), kernel.columns);
  parallel_for(n, grain, [&](int64_t begin, int64_t end) {
    const MatrixProduct<T> chunk = product.columns(begin, end - begin);
    PanelGemm<T>{kernel, chunk}.serial();
    if (epilogue) (*epilogue)(0, begin, m, chunk.n, chunk.c, chunk.ldc);
  });
}

template void gemm_parallel(const MatrixProduct<float>&, const Epilogue<float>*);
template void gemm_parallel(const MatrixProduct<double>&, const Epilogue<double>*);

bool gemm_widening(const MatrixProduct<float, BFloat16>& product) {
  if (product.m > few_rows || products_of_tiles(product.n, product.k)) return false;
  if (!nothing_to_sum(product)) few_rows_gemm(true, product);
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
  b_ = b, k_ = k, row_ = column_ = 0, packed_ = nullptr, products_ = products_packed<T>();
  if (!to || bytes(k, n, b.transposed) == 0) return;
  if constexpr (!std::is_same_v<T, double>)
    if (products_) {
      if (pack_tiles(products_, k, n, b, static_cast<uint16_t*>(to))) packed_ = to;
      return;
    }
  if constexpr (!std::is_same_v<T, BFloat16>)
    PanelGemm<T>{kernels_in_use<T>(), {.b = b}}.pack({0, n}, {0, k}, static_cast<T*>(to));
  packed_ = to;
}

template <class T>
void PackedB<T>::gemm(int64_t m, int64_t n, int64_t k, compute_t<T> alpha, MatrixRef<T> a,
                      compute_t<T> beta, compute_t<T>* c, int64_t ldc) const {
  const MatrixProduct<T> product{m, n, k, alpha, a, b_.from(row_, column_), beta, c, ldc};
  const bool some = packed_ && m > 0 && n > 0 && k > 0;
  if constexpr (!std::is_same_v<T, double>)
    if (some && products_ && column_ % tile_block == 0 && row_ % tile_k == 0 &&
        (k % tile_k == 0 || row_ + k == k_))
      if (std::is_same_v<T, BFloat16> || products_of_tiles(n, k) == products_) {
        const int terms = terms_of(products_);
        const Tiles all{static_cast<const uint16_t*>(packed_), tiles_size(k_, terms)};
        const Tiles part = all.from(column_);
        if (packed_tiles_gemm(products_, product,
                              {part.data + tiles_size(row_, terms), part.stride}))
          return;
      }
  if constexpr (!std::is_same_v<T, BFloat16>)
    if (const Gemm<T>& kernel = kernels_in_use<T>();
        some && !products_ && column_ % kernel.columns == 0 && k == k_ && m <= block_rows)
      return PanelGemm<T>{kernel, product}.block({0, m}, {0, n}, {0, k},
                                                 static_cast<const T*>(packed_) + column_ * k);
  stretto::gemm(m, n, k, alpha, a, product.b, beta, c, ldc);
}

template class PackedB<float>;
template class PackedB<double>;
template class PackedB<BFloat16>;

}  // namespace stretto
