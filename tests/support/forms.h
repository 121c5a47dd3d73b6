// The forms of attention, features and codes that there are where tests make their tensors.
#pragma once

#include <vector>

#include "core/device.h"
#include "ops/form.h"

namespace stretto::testing {

/// Both on the CPU; on a GPU there is the composed one alone.
inline std::vector<Form> forms() {
  if (default_device().is_cuda()) return {Form::composed};
  return {Form::composed, Form::fused};
}

}  // namespace stretto::testing
