// The implementations of attention, random features and SPE codes that the default device has.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "core/formulas/implementation.h"

namespace stretto::testing {

inline const char* name(Implementation implementation) {
  return implementation == Implementation::fused ? "fused" : "composed";
}

/// Returns both on the CPU; only the composed one on a GPU, as f64 has no fused kernels there.
inline std::vector<Implementation> implementations() {
  if (default_device().is_cuda()) return {Implementation::composed};
  return {Implementation::composed, Implementation::fused};
}

/// An implementation with a dtype that it supports.
struct Way {
  Implementation implementation;
  DType dtype;
};
inline std::string name(const Way& way) {
  return std::string(name(way.implementation)) + ", " + name(way.dtype);
}

/// Returns both implementations in f64; on a GPU the fused one in f32 and bf16 instead.
inline std::vector<Way> ways() {
  if (default_device().is_cuda())
    return {{Implementation::composed, f64},
            {Implementation::fused, f32},
            {Implementation::fused, bf16}};
  return {{Implementation::composed, f64}, {Implementation::fused, f64}};
}
/// Returns the dtypes of the fused implementation among ways().
inline std::vector<DType> fused_types() {
  if (default_device().is_cuda()) return {f32, bf16};
  return {f64};
}

/// True under an emulator of another processor, where tests take about 30 times as long.
#ifdef STRETTO_CROSS_COMPILED
inline constexpr bool emulator = true;
#else
inline constexpr bool emulator = false;
#endif

/// Returns the number of random cases to test: a tenth of `cases` under an emulator, and on a GPU,
/// where each case needs many kernel launches.
inline uint64_t some_of(uint64_t cases) {
  return emulator || default_device().is_cuda() ? (cases + 9) / 10 : cases;
}

}  // namespace stretto::testing
