// Convolutions by other ops, for a GPU: the windows of the input as one strided view, and batched
// matrix products.
#include "ops/conv/conv_kernels.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::conv_composed {
namespace {

// The image with its padding.
Size2d padded(const ConvSizes& s) {
  return {s.image.height + 2 * s.padding.height, s.image.width + 2 * s.padding.width};
}

// The elements of a padded image [N, G, in, H, W] under each kernel element at each position: a
// view [N, G, in, KH, KW, H', W'].
Tensor windows(const Tensor& image, const ConvSizes& s) {
  const Size2d size = padded(s);
  const int64_t row = size.width, channel = size.height * row, group = s.in * channel;
  return make_view(
      image, image.offset(),
      {s.batch, s.groups, s.in, s.kernel.height, s.kernel.width, s.output.height, s.output.width},
      {s.groups * group, group, channel, s.dilation.height * row, s.dilation.width,
       s.stride.height * row, s.stride.width});
}

Tensor windows_of(const Tensor& x, const ConvSizes& s) {
  Tensor image = x.reshape({s.batch, s.groups, s.in, s.image.height, s.image.width});
  if (s.padding.height > 0) image = pad(image, 3, s.padding.height, s.padding.height);
  if (s.padding.width > 0) image = pad(image, 4, s.padding.width, s.padding.width);
  return windows(image, s);
}

}  // namespace

Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSizes& s) {
  const Tensor columns = windows_of(x, s).reshape({s.batch, s.groups, s.depth(), s.positions()});
  Tensor y = matmul(w.reshape({s.groups, s.out, s.depth()}), columns);
  if (bias.defined()) y = y + bias.reshape({s.groups, s.out, 1});
  return y.reshape(s.y_shape());
}

Tensor input_gradient(const Tensor& g, const Tensor& w, const ConvSizes& s) {
  const Tensor columns = matmul(w.reshape({s.groups, s.out, s.depth()}).transpose(1, 2),
                                g.reshape({s.batch, s.groups, s.out, s.positions()}));
  const Size2d size = padded(s);
  const Tensor image =
      zeros({s.batch, s.groups, s.in, size.height, size.width}, options_of(columns));
  const Tensor to = windows(image, s), from = columns.reshape(to.shape());
  for (int64_t i = 0; i < s.kernel.height; ++i)
    for (int64_t j = 0; j < s.kernel.width; ++j)
      to.select(3, i).select(3, j).add_(from.select(3, i).select(3, j));
  return image.slice(3, s.padding.height, s.padding.height + s.image.height)
      .slice(4, s.padding.width, s.padding.width + s.image.width)
      .reshape(s.x_shape());
}

Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& s) {
  const int64_t count = s.batch * s.positions();
  const Tensor columns =
      windows_of(x, s).permute({1, 0, 5, 6, 2, 3, 4}).reshape({s.groups, count, s.depth()});
  const Tensor rows = g.reshape({s.batch, s.groups, s.out, s.positions()})
                          .permute({1, 2, 0, 3})
                          .reshape({s.groups, s.out, count});
  return matmul(rows, columns).reshape(s.w_shape());
}

}  // namespace stretto::conv_composed
