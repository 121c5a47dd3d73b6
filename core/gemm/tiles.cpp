#include "core/gemm/tiles.h"

#include <atomic>
#include <cstring>

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
  if (has_bf16_vectors()) return isa() >= Isa::amx ? &few_rows_amx<T>() : &few_rows_avx512<T>();
#endif
  return nullptr;
}

namespace {

constinit thread_local Workspace tiles_of_a, tiles_of_b, sums, c_before;

template <class F>
void each(bool threads, int64_t n, int64_t grain, F&& f) {
  threads ? parallel_for(n, grain, f) : f(int64_t(0), n);
}

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

// True if bf16 can represent all elements of x [rows, columns]: none is NaN, infinite or too large.
bool fits(bool threads, const float* x, int64_t ld, int64_t rows, int64_t columns) {
  std::atomic<bool> all{true};
  each(threads, rows, rows_per_chunk(columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (largest_bits(x + i * ld, columns) >= 0x7f7f8000u) all = false;
  });
  return all;
}

// The number of bf16 terms of an operand.
int terms_of(int products) { return products == 6 ? 3 : products == 3 ? 2 : 1; }

// The size of a block of k.
int64_t depth_of(int products, int64_t k) {
  const int64_t most = products == 1 ? 2 * block_k : block_k;  // 512 bf16 have the bytes of 256 f32
  return part(round_up(k, tile_k), most, tile_k);
}

template <class T>
Pack<T> pack_of(const TileKernels& kernel) {
  if constexpr (std::is_same_v<T, float>)
    return kernel.pack_f32;
  else
    return kernel.pack_bf16;
}

// C = alpha · A · B + keep · C for a block of C of at most 32 × 32, from tiles. If alpha is 1 and
// beta 0 or 1, the tiles start from C instead of zero, in every block, so that an element does not
// depend on the position of its block.
struct Adding {
  const TileKernels& kernel;
  int products;
  float alpha, beta;

  bool starts_from_c() const { return alpha == 1 && (beta == 0 || beta == 1); }

  void operator()(int64_t tiles, const uint16_t* left, int64_t left_half, const uint16_t* right,
                  int64_t right_half, int64_t rows, int64_t columns, float keep, float* to,
                  int64_t ld) const {
    const bool add = starts_from_c() && keep != 0;
    if (starts_from_c() && rows == tile_block && columns == tile_block)
      return kernel.block(products, tiles, left, left_half, right, right_half, to, ld, add, rows);
    alignas(64) float part[tile_block * tile_block] = {};
    for (int64_t r = 0; add && r < rows; ++r)
      std::copy_n(to + r * ld, columns, part + r * tile_block);
    kernel.block(products, tiles, left, left_half, right, right_half, part, tile_block, add, rows);
    if (!starts_from_c()) return scale_and_add(part, tile_block, rows, columns, keep, to, ld);
    for (int64_t r = 0; r < rows; ++r) std::copy_n(part + r * tile_block, columns, to + r * ld);
  }

  void scale_and_add(const float* part, int64_t part_ld, int64_t rows, int64_t columns, float keep,
                     float* to, int64_t ld) const {
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t q = 0; q < columns; ++q) {
        const float sum = part[r * part_ld + q];
        float& x = to[r * ld + q];
        x = keep == 0 ? alpha * sum : keep * x + alpha * sum;
      }
  }
};

// The arguments of a product, and the ways to compute it.
template <class T>
struct TileGemm {
  const TileKernels& kernel;
  bool threads;
  int products;
  int64_t m, n, k;
  float alpha;
  MatrixRef<T> a, b;
  float beta;
  float* c;  // null: the sums are not stored in f32, but go to `rounded` or `epilogue`
  int64_t ldc;
  const BFloat16* bias = nullptr;
  BFloat16* rounded = nullptr;
  const Epilogue<float>* epilogue = nullptr;
  int64_t first_column = 0;  // for the epilogue

  // The rows of a packed block of A, which stays in L2, and the largest k of which it has all terms.
  static constexpr int64_t most_rows = 256, bytes_of_a = 512 << 10, most_depth = 2048;

  int terms() const { return terms_of(products); }
  Pack<T> pack() const { return pack_of<T>(kernel); }

  // Alternates packing of B and products, as GemmCall::parallel in core/gemm/gemm.cpp does. If c is
  // null, all of B is packed first, so that sums exist for only one block of C at a time. They stay
  // in registers over all of k if it is at most `most_depth`.
  void run() const {
    if (k == 0) return without_terms();
    const int64_t kc =
        !c && products == 1 ? part(round_up(k, tile_k), most_depth, tile_k) : depth_of_blocks();
    const int64_t blocks = ceil_div(k, kc);
    const int64_t rows =
        std::clamp(bytes_of_a / (2 * kc) / tile_block * tile_block, tile_block, most_rows);
    const int64_t width = round_up(n, tile_block), block_size = width * kc * terms();
    const int64_t groups = width / tile_block;
    const int64_t most = std::max<int64_t>(1, packed_bytes / (block_size * 2));
    const int64_t chunk = c ? part(blocks, most, 1) : blocks;
    const Blocks c_blocks(threads && num_threads() > 1, m, n, rows, tile_block, tile_block);
    uint16_t* const packed = tiles_of_b.reserve<uint16_t>(block_size * chunk);
    for (int64_t first = 0; first < blocks; first += chunk) {
      const int64_t last = std::min(blocks, first + chunk);
      each(threads, (last - first) * groups, 4, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          const int64_t next = std::min(at + 1, end - 1);
          prefetch_b(next % groups * tile_block, (first + next / groups) * kc, kc);
          pack_b(at % groups * tile_block, (first + at / groups) * kc, kc,
                 packed + at * tile_block * kc * terms());
        }
      });
      each(threads, c_blocks.count(), 1, [&](int64_t begin, int64_t end) {
        const Session session(kernel);
        for (int64_t at = begin; at < end; ++at) {
          const int64_t i = at / c_blocks.across() * c_blocks.rows,
                        j = at % c_blocks.across() * c_blocks.columns;
          block(i, j, c_blocks, first * kc, std::min(k, last * kc), kc, packed);
          if (c && last == blocks)
            finish(i, j, std::min(c_blocks.rows, m - i), std::min(c_blocks.columns, n - j),
                   c + i * ldc + j, ldc);
        }
      });
    }
  }

  int64_t depth_of_blocks() const { return depth_of(products, k); }

  // The product for few rows. Returns false, with an unspecified C, if bf16 cannot represent B.
  bool run_few(const FewRows<T>& few) const {
    char* const rows = tiles_of_a.reserve<char>(few.size(products, m, k));
    few.pack(products, m, k, a, rows);
    std::atomic<bool> all{true};
    const int64_t grain = chunk_columns(n, k * int64_t(sizeof(T)), b.transposed, tile_block);
    each(threads, n, grain, [&](int64_t begin, int64_t end) {
      for (int64_t j = begin; j < end; j += grain)
        if (!columns_of_few(few, rows, j, std::min(grain, end - j))) all = false;
    });
    return all;
  }

  bool columns_of_few(const FewRows<T>& few, const char* rows, int64_t j, int64_t columns) const {
    const MatrixRef<T> from = b.from(0, j);
    const int64_t kc = depth_of_blocks();
    if constexpr (std::is_same_v<T, float>)
      if (!fits(false, from.data, b.ld, b.transposed ? columns : k, b.transposed ? k : columns))
        return false;
    if (c && adding().starts_from_c()) {
      few.run(products, m, columns, k, kc, rows, from.data, b.ld, b.transposed, c + j, ldc,
              beta != 0);
      return true;
    }
    float* const part = sums.reserve<float>(m * columns);
    if (!c) {
      fill(m, columns, j, part, columns);
      few.run(products, m, columns, k, kc, rows, from.data, b.ld, b.transposed, part, columns,
              bias != nullptr);
      finish(0, j, m, columns, part, columns);
      return true;
    }
    for (int64_t p = 0; p < k; p += kc) {
      const int64_t depth = std::min(kc, k - p);
      char* const own = tiles_of_b.reserve<char>(few.size(products, m, depth));
      few.pack(products, m, depth, a.from(0, p), own);
      few.run(products, m, columns, depth, kc, own, b.from(p, j).data, b.ld, b.transposed, part,
              columns, false);
      adding().scale_and_add(part, columns, m, columns, p == 0 ? beta : 1.0f, c + j, ldc);
    }
    return true;
  }

  Adding adding() const { return {kernel, products, alpha, beta}; }

  // The product with k = 0.
  void without_terms() const {
    for (int64_t i = 0; i < m; ++i) {
      float* const row = c ? c + i * ldc : sums.reserve<float>(n);
      for (int64_t j = 0; j < n; ++j)
        row[j] = c && beta != 0 ? beta * row[j] : bias ? float(bias[j]) : 0.0f;
      finish(i, 0, 1, n, row, ldc);
    }
  }

  // Rounds the finished sums of a block, or passes them to the epilogue.
  void finish(int64_t i, int64_t j, int64_t rows, int64_t columns, float* done, int64_t ld) const {
    if (rounded) round_rows(done, ld, rows, columns, rounded + i * ldc + j, ldc);
    if (epilogue) (*epilogue)(i, first_column + j, rows, columns, done, ld);
  }

  // Prefetches 32 columns of a transposed B, which are far from each other.
  void prefetch_b(int64_t j, int64_t p, int64_t kc) const {
    if (b.transposed)
      Prefetch(b.from(p, j).data, std::min(tile_block, n - j), b.ld * int64_t(sizeof(T)),
               std::min(kc, k - p) * int64_t(sizeof(T)), 1)
          .step();
  }

  // Packs 32 columns of B, padded with zeros.
  void pack_b(int64_t j, int64_t p, int64_t kc, uint16_t* to) const {
    const MatrixRef<T> from = b.from(p, j);
    const int64_t depth = std::min(kc, k - p), columns = std::min(tile_block, n - j);
    const int64_t half = tile_side * round_up(depth, tile_k) * terms();
    pack()(from.data, from.ld, b.transposed, true, columns, depth, terms(), to);
    if (columns <= tile_side) std::memset(to + half, 0, size_t(half) * 2);
  }

  // Adds the terms begin … end − 1 to one block of C.
  void block(int64_t i, int64_t j, const Blocks& blocks, int64_t begin, int64_t end, int64_t kc,
             const uint16_t* packed) const {
    const int64_t rows = std::min(blocks.rows, m - i), columns = std::min(blocks.columns, n - j);
    const int64_t width = round_up(n, tile_block);
    uint16_t* const left = tiles_of_a.reserve<uint16_t>(round_up(rows, tile_block) * kc * terms());
    float *to = c ? c + i * ldc + j : nullptr, keep = beta;
    int64_t ld = ldc;
    const bool at_once = !c && end - begin <= kc;  // finish each 32 × 32 block before the next one
    if (!c) keep = bias ? 1.0f : 0.0f;
    if (!c && !at_once) {
      ld = columns + tile_side;  // rows a power of two apart would compete for the same cache lines
      to = sums.reserve<float>(rows * ld);
      fill(rows, columns, j, to, ld);
    }
    for (int64_t p = begin; p < end; p += kc) {
      const int64_t depth = std::min(kc, k - p), tiles = ceil_div(depth, tile_k);
      const int64_t half = tile_size * tiles * terms();
      const MatrixRef<T> from = a.from(i, p);
      pack()(from.data, from.ld, !a.transposed, false, rows, depth, terms(), left);
      if (ceil_div(rows, tile_side) % 2)
        std::memset(left + ceil_div(rows, tile_side) * half, 0, size_t(half) * 2);
      const uint16_t* right = packed + (p - begin) * width * terms() + j * kc * terms();
      for (int64_t y = 0; y < columns; y += tile_block, right += tile_block * kc * terms())
        for (int64_t x = 0; x < rows; x += tile_block) {
          const int64_t high = std::min(tile_block, rows - x),
                        wide = std::min(tile_block, columns - y);
          const uint16_t* const upper = left + x / tile_side * half;
          if (!at_once) {
            adding()(tiles, upper, half, right, half, high, wide, p == 0 ? keep : 1.0f,
                     to + x * ld + y, ld);
            continue;
          }
          alignas(64) float part[tile_block * tile_block];
          fill(tile_block, wide, j + y, part, tile_block);
          kernel.block(1, tiles, upper, half, right, half, part, tile_block, keep != 0, high);
          finish(i + x, j + y, high, wide, part, tile_block);
        }
    }
    if (!c && !at_once) finish(i, j, rows, columns, to, ld);
  }

  // Fills rows with the bias.
  void fill(int64_t rows, int64_t columns, int64_t j, float* to, int64_t ld) const {
    for (int64_t r = 0; bias && r < rows; ++r)
      for (int64_t q = 0; q < columns; ++q) to[r * ld + q] = float(bias[j + q]);
  }
};

}  // namespace

bool tiles_gemm(bool threads, int products, int64_t m, int64_t n, int64_t k, float alpha,
                MatrixRef<float> a, MatrixRef<float> b, float beta, float* c, int64_t ldc,
                const Epilogue<float>* epilogue) {
  const TileKernels* const kernel = tile_kernels();
  if (!kernel || !fits(threads, a.data, a.ld, a.transposed ? k : m, a.transposed ? m : k))
    return false;
  const auto call = [&](int64_t j, int64_t columns) {
    return TileGemm<float>{*kernel,      threads, products, m,   columns, k,       alpha,    a,
                           b.from(0, j), beta,    c + j,    ldc, nullptr, nullptr, epilogue, j};
  };
  if (const auto* few = m <= most_few_rows(products) ? few_rows_of_tiles<float>() : nullptr) {
    // B is checked while it is read. Unless beta is 0, C is saved, so that it can be restored if
    // the check fails.
    const bool saved = beta != 0;
    float* const before = saved ? c_before.reserve<float>(m * n) : nullptr;
    for (int64_t i = 0; saved && i < m; ++i) std::copy_n(c + i * ldc, n, before + i * n);
    if (call(0, n).run_few(*few)) {
      if (epilogue) (*epilogue)(0, 0, m, n, c, ldc);
      return true;
    }
    for (int64_t i = 0; saved && i < m; ++i) std::copy_n(before + i * n, n, c + i * ldc);
    return false;
  }
  if (!fits(threads, b.data, b.ld, b.transposed ? n : k, b.transposed ? k : n)) return false;
  for (int64_t j = 0; j < n; j += most_columns) call(j, std::min(most_columns, n - j)).run();
  return true;
}

}  // namespace kernels

namespace {

void bf16_product(bool threads, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
                  MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc, const BFloat16* bias,
                  BFloat16* rounded, const Epilogue<float>* epilogue = nullptr) {
  const kernels::TileKernels* kernel = kernels::tile_kernels();
  if (!kernel)
    fail("gemm", "products of bf16 are not supported on ", cpu_description(),
         "; accepted: AVX-512 with bf16, AMX");
  if (m == 0) return;
  const auto call = [&](int64_t j, int64_t columns) {
    return kernels::TileGemm<BFloat16>{*kernel,
                                       threads,
                                       1,
                                       m,
                                       columns,
                                       k,
                                       alpha,
                                       a,
                                       b.from(0, j),
                                       beta,
                                       c ? c + j : nullptr,
                                       ldc,
                                       bias ? bias + j : nullptr,
                                       rounded ? rounded + j : nullptr,
                                       epilogue,
                                       j};
  };
  const auto* few = m <= kernels::most_few_rows(1) && k > 0 && n > 0
                        ? kernels::few_rows_of_tiles<BFloat16>()
                        : nullptr;
  if (few) {
    call(0, n).run_few(*few);
    return;
  }
  for (int64_t j = 0; j < n; j += kernels::most_columns)
    call(j, std::min(kernels::most_columns, n - j)).run();
}

}  // namespace

bool has_bf16_products() { return kernels::tile_kernels() != nullptr; }

void gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
          MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc) {
  bf16_product(false, m, n, k, alpha, a, b, beta, c, ldc, nullptr, nullptr);
}

void gemm(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
          const BFloat16* bias, BFloat16* c, int64_t ldc) {
  bf16_product(false, m, n, k, 1, a, b, 0, nullptr, ldc, bias, c);
}

void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const BFloat16* bias, BFloat16* c, int64_t ldc) {
  bf16_product(true, m, n, k, 1, a, b, 0, nullptr, ldc, bias, c);
}

void gemm_parallel(int64_t m, int64_t n, int64_t k, MatrixRef<BFloat16> a, MatrixRef<BFloat16> b,
                   const Epilogue<float>& epilogue) {
  bf16_product(true, m, n, k, 1, a, b, 0, nullptr, n, nullptr, nullptr, &epilogue);
}

// ---------------------------------------------------------------------------- PackedB

namespace kernels {
namespace {

// The number of packed elements of 16 rows of A or columns of B, over all of k.
int64_t tiles_across(int64_t k, int terms) { return tile_size * ceil_div(k, tile_k) * terms; }

// True if bf16 can represent all elements of x.
template <class T>
bool is_representable(MatrixRef<T> x, int64_t rows, int64_t columns) {
  if (x.transposed) std::swap(rows, columns);
  if constexpr (std::is_same_v<T, float>)
    return fits(false, x.data, x.ld, rows, columns);
  else
    return true;
}

}  // namespace

int64_t packed_tiles_bytes(int products, int64_t k, int64_t n) {
  return round_up(n, tile_block) / tile_side * tiles_across(k, terms_of(products)) * 2;
}

template <class T>
bool pack_tiles(int products, int64_t k, int64_t n, MatrixRef<T> b, uint16_t* tiles) {
  if (!is_representable(b, k, n)) return false;
  const int terms = terms_of(products);
  const int64_t groups = ceil_div(n, tile_side), size = tiles_across(k, terms);
  pack_of<T> (*tile_kernels())(b.data, b.ld, b.transposed, true, n, k, terms, tiles);
  if (groups % 2) std::memset(tiles + groups * size, 0, size_t(size) * 2);
  return true;
}

template <class T>
bool packed_tiles_gemm(int products, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<T> a,
                       int64_t k_of_b, const uint16_t* tiles, int64_t p, int64_t j, float beta,
                       float* c, int64_t ldc) {
  if (!is_representable(a, m, k)) return false;
  const TileKernels& kernel = *tile_kernels();
  const int terms = terms_of(products);
  const int64_t kc = depth_of(products, k), across = tiles_across(k_of_b, terms);
  const Adding adding{kernel, products, alpha, beta};
  uint16_t* const left = tiles_of_a.reserve<uint16_t>(round_up(m, tile_block) * kc * terms);
  const Session session(kernel);
  for (int64_t q = 0; q < k; q += kc) {
    const int64_t depth = std::min(kc, k - q), half = tiles_across(depth, terms);
    const int64_t groups = ceil_div(m, tile_side);
    const MatrixRef<T> from = a.from(0, q);
    pack_of<T>(kernel)(from.data, from.ld, !a.transposed, false, m, depth, terms, left);
    if (groups % 2) std::memset(left + groups * half, 0, size_t(half) * 2);
    const uint16_t* const right = tiles + tiles_across(p + q, terms);
    const float keep = q == 0 ? beta : 1.0f;
    for (int64_t y = 0; y < n; y += tile_block)
      for (int64_t x = 0; x < m; x += tile_block) {
        const int64_t high = std::min(tile_block, m - x), wide = std::min(tile_block, n - y);
        adding(ceil_div(depth, tile_k), left + x / tile_side * half, half,
               right + (j + y) / tile_side * across, across, high, wide, keep, c + x * ldc + y,
               ldc);
      }
  }
  return true;
}

template bool pack_tiles(int, int64_t, int64_t, MatrixRef<float>, uint16_t*);
template bool pack_tiles(int, int64_t, int64_t, MatrixRef<BFloat16>, uint16_t*);
template bool packed_tiles_gemm(int, int64_t, int64_t, int64_t, float, MatrixRef<float>, int64_t,
                                const uint16_t*, int64_t, int64_t, float, float*, int64_t);
template bool packed_tiles_gemm(int, int64_t, int64_t, int64_t, float, MatrixRef<BFloat16>, int64_t,
                                const uint16_t*, int64_t, int64_t, float, float*, int64_t);

}  // namespace kernels
}  // namespace stretto
