// What the stand-ins for the CUDA libraries share.
#pragma once

#include <functional>

#include "interpreter.h"

namespace interpreter {

/// Queues work on a stream (nullptr: the default one) and says how it went. Errors of kernels stay:
/// every later call gives them again, as on a GPU whose context is lost.
int submit(void* stream, const char* what, std::function<void()> work);
int last_error(bool clear);
int set_error(int error);
/// The error that stays, or 0; makes one stay.
int lost();
int lose(int error);

/// Of memory on the device that a library call is to read or write: verdicts as for kernels.
void check_device_read(const char* what, const void* from, u64 bytes, bool uses_values = true);
void check_device_write(const char* what, const void* to, u64 bytes);
inline bool on_device(const void* p) { return DeviceMemory::get().owns(u64(p)); }

}  // namespace interpreter
