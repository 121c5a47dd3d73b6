#include "core/dtype.h"

#include <algorithm>

namespace stretto {

const char* name(DType t) {
  constexpr const char* names[] = {"f32", "f64", "bf16", "i64", "i32", "u8", "bool"};
  return names[int(t)];
}

DType promote(DType a, DType b) {
  constexpr int rank[] = {5, 6, 4, 3, 2, 1, 0};
  return rank[int(a)] >= rank[int(b)] ? a : b;
}

}  // namespace stretto
