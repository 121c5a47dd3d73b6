// Kept codes: made once, read by several calls, and one backward for all of them. Each call's
// backward leaves its operands behind (ops/spe/spe_streamed.cpp) and sends 1 to the handle's node,
// which is older than every call and so runs after them all.
#include <algorithm>
#include <cmath>

#include "ops/loops.h"
#include "ops/spe/spe_tiles.h"

namespace stretto {
namespace {

template <class T>
void make_codes(const SpeSource& s, const Tensors& inputs, const KeptCodes& kept) {
  const int64_t segment = s.segment(), r = s.realizations;
  parallel_for(s.heads * s.d, 1, [&](int64_t begin, int64_t end) {
    const auto rows = s.rows<T>(inputs, {});
    for (int64_t i = begin; i < end; ++i)
      for (int64_t p0 = kept.first; p0 < kept.end(); p0 += segment) {
        const int64_t p1 = std::min(kept.end(), p0 + segment);
        rows->prepare(i / s.d, i % s.d, p0, p1);
        for (const SpeSide side : spe_sides)
          if (const int64_t place = kept.place(side, i / s.d); place >= 0)
            std::copy_n(rows->rows(side, p0, p1), (p1 - p0) * r,
                        kept.codes[int(side)].data<T>() +
                            ((place * s.d + i % s.d) * kept.length + p0 - kept.first) * r);
      }
  });
}

// Sums what the calls left behind into gradients of the inputs.
template <class T>
void kept_backward(const SpeSource& s, const Tensors& inputs, const Tensors& gradients,
                   const std::vector<KeptCodes::Pending>& pending) {
  SpeSpan all{0, 0};
  for (const KeptCodes::Pending& call : pending) all = around(all, span_of(call.operand));
  const SpeMaker maker{std::shared_ptr<const SpeSource>(std::shared_ptr<void>(), &s), nullptr};
  const int64_t segment = s.segment(), chunks = (s.d + maker.dims() - 1) / maker.dims();
  const int64_t r = s.realizations;
  int64_t batch = 0;
  for (const KeptCodes::Pending& call : pending) batch = std::max(batch, call.operand.x.size(0));
  parallel_for(s.heads * chunks, 1, [&](int64_t begin, int64_t end) {
    SpeMakers<T> makers(maker, inputs, gradients);
    SpeGathered<T> rows(segment, batch, r);
    const Tensor buffer = empty({maker.dims(), segment, r}, {.dtype = dtype_of<T>()});
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t h = unit / chunks, d0 = unit % chunks * maker.dims();
      const int64_t n = std::min(maker.dims(), s.d - d0);
      for (int64_t p0 = all.p0; p0 < all.p1; p0 += segment) {
        const SpeSpan here = SpeSpan{p0, p0 + segment} & all;
        makers.prepare(h, d0, n, here);
        for (const SpeSide side : spe_sides) {
          T* const sums = buffer.data<T>();
          std::fill_n(sums, n * here.size() * r, T(0));
          for (const KeptCodes::Pending& call : pending) {
            const SpeSpan span = here & span_of(call.operand);
            if (call.side != side || span.size() == 0) continue;
            rows.load(call.operand, call.grad, h, d0, n, span);
            const T* factors = spe_factors<T>(call.factors, h);
            for (int64_t c = 0; c < n; ++c)
              rows.add_code_gradient(c, factors ? factors[d0 + c] : T(1),
                                     sums + (c * here.size() + span.p0 - here.p0) * r);
          }
          for (int64_t c = 0; c < n; ++c)
            makers.at[size_t(c)]->add_gradient(side, here.p0, here.p1, sums + c * here.size() * r);
        }
      }
      for (int64_t c = 0; c < n; ++c) makers.at[size_t(c)]->finish_gradient();
    }
  });
}

}  // namespace

SpeCode keep_on_cpu(const SpeCode& code, int64_t first, int64_t length, double queries,
                    DType dtype) {
  const auto source = SpeAccess::shared_source(code);
  const Tensors inputs = source->inputs(dtype);
  auto kept = std::make_shared<KeptCodes>();
  kept->first = first;
  kept->length = length;
  kept->inputs = plain_tensors(inputs);
  kept->query_heads = std::llround(queries * double(source->heads));
  for (const SpeSide side : spe_sides) {
    const int64_t heads = side == SpeSide::key ? source->heads : kept->query_heads;
    kept->codes[int(side)] =
        empty({heads, source->d, length, source->realizations}, {.dtype = dtype});
  }
  dtype == f64 ? make_codes<double>(*source, kept->inputs, *kept)
               : make_codes<float>(*source, kept->inputs, *kept);
  std::vector<Saved> saved(inputs.begin(), inputs.end());
  // Gradients: those of the parameters from dC = Σ a x g over all calls that used the codes.
  const Tensor handle = record("spe_kept", inputs, zeros({1}, {.dtype = dtype}), [=](Backward& b) {
    once_differentiable("spe_kept");
    // One from each call of this pass; anything older is of a pass that did not end.
    const auto calls = std::min(2 * size_t(b.grad().item()), kept->pending.size());
    const std::vector<KeptCodes::Pending> pending(kept->pending.end() - std::ptrdiff_t(calls),
                                                  kept->pending.end());
    kept->pending.clear();
    Tensors again;
    for (const Saved& x : saved) again.push_back(x());
    again = plain_tensors(again);
    const Tensors gradients = zeros_of(again);
    dtype == f64 ? kept_backward<double>(*source, again, gradients, pending)
                 : kept_backward<float>(*source, again, gradients, pending);
    return gradients;
  });
  return SpeAccess::make_kept(code, kept, handle);
}

}  // namespace stretto
