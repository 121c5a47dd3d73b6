// A build without the CUDA Toolkit: every entry point of device.h and kernels.h says so.
#include "cuda/device.h"
#include "cuda/kernels.h"

namespace stretto::cuda {
namespace {

constexpr const char* reason =
    "this build of Stretto has no CUDA: no CUDA Toolkit was found when it was configured";

[[noreturn]] void none() { fail("cuda", reason); }

}  // namespace

int device_count() { return 0; }
std::string description() { return reason; }

void* allocate(int64_t, int) { none(); }
void free(void*, int) { none(); }
void copy(void*, Device, const void*, Device, int64_t) { none(); }
void synchronize(int) { none(); }

void fill(const Tensor&, double) { none(); }
void strided_copy(const Tensor&, const Tensor&) { none(); }
void fill_uniform(const Tensor&, RandomKey) { none(); }
void fill_normal(const Tensor&, RandomKey) { none(); }
Tensor binary(Binary, const Tensor&, const Tensor&) { none(); }
Tensor add_scalar(const Tensor&, double) { none(); }
Tensor mul_scalar(const Tensor&, double) { none(); }
Tensor div_scalar(const Tensor&, double) { none(); }
void add_scaled(const Tensor&, const Tensor&, double) { none(); }
Tensor sum(const Tensor&, const Shape&, bool) { none(); }
Tensor matmul(const Tensor&, const Tensor&, bool, bool) { none(); }
Tensor softmax(const Tensor&) { none(); }
Tensor softmax_backward(const Tensor&, const Tensor&) { none(); }
Tensor skew(const Tensor&, int64_t) { none(); }
Tensor unskew(const Tensor&, int64_t) { none(); }
void curand_philox(RandomKey, int64_t, uint32_t*, Device) { none(); }
void device_philox(RandomKey, int64_t, uint32_t*, Device) { none(); }

}  // namespace stretto::cuda
