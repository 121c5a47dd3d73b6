// Sine and cosine, in a file of their own: CUDA's f64 functions reduce large arguments in local
// memory, which no other kernel may use (cmake/cuda.cmake).
#include "cuda/unary.cuh"

namespace stretto::cuda {

STRETTO_PERIODIC_FUNCTIONS(STRETTO_DEFINE_UNARY)

}  // namespace stretto::cuda
