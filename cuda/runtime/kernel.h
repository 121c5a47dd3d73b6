// How cuda/ offers a kernel to ops/: a plain function of tensors, declared in the header of the
// op's stem, implemented in the .cu beside it.
//
//     STRETTO_KERNEL(Tensor skew(const Tensor& x, int64_t n_keys));
//
// ops/ checks arguments (one device, valid shapes, accepted dtypes) and calls these; what is
// accepted here is said per function. Results are new row-major tensors on the device of the first
// argument. Work is queued on the device's one stream; copies to the host wait for it.
#pragma once

#include "../../core/tensor.h"

/// Declares a function; in a build without the CUDA Toolkit cuda/none.cpp makes this its body too.
#ifndef STRETTO_KERNEL
#define STRETTO_KERNEL(...) __VA_ARGS__
#endif
