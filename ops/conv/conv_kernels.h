// The convolution y = x ∗ w and its two adjoints, on detached, contiguous tensors. Internal to
// ops/conv/.
//
// The CPU kernels accept f32 and f64. The composed functions accept every floating-point dtype and
// device.
#pragma once

#include "../../core/tensor.h"
#include "size2d.h"

namespace stretto {

/// The sizes of a convolution. With one spatial dimension all heights are 1.
struct ConvSizes {
  int64_t spatial;                 // number of spatial dimensions
  int64_t batch, groups, in, out;  // in, out: channels of a group
  Size2d image, kernel, output;    // the spatial sizes of x, w and y
  Size2d stride, padding, dilation;

  int64_t taps() const { return kernel.height * kernel.width; }
  int64_t depth() const { return in * taps(); }
  int64_t pixels() const { return image.height * image.width; }
  int64_t positions() const { return output.height * output.width; }
  bool unit_stride() const { return stride.height == 1 && stride.width == 1; }

  Shape x_shape() const { return with_spatial(batch, groups * in, image); }
  Shape w_shape() const { return with_spatial(groups * out, in, kernel); }
  Shape y_shape() const { return with_spatial(batch, groups * out, output); }

 private:
  Shape with_spatial(int64_t first, int64_t second, Size2d size) const {
    return spatial == 1 ? Shape{first, second, size.width}
                        : Shape{first, second, size.height, size.width};
  }
};

namespace conv_cpu {

/// Returns y = x ∗ w + bias; bias may be undefined.
Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSizes& sizes);
/// Returns the gradient of x from the gradient g of y.
Tensor input_gradient(const Tensor& g, const Tensor& w, const ConvSizes& sizes);
/// Returns the gradient of w from the gradient g of y.
Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& sizes);

}  // namespace conv_cpu

/// The same, composed from padding, strided views and matrix products.
namespace conv_composed {

Tensor forward(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvSizes& sizes);
Tensor input_gradient(const Tensor& g, const Tensor& w, const ConvSizes& sizes);
Tensor weight_gradient(const Tensor& x, const Tensor& g, const ConvSizes& sizes);

}  // namespace conv_composed

}  // namespace stretto
