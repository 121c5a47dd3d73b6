// Element types, in particular bfloat16 [core/dtype.h].
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

TEST_CASE("all bf16 patterns survive the conversion to f32 and back", "[core]") {
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
  // Every upper half of an f32, each with the lower halves next to the rounding boundaries.
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
    wrong += rounded(0x8000) != upper + (upper & 1);  // a tie: to the even neighbor
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
    dispatch(r.dtype, [&]<class T>() {
      CHECK(dtype_of<T>() == r.dtype);
      CHECK(int64_t(sizeof(T)) == r.size);
    });
  }
  static_assert(std::is_same_v<compute_t<BFloat16>, float>);
  static_assert(std::is_same_v<compute_t<double>, double>);
}

TEST_CASE("dispatch rejects dtypes that an op does not support", "[core]") {
  const auto nothing = []<class T>() { return sizeof(T); };
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

TEST_CASE("every type is rounded to bf16 once", "[bf16]") {
  // The midpoint of two neighbors, and values so close to it that f32 cannot represent them.
  const double middle = 102.75;  // 102.5 and 103: the even one is 103
  CHECK(float(BFloat16(middle)) == 103);
  CHECK(float(BFloat16(102.74999999990655)) == 102.5f);
  CHECK(float(BFloat16(-102.74999999990655)) == -102.5f);
  CHECK(float(BFloat16(std::nextafter(middle, 0))) == 102.5f);
  const double low = 102.25;  // 102 and 102.5: the even one is 102
  CHECK(float(BFloat16(low)) == 102);
  CHECK(float(BFloat16(std::nextafter(low, 200))) == 102.5f);
  CHECK(float(BFloat16(-std::nextafter(low, 200))) == -102.5f);
  // The smallest and the largest values.
  const double least = 0x1p-133;
  CHECK(float(BFloat16(least / 2)) == 0);
  CHECK(float(BFloat16(std::nextafter(least / 2, 1))) == float(least));
  CHECK(float(BFloat16(5e-324)) == 0);
  CHECK(BFloat16(-5e-324).bits == 0x8000);
  CHECK(std::isinf(float(BFloat16(0x1.FFp127))));
  CHECK(float(BFloat16(std::nextafter(0x1.FFp127, 0))) == 0x1.FEp127f);
  // Integers.
  for (const int64_t sign : {1, -1}) {
    const int64_t tie = (int64_t(257) << 30), next = int64_t(129) << 31, before = int64_t(1) << 38;
    CHECK(float(BFloat16(sign * tie)) == float(sign * before));
    CHECK(float(BFloat16(sign * (tie + 1))) == float(sign * next));
    CHECK(float(BFloat16(sign * (tie - 1))) == float(sign * before));
    const int64_t large = (int64_t(257) << 54) + 1;
    CHECK(float(BFloat16(sign * large)) == float(sign * (int64_t(129) << 55)));
    CHECK(float(BFloat16(int32_t(sign * ((257 << 22) + 1)))) == float(sign * (129 << 23)));
  }
  CHECK(float(BFloat16(INT64_MAX)) == 0x1p63f);
  CHECK(float(BFloat16(INT64_MIN)) == -0x1p63f);

  // Random values close to midpoints, compared with the nearest bf16; ties to even.
  uint64_t state = 1;
  int failures = 0;
  for (int i = 0; i < 100'000; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    const uint64_t upper = state >> 48, step = (state >> 20) % 5;
    const float below = f32_from(uint32_t(upper) << 16),
                above = f32_from(uint32_t(upper + 1) << 16);
    if (!std::isfinite(below) || !std::isfinite(above) || (upper & 0x7fff) == 0x7fff) continue;
    double x = (double(below) + double(above)) / 2;
    for (uint64_t k = 0; k < step; ++k) x = std::nextafter(x, k % 2 ? 1e300 : step % 2 ? 0 : 1e300);
    const double to_below = std::fabs(x - below), to_above = std::fabs(x - above);
    const uint16_t want = to_below < to_above   ? uint16_t(upper)
                          : to_above < to_below ? uint16_t(upper + 1)
                                                : uint16_t(upper + (upper & 1));
    failures += BFloat16(x).bits != want;
  }
  CHECK(failures == 0);
}

}  // namespace stretto
