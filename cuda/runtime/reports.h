// Errors found by kernels: wrong indices, heads without weights. They are raised at the next point where the host
// waits for the device anyway (a copy to the host, synchronize), with the CPU's message. No
// step waits for them.
#pragma once

#include <functional>
#include <string>

#include "kernel.h"

namespace stretto::cuda {

/// Returns the text after "[op] " in the error for the index `value` at a row-major position. Must
/// not own a tensor on the GPU: it may be called and destroyed under the allocator's lock, which
/// the tensor's memory would need.
using IndexText = std::function<std::string(int64_t position, int64_t value)>;

/// Returns a copy of the ids (i64, contiguous), in which ids that are neither in [0, size), size ≥
/// 1, nor `ignored` are replaced by 0, so that kernels may use all of them as indices. The first
/// wrong id of the first such check is reported.
STRETTO_KERNEL(Tensor checked_indices(const char* op, const Tensor& ids, int64_t size,
                                      int64_t ignored, IndexText text));

/// Reports the first head whose totals [B, H, M] (f32 or f64, contiguous) are all at most eps, as position h
/// with value 0. Nothing is reported if all elements of `padding` (u8, contiguous; or undefined) are
/// set.
STRETTO_KERNEL(void check_heads(const char* op, const Tensor& totals, double eps,
                                const Tensor& padding, IndexText text));

/// Allocates the device memory of reports, which must not become part of a capture.
void ready_reports(int device);

/// Called around each wait for the device: copies a report to the host, and raises it as an error.
STRETTO_KERNEL(void fetch_reports(int device));
STRETTO_KERNEL(void raise_reports(int device));

}  // namespace stretto::cuda
