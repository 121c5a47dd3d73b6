// The fat binaries of the process: their PTX, and the kernel behind each host function.
#pragma once

#include <functional>

#include "interpreter.h"

namespace interpreter {

/// Decoded at its first launch; nullptr when nothing was registered for the function. Throws
/// Unknown.
Kernel* kernel_of(const void* host_function);
/// f of all kernels of the process that can be decoded.
void each_kernel(const std::function<void(Kernel&)>& f);
/// Where a variable of the device lies; 0 when there is none.
u64 address_of(const void* host_variable);

}  // namespace interpreter
