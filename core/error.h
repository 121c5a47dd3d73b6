// Errors: one exception type, and the two functions that throw it.
//
// A message names the op, what it was given (shape, dtype, device) and what it would have accepted:
//     [matmul] inner sizes differ: a [2, 3] @ b [4, 5]; the last size of a must equal ...
// Shapes are checked before any device branch, so every device reports the same text.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace stretto {

/// Every error that the library reports. `what()` is "[op] message".
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The allocator could not serve a request, even after it gave back its cache. The call can be
/// repeated: caches, states and optimisers are as they were before it (core/all_or_nothing.h), and
/// only the random numbers that it has drawn stay drawn.
struct OutOfMemory : Error {
  using Error::Error;
};

inline void append_text(std::string& to, const char* text) { to += text; }
inline void append_text(std::string& to, const std::string& text) { to += text; }
inline void append_text(std::string& to, char value) { to += value; }
inline void append_text(std::string& to, bool value) { to += value ? "true" : "false"; }
inline void append_text(std::string& to, int value) { to += std::to_string(value); }
inline void append_text(std::string& to, unsigned value) { to += std::to_string(value); }
inline void append_text(std::string& to, long value) { to += std::to_string(value); }
inline void append_text(std::string& to, unsigned long value) { to += std::to_string(value); }
void append_text(std::string& to, double value);  // shortest form that reads well: 0.5, 1e-05
inline void append_text(std::string& to, float value) { append_text(to, double(value)); }

/// All arguments as one text. Shapes, dtypes and devices have their own `append_text`.
template <class... Parts>
std::string str(const Parts&... parts) {
  std::string text;
  (append_text(text, parts), ...);
  return text;
}

/// Throws Error "[op] parts...".
template <class... Parts>
[[noreturn]] void fail(const char* op, const Parts&... parts) {
  throw Error(str("[", op, "] ", parts...));
}

/// Throws as `fail` does unless `condition` holds. The message is only built on failure.
template <class... Parts>
void check(bool condition, const char* op, const Parts&... parts) {
  if (!condition) [[unlikely]]
    fail(op, parts...);
}

}  // namespace stretto
