// The implementations of attention, features and codes that there are where tests make their
// tensors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/device.h"
#include "core/dtype.h"
#include "ops/implementation.h"

namespace stretto::testing {

inline const char* name(Implementation implementation) {
  return implementation == Implementation::fused ? "fused" : "composed";
}

/// Both on the CPU; on a GPU there is the composed one alone, in f64.
inline std::vector<Implementation> implementations() {
  if (default_device().is_cuda()) return {Implementation::composed};
  return {Implementation::composed, Implementation::fused};
}

/// A form in a type that it serves.
struct Way {
  Implementation implementation;
  DType dtype;
};
inline std::string name(const Way& way) {
  return std::string(name(way.implementation)) + ", " + name(way.dtype);
}

/// Both in f64; on a GPU the fused one in what its kernels take.
inline std::vector<Way> ways() {
  if (default_device().is_cuda())
    return {{Implementation::composed, f64},
            {Implementation::fused, f32},
            {Implementation::fused, bf16}};
  return {{Implementation::composed, f64}, {Implementation::fused, f64}};
}
/// The types of the fused form among them.
inline std::vector<DType> fused_types() {
  if (default_device().is_cuda()) return {f32, bf16};
  return {f64};
}

/// Of cases drawn at random so many: a tenth of them where each is many launches.
inline uint64_t some_of(uint64_t cases) {
  return default_device().is_cuda() ? (cases + 9) / 10 : cases;
}

}  // namespace stretto::testing
