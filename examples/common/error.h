// The error an example program reports as the user's to mend.
#pragma once

#include <stdexcept>
#include <string>

#include "core/error.h"

namespace stretto::examples {

/// Bad input from the user: `what()` is one clear line, and the program exits with code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The library's complaints about a user's file or device are the user's to mend, but too little
/// memory is not.
template <class F>
auto as_usage(F&& f) {
  try {
    return f();
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& e) {
    throw UsageError(e.what());
  }
}

/// An Error in `f` is told with `where` in front of it.
template <class F>
auto told_with(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
}

/// What an error of the library says, without the name of the op in front.
inline std::string plain(const std::exception& e) {
  const std::string told = e.what();  // "[op] message"
  const size_t end = told.find("] ");
  return told.starts_with('[') && end != std::string::npos ? told.substr(end + 2) : told;
}

}  // namespace stretto::examples
