// Comparisons, and selection by mask.
#include "cuda/elementwise_masks.h"
#include "cuda/map.cuh"

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
  dispatch_number(a.dtype(), name, [&](auto tag) {
    using T = typename decltype(tag)::type;
    map<bool, T, 2>(name, out, {&a, &b}, Value<F>{});
  });
  return out;
}

/// out [n] = mask [n] ? a [n] : b [n]; the layout's operands are out, mask, a and b.
template <class Word>
__global__ void choose(Word* out, const uint8_t* mask, const Word* a, const Word* b,
                       const __grid_constant__ Layout<4> layout, int64_t n) {
  for (int64_t i = thread_index(); i < n; i += thread_count()) {
    const Offsets<4> at = offsets(layout, i);
    out[at.v[0]] = mask[at.v[1]] ? a[at.v[2]] : b[at.v[3]];
  }
}

}  // namespace

#define STRETTO_DEFINE(F) \
  Tensor compare(em::F, const Tensor& a, const Tensor& b) { return compared<em::F>(#F, a, b); }
STRETTO_COMPARISONS(STRETTO_DEFINE)
#undef STRETTO_DEFINE

Tensor where(const Tensor& mask, const Tensor& a, const Tensor& b) {
  const Shape shape =
      broadcast_shapes("where", broadcast_shapes("where", a.shape(), b.shape()), mask.shape());
  Tensor out = empty_like(a, shape);
  if (out.numel() == 0) return out;
  auto seen = [&](const Tensor& x) { return broadcast_strides(x.shape(), x.strides(), shape); };
  const Layout<4> layout = make_layout(shape, {out.strides(), seen(mask), seen(a), seen(b)});
  dispatch_word(a.dtype(), [&](auto word) {
    using Word = typename decltype(word)::type;
    auto words = [](const Tensor& x) { return static_cast<Word*>(x.raw_data()); };
    launch("where", out.device().index, choose<Word>, blocks_for(out.numel(), map_threads),
           map_threads, words(out), static_cast<const uint8_t*>(mask.raw_data()),
           static_cast<const Word*>(words(a)), static_cast<const Word*>(words(b)), layout,
           out.numel());
  });
  return out;
}

}  // namespace stretto::cuda
