#include "ops/conv/pool.h"

#include <algorithm>
#include <vector>

#include "ops/conv/conv.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "ops/widened.h"

namespace stretto {
namespace {

// The windows of a pool.
struct Windows {
  Size2d kernel, stride, padding, dilation;

  Windows(Size2d size, Size2d step, Size2d pad, Size2d spread)
      : kernel(size),
        stride(step.height == 0 ? size.height : step.height,
               step.width == 0 ? size.width : step.width),
        padding(pad),
        dilation(spread) {}

  // Over [N, C, 1, L]: only the widths count.
  Windows(int64_t size, Size2d step, Size2d pad, Size2d spread)
      : Windows(Size2d(1, size), Size2d(1, step.width), Size2d(0, pad.width),
                Size2d(1, spread.width)) {}
};

void check_pool(const char* op, const Tensor& x, int64_t spatial, const Windows& w) {
  check(x.dim() == 2 + spatial && is_floating(x.dtype()), op, "x ", x,
        spatial == 1 ? "; must be a floating-point tensor [N, C, L]"
                     : "; must be a floating-point tensor [N, C, H, W]");
  const auto check_side = [&](int64_t size, int64_t Size2d::*side) {
    const int64_t kernel = w.kernel.*side, padding = w.padding.*side;
    check(kernel >= 1 && w.stride.*side >= 1 && w.dilation.*side >= 1, op, "kernel ", kernel,
          ", stride ", w.stride.*side, ", dilation ", w.dilation.*side, "; must be at least 1");
    check(padding >= 0 && padding <= kernel / 2, op, "padding ", padding, " for a kernel of size ",
          kernel, "; accepted: 0 to half of the kernel");
    const int64_t last = size + 2 * padding - 1;  // kernel 1 always fits
    check(last >= 0 && (kernel == 1 || w.dilation.*side <= last / (kernel - 1)), op,
          "a kernel of size ", kernel, " with dilation ", w.dilation.*side,
          " for an input of size ", size, " with padding ", padding,
          "; the kernel must fit into it");
  };
  if (spatial == 2) check_side(x.size(2), &Size2d::height);
  check_side(x.size(-1), &Size2d::width);
}

// Returns [N·C, 1, H, W]: every channel becomes a batch entry.
Tensor channels_of(const Tensor& x) {
  return x.reshape({x.size(0) * x.size(1), 1, x.size(2), x.size(3)});
}

Tensor with_channels(const Tensor& y, const Tensor& x) {
  return y.reshape({x.size(0), x.size(1), y.size(-2), y.size(-1)});
}

// x [N, C, H, W]; the arguments are checked. A mean is a convolution with ones.
Tensor average(const Tensor& x, const Windows& w, bool count_include_pad) {
  const Tensor wide = widened(channels_of(x));
  const Tensor ones_kernel = ones({1, 1, w.kernel.height, w.kernel.width}, options_of(wide));
  const Conv2dOptions windows{.stride = w.stride, .padding = w.padding};
  const Tensor sums = conv2d(wide, ones_kernel, {}, windows);
  const double size = double(w.kernel.height * w.kernel.width);
  const Tensor y = count_include_pad
                       ? sums / size
                       : sums / conv2d(ones({1, 1, x.size(2), x.size(3)}, options_of(wide)),
                                       ones_kernel, {}, windows);
  return with_channels(y, x).to(x.dtype());
}

// Indices along one dimension of the elements of each window [outputs · kernel]. Those in the
// padding are replaced by the first one of the window that is not.
std::vector<int64_t> window_indices(const char* op, int64_t size, int64_t kernel, int64_t stride,
                                    int64_t padding, int64_t dilation) {
  std::vector<int64_t> all;
  const auto inside = [&](int64_t at) { return at >= 0 && at < size; };
  for (int64_t start = -padding; start + dilation * (kernel - 1) < size + padding;
       start += stride) {
    int64_t first = start;
    while (!inside(first) && first < start + dilation * (kernel - 1)) first += dilation;
    check(inside(first), op, "the window at position ", start, " of an input of size ", size,
          " has no element of it; use less padding or dilation");
    for (int64_t k = 0; k < kernel; ++k) {
      const int64_t at = start + k * dilation;
      all.push_back(inside(at) ? at : first);
    }
  }
  return all;
}

// x [N, C, H, W].
Tensor maximum_of_windows(const char* op, const Tensor& x, const Windows& w) {
  const Size2d kernel = w.kernel;
  const auto rows = window_indices(op, x.size(2), kernel.height, w.stride.height, w.padding.height,
                                   w.dilation.height);
  const auto columns = window_indices(op, x.size(3), kernel.width, w.stride.width, w.padding.width,
                                      w.dilation.width);
  const int64_t height = int64_t(rows.size()) / kernel.height;
  const int64_t width = int64_t(columns.size()) / kernel.width;
  const int64_t positions = height * width, size = kernel.height * kernel.width;
  std::vector<int64_t> elements;  // of each window, as indices into an image [H · W]
  for (int64_t p = 0; p < positions; ++p)
    for (int64_t i = p / width * kernel.height; i < (p / width + 1) * kernel.height; ++i)
      for (int64_t j = p % width * kernel.width; j < (p % width + 1) * kernel.width; ++j)
        elements.push_back(rows[size_t(i)] * x.size(3) + columns[size_t(j)]);
  const Tensor images = x.reshape({x.size(0) * x.size(1), x.size(2) * x.size(3)});
  const Tensor table = tensor(elements, {positions * size}, cpu).to(x.device());
  const Tensor windows = index_select(images.detach(), 1, table);
  const Tensor first = arange(positions, {.dtype = i64, .device = x.device()}) * double(size);
  const Tensor chosen = first + argmax(windows.reshape({images.size(0), positions, size}), 2);
  const Tensor at = index_select(table, 0, chosen.reshape({-1})).reshape(chosen.shape());
  return gather(images, 1, at).reshape({x.size(0), x.size(1), height, width});
}

}  // namespace

Tensor avg_pool1d(const Tensor& x, Int kernel, AvgPoolOptions o) {
  const Windows w(int64_t(kernel), o.stride, o.padding, 1);
  check_pool("avg_pool1d", x, 1, w);
  return average(x.unsqueeze(2), w, o.count_include_pad).squeeze(2);
}

Tensor avg_pool2d(const Tensor& x, Size2d kernel, AvgPoolOptions o) {
  const Windows w(kernel, o.stride, o.padding, 1);
  check_pool("avg_pool2d", x, 2, w);
  return average(x, w, o.count_include_pad);
}

Tensor max_pool1d(const Tensor& x, Int kernel, MaxPoolOptions o) {
  const Windows w(int64_t(kernel), o.stride, o.padding, o.dilation);
  check_pool("max_pool1d", x, 1, w);
  return maximum_of_windows("max_pool1d", x.unsqueeze(2), w).squeeze(2);
}

Tensor max_pool2d(const Tensor& x, Size2d kernel, MaxPoolOptions o) {
  const Windows w(kernel, o.stride, o.padding, o.dilation);
  check_pool("max_pool2d", x, 2, w);
  return maximum_of_windows("max_pool2d", x, w);
}

}  // namespace stretto
