// Exchange of tensors by DLPack [core/dlpack.h].
#include "core/dlpack.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using namespace stretto::dlpack;
using stretto::testing::same_bits;

// The layout of dlpack.h 1.0, on 64-bit systems.
static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, device) == 8 &&
              offsetof(DLTensor, ndim) == 16 && offsetof(DLTensor, dtype) == 20 &&
              offsetof(DLTensor, shape) == 24 && offsetof(DLTensor, strides) == 32 &&
              offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensor) == 64 && offsetof(DLManagedTensor, owner) == 48 &&
              offsetof(DLManagedTensor, deleter) == 56);
static_assert(sizeof(DLManagedTensorVersioned) == 80 &&
              offsetof(DLManagedTensorVersioned, owner) == 8 &&
              offsetof(DLManagedTensorVersioned, deleter) == 16 &&
              offsetof(DLManagedTensorVersioned, flags) == 24 &&
              offsetof(DLManagedTensorVersioned, tensor) == 32);

namespace {

// A tensor of another library: six f32, of which it owns a counter of deletions.
struct Foreign {
  std::vector<float> values{0, 1, 2, 3, 4, 5};
  std::vector<int64_t> shape{2, 3}, strides{3, 1};
  int deleted = 0;
  DLManagedTensorVersioned managed;

  Foreign() {
    managed.owner = this;
    managed.deleter = [](DLManagedTensorVersioned* self) {
      ++static_cast<Foreign*>(self->owner)->deleted;
    };
    managed.tensor = {.data = values.data(),
                      .device = {},
                      .ndim = 2,
                      .dtype = {},
                      .shape = shape.data(),
                      .strides = strides.data()};
  }
};

}  // namespace

TEST_CASE("dlpack: every dtype returns bit-identical and without a copy", "[dlpack]") {
  const int64_t live = memory_stats().live;
  for (DType dtype : {f32, f64, bf16, i64, i32, u8, boolean}) {
    INFO(name(dtype));
    const Tensor x = arange(0, 24, 1, {.dtype = f32}).to(dtype).view({2, 3, 4});
    for (const Tensor& given : {x, x.transpose(0, 2), x.slice(1, 1), x[1][2][3], x.slice(0, 2)}) {
      const Tensor versioned = from_dlpack(to_dlpack(given));
      const Tensor plain = from_dlpack(to_dlpack_unversioned(given));
      for (const Tensor& y : {versioned, plain}) {
        CHECK(y.dtype() == dtype);
        CHECK(y.strides() == given.strides());
        CHECK(same_bits(y, given));
        CHECK((given.numel() == 0 || y.raw_data() == given.raw_data()));
      }
    }
  }
  CHECK(memory_stats().live == live);
}

TEST_CASE("dlpack: the memory lives until both sides are done with it", "[dlpack]") {
  const int64_t live = memory_stats().live;
  DLManagedTensorVersioned* managed = nullptr;
  {
    const Tensor x = full({3}, 7);
    managed = to_dlpack(x);
  }
  CHECK(memory_stats().live > live);
  CHECK(static_cast<float*>(managed->tensor.data)[2] == 7);
  managed->deleter(managed);
  CHECK(memory_stats().live == live);

  Foreign foreign;
  {
    Tensor row;
    {
      const Tensor x = from_dlpack(&foreign.managed);
      CHECK(x.to_vector<float>() == foreign.values);
      x.mul_(2);
      row = x[1];
    }
    CHECK(foreign.deleted == 0);
    CHECK(row.to_vector<float>() == std::vector<float>{6, 8, 10});
    row.set_requires_grad();
    (row * row).backward(ones({3}));
    CHECK(row.grad().to_vector<float>() == std::vector<float>{12, 16, 20});
  }
  CHECK(foreign.deleted == 1);
  CHECK(foreign.values[5] == 10);
}

TEST_CASE("dlpack: null strides are row-major, and offsets are in bytes", "[dlpack]") {
  Foreign foreign;
  foreign.managed.tensor.strides = nullptr;
  foreign.managed.tensor.byte_offset = 4;
  foreign.shape = {1, 5};
  CHECK(from_dlpack(&foreign.managed).to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5});
  foreign.managed.deleter = nullptr;
  CHECK(from_dlpack(&foreign.managed)[0][4].item() == 5);
  foreign.managed.tensor.data = nullptr;
  foreign.shape = {0, 5};
  CHECK(from_dlpack(&foreign.managed).numel() == 0);
}

TEST_CASE("dlpack: tensors that are not accepted remain with the caller", "[dlpack]") {
  const auto check_refused = [](auto change, const std::string& text) {
    Foreign foreign;
    change(foreign);
    CHECK_THROWS_WITH(from_dlpack(&foreign.managed), Containing("[from_dlpack] " + text));
    CHECK(foreign.deleted == 0);
  };
  check_refused([](Foreign& f) { f.managed.version = {2, 1}; }, "version 2.1; accepted: version 1");
  check_refused([](Foreign& f) { f.managed.flags = read_only; }, "the tensor is read-only");
  check_refused(
      [](Foreign& f) {
        f.managed.tensor.dtype = {code_float, 16, 1};
      },
      "type code 2 with 16 bits and 1 lanes; accepted: f32, f64, bf16, i64, i32, u8, bool");
  check_refused([](Foreign& f) { f.managed.tensor.dtype.lanes = 4; },
                "type code 2 with 32 bits and 4");
  check_refused([](Foreign& f) { f.managed.tensor.device.kind = 8; },
                "device kind 8; accepted: 1 (CPU), 2 (CUDA), 3 (pinned host memory)");
  check_refused([](Foreign& f) { f.managed.tensor.ndim = 9; }, "got 9 dimensions; at most 8");
  check_refused([](Foreign& f) { f.managed.tensor.ndim = -1; }, "got -1 dimensions");
  check_refused([](Foreign& f) { f.shape[0] = -2; }, "");
  check_refused([](Foreign& f) { f.strides[0] = -3; }, "strides [-3, 1]; must not be negative");
  check_refused([](Foreign& f) { f.strides[0] = INT64_MAX; }, "sizes [2, 3] with strides");
  check_refused([](Foreign& f) { f.managed.tensor.data = nullptr; },
                "the pointer to the data is null");
  check_refused([](Foreign& f) { f.managed.tensor.shape = nullptr; },
                "the pointer to the sizes is null");
  check_refused([](Foreign& f) { f.managed.tensor.byte_offset = 2; },
                "the data of a f32 tensor begin at an address that is not a multiple of 4");
  CHECK_THROWS_WITH(
      to_dlpack(ones({2}, {.requires_grad = true})),
      Containing("[to_dlpack] got f32 [2], which requires a gradient; pass x.detach()"));
}
