// The source of convSPE codes, used by spe_conv.cpp and spe_conv_cuda.cpp. Internal to ops/spe/.
//
// Reference: tests/reference/spe.cpp, conv_code()
#pragma once

#include "../../cuda/runtime/composed.h"
#include "../../cuda/spe/spe_conv.h"
#include "spe_source.h"

namespace stretto {

// The cost of a transform per input element, in multiplications of the direct implementation.
// Measured with segments of 2P: at P = 256 both implementations take the same time.
inline constexpr int64_t transform_cost = 190;
inline bool transforms_are_faster(int64_t positions, int64_t taps) {
  return positions * (taps + 31) > transform_cost * (positions + taps - 1);
}

// Offset between the first samples of consecutive (head, dimension) in the sequence of the key, so
// that samples do not depend on L.
inline constexpr int64_t draws_apart = int64_t(1) << 40;

// The sizes of positions and filters along two axes. A sequence is a plane of one row.
struct Plane {
  int64_t rows = 1, columns = 1;
  int64_t tap_rows = 1, taps = 1;
  bool image = false;
};

// The noise needed for some positions:
// rows y0 … y0 + ny − 1 and columns x0 … x0 + nx − 1 of the plane.
struct Window {
  int64_t y0, ny, x0, nx;
};

struct ConvSource : SpeSource {
  ConvSource(Tensor q, Tensor k, const SpeNoise& z, const Plane& p, int64_t r, std::string why)
      : SpeSource({q.size(0), q.size(1), r, std::max<int64_t>(256, 2 * p.taps), 4,
                   SpeSpan{0, p.rows * p.columns}, std::move(why)},
                  q),
        filters{std::move(q), std::move(k)},
        key(z.key),
        plane(p) {
    if (z.given.defined())
      given = (p.image ? z.given : z.given.unsqueeze(3))
                  .to(compute_type(z.given.dtype()))
                  .to(cpu)
                  .permute({0, 1, 3, 4, 2})
                  .contiguous();
  }
  const Tensor filters[2];  // of queries and of keys
  const RandomKey key;      // of the noise, unless it is given
  Tensor given;             // given noise [H, D, n1, n2, R], or undefined
  const Plane plane;

  Window window(SpeSpan span) const {
    if (!plane.image) return {0, 1, span.p0, span.size() + plane.taps - 1};
    const int64_t y0 = span.p0 / plane.columns, y1 = std::max(span.p0, span.p1 - 1) / plane.columns;
    return {y0, y1 - y0 + plane.tap_rows, 0, plane.columns + plane.taps - 1};
  }
  // The index of the first noise sample of one head and dimension, index h·D + d, at
  // row y, column x.
  int64_t first_draw(int64_t index, int64_t y, int64_t x) const {
    const int64_t pitch = plane.image ? plane.columns + plane.taps - 1 : 0;
    return index * draws_apart + (y * pitch + x) * realizations;
  }
  template <class T>
  void read_noise(int64_t index, Window w, T* to) const;
  Tensor noise_in(Window w, const Tensor& like) const;
  // Returns a filter as [H, D, P1, P2].
  Tensor filter(Side side, DType dtype) const {
    return filters[int(side)].to(dtype).reshape({heads, d, plane.tap_rows, plane.taps});
  }

  Tensors inputs(DType dtype) const override;
  Tensor codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const override;
  Tensor lags(int64_t n) const override;
  AnySpeRows rows(const Tensors& in, const Tensors& gradients) const override;

  bool on_cuda(DType dtype) const override {
    return parameter.device().is_cuda() && dtype != f64 && !given.defined() &&
           !cuda::composed("spe", parameter.device());
  }
  bool keeps(int64_t positions) const override {
    return SpeSource::keeps(positions) || positions <= std::min<int64_t>(64, plane.taps);
  }
  void forward_on_cuda(const Tensors& inputs, const SpeCall& call) const override;
  void backward_on_cuda(const Tensors& inputs, const SpeCall& call,
                        const Tensors& gradients) const override;

  Tensors gated(const Tensors& inputs, const SpeCall& call) const;
  bool on_chip(const SpeCall& call) const;
  cuda::NoiseCode code_on_chip(const Tensors& gated_w, const SpeCall& call) const;
  // Calls f(h, first dimension, noise [dimensions, R, ny, nx] of window(call.span())) for groups of
  // dimensions whose noise is no larger than the operands.
  template <class F>
  void each_part(const SpeCall& call, F f) const;
  Tensor noise_of(const Tensor& noise, SpeSpan all, SpeSpan span) const;
  Tensor filtered(const Tensor& noise, const Tensor& w, SpeSpan span) const;
  Tensor by_tap(const Tensor& noise, const Tensor& g, SpeSpan span) const;
  void forward_by_parts(const Tensors& gated_w, const SpeCall& call) const;
  cuda::NoiseSums backward_by_parts(const Tensors& gated_w, const SpeCall& call, bool sums) const;
};

}  // namespace stretto
