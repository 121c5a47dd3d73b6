// The tensor as a handle to strided memory, and devices by name [core/tensor.h, core/device.h].
#include "core/tensor.h"

#include <limits>

#include "core/device.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"

namespace stretto {

TEST_CASE("copies of a tensor share its data", "[core]") {
  Tensor a = zeros({2, 3});
  const Tensor b = a;  // NOLINT(performance-unnecessary-copy-initialization): tests copies
  CHECK(a.same(b));
  CHECK(a.id() == b.id());
  CHECK(!a.unique());
  a.fill_(5);
  CHECK(b.to_vector<float>()[5] == 5);
  const Tensor c = a.detach();
  CHECK(!a.same(c));
  CHECK(&a.storage() == &c.storage());
  CHECK(!a.clone().same(a));
  CHECK(zeros({1}).unique());
  const Tensor alone = zeros({2});
  const Tensor view = alone.detach();
  CHECK(!alone.unique());
}

TEST_CASE("using an undefined tensor is an error", "[core]") {
  const Tensor none;
  CHECK(!none.defined());
  CHECK(!none.requires_grad());
  CHECK(to_string(none) == "undefined");
  CHECK_THROWS_WITH(none.shape(), "[Tensor] an undefined tensor was used");
  CHECK_THROWS_WITH(none.item(), Containing("an undefined tensor was used"));
  const Tensor x = ones({2});
  CHECK_THROWS_WITH(none + x, "[add] a is undefined");
  CHECK_THROWS_WITH(x * none, "[mul] b is undefined");
  CHECK_THROWS_WITH(0.01 * none, "[mul] the tensor is undefined");
  CHECK_THROWS_WITH(gt(none, 1), "[gt] the tensor is undefined");
  CHECK_THROWS_WITH(where(none, x, x), "[where] the mask is undefined");
  CHECK_THROWS_WITH(sum(none), "[sum] the tensor is undefined");
  CHECK_THROWS_WITH(max(none, 0), "[max] the tensor is undefined");
  CHECK_THROWS_WITH(x.copy_(none), "[copy_] the tensor of new values is undefined");
  CHECK_THROWS_WITH(none.fill_(1), "[fill_] the tensor is undefined");
  CHECK_THROWS_WITH(none.reshape({1}), "[reshape] the tensor is undefined");
  CHECK_THROWS_WITH(none[0], "[select] the tensor is undefined");
  CHECK_THROWS_WITH(none.contiguous(), "[clone] the tensor is undefined");
  CHECK_THROWS_WITH(none.to(f64), "[to] the tensor is undefined");
  CHECK_THROWS_WITH(none.softmax(), "[softmax] the tensor is undefined");
  CHECK_THROWS_WITH(cat({x, none}), "[cat] one of the tensors is undefined");
  CHECK_THROWS_WITH(matmul(x, none), Containing("[matmul] a f32 [2], b undefined; both must"));
  CHECK_THROWS_AS(exp(none), Error);
}

TEST_CASE("views share the storage of their tensor", "[core]") {
  Tensor x = arange(24, {.dtype = f32}).view({2, 3, 4});
  const Tensor view = x.transpose(0, 2).slice(0, 1, 4, 2).select(1, 1);  // [2, 2]
  CHECK(view.shape() == Shape{2, 2});
  CHECK(view.offset() == 5);
  CHECK(view.strides() == Shape{2, 12});
  CHECK(!view.is_contiguous());
  CHECK(view.to_vector<float>() == std::vector<float>{5, 17, 7, 19});
  CHECK(view.data<float>() == x.data<float>() + 5);
  Tensor(view).fill_(-1);
  CHECK(x.to_vector<float>()[19] == -1);
  CHECK(x.to_vector<float>()[18] == 18);
  CHECK(x.contiguous().same(x));
  CHECK(!view.contiguous().same(view));
  CHECK(x[1][2].to_vector<float>() == std::vector<float>{20, 21, 22, 23});
}

TEST_CASE("overlapping and repeating strides are read correctly", "[core]") {
  // as_strided cases of reference/frameworks.md, C3.
  struct Case {
    Shape sizes, strides;
    int64_t offset;
  };
  const Tensor memory = arange(200, {.dtype = f32});
  for (const Case& c : {Case{{5, 6, 2}, {1, 1, 7}, 2}, Case{{5, 5, 4}, {1, 1, 7}, 2},
                        Case{{5, 5, 2}, {4, 5, 7}, 3}, Case{{5, 5, 2}, {5, 5, 7}, 3},
                        Case{{5, 5, 2}, {5, 5, 5}, 3}, Case{{9, 5, 2}, {0, 1, 7}, 3}}) {
    INFO(str(c.sizes, c.strides));
    const Tensor view = make_view(memory, c.offset, c.sizes, c.strides);
    std::vector<float> expected;
    for (int64_t i = 0; i < c.sizes[0]; ++i)
      for (int64_t j = 0; j < c.sizes[1]; ++j)
        for (int64_t k = 0; k < c.sizes[2]; ++k)
          expected.push_back(
              float(c.offset + i * c.strides[0] + j * c.strides[1] + k * c.strides[2]));
    CHECK(view.to_vector<float>() == expected);
    CHECK((view * 2.0).to_vector<float>()[7] == 2 * expected[7]);
    CHECK(view.to(f64).to_vector<float>() == expected);
    CHECK(view.clone().is_contiguous());
    CHECK(view.transpose(0, 1).contiguous().transpose(0, 1).to_vector<float>() == expected);
    CHECK(view.reshape({-1}).to_vector<float>() == expected);
  }
}

TEST_CASE("data() checks the dtype", "[core]") {
  const Tensor x = ones({3}, {.dtype = f64});
  CHECK(x.data<double>()[2] == 1);
  CHECK(x.raw_data() == x.data<double>());
  CHECK_THROWS_WITH(x.data<float>(), "[data] the C++ type is f32, the tensor is f64");
  CHECK_THROWS_WITH(arange(3).data<int32_t>(), "[data] the C++ type is i32, the tensor is i64");
}

TEST_CASE("item() returns the only element of a tensor", "[core]") {
  CHECK(scalar(2.5).item() == 2.5);
  CHECK(full({1, 1, 1}, -3, {.dtype = i32}).item() == -3);
  CHECK(ones({1}, {.dtype = boolean}).item() == 1);
  CHECK(arange(5).select(0, 3).item() == 3);
  CHECK_THROWS_WITH(ones({2}).item(), "[item] the tensor must have one element; got f32 [2]");
  CHECK_THROWS_WITH(ones({0, 3}).item(), "[item] the tensor must have one element; got f32 [0, 3]");
}

TEST_CASE("a tensor with one element converts to bool", "[core]") {
  const Tensor loss = scalar(0.5), best = scalar(0.25), mask = tensor<bool>({true, true});
  const auto holds = [](const Tensor& x) { return x ? true : false; };
  CHECK(!holds(loss < best));
  CHECK(holds(best < loss));
  CHECK(!holds(ones({1, 1}) < 0.5));
  CHECK((loss > best && !(loss < best)));
  CHECK(holds(scalar(-0.25)));
  CHECK(!holds(scalar(-0.0)));
  CHECK(holds(scalar(std::numeric_limits<double>::quiet_NaN())));
  CHECK(holds(full({1}, double(1ll << 40), {.dtype = i64})));
  int rounds = 0;
  for (Tensor error = ones({1}); error > 0.1; error = error * 0.5) ++rounds;
  CHECK(rounds == 4);
  CHECK_THROWS_WITH(holds(mask),
                    "[bool] only a tensor with one element converts to bool; got bool [2]");
  CHECK_THROWS_WITH(mask && mask, Containing("got bool [2]"));
  CHECK_THROWS_WITH(holds(ones({0})), Containing("got f32 [0]"));
  CHECK_THROWS_WITH(holds(Tensor()),
                    "[bool] an undefined tensor does not convert to bool; use defined()");
}

TEST_CASE("negative dimensions of size() count from the end", "[core]") {
  const Tensor x = empty({2, 3});
  CHECK(x.size(0) == 2);
  CHECK(x.size(-1) == 3);
  CHECK_THROWS_WITH(x.size(2), "[size] dimension 2 is out of range for a tensor with 2 dimensions");
  CHECK_THROWS_WITH(empty({}).size(0),
                    "[size] dimension 0 is out of range for a tensor with 0 dimensions");
  CHECK_THROWS_WITH(empty({2, -3, 0}), "[empty] shape [2, -3, 0] has a negative size");
  CHECK_THROWS_AS(empty({int64_t(1) << 40, int64_t(1) << 40}), Error);
}

TEST_CASE("to_vector converts the values", "[core]") {
  const Tensor x = tensor<double>({-1.75, 0, 2.5});
  CHECK(x.to_vector<float>() == std::vector<float>{-1.75f, 0, 2.5f});
  CHECK(x.to_vector<int64_t>() == std::vector<int64_t>{-1, 0, 2});
  CHECK(x.to(bf16).to_vector<double>() == std::vector<double>{-1.75, 0, 2.5});
  CHECK(x.to(boolean).to_vector<uint8_t>() == std::vector<uint8_t>{1, 0, 1});
  CHECK(zeros({0, 4}).to_vector<float>().empty());
}

TEST_CASE("tensors print as in NumPy", "[core]") {
  CHECK(to_string(scalar(1.5)) == "1.5  f32 []");
  CHECK(to_string(arange(3)) == "[0, 1, 2]  i64 [3]");
  CHECK(to_string(zeros({0})) == "[]  f32 [0]");
  CHECK(to_string(zeros({2, 0})) == "[[],\n []]  f32 [2, 0]");
  CHECK(to_string(arange(6, {.dtype = f64}).view({2, 3})) ==
        "[[0, 1, 2],\n [3, 4, 5]]  f64 [2, 3]");
  CHECK(to_string(arange(8).view({2, 2, 2})) ==
        "[[[0, 1],\n  [2, 3]],\n [[4, 5],\n  [6, 7]]]  i64 [2, 2, 2]");
  CHECK(to_string(arange(9)) == "[0, 1, 2, ..., 6, 7, 8]  i64 [9]");
  CHECK(to_string(arange(18).view({9, 2})) ==
        "[[0, 1],\n [2, 3],\n [4, 5],\n ...,\n [12, 13],\n [14, 15],\n [16, 17]]  i64 [9, 2]");
  CHECK(to_string(arange(8)) == "[0, 1, 2, 3, 4, 5, 6, 7]  i64 [8]");
  CHECK(to_string(tensor<float>({1.0f / 3, 1e-7f, -1e10f})) == "[0.3333, 1e-07, -1e+10]  f32 [3]");
  CHECK(to_string(tensor<bool>({true, false})) == "[1, 0]  bool [2]");
  CHECK(to_string(tensor<double>({std::numeric_limits<double>::infinity()})) == "[inf]  f64 [1]");
  CHECK(to_string(arange(4).view({2, 2}).transpose(0, 1)) == "[[0, 2],\n [1, 3]]  i64 [2, 2]");
}

TEST_CASE("devices are parsed from text", "[core]") {
  CHECK(Device("cpu") == cpu);
  CHECK(Device("cuda") == Device(DeviceType::cuda, 0));
  CHECK(Device("cuda:0") == Device("cuda"));
  CHECK(Device(std::string("cuda:7")) == Device(DeviceType::cuda, 7));
  CHECK(Device("cuda:15").index == 15);
  CHECK(str(Device("cuda:1"), " ", cpu) == "cuda:1 cpu");
  for (const char* text :
       {"", "gpu", "CPU", "cuda:", "cuda:x", "cuda:1x", "cuda:-1", "cuda: 1", "cuda:+1", "cuda1",
        "cpu:0", "cuda:1000000", "cuda:99999999999999999999"}) {
    INFO(text);
    CHECK_THROWS_WITH(Device(text),
                      str("[Device] \"", text, "\" is not a device; accepted: cpu, cuda, cuda:N"));
  }
}

TEST_CASE("using an unavailable device is an error that gives the reason", "[core]") {
  CHECK_NOTHROW(check_device("op", cpu));
  CHECK_NOTHROW(synchronize(cpu));
  CHECK(!cuda_description().empty());
  if (cuda_available()) {
    CHECK_NOTHROW(check_device("op", "cuda"));
    CHECK_THROWS_WITH(zeros({2}, {.device = "cuda:15"}), Containing("cannot be used"));
    return;
  }
  CHECK_THROWS_WITH(check_device("op", "cuda:1"),
                    "[op] device cuda:1 cannot be used: " + cuda_description());
  CHECK_THROWS_WITH(zeros({2}, {.device = "cuda"}),
                    Containing("device cuda:0 cannot be used: " + cuda_description()));
  CHECK_THROWS_WITH(zeros({2}).to(Device("cuda")), Containing("[to] device cuda:0"));
  CHECK_THROWS_WITH(memory_stats(Device(DeviceType::cuda, 16)),
                    "[Device] there is no device cuda:16");
}

TEST_CASE("split_into_parts and join_parts: views with separate storages", "[core]") {
  const Tensor x = arange(24).reshape({2, 12});
  const Tensors parts = split_into_parts(x, -1, {4, 0, 8});
  REQUIRE(parts.size() == 3);
  CHECK(parts[1].shape() == Shape{2, 0});
  CHECK(parts[2].to_vector<double>() == x.slice(1, 4).to_vector<double>());
  CHECK(parts[2].raw_data() == x.slice(1, 4).raw_data());
  const uint32_t before = parts[0].storage().version;
  parts[2].zero_();
  CHECK(parts[0].storage().version == before);
  CHECK(x.slice(1, 4).sum().item() == 0);
  CHECK(join_parts(parts, 1).shape() == Shape{2, 12});
  CHECK(join_parts(parts, 1).raw_data() == x.raw_data());
  CHECK(join_parts({parts[2]}, 1).shape() == Shape{2, 8});
  CHECK(!join_parts({parts[2], parts[0]}, 1).defined());
  CHECK(!join_parts({parts[0], parts[2].clone()}, 1).defined());
  CHECK(!join_parts({parts[0], parts[2].slice(0, 0, 1)}, 1).defined());
  CHECK(!join_parts({parts[0], parts[2]}, 0).defined());
  // Parts of parts, views of parts, and views of one tensor.
  const Tensors halves = split_into_parts(parts[2], 1, {4, 4});
  CHECK(join_parts({parts[0], halves[0], halves[1]}, 1).shape() == Shape{2, 12});
  CHECK(join_parts({parts[0].view({2, 1, 4}), halves[0].view({2, 1, 4})}, 1).shape() ==
        Shape{2, 2, 4});
  CHECK(join_parts({x.slice(1, 0, 4), x.slice(1, 4)}, 1).shape() == Shape{2, 12});
  CHECK(!join_parts({x.slice(1, 0, 4), x.slice(1, 5)}, 1).defined());
  CHECK(!join_parts({x.slice(1, 0, 4), x.slice(1, 4).to(f32)}, 1).defined());
}

TEST_CASE("the memory of a block is freed with its last part", "[core]") {
  const int64_t before = memory_stats().live;
  Tensors parts = split_into_parts(zeros({64, 64}), 0, {32, 32});
  const int64_t with = memory_stats().live;
  CHECK(with > before);
  parts.pop_back();
  CHECK(memory_stats().live == with);
  CHECK(sum(parts[0]).item() == 0);
  parts.clear();
  CHECK(memory_stats().live == before);
}

}  // namespace stretto
