// The error an example program reports as the user's to mend.
#pragma once

#include <stdexcept>

namespace stretto::examples {

/// Bad input from the user: `what()` is one clear line, and the program exits with code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

}  // namespace stretto::examples
