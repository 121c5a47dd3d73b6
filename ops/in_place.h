// A check of ops that change a tensor in place.
#pragma once

#include "../autograd/tape.h"

namespace stretto {

// Throws an error of `op` if `values` are undefined, or have a gradient, which an op in place does
// not record.
inline void check_not_recorded(const char* op, const Tensor& values) {
  check_defined(op, values, "the tensor of new values");
  check(!recording({values}), op,
        "values with a gradient, which an op in place does not record; use where, scatter or cat, "
        "or detach the values");
}

}  // namespace stretto
