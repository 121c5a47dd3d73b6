// The kernels' index arithmetic (cuda/runtime/index.h), on the host.

#include "cuda/runtime/index.h"

#include <set>
#include <vector>

#include "core/random.h"
#include "tests/support/catch.h"

using namespace stretto;
using namespace stretto::cuda;

namespace {

int64_t offset_of(const Shape& sizes, const Shape& strides, int64_t i) {
  int64_t at = 0;
  for (int64_t d = sizes.dim() - 1; d >= 0; --d) {
    at += i % sizes[d] * strides[d];
    i /= sizes[d];
  }
  return at;
}

// Random sizes, some of them 1, and strides of a permuted, partly broadcast tensor with gaps.
struct RandomLayout {
  Shape sizes, strides;
};
RandomLayout random_layout(uint64_t stream, const Shape* sizes = nullptr) {
  uint64_t draws = 0;
  auto below = [&](uint32_t n) { return int64_t(random_bits({5, stream}, draws++) % n); };
  RandomLayout x;
  if (sizes) {
    x.sizes = *sizes;
  } else {
    const int64_t dims = below(5);
    for (int64_t d = 0; d < dims; ++d) x.sizes.push_back(1 + below(4));
  }
  x.strides = contiguous_strides(x.sizes);
  for (int64_t d = 0; d < x.sizes.dim(); ++d) {
    const int64_t other = below(uint32_t(x.sizes.dim()));
    switch (below(4)) {
      case 0:
        x.strides[d] = 0;
        break;
      case 1:
        x.strides[d] += 3;
        break;
      case 2:
        if (!sizes) {
          std::swap(x.sizes[d], x.sizes[other]);
          std::swap(x.strides[d], x.strides[other]);
        }
        break;
      default:
        break;
    }
  }
  return x;
}

}  // namespace

TEST_CASE("a layout finds every element of every operand", "[cuda]") {
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const RandomLayout a = random_layout(seed), b = random_layout(seed + 1000, &a.sizes);
    const Shape strides[2] = {a.strides, b.strides};
    const Layout<2> layout = make_layout(a.sizes, strides);
    CHECK(layout.dims <= a.sizes.dim());
    for (int64_t i = 0; i < a.sizes.numel(); ++i) {
      const Offsets<2> at = offsets(layout, uint32_t(i));
      REQUIRE(offsets(layout, uint64_t(i)).v[0] == at.v[0]);
      REQUIRE(at.v[0] == offset_of(a.sizes, a.strides, i));
      REQUIRE(at.v[1] == offset_of(a.sizes, b.strides, i));
    }
  }
}

TEST_CASE("a divider computes exact quotients", "[cuda]") {
  for (const int64_t d : std::vector<int64_t>{1, 2, 3, 5, 7, 10, 64, 641, 65535, 65536, 65537,
                                              1000003, (1ll << 30) + 1, (1ll << 31) - 1, 1ll << 31,
                                              6700417ll << 20, (1ll << 61) + 3, INT64_MAX / 2}) {
    const Divider by(d);
    std::vector<uint64_t> numbers = {0, 1, (1ull << 31) - 1, (1ull << 31), (1ull << 63) - 1};
    for (uint64_t k = 1; k < 200; ++k)
      for (const uint64_t near : {uint64_t(d) * k - 1, uint64_t(d) * k, uint64_t(d) * k + 1})
        if (near < 1ull << 63 && near / k >= uint64_t(d) - 1) numbers.push_back(near);
    for (uint64_t k = 0; k < 200; ++k)
      numbers.push_back(
          (uint64_t(random_bits({7, 1}, 2 * k)) << 31 | random_bits({7, 1}, 2 * k + 1)) >>
          (k % 40));
    size_t wrong = 0;
    for (const uint64_t i : numbers) {
      wrong += by.quotient(i) != i / uint64_t(d);
      if (i < 1ull << 31 && d < 1ll << 31) wrong += by.quotient(uint32_t(i)) != i / uint64_t(d);
    }
    CAPTURE(d);
    CHECK(wrong == 0);
  }
}

TEST_CASE("the parts of a layout cover all of it in order", "[cuda]") {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const RandomLayout a = random_layout(seed), b = random_layout(seed + 1000, &a.sizes);
    const Shape strides[2] = {a.strides, b.strides};
    const Layout<2> layout = make_layout(a.sizes, strides);
    for (const int64_t most : {1, 2, 5, 12, 100000}) {
      int64_t i = 0;
      for_parts(layout, most, [&](const Layout<2>& part, const Offsets<2>& first) {
        REQUIRE(part.numel() <= most);
        for (int64_t k = 0; k < part.numel(); ++k, ++i) {
          const Offsets<2> at = offsets(part, uint32_t(k));
          REQUIRE(first.v[0] + at.v[0] == offset_of(a.sizes, a.strides, i));
          REQUIRE(first.v[1] + at.v[1] == offset_of(a.sizes, b.strides, i));
        }
      });
      REQUIRE(i == layout.numel());
    }
  }
}

TEST_CASE("layouts merge evenly spaced dimensions", "[cuda]") {
  auto dims = [](const Shape& sizes, const Shape& strides) {
    const Shape all[1] = {strides};
    return make_layout(sizes, all).dims;
  };
  CHECK(dims({}, {}) == 0);
  CHECK(dims({1, 1}, {7, 9}) == 0);
  CHECK(dims({2, 3, 4}, {12, 4, 1}) == 1);
  CHECK(dims({2, 1, 4}, {4, 99, 1}) == 1);
  CHECK(dims({2, 3}, {0, 0}) == 1);
  CHECK(dims({2, 3}, {1, 2}) == 2);
  CHECK(dims({2, 3, 4}, {24, 4, 1}) == 2);
  CHECK(dims({2, 3, 4}, {0, 4, 1}) == 2);
  CHECK(dims({2, 2, 2, 2, 2, 2, 2, 2}, {1, 2, 4, 8, 16, 32, 64, 128}) == 8);
}

TEST_CASE("a layout supports offsets of more than 32 bits", "[cuda]") {
  const Shape sizes{int64_t(1) << 20, 1 << 20}, strides[1] = {{1, int64_t(1) << 20}};
  const Layout<1> layout = make_layout(sizes, strides);
  const int64_t row = 987654, column = 123456;
  CHECK(offsets(layout, uint64_t(row * (1 << 20) + column)).v[0] == row + column * (1 << 20));
}

TEST_CASE("skew_column and unskew_column undo each other", "[cuda]") {
  for (int64_t m : {1, 2, 5})
    for (int64_t i = 0; i < m; ++i)
      for (int64_t c = -7; c < 7; ++c) {
        CHECK(unskew_column(i, skew_column(i, c, m), m) == c);
        CHECK(skew_column(i, c, m) == c - i + m - 1);
      }
}

TEST_CASE("a tile plan visits every element once", "[cuda]") {
  auto check_tiles = [](const Shape& sizes, const Shape& to, const Shape& from, int side) {
    const TilePlan plan = plan_tiles(sizes, to, from, side, 8);
    CAPTURE(str(sizes), str(to), str(from), side, plan.tiles);
    REQUIRE(plan.tiles > 0);
    std::vector<std::pair<int64_t, int64_t>> seen, expected;
    for (uint32_t tile = 0; tile < plan.tiles; ++tile) {
      const TilePlan::Place at = plan.place(tile, side);
      for (int t = 0; t < at.to_count; ++t)
        for (int f = 0; f < at.from_count; ++f)
          seen.emplace_back(at.to + t * plan.to_along + f * plan.to_across,
                            at.from + t * plan.from_across + f * plan.from_along);
    }
    for (int64_t i = 0; i < sizes.numel(); ++i)
      expected.emplace_back(offset_of(sizes, to, i), offset_of(sizes, from, i));
    std::sort(seen.begin(), seen.end());
    std::sort(expected.begin(), expected.end());
    CHECK((seen == expected));
  };
  for (const int side : {32, 64}) {
    check_tiles({64, 64}, {64, 1}, {1, 64}, side);
    check_tiles({33, 97}, {97, 1}, {1, 33}, side);
    check_tiles({3, 70, 66}, {4620, 66, 1}, {4620, 1, 70}, side);
    check_tiles({40, 3, 2, 50}, {300, 100, 50, 1}, {1, 40, 120, 240}, side);
    check_tiles({40, 3, 50}, {1, 40, 120}, {150, 50, 1}, side);  // the destination is transposed
  }
  auto tiles = [](const Shape& sizes, const Shape& to, const Shape& from) {
    return plan_tiles(sizes, to, from, 32, 8).tiles;
  };
  CHECK(tiles({64, 64}, {64, 1}, {128, 2}) == 0);  // along the same dimension
  CHECK(tiles({64, 64}, {64, 1}, {1, 0}) == 0);    // a broadcast element
  CHECK(tiles({64, 7}, {7, 1}, {1, 64}) == 0);     // narrow
  CHECK(tiles({0, 64}, {64, 1}, {1, 64}) == 0);
}

TEST_CASE("a sum plan visits every element once", "[cuda]") {
  // Iterates over the plan as the kernels do.
  auto check_plan = [](const Shape& sizes, const Shape& strides, const Shape& dims) {
    const SumPlan plan = plan_sum(sizes, strides, dims);
    CAPTURE(str(sizes), str(strides), str(dims), plan.splits, plan.chunk, plan.threads);
    REQUIRE(plan.outputs * plan.count == sizes.numel());
    REQUIRE(plan.splits >= 1);
    REQUIRE(plan.splits <= 65535);  // grid.y
    std::vector<int64_t> seen;
    for (int64_t o = 0; o < plan.outputs; ++o) {
      const int64_t base = offsets(plan.kept, uint64_t(o)).v[0];
      for (int64_t s = 0; s < plan.splits; ++s) {
        const int64_t begin = s * plan.chunk, end = chunk_end(plan, begin);
        REQUIRE(begin < end);
        for (int64_t r = begin; r < end; ++r)
          seen.push_back(base + offsets(plan.reduced, uint64_t(r)).v[0]);
      }
    }
    // Output by output, in row-major order of the kept dimensions.
    Shape order_sizes, order_strides;
    for (int pass = 0; pass < 2; ++pass)
      for (int64_t d = 0; d < sizes.dim(); ++d)
        if ((std::find(dims.begin(), dims.end(), d) != dims.end()) == (pass == 1)) {
          order_sizes.push_back(sizes[d]);
          order_strides.push_back(strides[d]);
        }
    bool same = int64_t(seen.size()) == sizes.numel();
    for (size_t i = 0; same && i < seen.size(); ++i)
      same = seen[i] == offset_of(order_sizes, order_strides, int64_t(i));
    REQUIRE(same);
    return plan;
  };
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const RandomLayout x = random_layout(seed);
    for (int mask = 0; mask < 1 << x.sizes.dim(); ++mask) {
      Shape dims;
      for (int64_t d = 0; d < x.sizes.dim(); ++d)
        if (mask >> d & 1) dims.push_back(d);
      check_plan(x.sizes, x.strides, dims);
    }
  }
  CHECK(check_plan({100003}, {1}, {0}).splits > 1);
  CHECK(check_plan({100003}, {3}, {0}).threads == 256);
  CHECK(check_plan({5000, 40}, {40, 1}, {0}).threads == 0);
  CHECK(check_plan({5000, 40}, {40, 1}, {0}).splits > 1);
  CHECK(check_plan({40, 5000}, {1, 40}, {1}).threads == 0);
  CHECK(check_plan({300, 100}, {100, 1}, {1}).threads == 32);
  CHECK(check_plan({30, 3000}, {3000, 1}, {1}).threads == 256);
  CHECK(check_plan({40000, 2}, {2, 1}, {1}).threads == 0);
  CHECK(check_plan({3, 40000}, {0, 1}, {1}).splits > 1);
}
