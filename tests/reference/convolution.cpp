#include "tests/reference/convolution.h"

#include <vector>

namespace stretto::reference {

using testing::Array;
using testing::build;
using testing::Number;

namespace {

int64_t outputs(int64_t size, int64_t kernel, int64_t stride, int64_t padding, int64_t dilation) {
  int64_t count = 0;
  for (int64_t at = -padding; at + dilation * (kernel - 1) < size + padding; at += stride) ++count;
  return count;
}

}  // namespace

Array convolution(const Array& x, const Array& w, const Array* bias, const Conv2dOptions& o) {
  const int64_t in = w.shape[1], out = w.shape[0] / o.groups, kh = w.shape[2], kw = w.shape[3];
  const Shape shape{x.shape[0], w.shape[0],
                    outputs(x.shape[2], kh, o.stride.height, o.padding.height, o.dilation.height),
                    outputs(x.shape[3], kw, o.stride.width, o.padding.width, o.dilation.width)};
  return build(shape, [&](const Shape& at) {
    Number sum;
    for (int64_t c = 0; c < in; ++c)
      for (int64_t i = 0; i < kh; ++i)
        for (int64_t j = 0; j < kw; ++j) {
          const int64_t row = at[2] * o.stride.height + i * o.dilation.height - o.padding.height;
          const int64_t column = at[3] * o.stride.width + j * o.dilation.width - o.padding.width;
          if (row < 0 || row >= x.shape[2] || column < 0 || column >= x.shape[3]) continue;
          sum = sum + w.at({at[1], c, i, j}) * x.at({at[0], at[1] / out * in + c, row, column});
        }
    return bias ? sum + bias->at({at[1]}) : sum;
  });
}

namespace {

// The elements of x in the window of an output of pooling, and how many positions were padding.
struct Window {
  std::vector<Number> elements;
  int64_t padding = 0;
};
Window window_of(const Array& x, const Shape& at, Size2d kernel, Size2d stride, Size2d padding,
                 Size2d dilation) {
  Window window;
  for (int64_t i = 0; i < kernel.height; ++i)
    for (int64_t j = 0; j < kernel.width; ++j) {
      const int64_t row = at[2] * stride.height + i * dilation.height - padding.height;
      const int64_t column = at[3] * stride.width + j * dilation.width - padding.width;
      if (row < 0 || row >= x.shape[2] || column < 0 || column >= x.shape[3])
        ++window.padding;
      else
        window.elements.push_back(x.at({at[0], at[1], row, column}));
    }
  return window;
}

Shape pooled_shape(const Array& x, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation) {
  return {x.shape[0], x.shape[1],
          outputs(x.shape[2], kernel.height, stride.height, padding.height, dilation.height),
          outputs(x.shape[3], kernel.width, stride.width, padding.width, dilation.width)};
}

}  // namespace

Array average_pool(const Array& x, Size2d kernel, Size2d stride, Size2d padding,
                   bool count_include_pad) {
  return build(pooled_shape(x, kernel, stride, padding, 1), [&](const Shape& at) {
    const Window window = window_of(x, at, kernel, stride, padding, 1);
    const auto count = int64_t(window.elements.size()) + (count_include_pad ? window.padding : 0);
    return testing::total(window.elements) / Number(double(count));
  });
}

Array max_pool(const Array& x, Size2d kernel, Size2d stride, Size2d padding, Size2d dilation) {
  return build(pooled_shape(x, kernel, stride, padding, dilation), [&](const Shape& at) {
    const Window window = window_of(x, at, kernel, stride, padding, dilation);
    Number top = window.elements[0];
    for (const Number& v : window.elements)
      if (v.value > top.value) top = v;
    return top;
  });
}

namespace {

// The two neighbors of output i of `size` along one dimension, and the weight of the second.
struct Neighbors {
  int64_t first, second;
  double weight;

  Neighbors(int64_t i, int64_t from, int64_t size, const InterpolateOptions& o) {
    double at = (double(i) + 0.5) * double(from) / double(size) - 0.5;
    if (o.align_corners) at = size == 1 ? 0 : double(i) * double(from - 1) / double(size - 1);
    if (at < 0) at = 0;
    first = o.mode == InterpolateMode::nearest ? i * from / size : int64_t(at);
    if (o.mode == InterpolateMode::nearest) at = double(first);
    second = first + 1 < from ? first + 1 : first;
    weight = at - double(first);
  }
};

}  // namespace

Array interpolated(const Array& x, Size2d size, const InterpolateOptions& o) {
  return build({x.shape[0], x.shape[1], size.height, size.width}, [&](const Shape& at) {
    const Neighbors row(at[2], x.shape[2], size.height, o),
        column(at[3], x.shape[3], size.width, o);
    const auto between = [](const Number& a, const Number& b, double weight) {
      return weight == 0 ? a : a * Number(1 - weight) + b * Number(weight);
    };
    const auto in_row = [&](int64_t i) {
      return between(x.at({at[0], at[1], i, column.first}), x.at({at[0], at[1], i, column.second}),
                     column.weight);
    };
    return between(in_row(row.first), in_row(row.second), row.weight);
  });
}

}  // namespace stretto::reference
