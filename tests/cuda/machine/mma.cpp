// mma.sync: products of matrices that lie in the registers of a warp.
//
// A register of 32 lanes is 8 rows of 4 words, of A and of D's pairs of columns by row, of B by
// column; a word is two bf16 (m16n8k16, m16n8k8) or a tf32 (m16n8k8, m16n8k4). So four rows are one
// vector, and a depth of the product is a word of each row times a word of each column.
#include <utility>

#include "warp.h"

namespace machine {
namespace {

using Words = u32 __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(64)));

struct Bf16 {
  static constexpr int values = 2;  // of a word
  static Words value(Words x, int n) { return n == 0 ? x << 16 : x & 0xffff0000u; }
};
struct Tf32 {
  static constexpr int values = 1;
  static Words value(Words x, int) { return x & 0xffffe000u; }  // the low 13 bits are not read
};

template <class V>
V load(const u32* from) {
  V v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

/// Word t of each of four rows, four times.
template <int t>
Words of_rows(Words a) {
  return __builtin_shufflevector(a, a, t, t, t, t, 4 + t, 4 + t, 4 + t, 4 + t, 8 + t, 8 + t, 8 + t,
                                 8 + t, 12 + t, 12 + t, 12 + t, 12 + t);
}
/// Word t of columns first, first + 2, + 4 and + 6, four times.
template <int t, int first>
Words of_columns(Words low, Words high) {
  constexpr int a = 4 * first + t, b = a + 8, c = a + 16, d = a + 24;
  return __builtin_shufflevector(low, high, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d);
}

/// i.list: the four registers of d, then 2 `depth` of a, `depth` of b, and c.
template <class Type, int depth>
void product(const Instruction& i, Warp& w, u32) {
  constexpr int a = 4, b = a + 2 * depth, c = b + depth;
  Floats columns[depth][4][Type::values][2];  // [register][word][value][even and odd columns]
  for (int k = 0; k < depth; ++k) {
    const u32* from = w.lane<u32>(i.list[b + k]);
    const auto low = load<Words>(from), high = load<Words>(from + 16);
    auto word = [&]<int t>(std::integral_constant<int, t>) {
      for (int n = 0; n < Type::values; ++n) {
        columns[k][t][n][0] = Floats(Type::value(of_columns<t, 0>(low, high), n));
        columns[k][t][n][1] = Floats(Type::value(of_columns<t, 1>(low, high), n));
      }
    };
    [&]<int... t>(std::integer_sequence<int, t...>) {
      (word(std::integral_constant<int, t>()), ...);
    }
    (std::make_integer_sequence<int, 4>());
  }
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 32; lane += 16) {
      Floats even = {}, odd = {};
      for (int k = 0; k < depth; ++k) {
        const auto rows = load<Words>(w.lane<u32>(i.list[a + half + 2 * k]) + lane);
        auto word = [&]<int t>(std::integral_constant<int, t>) {
          for (int n = 0; n < Type::values; ++n) {
            const auto x = Floats(Type::value(of_rows<t>(rows), n));
            even += x * columns[k][t][n][0];
            odd += x * columns[k][t][n][1];
          }
        };
        [&]<int... t>(std::integer_sequence<int, t...>) {
          (word(std::integral_constant<int, t>()), ...);
        }
        (std::make_integer_sequence<int, 4>());
      }
      auto add = [&](int n, Floats sum) {
        sum = load<Floats>(w.lane<u32>(i.list[c + 2 * half + n]) + lane) + sum;
        std::memcpy(w.lane<u32>(i.list[2 * half + n]) + lane, &sum, sizeof sum);
      };
      add(0, even);
      add(1, odd);
    }
}

}  // namespace

Handler matrix_product(const Statement& s) {
  if (s.operands.size() != 4 || !s.has("row") || !s.has("col")) return nullptr;
  const bool f32s = s.type(0) == Type{'f', 32} && s.type(3) == Type{'f', 32};
  if (!f32s || !(s.type(1) == s.type(2))) return nullptr;
  const char kind = s.type(1).kind;
  if (kind == 'h' && s.has("m16n8k16")) return product<Bf16, 2>;
  if (kind == 'h' && s.has("m16n8k8")) return product<Bf16, 1>;
  if (kind == 't' && s.has("m16n8k8")) return product<Tf32, 2>;
  if (kind == 't' && s.has("m16n8k4")) return product<Tf32, 1>;
  return nullptr;
}

}  // namespace machine
