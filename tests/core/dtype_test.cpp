// Element types, and bfloat16 above all [core/dtype.h].
#include "core/dtype.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/catch.h"

namespace stretto {
namespace {

BFloat16 from_bits(uint16_t bits) {
  BFloat16 x;
  x.bits = bits;
  return x;
}

float f32_from(uint32_t bits) { return std::bit_cast<float>(bits); }

}  // namespace

TEST_CASE("all bf16 patterns survive the way through f32", "[core]") {
  int wrong = 0, nans = 0;
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const float wide = float(from_bits(uint16_t(bits)));
    const uint16_t back = BFloat16(wide).bits;
    if (std::isnan(wide)) {
      ++nans;
      wrong += !std::isnan(float(from_bits(back)));
      wrong += (back & 0x8000u) != (bits & 0x8000u);
    } else {
      wrong += back != bits;
    }
  }
  CHECK(wrong == 0);
  CHECK(nans == 2 * 127);
}

TEST_CASE("bf16 rounds to nearest, ties to even", "[core]") {
  // Every pattern of the upper half with each interesting lower half.
  int wrong = 0;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    const bool finite = (upper & 0x7F80u) != 0x7F80u;
    if (!finite) continue;
    const auto rounded = [&](uint32_t lower) {
      return BFloat16(f32_from(upper << 16 | lower)).bits;
    };
    wrong += rounded(0x0000) != upper;
    wrong += rounded(0x0001) != upper;
    wrong += rounded(0x7FFF) != upper;
    wrong += rounded(0x8000) != upper + (upper & 1);  // a tie: to the even neighbour
    wrong += rounded(0x8001) != upper + 1;
    wrong += rounded(0xFFFF) != upper + 1;
  }
  CHECK(wrong == 0);
  CHECK(BFloat16(1.0f).bits == 0x3F80);
  CHECK(BFloat16(-2.0).bits == 0xC000);
  CHECK(BFloat16(7).bits == 0x40E0);
  CHECK(float(BFloat16(257)) == 256);
  CHECK(float(BFloat16(int64_t(-259))) == -260);
  CHECK(BFloat16().bits == 0);
}

TEST_CASE("bf16 keeps infinities and NaN, and overflows to infinity", "[core]") {
  const float inf = std::numeric_limits<float>::infinity();
  CHECK(float(BFloat16(inf)) == inf);
  CHECK(float(BFloat16(-inf)) == -inf);
  CHECK(float(BFloat16(std::numeric_limits<float>::max())) == inf);
  CHECK(float(BFloat16(3.389e38f)) == 0x1.FEp127f);
  CHECK(float(BFloat16(1e300)) == inf);
  CHECK(std::isnan(float(BFloat16(std::numeric_limits<float>::quiet_NaN()))));
  // NaNs whose payload is in the lower half only must not become infinity.
  for (uint32_t bits : {0x7F800001u, 0xFF800001u, 0x7F80FFFFu, 0x7FFFFFFFu, 0xFFFFFFFFu})
    CHECK(std::isnan(float(BFloat16(f32_from(bits)))));
  CHECK(BFloat16(-0.0f).bits == 0x8000);
}

TEST_CASE("dtypes have names, sizes and C++ types", "[core]") {
  struct Row {
    DType dtype;
    const char* name;
    int64_t size;
    bool floating, index, mask;
  };
  for (const Row& r :
       {Row{f32, "f32", 4, true, false, false}, Row{f64, "f64", 8, true, false, false},
        Row{bf16, "bf16", 2, true, false, false}, Row{i64, "i64", 8, false, true, false},
        Row{i32, "i32", 4, false, true, false}, Row{u8, "u8", 1, false, false, true},
        Row{boolean, "bool", 1, false, false, true}}) {
    INFO(r.name);
    CHECK(std::string(name(r.dtype)) == r.name);
    CHECK(str(r.dtype) == r.name);
    CHECK(item_size(r.dtype) == r.size);
    CHECK(is_floating(r.dtype) == r.floating);
    CHECK(is_index(r.dtype) == r.index);
    CHECK(is_mask(r.dtype) == r.mask);
    dispatch(r.dtype, [&](auto tag) {
      using T = typename decltype(tag)::type;
      CHECK(dtype_of<T>() == r.dtype);
      CHECK(int64_t(sizeof(T)) == r.size);
    });
  }
  static_assert(std::is_same_v<compute_t<BFloat16>, float>);
  static_assert(std::is_same_v<compute_t<double>, double>);
}

TEST_CASE("dispatch refuses what an op does not take", "[core]") {
  const auto nothing = [](auto) {};
  for (DType t : {f32, f64, bf16}) {
    CHECK_NOTHROW(dispatch_floating(t, "op", nothing));
    CHECK_THROWS_WITH(dispatch_index(t, "op", nothing),
                      str("[op] indices are ", t, "; accepted: i64, i32"));
  }
  for (DType t : {i64, i32, u8, boolean})
    CHECK_THROWS_WITH(dispatch_floating(t, "op", nothing),
                      str("[op] got ", t, "; accepted: f32, f64, bf16"));
  for (DType t : {i64, i32}) CHECK_NOTHROW(dispatch_index(t, "op", nothing));
  for (DType t : {u8, boolean}) CHECK_THROWS_AS(dispatch_index(t, "op", nothing), Error);
}

}  // namespace stretto
