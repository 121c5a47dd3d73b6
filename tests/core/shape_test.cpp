// Shape arithmetic [core/shape.h].
#include "core/shape.h"

#include <algorithm>
#include <vector>

#include "tests/support/catch.h"

namespace stretto {
namespace {

std::string text(const Shape& shape) { return str(shape); }

// Returns the storage positions of all elements in row-major order.
std::vector<int64_t> positions(const Shape& sizes, const Shape& strides) {
  std::vector<int64_t> all;
  Shape index = sizes;
  for (int64_t& i : index) i = 0;
  for (int64_t k = 0; k < sizes.numel(); ++k) {
    int64_t at = 0;
    for (int64_t d = 0; d < sizes.dim(); ++d) at += index[d] * strides[d];
    all.push_back(at);
    for (int64_t d = sizes.dim() - 1; d >= 0 && ++index[d] == sizes[d]; --d) index[d] = 0;
  }
  return all;
}

// True if strides exist with which shape `to` visits these positions in order. The stride of
// dimension d is the distance to the element that follows after a product of the inner sizes.
bool strides_exist(const std::vector<int64_t>& at, const Shape& to) {
  Shape strides = contiguous_strides(to);
  for (int64_t d = 0; d < to.dim(); ++d)
    strides[d] = to[d] > 1 ? at[size_t(strides[d])] - at[0] : 0;
  return positions(to, strides) == at;
}

// Appends all shapes of up to four dimensions with n elements.
void shapes_of(int64_t n, Shape prefix, std::vector<Shape>& all) {
  if (n == 1) all.push_back(prefix);
  if (prefix.dim() == 4) return;
  for (int64_t size = 1; size <= n; ++size) {
    if (n % size != 0) continue;
    Shape longer = prefix;
    longer.push_back(size);
    shapes_of(n / size, longer, all);
  }
}

}  // namespace

TEST_CASE("a shape is a list of at most 8 sizes", "[core]") {
  Shape s = {2, 3};
  CHECK(s.dim() == 2);
  CHECK(s.back() == 3);
  s.push_back(5);
  s.insert(0, 7);
  CHECK(text(s) == "[7, 2, 3, 5]");
  s.erase(1);
  CHECK(s == Shape{7, 3, 5});
  CHECK(s.numel() == 105);
  CHECK(s != Shape{7, 3});
  CHECK(s != Shape{7, 3, 6});
  CHECK(text({}) == "[]");
  CHECK(Shape{}.numel() == 1);
  CHECK(Shape{}.empty());
  CHECK(Shape({3, 0, 2}).numel() == 0);
  CHECK(Shape(std::vector<int64_t>{4, 5}) == Shape{4, 5});
  Shape eight = {1, 2, 3, 4, 5, 6, 7, 8};
  CHECK_THROWS_WITH(eight.push_back(9), "[Shape] a shape cannot have more than 8 dimensions");
  CHECK_THROWS_WITH(Shape(std::vector<int64_t>(9)),
                    "[Shape] got 9 dimensions; at most 8 are supported");
}

TEST_CASE("negative and overflowing sizes are errors", "[core]") {
  CHECK_NOTHROW(check_sizes("op", {}));
  CHECK_NOTHROW(check_sizes("op", {0, 3}));
  CHECK_THROWS_WITH(check_sizes("op", {2, -3}), "[op] shape [2, -3] has a negative size");
  CHECK_THROWS_WITH(check_sizes("op", {2, -3, 0}), "[op] shape [2, -3, 0] has a negative size");
  CHECK_THROWS_WITH(check_sizes("op", {0, -1}), "[op] shape [0, -1] has a negative size");
  const int64_t big = int64_t(1) << 40;
  CHECK_THROWS_WITH(check_sizes("op", {big, big}), Containing("has too many elements"));
  CHECK_THROWS_WITH(check_sizes("op", {INT64_MAX, INT64_MAX, 0}),
                    Containing("has too many elements"));
  CHECK_THROWS_WITH(check_sizes("op", {INT64_MAX}), Containing("has too many elements"));
  // A product that wraps around to a small value.
  CHECK_THROWS_WITH(check_sizes("op", {int64_t(1) << 32, int64_t(1) << 32}),
                    Containing("has too many elements"));
}

TEST_CASE("contiguous strides are row-major", "[core]") {
  CHECK(contiguous_strides({}) == Shape{});
  CHECK(contiguous_strides({5}) == Shape{1});
  CHECK(contiguous_strides({2, 3, 4}) == Shape{12, 4, 1});
  CHECK(contiguous_strides({2, 0, 4}) == Shape{4, 4, 1});
  CHECK(is_contiguous({2, 3, 4}, {12, 4, 1}));
  CHECK(!is_contiguous({2, 3, 4}, {12, 1, 3}));
  CHECK(!is_contiguous({2, 3}, {6, 2}));
  CHECK(!is_contiguous({2, 3}, {0, 1}));
  CHECK(!is_contiguous({2, 3}, {4, 1}));
  CHECK(is_contiguous({}, {}));
}

TEST_CASE("dimensions of size 1 may have any stride", "[core]") {
  CHECK(is_contiguous({1}, {77}));
  CHECK(is_contiguous({1, 3}, {77, 1}));
  CHECK(is_contiguous({3, 1}, {1, 77}));
  CHECK(is_contiguous({2, 1, 3}, {3, 0, 1}));
  CHECK(is_contiguous({1, 1, 1}, {5, 6, 7}));
  CHECK(is_contiguous({0, 3}, {5, 7}));
  CHECK(!is_contiguous({3, 1}, {2, 1}));
}

TEST_CASE("broadcasting follows NumPy", "[core]") {
  struct Case {
    Shape a, b, result;
  };
  // reference/frameworks.md, C2.
  for (const Case& c : {Case{{}, {0}, {0}},
                        {{1}, {0}, {0}},
                        {{2, 1}, {1, 0}, {2, 0}},
                        {{5, 0}, {0, 5, 0}, {0, 5, 0}},
                        {{2, 1}, {1, 2, 0}, {1, 2, 0}},
                        {{1}, {}, {1}},
                        {{1}, {2}, {2}},
                        {{2, 1}, {2}, {2, 2}},
                        {{3, 1, 2}, {1, 3, 2}, {3, 3, 2}},
                        {{10, 1, 5}, {1, 10, 5}, {10, 10, 5}},
                        {{0, 1, 3}, {0, 10, 3}, {0, 10, 3}},
                        {{}, {}, {}},
                        {{4, 5}, {4, 5}, {4, 5}}}) {
    INFO(text(c.a) << " and " << text(c.b));
    CHECK(broadcast_shapes("op", c.a, c.b) == c.result);
    CHECK(broadcast_shapes("op", c.b, c.a) == c.result);
  }
  struct Refused {
    Shape a, b;
    const char* where;
  };
  for (const Refused& c : {Refused{{2}, {0}, "sizes 2 and 0 at dimension 0"},
                           {{2, 1}, {0, 0}, "sizes 2 and 0 at dimension 0"},
                           {{3}, {2}, "sizes 3 and 2 at dimension 0"},
                           {{1, 3}, {2}, "sizes 3 and 2 at dimension 1"},
                           {{1, 3, 2}, {1, 2, 2}, "sizes 3 and 2 at dimension 1"}}) {
    INFO(text(c.a) << " and " << text(c.b));
    CHECK_THROWS_WITH(broadcast_shapes("add", c.a, c.b),
                      Containing("[add] shapes " + text(c.a) + " and " + text(c.b) +
                                 " do not broadcast: " + c.where));
    CHECK_THROWS_AS(broadcast_shapes("add", c.b, c.a), Error);
  }
  CHECK_THROWS_WITH(broadcast_shapes("add", {3}, {1, 2}),
                    Containing("must be equal or contain a 1"));
}

TEST_CASE("broadcast views have stride 0 in repeated dimensions", "[core]") {
  CHECK(broadcast_strides({3}, {1}, {2, 3}) == Shape{0, 1});
  CHECK(broadcast_strides({2, 1}, {5, 1}, {2, 4}) == Shape{5, 0});
  CHECK(broadcast_strides({}, {}, {2, 4}) == Shape{0, 0});
  CHECK(broadcast_strides({1, 3}, {9, 2}, {1, 3}) == Shape{9, 2});
  CHECK(broadcast_strides({1}, {1}, {0}) == Shape{0});
}

TEST_CASE("negative dimensions count from the end", "[core]") {
  CHECK(wrap_dim("op", 0, 3) == 0);
  CHECK(wrap_dim("op", 2, 3) == 2);
  CHECK(wrap_dim("op", -1, 3) == 2);
  CHECK(wrap_dim("op", -3, 3) == 0);
  CHECK_THROWS_WITH(wrap_dim("op", 3, 3),
                    "[op] dimension 3 is out of range for a tensor with 3 dimensions");
  CHECK_THROWS_WITH(wrap_dim("op", -2, 1),
                    "[op] dimension -2 is out of range for a tensor with 1 dimension");
  CHECK_THROWS_WITH(wrap_dim("op", 0, 0),
                    "[op] dimension 0 is out of range for a tensor with 0 dimensions");
  CHECK_THROWS_AS(wrap_dim("op", INT64_MIN, 3), Error);
}

TEST_CASE("a view of another shape is found if and only if one exists", "[core]") {
  int64_t views = 0, none = 0;
  for (int64_t n : {1, 6, 8, 12}) {
    std::vector<Shape> shapes;
    shapes_of(n, {}, shapes);
    for (const Shape& sizes : shapes) {
      // Row-major, permuted, with gaps, repeating, overlapping, and any stride where the size is 1.
      std::vector<Shape> layouts;
      std::vector<int64_t> order(size_t(sizes.dim()));
      for (size_t d = 0; d < order.size(); ++d) order[d] = int64_t(d);
      do {
        Shape strides = sizes;
        int64_t step = 1;
        for (int64_t d : order) {
          strides[d] = step;
          step *= sizes[d];
        }
        layouts.push_back(strides);
        for (int64_t& s : strides) s *= 2;
        layouts.push_back(strides);
      } while (std::next_permutation(order.begin(), order.end()));
      for (int64_t d = 0; d < sizes.dim(); ++d) {
        Shape strides = contiguous_strides(sizes);
        strides[d] = 0;
        layouts.push_back(strides);
        strides[d] = 1;
        layouts.push_back(strides);
        strides = contiguous_strides(sizes);
        if (sizes[d] == 1) strides[d] = 77;
        layouts.push_back(strides);
      }
      for (const Shape& strides : layouts) {
        const std::vector<int64_t> at = positions(sizes, strides);
        for (const Shape& to : shapes) {
          Shape result;
          const bool found = reshape_strides(sizes, strides, to, result);
          const bool right = found ? positions(to, result) == at : !strides_exist(at, to);
          ++(found ? views : none);
          if (right) continue;
          FAIL_CHECK("sizes " << text(sizes) << " strides " << text(strides) << " as " << text(to)
                              << ": " << (found ? "wrong strides " + text(result) : "not found"));
        }
      }
    }
  }
  CHECK(views > 10000);
  CHECK(none > 10000);
  Shape result;
  CHECK(reshape_strides({0, 3}, {7, 5}, {3, 0}, result));
  CHECK(result == contiguous_strides({3, 0}));
}

TEST_CASE("one size of a shape can be inferred", "[core]") {
  CHECK(infer_shape("reshape", {2, -1}, 6) == Shape{2, 3});
  CHECK(infer_shape("reshape", {-1}, 0) == Shape{0});
  CHECK(infer_shape("reshape", {}, 1) == Shape{});
  CHECK(infer_shape("reshape", {0, 5}, 0) == Shape{0, 5});
  CHECK(infer_shape("reshape", {5, -1}, 0) == Shape{5, 0});
  CHECK_THROWS_WITH(infer_shape("reshape", {4, -1}, 6),
                    "[reshape] 6 elements do not fit shape [4, -1]");
  CHECK_THROWS_WITH(infer_shape("reshape", {0, -1}, 0),
                    "[reshape] 0 elements do not fit shape [0, -1]");
  CHECK_THROWS_WITH(infer_shape("reshape", {-1, -1}, 6),
                    "[reshape] shape [-1, -1] has more than one -1");
  CHECK_THROWS_WITH(infer_shape("reshape", {-2}, 2), "[reshape] shape [-2] has a negative size");
  CHECK_THROWS_WITH(infer_shape("reshape", {5}, 6), "[reshape] 6 elements do not fit shape [5]");
  const int64_t big = int64_t(1) << 32;
  CHECK_THROWS_WITH(infer_shape("reshape", {big, big, -1}, 6), Containing("has too many elements"));
  CHECK_THROWS_WITH(infer_shape("reshape", {big, big}, 6), Containing("has too many elements"));
}

}  // namespace stretto
