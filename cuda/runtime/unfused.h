// Included by sources whose results must have the bits of the CPU's, or the same bits for two
// dtypes: products and sums are rounded one by one (nvcc -fmad=false, which cmake/cuda.cmake sets
// for every source that includes this).
#pragma once

#if defined(__CUDACC__) && !defined(STRETTO_UNFUSED)
#error "compile this source with -fmad=false -DSTRETTO_UNFUSED"
#endif
