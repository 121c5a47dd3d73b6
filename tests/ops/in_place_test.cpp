// In-place changes whose source and destination share memory [core/tensor.h,
// readable_while_writing; autograd/tape.h, check_in_place].
#include <algorithm>
#include <random>

#include "autograd/tape.h"
#include "core/dlpack.h"
#include "nn/init.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/index.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

namespace stretto {
namespace {

using testing::same_bits;

Tensor counted(const Shape& shape, DType dtype = f64) {
  return arange(0, double(shape.numel()), 1, {.dtype = dtype}).view(shape);
}

}  // namespace

TEST_CASE("add_ of a part of the tensor itself reads its source first", "[ops]") {
  for (const DType dtype : {f32, f64, bf16}) {
    Tensor x = counted({3, 5}, dtype);
    const Tensor want = x - x[0];
    x.add_(x[0], -1);
    CHECK(same_bits(x, want));
    Tensor s = counted({70, 70}, dtype);
    const Tensor symmetric = s + s.transpose(0, 1);
    s.add_(s.transpose(0, 1));
    CHECK(same_bits(s, symmetric));
  }
}

TEST_CASE("copy_ to an overlapping view shifts and transposes correctly", "[ops]") {
  for (const int64_t n : {5, 100'000}) {  // one block, and several threads
    Tensor right = counted({n}), left = counted({n});
    right.slice(0, 1).copy_(right.slice(0, 0, -1));
    left.slice(0, 0, -1).copy_(left.slice(0, 1));
    const Tensor want = counted({n});
    CHECK(same_bits(right.slice(0, 1), want.slice(0, 0, -1)));
    CHECK(right[0].item() == 0);
    CHECK(same_bits(left.slice(0, 0, -1), want.slice(0, 1)));
    CHECK(left[-1].item() == double(n - 1));
  }
  for (const int64_t n : {3, 40, 129}) {
    Tensor s = counted({n, n});
    const Tensor want = s.transpose(0, 1).clone();
    s.copy_(s.transpose(0, 1));
    CHECK(same_bits(s, want));
  }
}

TEST_CASE("index_put_ of the tensor itself reads its values first", "[ops]") {
  const Tensor swapped = tensor<int64_t>({1, 0});
  Tensor x = tensor<double>({0, 1});
  x.index_put_({swapped}, x);
  CHECK(x.to_vector<double>() == std::vector<double>{1, 0});
  for (const int64_t n : {5, 300}) {
    const Tensor m = counted({n, n}), before = m.clone(), back = arange(n - 1, -1, -1).to(i64);
    m.index_put_({back}, m);
    CHECK(same_bits(m, flip(before, 0)));
    m.copy_(before).index_put_({Slice(), back}, m);
    CHECK(same_bits(m, flip(before, 1)));
    m.copy_(before).index_put_({back}, m, true);
    CHECK(same_bits(m, before + flip(before, 0)));
    m.copy_(before).index_put_({back}, m.transpose(0, 1));
    CHECK(same_bits(m, flip(before.transpose(0, 1), 0)));
    m.copy_(before).index_put_({back}, m[1]);
    CHECK(same_bits(m, before[1].expand({n, n})));
  }
  const Tensor ids = tensor<int64_t>({2, 0, 1});  // indices and values are the tensor itself
  ids.index_put_({ids}, ids);
  CHECK(ids.to_vector<int64_t>() == std::vector<int64_t>{0, 1, 2});
}

TEST_CASE("tensors with one common byte overlap", "[ops]") {
  const Tensor bytes = zeros({5}, {.dtype = u8});
  CHECK(may_overlap(bytes.slice(0, 0, 3), bytes.slice(0, 2)));
  CHECK(may_overlap(bytes.slice(0, 2), bytes.slice(0, 0, 3)));
  CHECK(!may_overlap(bytes.slice(0, 0, 3), bytes.slice(0, 3)));
}

TEST_CASE("in-place ops know memory that tensors share through DLPack", "[ops]") {
  const auto shared = [](const Tensor& x) { return from_dlpack(to_dlpack(x)); };
  const Tensor x = counted({5, 5}), before = x.clone(), row = counted({6});
  CHECK(may_overlap(shared(x), x));
  CHECK(may_overlap(shared(x), shared(x)));
  CHECK(!may_overlap(shared(x[0]), shared(x[1])));
  x.copy_(shared(x).transpose(0, 1));
  CHECK(same_bits(x, before.transpose(0, 1)));
  x.add_(shared(x).transpose(0, 1));
  CHECK(same_bits(x, before + before.transpose(0, 1)));
  shared(row).slice(0, 1).copy_(shared(row).slice(0, 0, 5));
  CHECK(row.to_vector<double>() == std::vector<double>{0, 0, 1, 2, 3, 4});
  row.index_put_({tensor<int64_t>({5, 4, 3, 2, 1, 0})}, shared(row));
  CHECK(row.to_vector<double>() == std::vector<double>{4, 3, 2, 1, 0, 0});
  // The memory is not reused for results.
  CHECK(!shared(row).unique());
  const Tensor leaf = ones({6}, {.dtype = f64, .requires_grad = true});
  leaf.register_hook([&](const Tensor&) { return shared(row); });
  for (int pass = 0; pass < 2; ++pass) sum(leaf).backward();
  CHECK(leaf.grad().to_vector<double>() == std::vector<double>{8, 6, 4, 2, 0, 0});
  CHECK(row.to_vector<double>() == std::vector<double>{4, 3, 2, 1, 0, 0});
}

TEST_CASE("in-place ops with identical source and destination need no copy", "[ops]") {
  Tensor x = counted({400, 100});
  const Tensor twice = x * 2.0, view = x.slice(1, 3, 97, 2);
  const Tensor same = x.slice(1, 3, 97, 2);
  reset_peak_memory();
  const int64_t before = memory_stats().peak;
  x.add_(x);
  view.copy_(same);
  CHECK(memory_stats().peak == before);
  CHECK(same_bits(x, twice));
  view.add_(same, -1);
  CHECK(memory_stats().peak == before);
  CHECK(same_bits(view, zeros_like(view)));
}

TEST_CASE("in-place ops among random views of one storage are right", "[ops]") {
  std::mt19937 random(3);
  const auto up_to = [&](int64_t n) { return int64_t(random() % uint64_t(n + 1)); };
  for (int round = 0; round < 2000; ++round) {
    Tensor memory = counted({6, 8, 4});
    // Destination: a permuted view with steps. Source: any view of the same shape.
    Tensor to = memory;
    for (int64_t d = 0; d < 3; ++d) {
      const int64_t start = up_to(to.size(d) - 1);
      to = to.slice(d, start, start + 1 + up_to(to.size(d) - start - 1), 1 + up_to(2));
    }
    to = to.permute(random() % 2 ? Shape{2, 0, 1} : Shape{0, 2, 1});
    Shape strides = to.strides();
    int64_t reach = 0;
    for (int64_t d = 0; d < 3; ++d) {
      strides[d] = to.size(d) > 1 ? up_to((memory.numel() - 1 - reach) / (to.size(d) - 1) / 2) : 1;
      if (random() % 3 == 0) strides[d] = std::min(strides[d], to.strides()[d]);
      reach += (to.size(d) - 1) * strides[d];
    }
    const Tensor from = make_view(memory, up_to(memory.numel() - 1 - reach), to.shape(), strides);
    INFO(str("to ", to, to.strides(), " at ", to.offset(), ", from ", from.strides(), " at ",
             from.offset()));
    const Tensor expected = memory.clone();
    const Tensor destination = make_view(expected, to.offset(), to.shape(), to.strides());
    if (round % 2) {
      destination.copy_(to + from * 0.5);
      to.add_(from, 0.5);
    } else {
      destination.copy_(from);
      to.copy_(from);
    }
    REQUIRE(same_bits(memory, expected));
  }
}

TEST_CASE("a view that shows an element more than once cannot be changed in place", "[ops]") {
  const Tensor row = counted({1, 4}), wide = row.expand({3, 4});
  const Tensor windows = make_view(counted({8}), 0, {6, 3}, {1, 1});
  for (const Tensor& x : {wide, windows, wide.transpose(0, 1), wide.unsqueeze(1)}) {
    const Tensor before = x.clone();
    const std::string text =
        "has several elements at one address and cannot be changed in place; change a clone()";
    CHECK_THROWS_WITH(x.fill_(1), Containing(text));
    CHECK_THROWS_WITH(x.zero_(), Containing(text));
    CHECK_THROWS_WITH(x.copy_(before), Containing(text));
    CHECK_THROWS_WITH(x.add_(before), Containing(text));
    CHECK_THROWS_WITH(x.mul_(2), Containing(text));
    CHECK_THROWS_WITH(nn::constant_(x, 1), Containing(text));
    CHECK_THROWS_WITH(nn::uniform_(x), Containing(text));
    CHECK_THROWS_WITH(nn::trunc_normal_(x), Containing(text));
    CHECK_THROWS_WITH(nn::orthogonal_(x.reshape({-1, 1}).expand({-1, 2})), Containing(text));
    CHECK(same_bits(x, before));
  }
  CHECK_THROWS_WITH(wide.fill_(1), Containing("[fill_] the tensor (f64 [3, 4]) with strides [0, 1] "
                                              "has several elements at one address"));
  CHECK_THROWS_WITH(nn::SGD(Tensors{wide}, {.lr = 1}), Containing("overlapping elements"));
}

TEST_CASE("views that show each element once can be changed in place, whatever their strides",
          "[ops]") {
  const Tensor x = zeros({4, 6, 5});
  x.permute({2, 0, 1}).slice(1, 1, 4, 2).fill_(1);
  CHECK(sum_to(x, {}).item() == 5 * 2 * 6);
  x.slice(2, 0, 5, 4).select(0, 0).fill_(7);
  CHECK(x[0][5].to_vector<float>() == std::vector<float>{7, 0, 0, 0, 7});
  make_view(x, 0, {1, 3}, {0, 1}).fill_(2);                // a size of 1 may have any stride
  make_view(x, 0, {0, 3}, {0, 0}).fill_(2);                // nothing to write
  make_view(x, 0, {4}, {6}).copy_(ones({1}).expand({4}));  // read more than once
  CHECK(x.flatten().slice(0, 0, 7).to_vector<float>() == std::vector<float>{1, 2, 2, 0, 7, 7, 1});
}

TEST_CASE("values with a gradient are refused in place, where it would be lost", "[ops]") {
  const Tensor x = zeros({3}), y = ones({3}).set_requires_grad();
  const Tensor mask = tensor<int64_t>({1, 0, 1}).to(boolean);
  const std::vector<TensorIndex> selected{mask};
  const char* const detach =
      "which an op in place does not record; use where, scatter or cat, or "
      "detach the values";
  CHECK_THROWS_WITH(x.copy_(y * 2), Containing(detach));
  CHECK_THROWS_WITH(x.add_(y), Containing(detach));
  CHECK_THROWS_WITH(x.sub_(y), Containing(detach));
  CHECK_THROWS_WITH(x.mul_(y), Containing(detach));
  CHECK_THROWS_WITH(x.div_(y), Containing(detach));
  CHECK_THROWS_WITH(x.index_put_(selected, y[0]), Containing(detach));
  CHECK(x.to_vector<float>() == std::vector<float>{0, 0, 0});
  x.copy_(y.detach()).index_put_(selected, y[0].detach() * 5);
  CHECK(x.to_vector<float>() == std::vector<float>{5, 1, 5});
  const NoGrad guard;
  CHECK(x.add_(y).to_vector<float>() == std::vector<float>{6, 2, 6});
}

TEST_CASE("the values of a const tensor can be changed", "[ops]") {
  const Tensor x = zeros({2, 2});
  x.fill_(1).add_(ones({2, 2}), 2).mul_(2);
  x[0].copy_(zeros({2}));
  CHECK(x.to_vector<float>() == std::vector<float>{0, 0, 6, 6});
}

TEST_CASE("a gradient may share the memory of its parameter", "[ops]") {
  const Tensor memory = counted({1000}), w = memory.slice(0, 1), g = memory.slice(0, 0, -1);
  const Tensor want = w - g;
  w.set_requires_grad();
  w.set_grad(g);
  nn::SGD(Tensors{w}, {.lr = 1}).step();
  CHECK(same_bits(w.detach(), want));
}

}  // namespace stretto
