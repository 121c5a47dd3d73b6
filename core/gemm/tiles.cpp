#include "core/gemm/tiles.h"

#include <atomic>
#include <cstring>

#include "core/cpu.h"
#include "core/gemm/blocks.h"
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

namespace {

thread_local Workspace tiles_of_a, tiles_of_b, sums;

template <class F>
void each(bool threads, int64_t n, int64_t grain, F&& f) {
  threads ? parallel_for(n, grain, f) : f(int64_t(0), n);
}

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
    for (int64_t i = 0; i < columns; ++i) {
      const uint32_t x = std::bit_cast<uint32_t>(from[i]);
      const uint32_t nearest = (x + 0x7fffu + (x >> 16 & 1u)) >> 16;
      to[i].bits = uint16_t((x & 0x7fffffffu) > 0x7f800000u ? x >> 16 | 0x40u : nearest);
    }
}

template <class T>
struct Call {
  const TileKernels& kernel;
  bool threads;
  int products;
  int64_t m, n, k;
  float alpha;
  MatrixRef<T> a, b;
  float beta;
  float* c;  // null where the result is bf16
  int64_t ldc;
  const BFloat16* bias;
  BFloat16* rounded;

  int terms() const { return products == 6 ? 3 : products == 3 ? 2 : 1; }
  Pack<T> pack() const {
    if constexpr (std::is_same_v<T, float>)
      return kernel.pack_f32;
    else
      return kernel.pack_bf16;
  }

  // In turns, as the f32 products (core/gemm/gemm.cpp); a result in bf16 takes one turn, so that
  // its f32 sums are those of one block of C.
  void run() const {
    if (k == 0) return without_terms();
    const int64_t most_k = products == 1 ? 2 * block_k : block_k;  // as many bytes as of f32
    const int64_t kc = part(round_up(k, tile_k), most_k, tile_k), blocks = ceil_div(k, kc);
    const int64_t width = round_up(n, tile_block), block_size = width * kc * terms();
    const int64_t at_once = std::max<int64_t>(1, packed_bytes / (block_size * 2));
    const int64_t turn = rounded ? blocks : part(blocks, at_once, 1), groups = width / tile_block;
    const Blocks c_blocks(threads && num_threads() > 1, m, n, 256, tile_block, tile_block);
    uint16_t* const packed = tiles_of_b.reserve<uint16_t>(block_size * turn);
    for (int64_t first = 0; first < blocks; first += turn) {
      const int64_t last = std::min(blocks, first + turn);
      each(threads, (last - first) * groups, 4, [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at)
          pack_b(at % groups * tile_block, (first + at / groups) * kc, kc,
                 packed + at * tile_block * kc * terms());
      });
      each(threads, c_blocks.count(), 1, [&](int64_t begin, int64_t end) {
        const Session session(kernel);
        for (int64_t at = begin; at < end; ++at)
          block(at / c_blocks.across() * c_blocks.rows, at % c_blocks.across() * c_blocks.columns,
                c_blocks, first * kc, std::min(k, last * kc), kc, packed);
      });
    }
  }

  void without_terms() const {
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j)
        if (rounded)
          rounded[i * ldc + j] = bias ? bias[j] : BFloat16();
        else
          c[i * ldc + j] = beta == 0 ? 0 : beta * c[i * ldc + j];
  }

  // 32 columns; those that are not there are zeros.
  void pack_b(int64_t j, int64_t p, int64_t kc, uint16_t* to) const {
    const MatrixRef<T> from = b.from(p, j);
    const int64_t depth = std::min(kc, k - p), columns = std::min(tile_block, n - j);
    const int64_t half = tile_side * round_up(depth, tile_k) * terms();
    pack()(from.data, from.ld, b.transposed, true, columns, depth, terms(), to);
    if (columns <= tile_side) std::memset(to + half, 0, size_t(half) * 2);
  }

  void block(int64_t i, int64_t j, const Blocks& blocks, int64_t begin, int64_t end, int64_t kc,
             const uint16_t* packed) const {
    const int64_t rows = std::min(blocks.rows, m - i), columns = std::min(blocks.columns, n - j);
    const int64_t width = round_up(n, tile_block);
    uint16_t* const left = tiles_of_a.reserve<uint16_t>(round_up(rows, tile_block) * kc * terms());
    float *to = c ? c + i * ldc + j : nullptr, keep = beta;
    int64_t ld = ldc;
    const bool at_once = rounded && end - begin <= kc;  // 32 × 32 by 32 × 32
    if (rounded) keep = bias ? 1.0f : 0.0f;
    if (rounded && !at_once) {
      to = sums.reserve<float>(rows * columns);
      ld = columns;
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
            add(tiles, upper, right, half, high, wide, p == 0 ? keep : 1.0f, to + x * ld + y, ld);
            continue;
          }
          alignas(64) float part[tile_block * tile_block];
          fill(tile_block, wide, j + y, part, tile_block);
          kernel.block(1, tiles, upper, half, right, half, part, tile_block, keep != 0, high);
          round_rows(part, tile_block, high, wide, rounded + (i + x) * ldc + j + y, ldc);
        }
    }
    if (rounded && !at_once) round_rows(to, ld, rows, columns, rounded + i * ldc + j, ldc);
  }

  void fill(int64_t rows, int64_t columns, int64_t j, float* to, int64_t ld) const {
    for (int64_t r = 0; bias && r < rows; ++r)
      for (int64_t q = 0; q < columns; ++q) to[r * ld + q] = float(bias[j + q]);
  }
  // 32 × 32 of C, or what there is of it. The sum goes on from C in the tiles where C is as it was
  // or nothing, whatever the block's place, so that an element's bits do not depend on that.
  void add(int64_t tiles, const uint16_t* left, const uint16_t* right, int64_t half, int64_t rows,
           int64_t columns, float keep, float* to, int64_t ld) const {
    const bool goes_on = alpha == 1 && (beta == 0 || beta == 1);
    const bool whole = goes_on && rows == tile_block && columns == tile_block;
    if (whole)
      return kernel.block(products, tiles, left, half, right, half, to, ld, keep != 0, rows);
    alignas(64) float part[tile_block * tile_block] = {};
    if (goes_on && keep != 0)
      for (int64_t r = 0; r < rows; ++r)
        std::memcpy(part + r * tile_block, to + r * ld, size_t(columns) * sizeof(float));
    kernel.block(products, tiles, left, half, right, half, part, tile_block, goes_on && keep != 0,
                 rows);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t q = 0; q < columns; ++q) {
        const float sum = part[r * tile_block + q];
        float& x = to[r * ld + q];
        x = goes_on ? sum : keep == 0 ? alpha * sum : keep * x + alpha * sum;
      }
  }
};

STRETTO_CLONES uint32_t largest_bits(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i)
    most = std::max(most, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return most;
}

// Whether bf16 has room for all of a [rows, columns] as stored.
bool fits(bool threads, const float* x, int64_t ld, int64_t rows, int64_t columns) {
  std::atomic<bool> all{true};
  each(threads, rows, rows_per_chunk(columns), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      if (largest_bits(x + i * ld, columns) >= 0x7f7f8000u) all = false;
  });
  return all;
}

}  // namespace

bool tiles_gemm(bool threads, int products, int64_t m, int64_t n, int64_t k, float alpha,
                MatrixRef<float> a, MatrixRef<float> b, float beta, float* c, int64_t ldc) {
  const TileKernels* const kernel = tile_kernels();
  if (!kernel || !fits(threads, a.data, a.ld, a.transposed ? k : m, a.transposed ? m : k) ||
      !fits(threads, b.data, b.ld, b.transposed ? n : k, b.transposed ? k : n))
    return false;
  for (int64_t j = 0; j < n; j += most_columns)
    Call<float>{*kernel,
                threads,
                products,
                m,
                std::min(most_columns, n - j),
                k,
                alpha,
                a,
                b.from(0, j),
                beta,
                c + j,
                ldc,
                nullptr,
                nullptr}
        .run();
  return true;
}

}  // namespace kernels

namespace {

void bf16_product(bool threads, int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<BFloat16> a,
                  MatrixRef<BFloat16> b, float beta, float* c, int64_t ldc, const BFloat16* bias,
                  BFloat16* rounded) {
  const kernels::TileKernels* kernel = kernels::tile_kernels();
  if (!kernel) fail("gemm", "no products of bf16 by ", cpu_description());
  if (m == 0) return;
  for (int64_t j = 0; j < n; j += kernels::most_columns)
    kernels::Call<BFloat16>{*kernel,
                            threads,
                            1,
                            m,
                            std::min(kernels::most_columns, n - j),
                            k,
                            alpha,
                            a,
                            b.from(0, j),
                            beta,
                            c ? c + j : nullptr,
                            ldc,
                            bias ? bias + j : nullptr,
                            rounded ? rounded + j : nullptr}
        .run();
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

}  // namespace stretto
