#include "core/gemm/tiles.h"

#include <atomic>
#include <cstring>
#include <utility>

#include "core/cpu.h"
#include "core/gemm/blocks.h"
#include "core/gemm/prefetch.h"
#include "core/gemm/workspace.h"
#include "core/math.h"
#include "core/parallel.h"

namespace stretto {
namespace kernels {

const TileKernels* tile_kernels() {
  if (isa() == Isa::emulated) return &tiles_emulated();
#if defined(__x86_64__)
  if (isa() == Isa::amx) return &tiles_amx();
  if (has_bf16_vectors()) return &tiles_avx512();
#endif
  return nullptr;
}

template <class T>
const FewRows<T>* few_rows_of_tiles() {
#if defined(__x86_64__)
  if (has_bf16_vectors())
    return includes(isa(), Isa::amx) ? &few_rows_amx<T>() : &few_rows_avx512<T>();
#endif
  return nullptr;
}

namespace {

constinit thread_local Workspace tiles_of_a, tiles_of_b, sums, c_before;

// A scope between begin() and end() of a kernel.
class Session {
 public:
  explicit Session(const TileKernels& kernel) : kernel_(kernel) { kernel.begin(); }
  ~Session() { kernel_.end(); }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

 private:
  const TileKernels& kernel_;
};

STRETTO_CLONES void round_rows(const float* from, int64_t ld, int64_t rows, int64_t columns,
                               BFloat16* to, int64_t to_ld) {
  for (int64_t r = 0; r < rows; ++r, from += ld, to += to_ld)
    for (int64_t i = 0; i < columns; ++i) to[i] = BFloat16(from[i]);
}

STRETTO_CLONES uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return most;
}

// True if bf16 can represent all elements of x: none is NaN, infinite or too large.
template <class T>
bool fits(bool threads, MatrixRef<T> x, int64_t rows, int64_t columns) {
  std::atomic<bool> all{true};
  if constexpr (std::is_same_v<T, float>) {
    if (x.transposed) std::swap(rows, columns);
    each_range(threads, rows, rows_per_chunk(columns), [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        if (largest_bits(x.data + i * x.ld, columns) >= 0x7f7f8000u) all = false;
    });
  }
  return all;
}

// The size of a block of k.
int64_t depth_of(int products, int64_t k) {
  const int64_t most = products == 1 ? 2 * block_k : block_k;  // 512 bf16 have the bytes of 256 f32
  return part(round_up(k, tile_k), most, tile_k);
}

// Packs x [outer, k], which is A or the transpose of B, padded with zeros to a multiple of 32 rows.
template <class T>
Tiles pack(const TileKernels& kernel, const MatrixRef<T>& x, bool of_b, int64_t outer, int64_t k,
           int terms, uint16_t* to) {
  if constexpr (std::is_same_v<T, float>)
    kernel.pack_f32(x, of_b, outer, k, terms, to);
  else
    kernel.pack_bf16(x, of_b, outer, k, terms, to);
  const int64_t size = tiles_size(k, terms), groups = ceil_div(outer, tile_side);
  if (groups % 2) std::memset(to + groups * size, 0, size_t(size) * 2);
  return {to, size};
}

template <class T>
MatrixRef<T> transposed(MatrixRef<T> x) {
  return {x.data, x.ld, !x.transposed};
}

// Products from tiles with f32 sums, alpha and beta. If alpha is 1 and beta 0 or 1, the sums of
// tiles start from C instead of zero, in every block, so that an element does not depend on the
// position of its block.
struct TileSums {
  const TileKernels& kernel;
  int products;
  float alpha, beta;

  bool start_from_c() const { return alpha == 1 && (beta == 0 || beta == 1); }

  // Adds the terms of one block of k to a block [m, n] of C, which is multiplied by `factor` before.
  void add(int64_t m, int64_t n, int64_t k, Tiles a, Tiles b, float factor, float* c,
           int64_t ldc) const {
    for (int64_t j = 0; j < n; j += tile_block)
      for (int64_t i = 0; i < m; i += tile_block)
        add_block({products, ceil_div(k, tile_k), a.from(i), b.from(j), c + i * ldc + j, ldc,
                   start_from_c() && factor != 0, std::min(tile_block, m - i),
                   std::min(tile_block, n - j), pairs_of_last_tile(k)},
                  factor);
  }

  // The same for a block of at most 32 × 32.
  void add_block(TileProduct o, float factor) const {
    const int64_t columns = o.columns;
    const bool whole = columns == tile_block || (kernel.narrow && columns == tile_side);
    if (start_from_c() && o.rows == tile_block && whole) return kernel.multiply(o);
    alignas(64) float part[tile_block * tile_block] = {};
    float* const c = std::exchange(o.c, part);
    const int64_t ldc = std::exchange(o.ldc, tile_block);
    for (int64_t r = 0; o.add && r < o.rows; ++r)
      std::copy_n(c + r * ldc, columns, part + r * tile_block);
    kernel.multiply(o);
    if (!start_from_c()) return add_scaled(part, tile_block, o.rows, columns, factor, c, ldc);
    for (int64_t r = 0; r < o.rows; ++r) std::copy_n(part + r * tile_block, columns, c + r * ldc);
  }

  // C = alpha · part + factor · C
  void add_scaled(const float* part, int64_t part_ld, int64_t rows, int64_t columns, float factor,
                  float* c, int64_t ldc) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t q = 0; q < columns; ++q) {
        const float sum = part[r * part_ld + q];
        float& x = c[r * ldc + q];
        x = factor == 0 ? alpha * sum : factor * x + alpha * sum;
      }
  }
};

// The use of finished sums in addition to, or instead of, storing them in C.
struct Output {
  const BFloat16* bias = nullptr;  // a row to add, or null
  BFloat16* rounded = nullptr;     // C in bf16, or null
  const Epilogue<float>* epilogue = nullptr;
  int64_t first_column = 0;  // for the epilogue

  Output columns(int64_t j) const {
    return {bias ? bias + j : nullptr, rounded ? rounded + j : nullptr, epilogue, first_column + j};
  }
};

// A product by tiles, and the ways to compute it. If product.c is null, the sums are not stored in
// f32; ldc is the stride of output.rounded.
template <class T>
struct TileGemm {
  const TileKernels& kernel;
  bool threads;
  int products;
  MatrixProduct<T> product;
  Output output;

  // The rows of a packed block of A, which stays in L2, and the largest k of which it has all terms.
  static constexpr int64_t most_rows = 256, bytes_of_a = 512 << 10, most_depth = 2048;

  int terms() const { return terms_of(products); }
  TileSums tile_sums() const { return {kernel, products, product.alpha, product.beta}; }
  TileGemm columns(int64_t j, int64_t count) const {
    return {kernel, threads, products, product.columns(j, count), output.columns(j)};
  }

  // The product, in ranges of at most most_columns columns, not 0.
  void run() const {
    if (product.n <= most_columns) return run_columns();
    for (int64_t j = 0; j < product.n; j += most_columns)
      columns(j, std::min(most_columns, product.n - j)).run_columns();
  }

  // Alternates packing of B and products, as PanelGemm::parallel in core/gemm/gemm.cpp does. If C is
  // not stored, all of B is packed first, so that sums exist for only one block of C at a time. They
  // stay in registers over all of k if it is at most `most_depth`.
  void run_columns() const {
    const int64_t m = product.m, n = product.n, k = product.k;
    if (k == 0) return without_terms();
    const int64_t kc = !product.c && products == 1 ? part(round_up(k, tile_k), most_depth, tile_k)
                                                   : depth_of(products, k);
    const int64_t blocks = ceil_div(k, kc);
    const int64_t rows =
        std::clamp(bytes_of_a / (2 * kc) / tile_block * tile_block, tile_block, most_rows);
    const int64_t block_size = tiles_of_b_size(kc), groups = ceil_div(n, tile_block);
    const int64_t most = std::max<int64_t>(1, packed_bytes / (block_size * 2));
    const int64_t chunk = product.c ? part(blocks, most, 1) : blocks;
    const Blocks c_blocks(threads && num_threads() > 1, m, n, rows, tile_block, tile_block);
    uint16_t* const packed = tiles_of_b.reserve<uint16_t>(block_size * chunk);
    for (int64_t first = 0; first < blocks; first += chunk) {
      const int64_t last = std::min(blocks, first + chunk);
      each_range(threads, (last - first) * groups, 4, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          const int64_t next = std::min(at + 1, end - 1);
          prefetch_b(next % groups * tile_block, (first + next / groups) * kc, kc);
          pack_b(at % groups * tile_block, (first + at / groups) * kc, kc,
                 packed + at / groups * block_size);
        }
      });
      each_range(threads, c_blocks.count(), 1, [&](int64_t begin, int64_t end) {
        const Session session(kernel);
        for (int64_t at = begin; at < end; ++at) {
          const auto [of_m, of_n] = c_blocks.at(at);
          block(of_m, of_n, {first * kc, (last - first) * kc}, kc, packed);
        }
      });
    }
  }

  // The product for few rows. Returns false, with an unspecified C, if bf16 cannot represent B.
  bool run_few(const FewRows<T>& few) const {
    char* const rows = tiles_of_a.reserve<char>(few.bytes(products, product.m, product.k));
    few.pack(products, product.m, product.k, product.a, rows);
    std::atomic<bool> all{true};
    const int64_t grain = chunk_columns(product, tile_block);
    each_range(threads, product.n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; j += grain)
        if (!columns(j, std::min(grain, end - j)).run_few(few, rows)) all = false;
    });
    return all;
  }

  // The same on the calling thread, with packed rows of A.
  bool run_few(const FewRows<T>& few, const char* rows) const {
    MatrixProduct<T> o = product;
    const int64_t kc = depth_of(products, o.k);
    if (!fits(false, o.b, o.k, o.n)) return false;
    if (o.c && tile_sums().start_from_c()) {
      few.run(products, o, rows);
      return true;
    }
    o.c = sums.reserve<float>(o.m * o.n), o.ldc = o.n;
    if (!product.c) {
      o.beta = output.bias ? 1.0f : 0.0f;
      fill(o.m, {0, o.n}, o.c, o.ldc);
      few.run(products, o, rows);
      finish({0, o.m}, {0, o.n}, o.c, o.ldc);
      return true;
    }
    o.beta = 0;
    for (int64_t p = 0; p < product.k; p += kc) {
      o.k = std::min(kc, product.k - p), o.b = product.b.from(p, 0);
      char* const own = tiles_of_b.reserve<char>(few.bytes(products, o.m, o.k));
      few.pack(products, o.m, o.k, product.a.from(0, p), own);
      few.run(products, o, own);
      tile_sums().add_scaled(o.c, o.ldc, o.m, o.n, p == 0 ? product.beta : 1.0f, product.c,
                             product.ldc);
    }
    return true;
  }

  // The product with k = 0.
  void without_terms() const {
    const int64_t n = product.n;
    for (int64_t i = 0; i < product.m; ++i) {
      float* const row = product.c ? product.c + i * product.ldc : sums.reserve<float>(n);
      for (int64_t j = 0; j < n; ++j)
        row[j] = product.c && product.beta != 0 ? product.beta * row[j]
                 : output.bias                  ? float(output.bias[j])
                                                : 0.0f;
      finish({i, 1}, {0, n}, row, product.ldc);
    }
  }

  // Rounds the finished sums of a block, or passes them to the epilogue.
  void finish(Range rows, Range columns, float* done, int64_t ld) const {
    if (output.rounded)
      round_rows(done, ld, rows.size, columns.size,
                 output.rounded + rows.begin * product.ldc + columns.begin, product.ldc);
    if (output.epilogue)
      (*output.epilogue)(rows.begin, output.first_column + columns.begin, rows.size, columns.size,
                         done, ld);
  }

  // Prefetches 32 columns of a transposed B, which are far from each other.
  void prefetch_b(int64_t j, int64_t p, int64_t kc) const {
    const MatrixRef<T> b = product.b.from(p, j);
    if (b.transposed)
      Prefetch(b.data, std::min(tile_block, product.n - j), b.ld * int64_t(sizeof(T)),
               std::min(kc, product.k - p) * int64_t(sizeof(T)), 1)
          .step();
  }

  // The number of elements of the tiles of B with k terms.
  int64_t tiles_of_b_size(int64_t k) const {
    return round_up(product.n, tile_block) / tile_side * tiles_size(k, terms());
  }

  // Packs 32 columns of a block of k of B to their place in the tiles of the block.
  void pack_b(int64_t j, int64_t p, int64_t kc, uint16_t* tiles) const {
    const int64_t depth = std::min(kc, product.k - p);
    pack(kernel, transposed(product.b.from(p, j)), true, std::min(tile_block, product.n - j), depth,
         terms(), tiles + j / tile_side * tiles_size(depth, terms()));
  }

  // Adds terms, packed in blocks of kc, to one block of C.
  void block(Range rows, Range columns, Range of_k, int64_t kc, const uint16_t* packed) const {
    const int64_t k = product.k, end = std::min(k, of_k.begin + of_k.size);
    const bool each_alone = !product.c && end - of_k.begin <= kc;
    uint16_t* const tiles_of_rows =
        tiles_of_a.reserve<uint16_t>(round_up(rows.size, tile_block) * kc * terms());
    float *c = nullptr, beta = output.bias ? 1.0f : 0.0f;
    int64_t ld = product.ldc;
    if (product.c) {
      c = product.c + rows.begin * ld + columns.begin, beta = product.beta;
    } else if (!each_alone) {
      // Rows a power of two apart would compete for the same cache lines.
      ld = columns.size + tile_side;
      c = sums.reserve<float>(rows.size * ld);
      fill(rows.size, columns, c, ld);
    }
    for (int64_t p = of_k.begin; p < end; p += kc, packed += tiles_of_b_size(kc)) {
      const int64_t depth = std::min(kc, k - p);
      const Tiles a = pack(kernel, product.a.from(rows.begin, p), false, rows.size, depth, terms(),
                           tiles_of_rows);
      const Tiles b = Tiles{packed, tiles_size(depth, terms())}.from(columns.begin);
      if (each_alone) return finish_each(rows, columns, a, b);
      tile_sums().add(rows.size, columns.size, depth, a, b, p == 0 ? beta : 1.0f, c, ld);
    }
    if (end == k) finish(rows, columns, c, ld);
  }

  // Finishes each 32 × 32 block, with all of k, before the next one.
  void finish_each(Range rows, Range columns, Tiles a, Tiles b) const {
    for (int64_t j = 0; j < columns.size; j += tile_block)
      for (int64_t i = 0; i < rows.size; i += tile_block) {
        const Range high{rows.begin + i, std::min(tile_block, rows.size - i)};
        const Range wide{columns.begin + j, std::min(tile_block, columns.size - j)};
        alignas(64) float part[tile_block * tile_block];
        fill(tile_block, wide, part, tile_block);
        kernel.multiply({1, ceil_div(product.k, tile_k), a.from(i), b.from(j), part, tile_block,
                         output.bias != nullptr, high.size, wide.size,
                         pairs_of_last_tile(product.k)});
        finish(high, wide, part, tile_block);
      }
  }

  // Fills rows with the bias.
  void fill(int64_t rows, Range columns, float* to, int64_t ld) const {
    for (int64_t r = 0; output.bias && r < rows; ++r)
      for (int64_t q = 0; q < columns.size; ++q)
        to[r * ld + q] = float(output.bias[columns.begin + q]);
  }
};

}  // namespace

bool tiles_gemm(bool threads, int products, const MatrixProduct<float>& product,
                const Epilogue<float>* epilogue) {
  const TileKernels* const kernel = tile_kernels();
  const auto& [m, n, k, alpha, a, b, beta, c, ldc] = product;
  if (!kernel || !fits(threads, a, m, k)) return false;
  const TileGemm<float> call{*kernel, threads, products, product, {.epilogue = epilogue}};
  if (const auto* few = m <= most_few_rows(products) ? few_rows_of_tiles<float>() : nullptr) {
    // B is checked while it is read. Unless beta is 0, C is saved, so that it can be restored if
    // the check fails.
    const bool saved = beta != 0;
    float* const before = saved ? c_before.reserve<float>(m * n) : nullptr;
    for (int64_t i = 0; saved && i < m; ++i) std::copy_n(c + i * ldc, n, before + i * n);
    if (call.run_few(*few)) {
      if (epilogue) (*epilogue)(0, 0, m, n, c, ldc);
      return true;
    }
    for (int64_t i = 0; saved && i < m; ++i) std::copy_n(before + i * n, n, c + i * ldc);
    return false;
  }
  if (!fits(threads, b, k, n)) return false;
  call.run();
  return true;
}

}  // namespace kernels

namespace {

void bf16_product(bool threads, const MatrixProduct<BFloat16>& o,
                  const kernels::Output& output = {}) {
  const kernels::TileKernels* kernel = kernels::tile_kernels();
  if (!kernel)
    fail("gemm", "products of bf16 are not supported on ", cpu_description(),
         "; accepted: AVX-512 with bf16, AMX");
  if (o.m == 0 || o.n == 0) return;
  const kernels::TileGemm<BFloat16> call{*kernel, threads, 1, o, output};
  const bool is_few = o.m <= kernels::most_few_rows(1) && o.k > 0;
  if (const auto* few = is_few ? kernels::few_rows_of_tiles<BFloat16>() : nullptr)
    call.run_few(*few);
  else
    call.run();
}

}  // namespace

bool has_bf16_products() { return kernels::tile_kernels() != nullptr; }

void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
          MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc) {
  bf16_product(false, {m, n, k, alpha, a, b, beta, c, ldc});
}

void gemm(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
          const BFloat16* bias, BFloat16* c, int64_t ldc) {
  bf16_product(false, {m, n, k, 1, a, b, 0, nullptr, ldc}, {bias, c});
}

void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const BFloat16* bias, BFloat16* c, int64_t ldc) {
  bf16_product(true, {m, n, k, 1, a, b, 0, nullptr, ldc}, {bias, c});
}

void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const Epilogue<float>& epilogue) {
  bf16_product(true, {m, n, k, 1, a, b, 0, nullptr, n}, {.epilogue = &epilogue});
}

// ---------------------------------------------------------------------------- PackedB

namespace kernels {

int64_t packed_tiles_bytes(int products, int64_t k, int64_t n) {
  return round_up(n, tile_block) / tile_side * tiles_size(k, terms_of(products)) * 2;
}

template <class T>
bool pack_tiles(int products, int64_t k, int64_t n, MatrixRef<T> b, uint16_t* tiles) {
  if (!fits(false, b, k, n)) return false;
  pack(*tile_kernels(), transposed(b), true, n, k, terms_of(products), tiles);
  return true;
}

template <class T>
bool packed_tiles_gemm(int products, const MatrixProduct<T>& o, Tiles b) {
  if (!fits(false, o.a, o.m, o.k)) return false;
  const TileKernels& kernel = *tile_kernels();
  const int terms = terms_of(products);
  const int64_t kc = depth_of(products, o.k);
  uint16_t* const tiles = tiles_of_a.reserve<uint16_t>(round_up(o.m, tile_block) * kc * terms);
  const Session session(kernel);
  for (int64_t p = 0; p < o.k; p += kc) {
    const int64_t depth = std::min(kc, o.k - p);
    const Tiles a = pack(kernel, o.a.from(0, p), false, o.m, depth, terms, tiles);
    TileSums{kernel, products, o.alpha, o.beta}.add(o.m, o.n, depth, a,
                                                    {b.data + tiles_size(p, terms), b.stride},
                                                    p == 0 ? o.beta : 1.0f, o.c, o.ldc);
  }
  return true;
}

template bool pack_tiles(int, int64_t, int64_t, MatrixRef<float>, uint16_t*);
template bool pack_tiles(int, int64_t, int64_t, MatrixRef<BFloat16>, uint16_t*);
template bool packed_tiles_gemm(int, const MatrixProduct<float>&, Tiles);
template bool packed_tiles_gemm(int, const MatrixProduct<BFloat16>&, Tiles);

}  // namespace kernels
}  // namespace stretto
