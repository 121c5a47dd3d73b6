// The fat binaries of the process: their PTX, and the kernel of each host function.
#pragma once

#include <functional>

#include "interpreter.h"

namespace interpreter {

/// The kernel of a host function, decoded at its first launch; nullptr if none is
/// registered. Throws Unknown.
Kernel* kernel_of(const void* host_function);
/// Calls f with all kernels of the process that can be decoded.
void each_kernel(const std::function<void(Kernel&)>& f);
/// The address of a device variable; 0 if there is none.
u64 address_of(const void* host_variable);

}  // namespace interpreter
