#include "ops/reduce.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

using Values = std::vector<double>;
constexpr double inf = std::numeric_limits<double>::infinity();
constexpr double NaN = std::numeric_limits<double>::quiet_NaN();

struct Threads {
  int before = num_threads();
  explicit Threads(int n) { set_num_threads(n); }
  ~Threads() { set_num_threads(before); }
};

// The elements that are reduced to each result, in row-major order of both.
std::vector<Values> groups(const Tensor& x, const std::vector<bool>& reduced) {
  int64_t results = 1;
  for (int64_t d = 0; d < x.dim(); ++d)
    if (!reduced[size_t(d)]) results *= x.size(d);
  std::vector<Values> found(static_cast<size_t>(results));
  const Values values = x.to_vector<double>();
  for (int64_t i = 0; i < x.numel(); ++i) {
    int64_t rest = i, at = 0, step = 1;
    for (int64_t d = x.dim() - 1; d >= 0; --d) {
      if (!reduced[size_t(d)]) {
        at += rest % x.size(d) * step;
        step *= x.size(d);
      }
      rest /= x.size(d);
    }
    found[size_t(at)].push_back(values[size_t(i)]);
  }
  return found;
}

std::vector<bool> only(const Tensor& x, int64_t d) {
  std::vector<bool> reduced(static_cast<size_t>(x.dim()));
  reduced[size_t(wrap_dim("test", d, x.dim()))] = true;
  return reduced;
}

double total(const Values& v) {
  long double s = 0;
  for (double e : v) s += e;
  return double(s);
}
double total_abs(const Values& v) {
  double s = 0;
  for (double e : v) s += std::fabs(e);
  return s;
}
double variance(const Values& v, double correction) {
  const double m = total(v) / double(v.size());
  double s = 0;
  for (double e : v) s += (e - m) * (e - m);
  return s / (double(v.size()) - correction);
}

double unit_roundoff(DType t) { return t == f64 ? 0x1p-53 : t == f32 ? 0x1p-24 : 0x1p-8; }

// The same shape in every memory layout.
Tensors layouts(const Shape& shape, DType dtype, uint64_t stream) {
  Shape twice = shape, once = shape;
  const int64_t last = shape.dim() - 1;
  twice[last] *= 2;
  once[0] = 1;
  return {fixed_noise(shape, stream, dtype), strided_copy(fixed_noise(shape, stream + 1, dtype)),
          fixed_noise(twice, stream + 2, dtype).slice(last, 1, INT64_MAX, 2),
          fixed_noise(once, stream + 3, dtype).expand(shape)};
}

bool same_bits(const Tensor& a, const Tensor& b) {
  const Values x = a.to_vector<double>(), y = b.to_vector<double>();
  return x.size() == y.size() &&
         (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(double)) == 0);
}

void check_sums(const Tensor& x, const Dims& dims) {
  std::vector<bool> reduced(static_cast<size_t>(x.dim()), dims.empty());
  for (int64_t d : dims) reduced[size_t(wrap_dim("test", d, x.dim()))] = true;
  Shape kept = x.shape(), dropped;
  for (int64_t d = 0; d < x.dim(); ++d) {
    if (reduced[size_t(d)])
      kept[d] = 1;
    else
      dropped.push_back(x.size(d));
  }
  INFO(str("x ", x, " strides ", x.strides(), " dims ", dims));
  const Tensor s = sum(x, dims), m = mean(x, dims);
  REQUIRE(s.shape() == dropped);
  REQUIRE(s.dtype() == x.dtype());
  REQUIRE(s.is_contiguous());
  REQUIRE(sum(x, dims, true).shape() == kept);
  REQUIRE(mean(x, dims, true).shape() == kept);
  REQUIRE(same_bits(sum(x, dims, true), s));
  const auto expected = groups(x, reduced);
  const Values got = s.to_vector<double>(), got_mean = m.to_vector<double>();
  size_t wrong = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    const double e = total(expected[i]), n = double(expected[i].size());
    // one rounding to the dtype after sums in f64, in any order
    const double bound =
        1.001 * unit_roundoff(x.dtype()) * std::fabs(e) + n * 0x1p-53 * total_abs(expected[i]);
    wrong += !(std::fabs(got[i] - e) <= bound);
    if (n > 0)
      wrong += !(std::fabs(got_mean[i] - e / n) <= bound / n + 0x1p-52 * std::fabs(e / n));
    else
      wrong += !std::isnan(got_mean[i]);
  }
  CHECK(wrong == 0);
}

}  // namespace

TEST_CASE("sum and mean over every set of dimensions") {
  for (DType t : {f32, f64, bf16})
    for (const Tensor& x : layouts({3, 4, 5, 2}, t, 10))
      for (int64_t set = 0; set < 16; ++set) {
        Dims dims;
        for (int64_t d = 0; d < 4; ++d)
          if (set >> d & 1) dims.push_back(d % 2 ? d - 4 : d);
        check_sums(x, dims);
      }
}

TEST_CASE("sum and mean across tile and chunk borders") {
  const std::pair<Shape, Dims> cases[] = {
      {{32768}, {}},
      {{32769}, {0}},
      {{100003}, {}},
      {{3, 40000}, {1}},
      {{40000, 3}, {0}},
      {{40000, 3}, {1}},
      {{700, 130}, {0}},
      {{130, 700}, {0}},
      {{130, 700}, {1}},
      {{3, 2000, 9}, {1}},
      {{9, 5, 600}, {0, 2}},
      {{2, 65, 1025}, {1}},
      {{1, 70, 1, 513}, {0, 1, 2}},
      {{70000, 1}, {0}},
      {{5, 1, 3}, {1}},
  };
  for (const auto& [shape, dims] : cases)
    for (DType t : {f32, bf16}) check_sums(fixed_noise(shape, 3, t), dims);
  check_sums(strided_copy(fixed_noise({130, 700}, 3, f32)), {0});
}

TEST_CASE("sum and mean of empty and 0-d tensors") {
  for (const Shape& shape : {Shape{0}, Shape{0, 3}, Shape{3, 0}, Shape{2, 0, 3}, Shape{0, 0}})
    for (DType t : {f32, f64, bf16}) {
      const Tensor x = zeros(shape, {.dtype = t});
      check_sums(x, {});
      for (int64_t d = 0; d < shape.dim(); ++d) check_sums(x, {d});
    }
  CHECK(sum(zeros({0, 3}), {0}).to_vector<double>() == Values(3, 0));
  const Values m = mean(zeros({0, 3}), {0}).to_vector<double>();
  CHECK((m.size() == 3 && std::isnan(m[0]) && std::isnan(m[2])));
  CHECK(sum(scalar(3)).item() == 3);
  CHECK(mean(scalar(3)).item() == 3);
  CHECK(sum(scalar(3), {}, true).shape() == Shape{});
  CHECK(sum(zeros({0}, {.dtype = i64})).item() == 0);
}

TEST_CASE("the sum of more ones than f32 can count is exact") {
  CHECK(sum(ones({(1 << 24) + 1})).item() == double(float((1 << 24) + 1)));
  CHECK(sum(ones({(1 << 24) + 4})).item() == (1 << 24) + 4);
  CHECK(sum(ones({(1 << 22) + 2, 4}), {0}).to_vector<double>() == Values(4, (1 << 22) + 2));
  CHECK(mean(ones({(1 << 24) + 4})).item() == 1);
  CHECK(sum(ones({4097}, {.dtype = bf16})).item() == 4096);  // the nearest bf16
}

TEST_CASE("sums of integers and masks are i64") {
  const Tensor x = tensor(std::vector<int32_t>{2000000000, 2000000000, -5, 7}, {2, 2});
  CHECK(sum(x).dtype() == i64);
  CHECK(sum(x, {1}).to_vector<int64_t>() == std::vector<int64_t>{4000000000, 2});
  CHECK(sum(x, {0}).to_vector<int64_t>() == std::vector<int64_t>{1999999995, 2000000007});
  CHECK(sum(tensor({true, false, true})).dtype() == i64);
  CHECK(sum(tensor({true, false, true})).item() == 2);
  CHECK(sum(full({1000}, 255, {.dtype = u8})).item() == 255000);
  const int64_t big = (int64_t(1) << 53) + 1;  // not representable as a double
  CHECK(sum(tensor(std::vector<int64_t>{big, 2}, {2})).to_vector<int64_t>()[0] == big + 2);
}

TEST_CASE("reductions propagate infinities and NaN") {
  CHECK(sum(tensor({1.0, inf})).item() == inf);
  CHECK(std::isnan(sum(tensor({inf, -inf})).item()));
  CHECK(std::isnan(mean(tensor({1.0, NaN})).item()));
  CHECK(std::isnan(var(tensor({1.0, NaN})).item()));
}

TEST_CASE("reductions do not depend on the number of threads or the layout") {
  for (const auto& [shape, dims] : {std::pair<Shape, Dims>{{300007}, {}},
                                    {{999, 333}, {0}},
                                    {{999, 333}, {1}},
                                    {{40, 50, 60}, {0, 2}},
                                    {{2, 70000}, {1}}}) {
    const Tensor x = randn(shape, {.seed = 4});
    Tensors one, two;
    const auto all = [&, &r = dims] {
      return Tensors{sum(x, r), mean(x, r), var(x, r), cumsum(x, 0), logsumexp(x, -1), max(x, 0)};
    };
    {
      Threads guard(1);
      one = all();
    }
    {
      Threads guard(2);
      two = all();
    }
    for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(one[i], two[i]));
    CHECK(same_bits(sum(x, dims), sum(strided_copy(x), dims)));
  }
}

TEST_CASE("var agrees with its definition") {
  for (DType t : {f32, f64, bf16})
    for (const Tensor& x : layouts({6, 5, 4}, t, 30))
      for (const Dims& dims : {Dims{}, Dims{0}, Dims{-1}, Dims{0, 2}, Dims{1}})
        for (double correction : {0.0, 1.0}) {
          std::vector<bool> reduced(3, dims.empty());
          for (int64_t d : dims) reduced[size_t(wrap_dim("test", d, 3))] = true;
          const auto expected = groups(x, reduced);
          const Values got = var(x, dims, correction).to_vector<double>();
          REQUIRE(got.size() == expected.size());
          size_t wrong = 0;
          for (size_t i = 0; i < got.size(); ++i) {
            // f32 deviations from an f32 mean: each relative to |x| ≤ 1; then the final rounding
            const double e = variance(expected[i], correction);
            const double u = t == f64 ? 0x1p-53 : 0x1p-24;
            const double bound = unit_roundoff(t) * e + 16 * u * (e + std::sqrt(e));
            wrong += !(std::fabs(got[i] - e) <= bound);
          }
          CHECK(wrong == 0);
        }
  CHECK(std::isnan(var(tensor({2.0})).item()));
  CHECK(var(tensor({2.0}), {}, 0).item() == 0);
  CHECK(std::isnan(var(zeros({0})).item()));
  CHECK(var(zeros({3, 4}), {1}, 1, true).shape() == Shape{3, 1});
  CHECK(var(tensor({1e8, 1e8 + 1, 1e8 + 2})).item() == 1);  // two passes: no cancellation
}

TEST_CASE("max, min and argmax along a dimension") {
  for (DType t : {f32, f64, bf16, i64, i32, u8, boolean})
    for (const Tensor& noise : layouts({4, 5, 6}, f64, 50)) {
      const Tensor x = (noise * 6.0 + 7.0).to(t);  // with ties in the integer dtypes
      for (int64_t d : {0, 1, -1}) {
        const auto expected = groups(x, only(x, d));
        const Values largest = max(x, d).to_vector<double>(),
                     smallest = min(x, d).to_vector<double>(),
                     first = argmax(x, d).to_vector<double>();
        REQUIRE(max(x, d).dtype() == t);
        REQUIRE(argmax(x, d).dtype() == i64);
        REQUIRE(largest.size() == expected.size());
        size_t wrong = 0;
        for (size_t i = 0; i < expected.size(); ++i) {
          const auto at = std::max_element(expected[i].begin(), expected[i].end());
          wrong += largest[i] != *at || first[i] != double(at - expected[i].begin()) ||
                   smallest[i] != *std::min_element(expected[i].begin(), expected[i].end());
        }
        CHECK(wrong == 0);
      }
    }
  const Tensor x = fixed_noise({2, 3, 4}, 1);
  CHECK(max(x, 1).shape() == Shape{2, 4});
  CHECK(max(x, 1, true).shape() == Shape{2, 1, 4});
  CHECK(argmax(x, -1, true).shape() == Shape{2, 3, 1});
  CHECK(max(x).item() == max(x.reshape({-1}), 0).item());
  CHECK(min(scalar(4)).item() == 4);
  CHECK(max(zeros({0, 3}), 1).shape() == Shape{0});
}

TEST_CASE("max and min return NaN if there is one, argmax the first NaN") {
  const Tensor x = tensor({1.0, NaN, 3.0, NaN});
  CHECK(std::isnan(max(x, 0).item()));
  CHECK(std::isnan(min(x).item()));
  CHECK(argmax(x, 0).item() == 1);
  CHECK(argmax(tensor({NaN, 5.0}), 0).item() == 0);
  CHECK(argmax(tensor({-inf, -inf}), 0).item() == 0);
  CHECK(max(tensor({-inf, -inf})).item() == -inf);
  CHECK(argmax(tensor({2.0, 7.0, 7.0}), 0).item() == 1);
}

TEST_CASE("the gradient of max goes to the first of equal values") {
  Tensor x = tensor({2.0, 7.0, 7.0, 1.0}).set_requires_grad();
  max(x, 0).backward();
  CHECK(x.grad().to_vector<double>() == Values{0, 1, 0, 0});
  Tensor y = tensor(std::vector<double>{3, 3, 3, 3}, {2, 2}).set_requires_grad();
  min(y).backward();
  CHECK(y.grad().to_vector<double>() == Values{1, 0, 0, 0});
}

TEST_CASE("cumsum agrees with its definition") {
  for (DType t : {f32, f64, bf16})
    for (const Tensor& x : layouts({3, 40, 5}, t, 70))
      for (int64_t d : {0, 1, 2}) {
        const Tensor y = cumsum(x, d);
        REQUIRE(y.shape() == x.shape());
        const auto terms = groups(x, only(x, d)), sums = groups(y, only(x, d));
        size_t wrong = 0;
        for (size_t i = 0; i < terms.size(); ++i) {
          double running = 0, size = 0;
          for (size_t j = 0; j < terms[i].size(); ++j) {
            running += terms[i][j];
            size += std::fabs(terms[i][j]);
            const double bound =
                1.001 * unit_roundoff(t) * std::fabs(running) + 100 * 0x1p-53 * size;
            wrong += !(std::fabs(sums[i][j] - running) <= bound);
          }
        }
        CHECK(wrong == 0);
      }
  const Tensor wide = ones({3, 1300});  // several tiles of columns
  CHECK(sum(cumsum(wide, 0)).item() == 1300 * 6);
  CHECK(cumsum(tensor({1, 2, 3}), 0).dtype() == i64);
  CHECK(cumsum(tensor({true, true, false}), 0).to_vector<double>() == Values{1, 2, 2});
  CHECK(cumsum(zeros({0, 3}), 0).shape() == Shape{0, 3});
  CHECK(cumsum(zeros({3, 0}), 0).shape() == Shape{3, 0});
  const Values y = cumsum(ones({(1 << 24) + 4}), 0).slice(0, 1 << 24).to_vector<double>();
  CHECK(y.back() == (1 << 24) + 4);
}

TEST_CASE("logsumexp agrees with its definition") {
  for (DType t : {f32, f64, bf16})
    for (const Tensor& noise : layouts({4, 33, 3}, f64, 90)) {
      const Tensor x = (noise * 20.0).to(t);
      for (int64_t d : {0, 1, 2}) {
        const auto terms = groups(x, only(x, d));
        const Values got = logsumexp(x, d).to_vector<double>();
        size_t wrong = 0;
        for (size_t i = 0; i < terms.size(); ++i) {
          const double top = *std::max_element(terms[i].begin(), terms[i].end());
          double s = 0;
          for (double v : terms[i]) s += std::exp(v - top);
          const double e = top + std::log(s);
          // exp, log and the final sum: about 2 ulp each; the log is at most log 33
          const double u = t == f64 ? 0x1p-53 : 0x1p-24;
          const double bound = unit_roundoff(t) * std::fabs(e) + u * (8 + 4 * std::fabs(e));
          wrong += !(std::fabs(got[i] - e) <= bound);
        }
        CHECK(wrong == 0);
      }
    }
  for (DType t : {f32, f64, bf16}) {
    const auto of = [t](double a, double b) { return logsumexp(tensor({a, b}).to(t), 0).item(); };
    CHECK(of(-inf, -inf) == -inf);
    CHECK(of(-inf, 3) == 3);
    CHECK(of(inf, 3) == inf);
    CHECK(of(inf, inf) == inf);
    CHECK(of(inf, -inf) == inf);
    CHECK(std::isnan(of(NaN, 3)));
    CHECK(std::isnan(of(NaN, -inf)));
    CHECK(std::isnan(of(NaN, inf)));
    CHECK(of(10000, -10000) == 9984 + (t == bf16 ? 0 : 16));  // 10000 rounds to 9984 in bf16
    CHECK(of(-1000, -2000) == -1000);
  }
  // Each small term is below the rounding of 1 in f32.
  Tensor many = full({1 << 16}, -17);
  many.slice(0, 0, 1).fill_(0);
  CHECK(logsumexp(many, 0).item() == Approx(std::log1p(65535 * std::exp(-17.0))).margin(1e-6));
  CHECK(logsumexp(zeros({2, 0}), 1).to_vector<double>() == Values(2, -inf));
  CHECK(logsumexp(zeros({2, 3}), 0, true).shape() == Shape{1, 3});
  CHECK(logsumexp(zeros({0, 3}), 1).shape() == Shape{0});

  Tensor x = tensor({-inf, -inf}).set_requires_grad();
  logsumexp(x, 0).backward();
  CHECK(x.grad().to_vector<double>() == Values{0, 0});
}

TEST_CASE("gradients of reductions equal finite differences") {
  const Tensors in{fixed_leaf({3, 4, 2}, 5)};
  for (const Dims& dims : {Dims{}, Dims{0}, Dims{1}, Dims{2}, Dims{0, 2}, Dims{-3, -2}})
    for (bool keepdim : {false, true}) {
      check_gradients([&](const Tensors& x) { return sum(x[0], dims, keepdim); }, in);
      check_gradients([&](const Tensors& x) { return mean(square(x[0]), dims, keepdim); }, in);
      check_gradients([&](const Tensors& x) { return var(x[0], dims, 1, keepdim); }, in);
    }
  for (int64_t d : {0, 1, -1})
    for (bool keepdim : {false, true}) {
      check_gradients([&](const Tensors& x) { return max(x[0], d, keepdim); }, in);
      check_gradients([&](const Tensors& x) { return min(square(x[0]), d, keepdim); }, in);
      check_gradients([&](const Tensors& x) { return logsumexp(x[0], d, keepdim); }, in);
    }
  for (int64_t d : {0, 1, -1})
    check_gradients([&](const Tensors& x) { return cumsum(square(x[0]), d); }, in);
  check_gradients([](const Tensors& x) { return max(x[0]) * min(x[0]); }, in);
  check_gradients([](const Tensors& x) { return sum(x[0].transpose(0, 2), {1}); }, in);
  check_gradients([](const Tensors& x) { return logsumexp(x[0].slice(1, 0, 4, 2), 1); }, in);
  check_gradients(
      [](const Tensors& x) {
        return sum(x[0].unsqueeze(0).expand({3, 3, 4, 2}), {0});
      },
      in);
  check_gradients([](const Tensors& x) { return var(x[0], {}, 0); }, {fixed_leaf({1}, 1)});
  check_gradients([](const Tensors& x) { return sum(x[0]) * mean(x[0]); }, {fixed_leaf({}, 1)});
  check_gradients([](const Tensors& x) { return sum(x[0], {0}); }, {fixed_leaf({0, 3}, 1)});
}

TEST_CASE("gradients of reductions in bf16 keep their dtype") {
  Tensor x = fixed_noise({3, 4}, 2, bf16).set_requires_grad();
  for (const Tensor& y :
       {sum(x), mean(x), var(x), max(x), sum(cumsum(x, 0)), sum(logsumexp(x, 1))}) {
    x.set_grad({});
    y.backward();
    CHECK(x.grad().dtype() == bf16);
    CHECK(x.grad().shape() == x.shape());
  }
}

TEST_CASE("errors of reductions name what is accepted") {
  const Tensor x = zeros({2, 3});
  REQUIRE_THROWS_WITH(sum(x, {2}),
                      "[sum] dimension 2 is out of range for a tensor with 2 dimensions");
  REQUIRE_THROWS_WITH(mean(x, {0, -2}), "[mean] dimensions [0, -2] name dimension 0 twice");
  REQUIRE_THROWS_WITH(mean(tensor({1, 2})), "[mean] got i64 [2]; accepted: f32, f64, bf16");
  REQUIRE_THROWS_WITH(var(tensor({1, 2})), "[var] got i64 [2]; accepted: f32, f64, bf16");
  REQUIRE_THROWS_WITH(var(x, {3}),
                      "[var] dimension 3 is out of range for a tensor with 2 dimensions");
  REQUIRE_THROWS_WITH(logsumexp(tensor({1}), 0),
                      "[logsumexp] got i64 [1]; accepted: f32, f64, bf16");
  REQUIRE_THROWS_WITH(max(x, -3),
                      "[max] dimension -3 is out of range for a tensor with 2 dimensions");
  REQUIRE_THROWS_WITH(max(zeros({2, 0}), 1),
                      "[max] dimension 1 of f32 [2, 0] is empty: it has no largest element");
  REQUIRE_THROWS_WITH(min(zeros({2, 0}), 1),
                      "[min] dimension 1 of f32 [2, 0] is empty: it has no smallest element");
  REQUIRE_THROWS_WITH(argmax(zeros({0}), 0),
                      "[argmax] dimension 0 of f32 [0] is empty: it has no largest element");
  REQUIRE_THROWS_WITH(max(zeros({0, 2})), "[max] f32 [0, 2] is empty: it has no largest element");
  REQUIRE_THROWS_WITH(cumsum(scalar(1), 0),
                      "[cumsum] dimension 0 is out of range for a tensor with 0 dimensions");
}

TEST_CASE("equal() compares shape, dtype and every value") {
  const Tensor x = tensor<double>({1, -2, 0, INFINITY}, {2, 2});
  CHECK(equal(x, x.clone()));
  CHECK(equal(x.transpose(0, 1).contiguous(), x.transpose(0, 1)));
  CHECK_FALSE(equal(x, x.reshape({4})));
  CHECK_FALSE(equal(x, x.to(f32)));
  CHECK_FALSE(equal(x, x + tensor<double>({0, 1e-300, 0, 0}, {2, 2}).transpose(0, 1)));
  CHECK(equal(tensor<double>({0.0}), tensor<double>({-0.0})));
  CHECK_FALSE(equal(tensor<double>({NAN}), tensor<double>({NAN})));
  CHECK(equal(empty({0, 3}), empty({0, 3})));
  CHECK_FALSE(equal(empty({0, 3}), empty({3, 0})));
  const int64_t large = (int64_t(1) << 60) + 1;
  CHECK_FALSE(equal(tensor<int64_t>({large}), tensor<int64_t>({large - 1})));
  CHECK(equal(gt(x, 0.0), gt(x * 2.0, 0.0)));
}

TEST_CASE("allclose() compares within the tolerances, with infinities and NaN") {
  const Tensor x = tensor<double>({1, -2, 1e6});
  CHECK(allclose(x, x));
  CHECK(allclose(x + 1e-9, x));
  CHECK_FALSE(allclose(x + 1e-3, x));
  CHECK(allclose(x + 1e-3, x, 0, 1e-2));
  CHECK(allclose(x * 1.01, x, 0.02, 0));
  CHECK_FALSE(allclose(x * 1.01, x, 0.001, 0));
  CHECK(allclose(x.to(f32), x));
  CHECK(allclose(full({4, 3}, 2.0), scalar(2.0)));
  CHECK_FALSE(allclose(tensor<double>({1}), tensor<double>({INFINITY})));
  CHECK_FALSE(allclose(tensor<double>({INFINITY}), tensor<double>({1})));
  CHECK_FALSE(allclose(tensor<double>({INFINITY}), tensor<double>({-INFINITY})));
  CHECK(allclose(tensor<double>({INFINITY}), tensor<double>({INFINITY})));
  const Tensor nan = tensor<double>({1, NAN});
  CHECK_FALSE(allclose(nan, nan));
  CHECK(allclose(nan, nan, 1e-5, 1e-8, true));
  CHECK_FALSE(allclose(nan, tensor<double>({1, 1}), 1e-5, 1e-8, true));
  CHECK(allclose(empty({0}), empty({0})));
  CHECK_THROWS_WITH(allclose(x, x, -1), "[allclose] rtol -1, atol 1e-08; cannot be negative");
  CHECK_THROWS_WITH(allclose(x, empty({2})), Containing("do not broadcast"));
}
