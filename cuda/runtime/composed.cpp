#include "cuda/runtime/composed.h"

#include <string_view>

#include "core/environment.h"
#include "cuda/runtime/runtime.h"

namespace stretto::cuda {

bool composed(const char* name, Device device) {
  static constexpr const char* accepted[] = {
      "attention", "linear_attention", "gated_linear_attention", "random_features", "elu_features",
      "spe",       "fft_conv"};
  if (environment_lists("STRETTO_CUDA_COMPOSED", name, accepted)) return true;
  return name != std::string_view("elu_features") &&
         shared_memory(device.index) < most_shared_memory;
}

}  // namespace stretto::cuda
