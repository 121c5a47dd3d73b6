// OpenBLAS: products where no kernel of ours knows the processor's vectors (core/gemm/gemm.h).
//
// It is opened at the first product, not linked, for one reason: it chooses its kernels when it is
// loaded, and versions older than the processor choose AVX2 kernels on AVX-512 machines, which
// halves the speed. We name the right core type first (OPENBLAS_CORETYPE, unless the user set it).
// Where it is installed but cannot be opened or has no room for its buffers, products throw
// OutOfMemory: they would not have the same bits without it.
//
// A host that has opened the same libopenblas.so.0 shares it with us. The environment stays as the
// host has it, and so does its number of threads, but for the time that a product of ours runs.
// Where we are the first to open OpenBLAS it starts with one thread: openblas_set_num_threads(n),
// at any time that no product runs, gives it more for the host's own calls.
#pragma once

#include <cstdint>
#include <string>

#include "gemm.h"

namespace stretto {

/// `gemm` by OpenBLAS, on the calling thread, for m, n, k > 0; false where it is not installed.
bool blas_gemm(int64_t m, int64_t n, int64_t k, float alpha, MatrixRef<float> a, MatrixRef<float> b,
               float beta, float* c, int64_t ldc);
bool blas_gemm(int64_t m, int64_t n, int64_t k, double alpha, MatrixRef<double> a,
               MatrixRef<double> b, double beta, double* c, int64_t ldc);

/// "OpenBLAS 0.3.21 SkylakeX", or "" where it is not installed.
const std::string& blas_description();

}  // namespace stretto
