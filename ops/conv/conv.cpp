#include "ops/conv/conv.h"

#include "autograd/tape.h"
#include "ops/conv/conv_kernels.h"
#include "ops/on_device.h"
#include "ops/reduce.h"

namespace stretto {
namespace {

// x in the dtype of the sums. bf16 is computed in f32 and rounded once.
Tensor operand(const Tensor& x) { return x.detach().to(compute_type(x.dtype())).contiguous(); }

// y = x ∗ w + bias, its gradient for x and its gradient for w are linear in both of their operands.
// The gradients of each are the other two.
Tensor convolve(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                const ConvSizes& sizes);
Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& sizes);

Tensor input_gradient(const Tensor& g, const Tensor& w, const ConvSizes& sizes) {
  const Tensor dx = on_device(operand(g), conv_cpu::input_gradient, conv_composed::input_gradient,
                              operand(w), sizes)
                        .to(g.dtype());
  return record("conv_input_gradient", {g, w}, dx, [=, g = Saved(g), w = Saved(w)](Backward& b) {
    return Tensors{b.needs(0) ? convolve("conv", b.grad(), w(), {}, sizes) : Tensor(),
                   b.needs(1) ? weight_gradient(b.grad(), g(), sizes) : Tensor()};
  });
}

Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& sizes) {
  const Tensor dw = on_device(operand(x), conv_cpu::weight_gradient, conv_composed::weight_gradient,
                              operand(g), sizes)
                        .to(x.dtype());
  return record("conv_weight_gradient", {x, g}, dw, [=, x = Saved(x), g = Saved(g)](Backward& b) {
    return Tensors{b.needs(0) ? input_gradient(g(), b.grad(), sizes) : Tensor(),
                   b.needs(1) ? convolve("conv", x(), b.grad(), {}, sizes) : Tensor()};
  });
}

Tensor convolve(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                const ConvSizes& sizes) {
  const Tensor row = bias.defined() ? operand(bias) : Tensor();
  const Tensor y =
      on_device(operand(x), conv_cpu::forward, conv_composed::forward, operand(w), row, sizes)
          .to(x.dtype());
  return record(op, {x, w, bias}, y, [=, x = Saved(x), w = Saved(w)](Backward& b) {
    const Dims all_but_channels = sizes.spatial == 1 ? Dims{0, 2} : Dims{0, 2, 3};
    return Tensors{b.needs(0) ? input_gradient(b.grad(), w(), sizes) : Tensor(),
                   b.needs(1) ? weight_gradient(x(), b.grad(), sizes) : Tensor(),
                   b.needs(2) ? sum(b.grad(), all_but_channels) : Tensor()};
  });
}

// The number of outputs along a dimension. The kernel must fit into the padded input.
int64_t output_size(const char* op, int64_t size, int64_t kernel, int64_t stride, int64_t padding,
                    int64_t dilation) {
  check(stride >= 1 && dilation >= 1 && padding >= 0, op, "stride ", stride, ", padding ", padding,
        ", dilation ", dilation, "; stride and dilation must be at least 1, padding at least 0");
  constexpr int64_t most = int64_t{1} << 40;  // so that sums and products do not overflow
  check(stride < most && padding < most && dilation < most / std::max<int64_t>(kernel, 1), op,
        "stride ", stride, ", padding ", padding, ", dilation ", dilation, "; too large");
  const int64_t room = size + 2 * padding - dilation * (kernel - 1) - 1;
  check(kernel >= 1 && room >= 0, op, "a kernel of size ", kernel, " with dilation ", dilation,
        " for an input of size ", size, " with padding ", padding, "; the kernel must fit into it");
  return room / stride + 1;
}

Tensor checked_conv(const char* op, const Tensor& x, const Tensor& w, const Tensor& bias,
                    const Conv2dOptions& o, int64_t spatial) {
  const char* shapes = spatial == 1 ? "x must be [N, C, L] and weight [O, C / groups, K]"
                                    : "x must be [N, C, H, W] and weight [O, C / groups, KH, KW]";
  check(x.dim() == 2 + spatial && w.dim() == 2 + spatial && is_floating(x.dtype()) &&
            x.dtype() == w.dtype(),
        op, "x ", x, ", weight ", w, "; ", shapes, ", of one floating-point dtype");
  check(o.groups >= 1 && w.size(0) % o.groups == 0 && x.size(1) == w.size(1) * o.groups, op, "x ",
        x, ", weight ", w, ", groups ", o.groups, "; ", shapes, ", and groups must divide O");
  check(!bias.defined() || (bias.shape() == Shape{w.size(0)} && bias.dtype() == w.dtype()), op,
        "bias ", bias, " for weight ", w, "; it must be [O] of the same dtype");
  check_same_device(op, {&x, &w, &bias});
  const Size2d image(spatial == 1 ? 1 : x.size(2), x.size(-1));
  const Size2d kernel(spatial == 1 ? 1 : w.size(2), w.size(-1));
  const auto out = [&](int64_t Size2d::*side) {
    return output_size(op, image.*side, kernel.*side, o.stride.*side, o.padding.*side,
                       o.dilation.*side);
  };
  const ConvSizes sizes{.spatial = spatial,
                        .batch = x.size(0),
                        .groups = o.groups,
                        .in = w.size(1),
                        .out = w.size(0) / o.groups,
                        .image = image,
                        .kernel = kernel,
                        .output = {out(&Size2d::height), out(&Size2d::width)},
                        .stride = o.stride,
                        .padding = o.padding,
                        .dilation = o.dilation};
  check_sizes(op, sizes.y_shape());
  return convolve(op, x, w, bias, sizes);
}

}  // namespace

Tensor conv1d(const Tensor& x, const Tensor& weight, const Tensor& bias, Conv1dOptions o) {
  return checked_conv("conv1d", x, weight, bias,
                      {.stride = {1, o.stride},
                       .padding = {0, o.padding},
                       .dilation = {1, o.dilation},
                       .groups = o.groups},
                      1);
}

Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, Conv2dOptions options) {
  return checked_conv("conv2d", x, weight, bias, options, 2);
}

}  // namespace stretto
