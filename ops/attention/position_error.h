// The error of a sequence that is longer than a learned table of positions.
//
// Reference: none (an exception)
#pragma once

#include "../../core/error.h"

namespace stretto {

/// Thrown if a position has no row in a learned table: by tables with OutOfRange::error, and by
/// nn::AbsolutePosition. nn::generate() ends there.
struct PositionError : Error {
  using Error::Error;
};

}  // namespace stretto
