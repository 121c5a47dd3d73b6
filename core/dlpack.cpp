#include "core/dlpack.h"

#include <memory>

namespace stretto {
namespace {

using namespace dlpack;

DLDataType type_of(DType dtype) {
  const auto bits = uint8_t(8 * item_size(dtype));
  switch (dtype) {
    case DType::f32:
    case DType::f64:
      return {code_float, bits, 1};
    case DType::bf16:
      return {code_bfloat, bits, 1};
    case DType::i64:
    case DType::i32:
      return {code_int, bits, 1};
    case DType::u8:
      return {code_uint, bits, 1};
    case DType::boolean:
      break;
  }
  return {code_bool, bits, 1};
}

DType dtype_of(const DLDataType& type) {
  for (DType dtype : {f32, f64, bf16, i64, i32, u8, boolean}) {
    const DLDataType own = type_of(dtype);
    if (type.code == own.code && type.bits == own.bits && type.lanes == 1) return dtype;
  }
  fail("from_dlpack", "type code ", int(type.code), " with ", int(type.bits), " bits and ",
       int(type.lanes), " lanes; accepted: f32, f64, bf16, i64, i32, u8, bool");
}

Device device_of(const DLDevice& device) {
  if (device.kind == dlpack::cpu || device.kind == cuda_host) return stretto::cpu;
  check(device.kind == dlpack::cuda, "from_dlpack", "device kind ", device.kind,
        "; accepted: 1 (CPU), 2 (CUDA), 3 (pinned host memory)");
  const Device found(DeviceType::cuda, device.index);
  check_device("from_dlpack", found);
  return found;
}

// What an exported tensor owns.
template <class Managed>
struct Exported {
  Managed managed;
  Tensor x;
  Shape sizes, strides;
};

template <class Managed>
Managed* exported(const Tensor& x) {
  check(!x.requires_grad(), "to_dlpack", "got ", x, ", which requires a gradient; pass x.detach()");
  auto owner = std::make_unique<Exported<Managed>>();
  owner->x = x;
  owner->sizes = x.shape();
  owner->strides = x.strides();
  Managed& managed = owner->managed;
  managed.tensor = {.data = x.raw_data(),
                    .device = {x.device().is_cpu() ? dlpack::cpu : dlpack::cuda, x.device().index},
                    .ndim = int32_t(x.dim()),
                    .dtype = type_of(x.dtype()),
                    .shape = owner->sizes.begin(),
                    .strides = owner->strides.begin()};
  managed.owner = owner.get();
  managed.deleter = [](Managed* self) { delete static_cast<Exported<Managed>*>(self->owner); };
  return &owner.release()->managed;
}

// The number of elements from the first to the last, of a view that is not empty.
int64_t extent(const Shape& sizes, const Shape& strides) {
  int64_t last = 0;
  for (int64_t d = 0; d < sizes.dim(); ++d) {
    int64_t reach = 0;
    check(!__builtin_mul_overflow(sizes[d] - 1, strides[d], &reach) &&
              !__builtin_add_overflow(last, reach, &last) && last < int64_t(1) << 58,
          "from_dlpack", "sizes ", sizes, " with strides ", strides, " reach too far");
  }
  return last + 1;
}

template <class Managed>
Tensor imported(Managed* managed) {
  const DLTensor& t = managed->tensor;
  const DType dtype = dtype_of(t.dtype);
  const Device device = device_of(t.device);
  check(t.ndim >= 0 && t.ndim <= Shape::max_dims, "from_dlpack", "got ", t.ndim,
        " dimensions; at most ", Shape::max_dims, " are supported");
  check(t.ndim == 0 || t.shape != nullptr, "from_dlpack", "the pointer to the sizes is null");
  const Shape sizes(t.shape, t.ndim);
  check_sizes("from_dlpack", sizes);
  const Shape strides = t.strides ? Shape(t.strides, t.ndim) : contiguous_strides(sizes);
  for (int64_t stride : strides)
    check(stride >= 0, "from_dlpack", "strides ", strides, "; must not be negative");
  const int64_t elements = sizes.numel() == 0 ? 0 : extent(sizes, strides);
  char* const data = static_cast<char*>(t.data) + (t.data ? t.byte_offset : 0);
  check(elements == 0 || t.data != nullptr, "from_dlpack", "the pointer to the data is null");
  check(uintptr_t(data) % uint64_t(item_size(dtype)) == 0, "from_dlpack", "the data of a ", dtype,
        " tensor begin at an address that is not a multiple of ", item_size(dtype));
  auto storage = std::make_shared<Storage>(data, elements * item_size(dtype), device, [managed] {
    if (managed->deleter) managed->deleter(managed);
  });
  return Tensor(std::move(storage), 0, sizes, strides, dtype);
}

}  // namespace

DLManagedTensorVersioned* to_dlpack(const Tensor& x) {
  return exported<DLManagedTensorVersioned>(x);
}

DLManagedTensor* to_dlpack_unversioned(const Tensor& x) { return exported<DLManagedTensor>(x); }

Tensor from_dlpack(DLManagedTensorVersioned* managed) {
  check(managed->version.major == 1, "from_dlpack", "version ", managed->version.major, ".",
        managed->version.minor, "; accepted: version 1");
  check((managed->flags & read_only) == 0, "from_dlpack",
        "the tensor is read-only; accepted: a copy that may be written");
  return imported(managed);
}

Tensor from_dlpack(DLManagedTensor* managed) { return imported(managed); }

}  // namespace stretto
