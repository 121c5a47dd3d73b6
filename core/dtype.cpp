#include "core/dtype.h"

#include <algorithm>
#include <cmath>

namespace stretto {

const char* name(DType t) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "i64", "i32", "u8", "bool"};
  return names[int(t)];
}

DType promote(DType a, DType b) {
  constexpr int rank[] = {5, 6, 4, 3, 2, 1, 0};
  return rank[int(a)] >= rank[int(b)] ? a : b;
}

bool has_value(DType t, double value) {
  const bool whole = value == std::floor(value);
  switch (t) {
    case DType::i64:
      return whole && value >= -0x1p63 && value < 0x1p63;
    case DType::i32:
      return whole && value >= -0x1p31 && value < 0x1p31;
    case DType::u8:
      return whole && value >= 0 && value < 256;
    default:
      return true;
  }
}

void check_value(const char* op, DType t, double value) {
  check(has_value(t, value), op, t, " cannot represent ", value);
}

}  // namespace stretto
