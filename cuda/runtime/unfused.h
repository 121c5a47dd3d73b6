// Included by sources whose results must be bit-identical to the CPU's, or for two dtypes: products
// and sums are rounded separately (nvcc -fmad=false, which cmake/cuda.cmake sets for every source
// that includes this header).
#pragma once

#if defined(__CUDACC__) && !defined(STRETTO_UNFUSED)
#error "compile this source with -fmad=false -DSTRETTO_UNFUSED"
#endif
