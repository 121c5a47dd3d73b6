// The GPU's runtime, as the rest of the library sees it: devices, memory, copies. Plain functions,
// no CUDA header. cuda/gpu_runtime.cu implements them, cuda/none.cpp in a build without the CUDA
// Toolkit.
#pragma once

#include <cstdint>
#include <string>

#include "core/device.h"

namespace stretto::cuda {

/// Usable GPUs; 0 without toolkit, driver or GPU (driver answers 35 and 100 both mean that).
int device_count();
std::string description();

/// nullptr when the device has not that much memory.
void* allocate(int64_t bytes, int device);
void free(void* block, int device);
void copy(void* to, Device to_device, const void* from, Device from_device, int64_t bytes);
void synchronize(int device);

}  // namespace stretto::cuda
