// Sine and cosine. Apart from the others because those of f64, CUDA's own, reduce large arguments
// in local memory, which no other kernel may use (cmake/cuda.cmake).
#include "cuda/unary.cuh"

namespace stretto::cuda {

STRETTO_PERIODIC_FUNCTIONS(STRETTO_DEFINE_UNARY)

}  // namespace stretto::cuda
