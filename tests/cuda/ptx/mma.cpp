// mma.sync: products of matrices in the registers of a warp.
//
// A register of 32 lanes is 8 rows of 4 words: rows of A and of D's pairs of columns, columns of B.
// A word is two bf16 (m16n8k16, m16n8k8) or one tf32 (m16n8k8, m16n8k4). Four rows are one vector,
// and each step of the sum multiplies a word of each row by a word of each column.
//
// Sums are those of tensor cores, not of IEEE 754 (Fasi et al. 2021, arXiv:2403.00232, 2512.07004):
// C and all products are aligned to the largest of them with two bits more than f32 has; lower bits
// are truncated; the sum of these is exact, and is truncated to f32.
#include <utility>

#include "warp.h"

namespace interpreter {
namespace {

using Words = u32 __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(64)));
using Ints = s32 __attribute__((vector_size(64)));

struct Bf16 {
  static constexpr int values = 2;  // per word
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

/// Word t of each of four rows, repeated four times.
template <int t>
Words of_rows(Words a) {
  return __builtin_shufflevector(a, a, t, t, t, t, 4 + t, 4 + t, 4 + t, 4 + t, 8 + t, 8 + t, 8 + t,
                                 8 + t, 12 + t, 12 + t, 12 + t, 12 + t);
}
/// Word t of columns first, first + 2, + 4 and + 6, repeated four times.
template <int t, int first>
Words of_columns(Words low, Words high) {
  constexpr int a = 4 * first + t, b = a + 8, c = a + 16, d = a + 24;
  return __builtin_shufflevector(low, high, a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d);
}

/// The sum of several terms as tensor cores compute it.
template <size_t n>
Floats cut_sum(const Floats (&terms)[n]) {
  constexpr int extra = 2, fraction = 23 + extra;
  Words most = {};
  for (const Floats& x : terms) {
    const Words magnitude = Words(x) & 0x7fffffffu;
    most = magnitude > most ? magnitude : most;
  }
  Words exponent = most >> 23;
  const Ints out_of_range = exponent == 255;  // infinity or NaN: as in ordinary sums
  s32 any = 0;
  for (int l = 0; l < 16; ++l) any |= out_of_range[l];
  Floats plain = {};
  if (any) [[unlikely]]
    for (const Floats& x : terms) plain += x;
  exponent = exponent > fraction + 1 ? exponent : exponent * 0 + fraction + 1;
  const auto to_whole = Floats((127 + fraction + 127 - exponent) << 23);
  Ints sum = {};  // of 17 terms below 2^26
  for (const Floats& x : terms) sum += __builtin_convertvector(x * to_whole, Ints);
  const Words bits = Words(__builtin_convertvector(sum, Floats));
  const Ints back = __builtin_convertvector(Floats(bits), Ints);
  const Ints rounded_up = (back < 0 ? -back : back) > (sum < 0 ? -sum : sum);  // −1 or 0
  const Floats cut = Floats(bits + Words(rounded_up)) * Floats((exponent - fraction) << 23);
  return any ? (out_of_range ? plain : cut) : cut;
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
  constexpr int count = 4 * depth * Type::values;
  for (int half = 0; half < 2; ++half)
    for (int lane = 0; lane < 32; lane += 16) {
      Floats terms[2][count + 1];  // even and odd columns
      for (int k = 0; k < depth; ++k) {
        const auto rows = load<Words>(w.lane<u32>(i.list[a + half + 2 * k]) + lane);
        auto word = [&]<int t>(std::integral_constant<int, t>) {
          for (int n = 0; n < Type::values; ++n) {
            const auto x = Floats(Type::value(of_rows<t>(rows), n));
            for (int odd = 0; odd < 2; ++odd)
              terms[odd][(k * 4 + t) * Type::values + n] = x * columns[k][t][n][odd];
          }
        };
        [&]<int... t>(std::integer_sequence<int, t...>) {
          (word(std::integral_constant<int, t>()), ...);
        }
        (std::make_integer_sequence<int, 4>());
      }
      for (int odd = 0; odd < 2; ++odd) {
        terms[odd][count] = load<Floats>(w.lane<u32>(i.list[c + 2 * half + odd]) + lane);
        const Floats sum = cut_sum(terms[odd]);
        std::memcpy(w.lane<u32>(i.list[2 * half + odd]) + lane, &sum, sizeof sum);
      }
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

}  // namespace interpreter
