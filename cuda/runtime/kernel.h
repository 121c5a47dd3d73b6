// How cuda/ offers a kernel to ops/: as a plain function of tensors, declared in the header with
// the op's name and implemented in the .cu of the same name.
//
//     STRETTO_KERNEL(Tensor skew(const Tensor& x, int64_t n_keys));
//
// ops/ checks arguments (one device, valid shapes, accepted dtypes) before it calls a kernel; each
// function's comment states what it accepts. Results are new row-major tensors on the first
// argument's device. Work is queued on the device's only stream; copies to the host wait for it.
#pragma once

#include "../../core/tensor.h"

/// Declares a function. In a build without the CUDA Toolkit, cuda/none.cpp redefines this macro to
/// add a body that raises an error.
#ifndef STRETTO_KERNEL
#define STRETTO_KERNEL(...) __VA_ARGS__
#endif
