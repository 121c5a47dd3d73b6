// Elementwise functions of one tensor, and their derivatives times a gradient. Sines are in
// elementwise_sines.cu. Tested against the CPU and the references in tests/ops/op_table_test.cpp.
#include "cuda/unary.cuh"

namespace stretto::cuda {

STRETTO_SMOOTH_FUNCTIONS(STRETTO_DEFINE_UNARY)

#define STRETTO_DEFINE(F) \
  Tensor unary(elementwise::F, const Tensor& x) { return unary_value<elementwise::F, true>(#F, x); }
STRETTO_PIECEWISE_FUNCTIONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

}  // namespace stretto::cuda
