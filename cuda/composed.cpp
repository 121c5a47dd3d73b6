#include "cuda/composed.h"

#include <cstdlib>
#include <string_view>

#include "cuda/runtime.h"

namespace stretto::cuda {

bool composed(const char* name, Device device) {
  const char* const text = std::getenv("STRETTO_CUDA_COMPOSED");
  std::string_view list = text ? text : "";
  while (!list.empty()) {
    const size_t end = list.find(',');
    if (list.substr(0, end) == name) return true;
    list = end == list.npos ? std::string_view() : list.substr(end + 1);
  }
  return name != std::string_view("elu_features") &&
         shared_memory(device.index) < most_shared_memory;
}

}  // namespace stretto::cuda
