// Errors of the example programs: those that the user can correct, and texts of errors.
#pragma once

#include <stdexcept>
#include <string>

#include "core/error.h"
#include "nn/training/stop_signals.h"

namespace stretto::examples {

/// Bad input from the user: `what()` is one clear line, and the program exits with code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown to leave work that is not saved, such as an evaluation or a generation, when a signal has
/// asked the run to stop. It is not an error, so it does not derive from std::exception.
struct Interrupted {};

/// Throws Interrupted if a signal has asked the run to stop.
inline void check_interrupt() {
  if (nn::stop_signal() != 0) throw Interrupted();
}

/// Calls `f`. Errors of the library about a user's file or device become UsageErrors;
/// OutOfMemory does not.
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

/// Returns the message of an error without the name of the op in front.
inline std::string plain(const std::exception& e) {
  const std::string told = e.what();  // "[op] message"
  const size_t end = told.find("] ");
  return told.starts_with('[') && end != std::string::npos ? told.substr(end + 2) : told;
}

/// Does the same as as_usage(), without the name of the op in the message.
template <class F>
auto plain_usage(F&& f) {
  try {
    return as_usage(f);
  } catch (const UsageError& e) {
    throw UsageError(plain(e));
  }
}

/// Calls `f` and puts `where` in front of the message of an Error.
template <class F>
auto with_context(const std::string& where, F&& f) {
  try {
    return f();
  } catch (const Error& e) {
    throw Error(where + ": " + e.what());
  }
}

}  // namespace stretto::examples
