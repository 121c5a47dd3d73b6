// Shared by the stand-ins for the CUDA libraries.
#pragma once

#include <functional>

#include "interpreter.h"

namespace interpreter {

/// Queues work on a stream (nullptr: the default stream) and returns an error code. Errors of
/// kernels are sticky: every later call returns them, as on a GPU whose context is lost.
int submit(void* stream, const char* what, std::function<void()> work);
int last_error(bool clear);
int set_error(int error);
/// The sticky error, or 0; lose() sets it. Also the error of a driver that is too old.
int lost();
/// That of PTX_DRIVER, such as 12040; 0: no driver.
int driver_version();
int lose(int error);

/// From now on the device is lost in children of this process, as on a GPU.
void lose_in_children();

/// Check device memory that a library call reads or writes: verdicts as for kernels.
void check_device_read(const char* what, const void* from, u64 bytes, bool uses_values = true);
void check_device_write(const char* what, const void* to, u64 bytes);
inline bool on_device(const void* p) { return DeviceMemory::get().owns(u64(p)); }

}  // namespace interpreter
