#include "ops/indexing.h"

#include <cmath>
#include <limits>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

using Values = std::vector<double>;

Tensor index_tensor(const std::vector<int64_t>& values, const Shape& shape, DType t = i64) {
  return tensor(values, shape).to(t);
}

// Indices in [0, n) that depend only on `stream` and the position.
Tensor fixed_index(const Shape& shape, int64_t n, uint64_t stream) {
  Tensor x = empty(shape, {.dtype = i64});
  for (int64_t i = 0; i < x.numel(); ++i)
    x.data<int64_t>()[i] = random_bits({.seed = 78, .stream = stream}, uint64_t(i)) % uint64_t(n);
  return x;
}

// Coordinates of row-major element i of a shape.
Shape coordinates(const Shape& shape, int64_t i) {
  Shape at = shape;
  for (int64_t d = shape.dim() - 1; d >= 0; --d) {
    at[d] = i % shape[d];
    i /= shape[d];
  }
  return at;
}
int64_t position(const Shape& shape, const Shape& at) {
  int64_t i = 0;
  for (int64_t d = 0; d < shape.dim(); ++d) i = i * shape[d] + at[d];
  return i;
}

Values gather_reference(const Tensor& x, int64_t d, const Tensor& index) {
  const Values from = x.to_vector<double>();
  const auto where = index.to_vector<int64_t>();
  Values y(where.size());
  for (size_t i = 0; i < y.size(); ++i) {
    Shape at = coordinates(index.shape(), int64_t(i));
    at[d] = where[i];
    y[i] = from[size_t(position(x.shape(), at))];
  }
  return y;
}

Values scatter_reference(const Tensor& x, int64_t d, const Tensor& index, const Tensor& source) {
  Values y = x.to_vector<double>();
  const auto where = index.to_vector<int64_t>();
  const Values from = source.to_vector<double>();
  for (size_t i = 0; i < from.size(); ++i) {
    Shape at = coordinates(index.shape(), int64_t(i));
    at[d] = where[i];
    y[size_t(position(x.shape(), at))] += from[i];
  }
  return y;
}

constexpr DType all_dtypes[] = {f32, f64, bf16, i64, i32, u8, boolean};

}  // namespace

TEST_CASE("cat joins along every dimension") {
  for (DType t : all_dtypes) {
    const Tensor a = (fixed_noise({2, 3, 4}, 1) * 100.0 + 100.0).to(t);
    for (int64_t d : {0, 1, 2, -1}) {
      Shape wider = a.shape(), joined = a.shape();
      const int64_t at = d < 0 ? 2 : d;
      wider[at] = 5;
      joined[at] += 5 + 0 + a.size(d);
      const Tensor b = strided_copy((fixed_noise(wider, 2) * 100.0 + 100.0).to(t));
      wider[at] = 0;
      const Tensor y = cat({a, b, zeros(wider, {.dtype = t}), strided_copy(a)}, d);
      REQUIRE(y.shape() == joined);
      REQUIRE(y.dtype() == t);
      const int64_t n = a.size(d);
      CHECK(y.slice(d, 0, n).to_vector<double>() == a.to_vector<double>());
      CHECK(y.slice(d, n, n + 5).to_vector<double>() == b.to_vector<double>());
      CHECK(y.slice(d, n + 5).to_vector<double>() == a.to_vector<double>());
    }
  }
  CHECK(cat({zeros({0}), zeros({0})}).shape() == Shape{0});
  const Tensor row = tensor({1.0, 2.0}).unsqueeze(0).expand({2, 2});
  CHECK(cat({row, row}, 1).to_vector<double>() == Values{1, 2, 1, 2, 1, 2, 1, 2});
}

TEST_CASE("stack adds a dimension") {
  const Tensor a = fixed_noise({2, 3}, 1), b = fixed_noise({2, 3}, 2);
  for (int64_t d : {0, 1, 2, -1, -3}) {
    const Tensor y = stack({a, b}, d);
    CHECK(y.size(d) == 2);
    CHECK(y.select(d, 0).to_vector<double>() == a.to_vector<double>());
    CHECK(y.select(d, 1).to_vector<double>() == b.to_vector<double>());
  }
  CHECK(stack({scalar(1), scalar(2)}).to_vector<double>() == Values{1, 2});
}

TEST_CASE("split returns views that cat joins again") {
  const Tensor x = fixed_noise({7, 3}, 1);
  const Tensors pieces = split(x, 3);
  REQUIRE(pieces.size() == 3);
  CHECK(pieces[2].shape() == Shape{1, 3});
  CHECK(&pieces[1].storage() == &x.storage());
  CHECK(cat(pieces).to_vector<double>() == x.to_vector<double>());
  const Tensors parts = split(x, std::vector<int64_t>{2, 0, 1}, 1);
  REQUIRE(parts.size() == 3);
  CHECK(parts[1].shape() == Shape{7, 0});
  CHECK(cat(parts, -1).to_vector<double>() == x.to_vector<double>());
  REQUIRE(split(zeros({0, 2}), 4).size() == 1);
  CHECK(split(zeros({0, 2}), 4)[0].shape() == Shape{0, 2});
  CHECK(split(x, INT64_MAX).size() == 1);
}

TEST_CASE("gather agrees with loops in every dtype and layout") {
  for (DType t : all_dtypes) {
    const Tensor x = (fixed_noise({4, 5, 6}, 3) * 100.0 + 100.0).to(t);
    for (int64_t d : {0, 1, 2})
      for (const Shape& shape : {Shape{4, 5, 6}, Shape{2, 3, 4}, Shape{1, 1, 1}, Shape{4, 0, 6}}) {
        const Tensor index = fixed_index(shape, x.size(d), 5);
        const Values expected = gather_reference(x, d, index);
        CHECK(gather(x, d, index).to_vector<double>() == expected);
        CHECK(gather(strided_copy(x), d - 3, index.to(i32)).to_vector<double>() == expected);
        CHECK(gather(x, d, strided_copy(index)).to_vector<double>() == expected);
      }
  }
  const Tensor longer = fixed_index({4, 30, 6}, 5, 1), x = fixed_noise({4, 5, 6}, 3);
  CHECK(gather(x, 1, longer).to_vector<double>() == gather_reference(x, 1, longer));
  const Tensor repeated = fixed_noise({1, 5, 1}, 3).expand({4, 5, 6});
  CHECK(gather(repeated, 1, longer).to_vector<double>() == gather_reference(repeated, 1, longer));
  const Tensor wide = fixed_noise({300, 200}, 2), many = fixed_index({300, 150}, 200, 3);
  CHECK(gather(wide, 1, many).to_vector<double>() == gather_reference(wide, 1, many));
}

TEST_CASE("index_select agrees with select in every dtype and layout") {
  for (DType t : all_dtypes) {
    const Tensor x = (fixed_noise({4, 5, 6}, 3) * 100.0 + 100.0).to(t);
    for (int64_t d : {0, 1, 2}) {
      const Tensor ids = fixed_index({9}, x.size(d), 6);
      for (const Tensor& from : {x, strided_copy(x)}) {
        const Tensor y = index_select(from, d - 3, ids);
        REQUIRE(y.size(d) == 9);
        for (int64_t i = 0; i < 9; ++i)
          CHECK(y.select(d, i).to_vector<double>() ==
                x.select(d, ids.data<int64_t>()[i]).to_vector<double>());
      }
      CHECK(index_select(x, d, zeros({0}, {.dtype = i32})).size(d) == 0);
    }
  }
  CHECK(index_select(tensor({5.0, 6.0, 7.0}), 0, tensor({2, 0, 2})).to_vector<double>() ==
        Values{7, 5, 7});
  CHECK(index_select(zeros({3, 0}), 0, tensor({1, 1})).shape() == Shape{2, 0});
}

TEST_CASE("scatter_add agrees with loops in every dtype and layout, with repeated indices") {
  for (DType t : {f32, f64, bf16, i64, i32, u8}) {
    const Tensor x = (fixed_noise({4, 5, 6}, 3) * 4.0 + 4.0).to(i32).to(t);
    for (int64_t d : {0, 1, 2})
      for (const Shape& shape : {Shape{4, 5, 6}, Shape{2, 3, 4}, Shape{4, 0, 6}}) {
        const Tensor index = fixed_index(shape, x.size(d), 7);
        const Tensor source = (fixed_noise(shape, 8) * 4.0 + 4.0).to(i32).to(t);
        const Values expected = scatter_reference(x, d, index, source);
        CHECK(scatter_add(x, d, index, source).to_vector<double>() == expected);
        CHECK(scatter_add(strided_copy(x), d, strided_copy(index), strided_copy(source))
                  .to_vector<double>() == expected);
      }
    const Tensor longer = fixed_index({4, 30, 6}, 5, 1), one = ones({4, 30, 6}, {.dtype = t});
    CHECK(scatter_add(x, 1, longer, one).to_vector<double>() ==
          scatter_reference(x, 1, longer, one));
  }
  const Tensor x = zeros({3});
  const Tensor y = scatter_add(x, 0, tensor({2, 2, 0}), tensor({1.f, 2.f, 4.f}));
  CHECK(y.to_vector<double>() == Values{4, 0, 3});
  CHECK(x.to_vector<double>() == Values{0, 0, 0});
  // 400 times 1/256 added to 1: a bf16 sum would stay at 1
  const Tensor small = full({400}, 1.0 / 256, {.dtype = bf16});
  CHECK(scatter_add(ones({1}, {.dtype = bf16}), 0, zeros({400}, {.dtype = i64}), small).item() ==
        double(float(BFloat16(1 + 400.0 / 256))));
}

TEST_CASE("scatter_add sums many terms without losing digits on the CPU") {
  const int64_t n = 100'000;
  const Tensor total =
      scatter_add(zeros({1}, {.device = cpu}), 0, zeros({n}, {.dtype = i64, .device = cpu}),
                  full({n}, 0.1, {.device = cpu}));
  CHECK(total.item() == double(float(double(n) * double(0.1f))));
}

TEST_CASE("embedding returns rows of the table") {
  for (DType t : {f32, f64, bf16}) {
    const Tensor table = fixed_noise({10, 4}, 9, t);
    for (const Shape& shape :
         {Shape{}, Shape{3}, Shape{2, 3}, Shape{2, 1, 5}, Shape{0}, Shape{2, 0}}) {
      const Tensor ids = fixed_index(shape, 10, 4);
      const Tensor y = embedding(table, ids);
      Shape expected = shape;
      expected.push_back(4);
      REQUIRE(y.shape() == expected);
      const Values flat = y.to_vector<double>();
      for (int64_t i = 0; i < ids.numel(); ++i) {
        const Values row = table[ids.data<int64_t>()[i]].to_vector<double>();
        CHECK(Values(flat.begin() + 4 * i, flat.begin() + 4 * i + 4) == row);
      }
      CHECK(embedding(strided_copy(table), ids.to(i32)).to_vector<double>() == flat);
    }
  }
}

TEST_CASE("the gradient of embedding sums repeated rows, for any number of threads") {
  for (auto [rows, size, n] : {std::tuple<int64_t, int64_t, int64_t>{3, 7, 50},
                               {100, 128, 5000},
                               {20000, 33, 4096},
                               {1, 64, 3000}}) {
    const Tensor ids = fixed_index({n}, rows, 11);
    const Tensor g = randn({n, size}, {.seed = 6});
    Tensor grads[2];
    const int before = num_threads();
    for (int threads : {1, 2}) {
      set_num_threads(threads);
      Tensor table = zeros({rows, size}, {.requires_grad = true});
      embedding(table, ids).backward(g);
      grads[threads - 1] = table.grad();
    }
    set_num_threads(before);
    CHECK(grads[0].to_vector<float>() == grads[1].to_vector<float>());
    Values expected(size_t(rows * size)), sizes(size_t(rows * size)), counts(size_t(rows * size));
    const auto row = ids.to_vector<int64_t>();
    const Values v = g.to_vector<double>();
    for (int64_t i = 0; i < n * size; ++i) {
      const size_t at = size_t(row[size_t(i / size)] * size + i % size);
      expected[at] += v[size_t(i)];
      sizes[at] += std::fabs(v[size_t(i)]);
      ++counts[at];
    }
    const Values got = grads[0].to_vector<double>();
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i)
      wrong += !(std::fabs(got[i] - expected[i]) <= counts[i] * 0x1p-24 * sizes[i]);
    CHECK(wrong == 0);
  }
  Tensor table = zeros({2, 1}, {.dtype = bf16, .requires_grad = true});
  sum(embedding(table, zeros({300}, {.dtype = i64}))).backward();
  CHECK(table.grad().to_vector<double>() == Values{300, 0});  // a bf16 sum would stop at 256
}

TEST_CASE("gradients of indexing ops equal finite differences") {
  const Tensors in{fixed_leaf({3, 4, 2}, 5)};
  for (int64_t d : {0, 1, -1}) {
    const Tensor ids = fixed_index({7}, in[0].size(d), 3);
    check_gradients([&](const Tensors& x) { return index_select(square(x[0]), d, ids); }, in);
    Shape shape{3, 4, 2};
    shape[wrap_dim("test", d, 3)] = 5;
    const Tensor index = fixed_index(shape, in[0].size(d), 3);
    check_gradients([&](const Tensors& x) { return gather(square(x[0]), d, index); }, in);
    check_gradients(
        [&](const Tensors& x) { return scatter_add(square(x[0]), d, index, square(x[1])); },
        {in[0], fixed_leaf(shape, 6)});
    check_gradients(
        [&](const Tensors& x) {
          return square(cat({x[0], x[1], x[0]}, d));
        },
        {in[0], fixed_leaf(shape, 6)});
    check_gradients(
        [&](const Tensors& x) {
          return square(stack({x[0], x[1]}, d));
        },
        {in[0], fixed_leaf({3, 4, 2}, 6)});
    check_gradients([&](const Tensors& x) { return split(square(x[0]), 2, d)[0]; }, in);
  }
  check_gradients(
      [&](const Tensors& x) {
        return split(x[0], std::vector<int64_t>{1, 3}, 1)[1];
      },
      in);
  check_gradients([&](const Tensors& x) { return embedding(square(x[0]), x[1]); },
                  {fixed_leaf({4, 3}, 1), index_tensor({3, 0, 3, 3, 1, 0}, {2, 3}, i32)});
  check_gradients(
      [](const Tensors& x) {
        return embedding(x[0], zeros({0, 2}, {.dtype = i64}));
      },
      {fixed_leaf({4, 3}, 1)});
  check_gradients(
      [](const Tensors& x) {
        return gather(x[0].transpose(0, 1), 1, tensor({2, 1}).view({1, 2}));
      },
      {fixed_leaf({3, 2}, 1)});
  // only inputs that require a gradient get one
  Tensor x = fixed_leaf({2}, 1);
  sum(cat({x, fixed_noise({3}, 2)})).backward();
  CHECK(x.grad().to_vector<double>() == Values{1, 1});
}

TEST_CASE("an in-place change of an index before backward is detected") {
  Tensor table = fixed_leaf({4, 2}, 1);
  Tensor ids = index_tensor({1, 2}, {2});
  const Tensor y = sum(embedding(table, ids));
  ids.fill_(0);
  REQUIRE_THROWS_WITH(y.backward(), Containing("was changed in place after it was used"));
}

TEST_CASE("errors of indexing ops name what is accepted") {
  const Tensor x = zeros({2, 3}), ids = tensor({0, 1});
  REQUIRE_THROWS_WITH(cat({}), "[cat] got no tensors; accepted: at least one");
  REQUIRE_THROWS_WITH(stack({}), "[stack] got no tensors; accepted: at least one");
  REQUIRE_THROWS_WITH(
      cat({x, zeros({3, 3})}, 1),
      "[cat] f32 [2, 3] and f32 [3, 3] along dimension 1; all other sizes must agree");
  REQUIRE_THROWS_WITH(cat({x, zeros({2})}), Containing("[cat] f32 [2, 3] and f32 [2]"));
  REQUIRE_THROWS_WITH(cat({x, zeros({2, 3}, {.dtype = f64})}),
                      "[cat] dtypes differ: f32 [2, 3] and f64 [2, 3]");
  REQUIRE_THROWS_WITH(cat({x}, 2),
                      "[cat] dimension 2 is out of range for a tensor with 2 dimensions");
  REQUIRE_THROWS_WITH(stack({x, zeros({2})}),
                      "[stack] f32 [2, 3] and f32 [2]; all shapes must agree");
  REQUIRE_THROWS_WITH(split(x, 0), "[split] size 0; must be at least 1");
  REQUIRE_THROWS_WITH(split(x, std::vector<int64_t>{1, 1}, 1),
                      "[split] sizes add up to 2, but dimension 1 of f32 [2, 3] has size 3");
  REQUIRE_THROWS_WITH(split(x, std::vector<int64_t>{-1, 4}, 1),
                      "[split] size -1; must be 0 or more");

  REQUIRE_THROWS_WITH(embedding(x, tensor({0.f})),
                      "[embedding] indices are f32; accepted: i64, i32");
  REQUIRE_THROWS_WITH(embedding(zeros({3}), ids),
                      "[embedding] table f32 [3]; must have 2 dimensions, [V, D]");
  REQUIRE_THROWS_WITH(
      embedding(x, index_tensor({0, 1, 0, 7, 9, 0}, {2, 3})),
      "[embedding] index 7 at position [1, 0] is out of range: the table has 2 rows");
  REQUIRE_THROWS_WITH(embedding(x, index_tensor({-1}, {}, i32)),
                      "[embedding] index -1 at position [] is out of range: the table has 2 rows");
  REQUIRE_THROWS_WITH(embedding(zeros({0, 3}), ids), Containing("the table has 0 rows"));
  REQUIRE_THROWS_WITH(index_select(x, 1, tensor({2, 3})),
                      "[index_select] index 3 at position [1] is out of range: dimension 1 of "
                      "f32 [2, 3] has size 3");
  REQUIRE_THROWS_WITH(index_select(x, 1, zeros({1, 1}, {.dtype = i64})),
                      "[index_select] index i64 [1, 1]; must have 1 dimension");
  REQUIRE_THROWS_WITH(gather(x, 0, ids),
                      "[gather] index i64 [2] into f32 [2, 3] along dimension 0; the index must "
                      "have as many dimensions and be no larger in any other dimension");
  REQUIRE_THROWS_WITH(gather(x, 0, zeros({2, 4}, {.dtype = i64})), Containing("i64 [2, 4]"));
  REQUIRE_THROWS_WITH(gather(x, 1, full({1, 1}, 3, {.dtype = i64})),
                      Containing("[gather] index 3 at position [0, 0] is out of range"));
  REQUIRE_THROWS_WITH(gather(x, 1, zeros({1, 1})), "[gather] indices are f32; accepted: i64, i32");
  const Tensor zero = zeros({1, 1}, {.dtype = i64});
  REQUIRE_THROWS_WITH(scatter_add(x, 0, zero, zeros({1, 2})),
                      "[scatter_add] index i64 [1, 1] for source f32 [1, 2]; shapes must agree");
  REQUIRE_THROWS_WITH(scatter_add(x, 0, zero, zeros({1, 1}, {.dtype = f64})),
                      "[scatter_add] dtypes differ: f32 [2, 3] and f64 [1, 1]");
  REQUIRE_THROWS_WITH(scatter_add(x, 0, full({1, 1}, 2, {.dtype = i64}), zeros({1, 1})),
                      Containing("[scatter_add] index 2 at position [0, 0] is out of range"));
}
