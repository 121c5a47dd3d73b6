// Comparisons, and selection by mask.
#include "cuda/elementwise_masks.h"
#include "cuda/runtime/map.cuh"

namespace stretto::cuda {
namespace {

namespace em = elementwise;

template <class F>
struct Value {
  template <class C>
  __device__ bool operator()(C a, C b) const {
    return F::value(a, b);
  }
};

template <class F>
Tensor compared(const char* name, const Tensor& a, const Tensor& b) {
  Tensor out =
      empty(broadcast_shapes(name, a.shape(), b.shape()), {.dtype = boolean, .device = a.device()});
  dispatch_number(a.dtype(), name,
                  [&]<class T>() { map<bool, T, T>(name, Value<F>{}, out, a, b); });
  return out;
}

struct Choose {
  template <class Word>
  __device__ Word operator()(uint8_t mask, Word a, Word b) const {
    return mask ? a : b;
  }
};

}  // namespace

#define STRETTO_DEFINE(F) \
  Tensor compare(em::F, const Tensor& a, const Tensor& b) { return compared<em::F>(#F, a, b); }
STRETTO_COMPARISONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  const Shape shape =
      broadcast_shapes("where", broadcast_shapes("where", a.shape(), b.shape()), mask.shape());
  Tensor out = empty_like(a, shape);
  dispatch_word(a.dtype(), [&]<class Word>() {
    map<Word, uint8_t, Word, Word>("where", Choose{}, out, mask, a, b);
  });
  return out;
}

}  // namespace stretto::cuda
