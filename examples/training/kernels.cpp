#include "examples/training/kernels.h"

#include <map>

#include "examples/common/settings.h"

namespace stretto::examples {
namespace {

using Make = Kernel (*)(const KernelOptions&);

Kernel linear(nn::MakeFeatureMap map, double eps) {
  return {false, nn::linear_kernel(std::move(map), {.eps = eps})};
}

const std::map<std::string, Make>& kernels() {
  static const std::map<std::string, Make> all{
      {"softmax",
       [](const KernelOptions&) {
         return Kernel{true, nn::softmax_kernel()};
       }},
      {"performer", [](const KernelOptions& o) { return linear(nn::favor(o.performer), 1e-6); }},
      {"linear-relu", [](const KernelOptions& o) { return linear(nn::relu_plus(), o.relu_eps); }},
      {"linear-elu", [](const KernelOptions&) { return linear(nn::elu_plus_one(), 1e-6); }}};
  return all;
}

}  // namespace

std::vector<std::string> kernel_names() { return names_of(kernels()); }

Kernel kernel_of(const std::string& name, const KernelOptions& options) {
  return find_name(kernels(), "--attention", name)(options);
}

}  // namespace stretto::examples
