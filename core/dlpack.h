// Exchange of tensors with other libraries in the same process without a copy: DLPack, the format
// of torch.utils.dlpack, numpy.from_dlpack and jax.dlpack (https://dmlc.github.io/dlpack/latest/).
// The structs below have the layout of its dlpack.h, so that a pointer to one may be converted to
// a pointer to the other.
//
// The producer owns a managed tensor until the consumer calls its deleter. Nothing waits for a GPU:
// call synchronize(device) before another library reads what Stretto's work computes, and the
// library's own function before Stretto reads its tensors.
#pragma once

#include <cstdint>

#include "tensor.h"

namespace stretto::dlpack {

/// Kinds of devices that are accepted; others are an error.
enum DeviceKind : int32_t {
  cpu = 1,        ///< Memory of the host.
  cuda = 2,       ///< Memory of a CUDA GPU.
  cuda_host = 3,  ///< Pinned memory of the host, read as `cpu`.
};
/// A device: DLDevice.
struct DLDevice {
  int32_t kind = cpu;  ///< DeviceKind.
  int32_t index = 0;   ///< Number of the GPU.
};

/// Codes of element types that are accepted; others are an error.
enum TypeCode : uint8_t {
  code_int = 0,
  code_uint = 1,
  code_float = 2,
  code_bfloat = 4,
  code_bool = 6
};
/// An element type: DLDataType.
struct DLDataType {
  uint8_t code = code_float;  ///< TypeCode.
  uint8_t bits = 32;          ///< Bits of an element.
  uint16_t lanes = 1;         ///< Elements of a vector; must be 1.
};

/// A strided view of memory: DLTensor.
struct DLTensor {
  void* data = nullptr;        ///< The memory.
  DLDevice device;             ///< Its device.
  int32_t ndim = 0;            ///< The number of dimensions.
  DLDataType dtype;            ///< The element type.
  int64_t* shape = nullptr;    ///< The sizes.
  int64_t* strides = nullptr;  ///< In elements; null: row-major.
  uint64_t byte_offset = 0;    ///< From `data` to the first element.
};

/// A view with its owner, before DLPack 1.0: DLManagedTensor.
struct DLManagedTensor {
  DLTensor tensor;                              ///< The view.
  void* owner = nullptr;                        ///< Of the producer.
  void (*deleter)(DLManagedTensor*) = nullptr;  ///< Releases everything; may be null.
};

/// The version of the format: DLPackVersion.
struct Version {
  uint32_t major = 1;  ///< Changes with the layout; 1 is accepted.
  uint32_t minor = 0;  ///< Changes with new devices and types.
};
/// A bit of DLManagedTensorVersioned::flags: the memory must not be written.
inline constexpr uint64_t read_only = 1;
/// A view with its owner, since DLPack 1.0: DLManagedTensorVersioned.
struct DLManagedTensorVersioned {
  Version version;                                       ///< Of the producer.
  void* owner = nullptr;                                 ///< Of the producer.
  void (*deleter)(DLManagedTensorVersioned*) = nullptr;  ///< Releases everything; may be null.
  uint64_t flags = 0;                                    ///< read_only.
  DLTensor tensor;                                       ///< The view.
};

}  // namespace stretto::dlpack

namespace stretto {

/// Returns a view of x for another library, which must call its deleter; x's memory lives until
/// then. Throws if x requires a gradient: pass x.detach().
dlpack::DLManagedTensorVersioned* to_dlpack(const Tensor& x);
/// Returns the same in the format before DLPack 1.0 (capsules named "dltensor").
dlpack::DLManagedTensor* to_dlpack_unversioned(const Tensor& x);

/// Returns a tensor of the same memory. Its deleter is called when the last view of the memory is
/// gone; if an Error is thrown, the caller still owns `managed`. Throws if it is read-only, and for
/// negative strides, another major version, and other devices and types than those above; int8,
/// float16 and others have no dtype here. The alignment must be that of the element type. The tape
/// does not notice changes of the memory through other tensors than views of the result.
Tensor from_dlpack(dlpack::DLManagedTensorVersioned* managed);
/// Returns the same for the format before DLPack 1.0.
Tensor from_dlpack(dlpack::DLManagedTensor* managed);

}  // namespace stretto
