// --attention: names for the kernels of attention. A new one is a line in kernels.cpp.
#pragma once

#include <string>
#include <vector>

#include "nn/attention/feature_map.h"
#include "nn/attention/linear_attention.h"

namespace stretto::examples {

/// What programs that follow different papers set differently.
struct KernelOptions {
  nn::FavorOptions performer;
  double relu_eps = 1e-6;  // of the denominator of linear-relu; that of the other two is 1e-6
};

struct Kernel {
  bool scores = true;  // a matrix of them: weights to drop, and what positions may be added to
  nn::MakeKernel make = {};
};

/// linear-elu (Katharopoulos et al. 2020), linear-relu and performer (Choromanski et al. 2021, the
/// former without a projection), softmax.
std::vector<std::string> kernel_names();

/// UsageError "--attention none: accepted are …" for an unknown name.
Kernel kernel_of(const std::string& name, const KernelOptions& options);

}  // namespace stretto::examples
