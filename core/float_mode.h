// How a thread rounds and treats subnormal numbers. Worker threads take over the caller's mode, so
// that results do not depend on the number of threads.
#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace stretto {

#if defined(__x86_64__)
using FloatMode = unsigned;  ///< The register MXCSR.
/// Returns the mode of this thread, without the flags of past exceptions.
inline FloatMode float_mode() { return _mm_getcsr() & ~_MM_EXCEPT_MASK; }
/// Sets the mode of this thread.
inline void set_float_mode(FloatMode mode) { _mm_setcsr(mode); }
#else
using FloatMode = std::fenv_t;
inline FloatMode float_mode() {
  FloatMode mode;
  std::fegetenv(&mode);
  return mode;
}
inline void set_float_mode(const FloatMode& mode) { std::fesetenv(&mode); }
#endif

}  // namespace stretto
