// convSPE on CUDA. Short filters are applied as band matrices computed in registers
// (cuda/spe/spe_conv.cu). Long filters use Fourier transforms in memory, for some dimensions of one
// head at a time.
#include <algorithm>

#include "cuda/spe/spe.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/spe/spe_conv_source.h"
#include "ops/spe/spe_fused.h"
#include "ops/view.h"

namespace stretto {
namespace {

// The rows of an operand for one head and some dimensions, f32 [positions, B, dimensions].
Tensor by_position(const Tensor& x, int64_t h, int64_t d0, int64_t n) {
  return x.select(1, h).slice(2, d0, d0 + n).transpose(0, 1).to(f32);
}
void add_to(Tensor to, const Tensor& x) { to.copy_(to + x); }

}  // namespace

// The filters multiplied by the gate's factors: codes are linear in the filters.
Tensors ConvSource::gated(const Tensors& inputs, const SpeCall& call) const {
  if (!call.factors.defined()) return inputs;
  const Tensor a = call.factors.reshape({heads, d, 1, 1});
  return {inputs[0] * a, inputs[1] * a};
}

// Uses the costs of the CPU. On CUDA both methods are also predicted to be equally fast at
// P = 160 to 250.
bool ConvSource::on_chip(const SpeCall& call) const {
  return cuda::makes_noise_codes(plane.tap_rows, plane.taps) &&
         (plane.image || !transforms_are_faster(call.span().size(), plane.taps));
}

cuda::NoiseCode ConvSource::code_on_chip(const Tensors& gated_w, const SpeCall& call) const {
  return {key,           draws_apart,  first_draw(0, 1, 0),
          plane.columns, realizations, {gated_w[0], gated_w[1]},
          call.rows};
}

template <class F>
void ConvSource::each_part(const SpeCall& call, F f) const {
  const Window w = window(call.span());
  const int64_t operand = std::max(call.sides[0].x.numel(), call.sides[1].x.numel());
  const int64_t most = std::clamp<int64_t>(operand / (realizations * w.ny * w.nx), 1, d);
  for (int64_t h = 0; h < heads; ++h)
    for (int64_t d0 = 0; d0 < d; d0 += most) {
      const Tensor noise = empty({std::min(most, d - d0), realizations, w.ny, w.nx},
                                 {.dtype = f32, .device = parameter.device()});
      cuda::fill_normal_columns(noise, key, draws_apart, first_draw(h * d + d0, w.y0, w.x0),
                                first_draw(0, 1, 0));
      f(h, d0, noise);
    }
}

// The noise of `span`, from the noise of the larger span `all`.
Tensor ConvSource::noise_of(const Tensor& noise, SpeSpan all, SpeSpan span) const {
  const Window w = window(span), around = window(all);
  return noise.slice(2, w.y0 - around.y0, w.y0 - around.y0 + w.ny)
      .slice(3, w.x0 - around.x0, w.x0 - around.x0 + w.nx);
}

// noise [dimensions, R, ny, nx] of a span, w [dimensions, P1, P2] → [positions, dimensions, R].
Tensor ConvSource::filtered(const Tensor& noise, const Tensor& w, SpeSpan span) const {
  const int64_t begin = plane.image ? span.p0 % plane.columns : 0;
  return fft_conv(noise, w.unsqueeze(1), {.axes = 2, .padding = Padding::valid})
      .reshape({noise.size(0), realizations, -1})
      .slice(2, begin, begin + span.size())
      .permute({2, 0, 1});
}

// The gradients of the filters [dimensions, P1, P2], from those of the code
// [positions, dimensions, R].
Tensor ConvSource::by_tap(const Tensor& noise, const Tensor& g, SpeSpan span) const {
  Tensor rows = g.permute({1, 2, 0});
  const int64_t height = noise.size(2) - plane.tap_rows + 1;
  if (plane.image) {
    const int64_t begin = span.p0 % plane.columns;
    rows = pad(rows, 2, begin, height * plane.columns - begin - span.size());
  }
  const Tensor last_first = flip(flip(noise, 2), 3);
  return sum(fft_conv(last_first, rows.reshape({g.size(1), realizations, height, -1}),
                      {.axes = 2, .padding = Padding::valid}),
             {1});
}

void ConvSource::forward_by_parts(const Tensors& gated_w, const SpeCall& call) const {
  Tensor y[2];
  for (const Side side : both_sides)
    if (const SpeOperand& o = call.sides[int(side)]; o.y.defined())
      y[int(side)] = call.rows.defined()
                         ? matmul(o.x.to(f32), call.rows)
                         : zeros(o.y.shape(), {.dtype = f32, .device = o.y.device()});
  each_part(call, [&](int64_t h, int64_t d0, const Tensor& noise) {
    const int64_t n = noise.size(0);
    for (const Side side : both_sides) {
      const SpeOperand& o = call.sides[int(side)];
      if (!o.y.defined() || o.y.numel() == 0) continue;
      const Tensor w = gated_w[size_t(side)].select(0, h).slice(0, d0, d0 + n);
      const Tensor code = filtered(noise_of(noise, call.span(), o.span()), w, o.span());
      add_to(y[int(side)].select(1, h), matmul(by_position(o.x, h, d0, n), code).transpose(0, 1));
    }
  });
  for (const Side side : both_sides)
    if (Tensor to = call.sides[int(side)].y; to.defined()) to.copy_(y[int(side)]);
}

cuda::NoiseSums ConvSource::backward_by_parts(const Tensors& gated_w, const SpeCall& call,
                                              bool sums) const {
  const TensorOptions options{.dtype = f32, .device = parameter.device()};
  cuda::NoiseSums all{zeros({2, heads, d, plane.tap_rows, plane.taps}, options),
                      zeros({heads, d, realizations}, options)};
  Tensor dx[2];
  for (const Side side : both_sides)
    if (const SpeOperand& o = call.sides[int(side)]; o.dx.defined())
      dx[int(side)] = call.rows.defined() ? matmul(o.y.to(f32), call.rows.transpose(1, 2))
                                          : zeros(o.dx.shape(), options);
  each_part(call, [&](int64_t h, int64_t d0, const Tensor& noise) {
    const int64_t n = noise.size(0);
    for (const Side side : both_sides) {
      const SpeOperand& o = call.sides[int(side)];
      if (o.y.numel() == 0) continue;
      const Tensor z = noise_of(noise, call.span(), o.span());
      const Tensor g = by_position(o.y, h, 0, realizations);
      if (o.dx.defined()) {
        const Tensor w = gated_w[size_t(side)].select(0, h).slice(0, d0, d0 + n);
        const Tensor code = filtered(z, w, o.span());
        add_to(dx[int(side)].select(1, h).slice(2, d0, d0 + n),
               matmul(g, code.transpose(1, 2)).transpose(0, 1));
      }
      if (!sums) continue;
      const Tensor dc = matmul(by_position(o.x, h, d0, n).transpose(1, 2), g);
      add_to(all.e.select(0, h).slice(0, d0, d0 + n), sum(dc, {0}));
      add_to(all.w.select(0, int64_t(side)).select(0, h).slice(0, d0, d0 + n),
             by_tap(z, dc, o.span()));
    }
  });
  for (const Side side : both_sides)
    if (Tensor to = call.sides[int(side)].dx; to.defined()) to.copy_(dx[int(side)]);
  return all;
}

void ConvSource::forward_on_cuda(const Tensors& inputs, const SpeCall& call) const {
  const Tensors gated_w = gated(inputs, call);
  if (!on_chip(call)) return forward_by_parts(gated_w, call);
  const auto& [q, k] = call.sides;
  cuda::apply_noise_code(code_on_chip(gated_w, call), {{q.x, q.at, q.y}, {k.x, k.at, k.y}});
}

void ConvSource::backward_on_cuda(const Tensors& inputs, const SpeCall& call,
                                  const Tensors& gradients) const {
  const Tensors gated_w = gated(inputs, call);
  const auto& [q, k] = call.sides;
  const bool needs_sums = !gradients.empty() || call.d_factors.defined() || call.d_rows.defined();
  cuda::NoiseSums sums;
  if (on_chip(call)) {
    const cuda::NoiseCode code = code_on_chip(gated_w, call);
    const cuda::NoiseSide sides[2] = {{q.x, q.at, q.y}, {k.x, k.at, k.y}};
    cuda::noise_code_dx(code, sides, {q.dx, k.dx});
    if (needs_sums) sums = cuda::noise_code_sums(code, sides);
  } else {
    sums = backward_by_parts(gated_w, call, needs_sums);
  }
  if (!needs_sums) return;
  if (call.d_rows.defined()) add_to(call.d_rows, sums.e);
  for (const Side side : both_sides) {
    const Tensor dw = sums.w.select(0, int64_t(side)), &a = call.factors;
    if (call.d_factors.defined())
      add_to(call.d_factors, sum(inputs[size_t(side)] * dw, {2, 3}).to(f64));
    if (!gradients.empty())
      add_to(gradients[size_t(side)], a.defined() ? dw * a.reshape({heads, d, 1, 1}) : dw);
  }
}

}  // namespace stretto
