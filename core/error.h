// Errors: the exception types, and the two functions that throw Error.
//
// A message names the op, what it was given (shape, dtype, device) and what it accepts:
//     [matmul] inner sizes differ: a f32 [2, 3], b f32 [4, 5]; the last size of a must equal …
// Shapes are checked before the code branches by device, so every device reports the same text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace stretto {

/// The base of all errors that the library throws. `what()` is "[op] message".
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// Thrown if a device has too little memory for a request, even after the allocator released its
/// cached blocks. The call can be repeated: KV caches, recurrent states and optimizers are as
/// before the call (core/all_or_nothing.h). Only the random state may have advanced.
struct OutOfMemory : Error {
  using Error::Error;
};

/// Appends the text of a value, for str(), fail() and check(). An overload for a type of your own,
/// in its namespace, lets them accept that type.
/// @{
inline void append_text(std::string& to, const char* text) { to += text; }
inline void append_text(std::string& to, const std::string& text) { to += text; }
inline void append_text(std::string& to, char value) { to += value; }
inline void append_text(std::string& to, bool value) { to += value ? "true" : "false"; }
inline void append_text(std::string& to, int value) { to += std::to_string(value); }
inline void append_text(std::string& to, unsigned value) { to += std::to_string(value); }
inline void append_text(std::string& to, long value) { to += std::to_string(value); }
inline void append_text(std::string& to, unsigned long value) { to += std::to_string(value); }
void append_text(std::string& to, double value);  // as %g: 0.5, 1e-05
inline void append_text(std::string& to, float value) { append_text(to, double(value)); }
/// @}

/// Returns all arguments as one string. Any type with an `append_text` is accepted.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string text;
  (append_text(text, parts), ...);
  return text;
}

/// Throws an Error with the text "[op] parts…".
template <class... Parts>
[[noreturn]] void fail(const char* op, const Parts&... parts) {
  throw Error(str("[", op, "] ", parts...));
}

/// Throws like fail() unless `condition` is true. The message is built only on failure.
template <class... Parts>
void check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(op, parts...);
}

}  // namespace stretto
