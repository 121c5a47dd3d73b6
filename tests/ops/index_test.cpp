// Reading and assigning by integers, slices, index tensors and masks [ops/index.h], and ops whose
// result's shape depends on the data [ops/indexing.h].
#include "ops/index.h"

#include <random>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

using testing::same_bits;
using Ids = std::vector<int64_t>;

Tensor counted(const Shape& shape, DType dtype = f32) {
  return arange(0, double(shape.numel()), 1, {.dtype = f64}).to(dtype).view(shape);
}

Ids values(const Tensor& x) { return x.to_vector<int64_t>(); }

}  // namespace

TEST_CASE("index selects as NumPy and PyTorch do", "[ops]") {
  const Tensor x = counted({3, 4, 5}), i = tensor<int64_t>({2, -3}), j = tensor<int32_t>({0, -1});
  CHECK(same_bits(x.index({}), x));
  CHECK(same_bits(x.index({1}), x[1]));
  CHECK(same_bits(x.index({"...", -1}), x.select(2, -1)));
  CHECK(same_bits(x.index({Slice(), Slice(1, -1), Slice(0, 5, 2)}),
                  x.slice(1, 1, 3).slice(2, 0, 5, 2)));
  CHECK(x.index({1, Slice(2)}).storage().data == x.storage().data);
  CHECK(same_bits(x.index({i}), stack({x[2], x[0]})));
  CHECK(same_bits(x.index({i, j}), stack({x[2][0], x[0][3]})));
  CHECK(same_bits(x.index({i.view({2, 1}), j}),
                  stack({stack({x[2][0], x[2][3]}), stack({x[0][0], x[0][3]})})));
  // Tensors with a slice between them: their dimension comes first. An integer is applied before.
  CHECK(x.index({i, Slice(), j}).shape() == Shape{2, 4});
  CHECK(same_bits(x.index({i, Slice(), j}), stack({x[2].select(1, 0), x[0].select(1, 4)})));
  CHECK(x.index({0, Slice(), j}).shape() == Shape{4, 2});
  CHECK(x.index({Slice(), i, j}).shape() == Shape{3, 2});
  // A 0-d tensor is treated as an integer.
  const Tensor one = scalar(1, {.dtype = i64}), last = scalar(-1, {.dtype = i32});
  const Tensor four = counted({2, 3, 4, 5});
  CHECK(same_bits(x.index({one}), x[1]));
  CHECK(same_bits(x.index({one, Slice(), last}), x[1].select(1, -1)));
  CHECK(same_bits(x.index({one, Slice(), j}), x.index({1, Slice(), j})));
  CHECK(same_bits(x.index({j, one, Slice()}), x.index({j, 1, Slice()})));
  CHECK(same_bits(four.index({Slice(), one, Slice(), j}), four.index({Slice(), 1, Slice(), j})));
  CHECK(same_bits(four.index({Slice(), j, one, j}), four.index({Slice(), j, 1, j})));
  CHECK(same_bits(four.index({j, Slice(), one, j}), four.index({j, Slice(), 1, j})));
  const Tensor put = four.clone(), same = four.clone(), added = counted({2, 4, 2}) * 100.0;
  CHECK(same_bits(put.index_put_({Slice(), one, Slice(), j}, added),
                  same.index_put_({Slice(), 1, Slice(), j}, added)));
  const Tensor mask = gt(x, 30);
  CHECK(values(x.index({mask})) == values(arange(31, 60)));
  CHECK(same_bits(x.index({mask}), masked_select(x, mask)));
  CHECK(x.index({eq(arange(3), 1)}).shape() == Shape{1, 4, 5});
  CHECK(x.index({Slice(), zeros({4, 5}, {.dtype = boolean})}).shape() == Shape{3, 0});
  CHECK(x.index({zeros({0}, {.dtype = i64})}).shape() == Shape{0, 4, 5});
}

namespace {

// One way to index x [4, 5, 6], and which elements it selects, as positions in x.
struct Case {
  std::vector<TensorIndex> list;
  Ids selected;
};

std::vector<Case> random_cases(std::mt19937& random) {
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  const auto drawn = [&](int64_t count, int64_t n) {
    Ids ids;
    for (int64_t k = 0; k < count; ++k) ids.push_back(below(n));
    return ids;
  };
  const auto at = [](int64_t a, int64_t b, int64_t c) { return (a * 5 + b) * 6 + c; };
  const auto as_tensor = [](const Ids& ids) { return tensor(ids, {int64_t(ids.size())}); };
  std::vector<Case> cases;
  const Ids a = drawn(7, 4), b = drawn(7, 5), c = drawn(7, 6);
  Ids i, ij, iSk, Sjk, ijk;
  for (size_t n = 0; n < 7; ++n)
    for (int64_t k = 0; k < 30; ++k) i.push_back(a[n] * 30 + k);
  for (size_t n = 0; n < 7; ++n)
    for (int64_t k = 0; k < 6; ++k) ij.push_back(at(a[n], b[n], k));
  for (size_t n = 0; n < 7; ++n)
    for (int64_t k = 0; k < 5; ++k) iSk.push_back(at(a[n], k, c[n]));
  for (int64_t k = 0; k < 4; ++k)
    for (size_t n = 0; n < 7; ++n) Sjk.push_back(at(k, b[n], c[n]));
  for (size_t n = 0; n < 7; ++n) ijk.push_back(at(a[n], b[n], c[n]));
  cases.push_back({{as_tensor(a)}, i});
  cases.push_back({{as_tensor(a), as_tensor(b)}, ij});
  cases.push_back({{as_tensor(a), Slice(), as_tensor(c)}, iSk});
  cases.push_back({{Slice(), as_tensor(b), as_tensor(c)}, Sjk});
  cases.push_back({{as_tensor(a), as_tensor(b), as_tensor(c)}, ijk});
  const Tensor mask = tensor(std::vector<bool>{true, false, true, true, false}, {5});
  Ids masked;
  for (int64_t k : {0, 2, 3})
    for (int64_t l = 0; l < 6; ++l) masked.push_back(at(1, k, l));
  cases.push_back({{1, mask}, masked});
  Ids sliced;
  for (int64_t k = 0; k < 4; ++k)
    for (int64_t l : {1, 3, 5}) sliced.push_back(at(k, 2, l));
  cases.push_back({{"...", 2, Slice(1, 6, 2)}, sliced});
  return cases;
}

}  // namespace

TEST_CASE("index_put_ stores and adds the values that index selects", "[ops]") {
  std::mt19937 random(5);
  for (int round = 0; round < 20; ++round) {
    for (const Case& c : random_cases(random)) {
      for (DType dtype : {f32, f64, bf16, i64, i32, u8}) {
        const Tensor plain = counted({4, 5, 6}, dtype);
        CHECK(values(plain.index(c.list)).size() == c.selected.size());
        const bool transposed = round % 2 == 1;  // no view has the indexed dimensions in one
        const Tensor x = transposed ? plain.transpose(0, 2).contiguous().transpose(0, 2) : plain;
        const Shape shape = x.index(c.list).shape();
        const Tensor y = (counted(shape, f32) + 200.0).to(dtype);
        const Ids added = values(y);
        Ids want = values(x), sums = values(x);
        for (size_t k = 0; k < added.size(); ++k) {
          want[size_t(c.selected[k])] = added[k];
          sums[size_t(c.selected[k])] += added[k];
        }
        const Tensor stored = x.clone(), view = transposed ? x : stored;
        const uint32_t version = view.storage().version;
        CHECK(values(view.index_put_(c.list, y)) == want);
        CHECK(view.storage().version > version);
        if (dtype == bf16 || dtype == u8) continue;  // sums are rounded, or wrap around
        CHECK(values(counted({4, 5, 6}, dtype).index_put_(c.list, y, true)) == sums);
      }
    }
  }
  Tensor x = zeros({3, 4});
  x.index_put_({tensor<int64_t>({0, 2}), Slice(1, 3)}, 7);
  CHECK(values(x) == Ids{0, 7, 7, 0, 0, 0, 0, 0, 0, 7, 7, 0});
  x.index_put_({gt(x, 0)}, tensor<float>({1, 2, 3, 4}));
  CHECK(values(x) == Ids{0, 1, 2, 0, 0, 0, 0, 0, 0, 3, 4, 0});
  x.index_put_({"...", 0}, tensor<float>({5, 6, 7}));
  CHECK(values(x.select(1, 0)) == Ids{5, 6, 7});
  x.index_put_({tensor<int64_t>({0, 1})}, x.slice(0, 1));  // reads its own rows first
  CHECK(values(x) == Ids{6, 0, 0, 0, 7, 3, 4, 0, 7, 3, 4, 0});
}

TEST_CASE("index_put_ refuses what it cannot store", "[ops]") {
  const Tensor x = zeros({3, 4}), ids = tensor<int64_t>({0, 3});
  CHECK_THROWS_WITH(
      x.index_put_({ids}, 1.0),
      Containing("[index_put_] index 3 at position [1] is out of range: dimension 0 of "
                 "f32 [3, 4] has size 3"));
  CHECK_THROWS_WITH(x.index_put_({Slice(), ids}, zeros({3, 3})), Containing("[broadcast_to]"));
  CHECK_THROWS_WITH(zeros({3}, {.dtype = i64}).index_put_({ids}, 0.5), Containing("[index_put_] "));
  CHECK_THROWS_WITH(ones({3}, {.requires_grad = true}).index_put_({0}, 1.0),
                    Containing("[index_put_] "));
  CHECK(values(x) == values(zeros({3, 4})));
}

TEST_CASE("indexing has gradients of both orders", "[ops]") {
  const Tensor i = tensor<int64_t>({2, 0, 2}), j = tensor<int64_t>({1, -1, 1});
  const Tensor mask = tensor(std::vector<bool>{true, false, true}, {3});
  const auto f = [&](const Tensors& x) {
    return sum(square(x[0].index({i, j}))) + sum(square(x[0].index({mask, 1}))) +
           sum(square(x[0].index({"...", j})) * 0.5);
  };
  testing::check_gradients(f, {testing::fixed_leaf({3, 4}, 3)});
}

TEST_CASE("storing by sorting equals storing one by one", "[ops]") {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    Shape shape, part;
    for (int d = 0; d < 3; ++d) {
      shape.push_back(int64_t(1 + random() % 6));
      part.push_back(int64_t(random() % uint64_t(shape[d] + 1)));
    }
    const int64_t d = int64_t(random() % 3);
    part[d] = int64_t(random() % 9);
    Ids ids;
    for (int64_t k = 0; k < part.numel(); ++k)
      ids.push_back(int64_t(random() % uint64_t(shape[d])));
    const Tensor index = tensor(ids, part), source = counted(part, i64) + 1000.0;
    const Tensor y = counted(shape, i64), z = y.clone();
    INFO(str(y, " along ", d, " at ", index));
    scatter_into(y, d, index, source);
    NoGrad guard;
    scatter_by_sorting(z, d, index, source);
    CHECK(same_bits(y, z));
  }
}

TEST_CASE("nonzero has the indices in row-major order", "[ops]") {
  const Tensor x = tensor(std::vector<float>{0, 2, -0.0f, NAN, 0, 1}, {2, 3});
  CHECK(same_bits(nonzero(x), tensor(Ids{0, 1, 1, 0, 1, 2}, {3, 2})));
  CHECK(same_bits(nonzero(x.transpose(0, 1)), tensor(Ids{0, 1, 1, 0, 2, 1}, {3, 2})));
  CHECK(nonzero(zeros({4, 0})).shape() == Shape{0, 2});
  CHECK(nonzero(scalar(3)).shape() == Shape{1, 0});
  CHECK(nonzero(scalar(0)).shape() == Shape{0, 0});
}

TEST_CASE("bincount counts ids, and adds weights", "[ops]") {
  const Tensor ids = tensor<int64_t>({1, 3, 1, 1});
  CHECK(same_bits(bincount(ids), tensor<int64_t>({0, 3, 0, 1})));
  CHECK(same_bits(bincount(ids.to(i32), {}, 6), tensor<int64_t>({0, 3, 0, 1, 0, 0})));
  CHECK(same_bits(bincount(ids, tensor<double>({1, 2, 4, 8})), tensor<double>({0, 13, 0, 2})));
  CHECK(bincount(zeros({0}, {.dtype = i64})).shape() == Shape{0});
  CHECK(bincount(zeros({0}, {.dtype = i64}), {}, 2).to_vector<int64_t>() == Ids{0, 0});
  CHECK_THROWS_WITH(
      bincount(tensor<int64_t>({0, -1})),
      Containing("[bincount] index -1 at position [1] is out of range: ids must not be"));
  CHECK_THROWS_WITH(bincount(ones({2})), Containing("[bincount] ids are f32; accepted: i64, i32"));
  CHECK_THROWS_WITH(bincount(zeros({1, 2}, {.dtype = i64})), Containing("must have 1 dimension"));
  CHECK_THROWS_WITH(bincount(ids, ones({3})),
                    Containing("[bincount] weights f32 [3] for ids i64 [4]"));
  CHECK_THROWS_WITH(bincount(ids, {}, -1), Containing("[bincount] min_length -1"));
}

}  // namespace stretto
