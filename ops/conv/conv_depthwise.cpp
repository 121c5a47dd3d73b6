// Each plane (the image of one channel) is copied with its padding. All its rows are then one
// sequence, in which the kernel element (i, j) is at a constant offset from the output. Sums at the
// positions between the output rows are computed too, and ignored.
#include "ops/conv/conv_depthwise.h"

#include <algorithm>
#include <vector>

#include "core/gemm/blocks.h"
#include "core/gemm/workspace.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/rows.h"

namespace stretto::conv_cpu {
namespace {

using rows::lanes;
constexpr int64_t block = 4 * lanes;  // outputs that stay in registers during the loop over taps

constinit thread_local kernels::Workspace plane_memory, sum_memory;

// The geometry of a plane with its padding, whose rows follow each other.
struct Plane {
  Size2d from, before, to;       // the image, the zeros before it (negative: cut), the outputs
  int64_t height, width;         // with padding
  std::vector<int64_t> offsets;  // of the kernel elements

  Plane(const ConvSizes& s, Size2d image, Size2d padding, Size2d outputs)
      : from(image),
        before(padding),
        to(outputs),
        height(outputs.height + (s.kernel.height - 1) * s.dilation.height),
        width(outputs.width + (s.kernel.width - 1) * s.dilation.width) {
    for (int64_t i = 0; i < s.kernel.height; ++i)
      for (int64_t j = 0; j < s.kernel.width; ++j)
        offsets.push_back(i * s.dilation.height * width + j * s.dilation.width);
  }

  // The number of sums: the outputs and the positions between the output rows.
  int64_t sums() const { return (to.height - 1) * width + to.width; }

  // Copies an image to memory of this thread that is readable for one block more.
  template <class T>
  const T* copy(const T* image) const {
    T* const plane = plane_memory.reserve<T>(height * width + block);
    const int64_t begin = std::clamp<int64_t>(before.width, 0, width);
    const int64_t end = std::clamp(before.width + from.width, begin, width);
    for (int64_t i = 0; i < height; ++i) {
      T* const row = plane + i * width;
      const int64_t y = i - before.height;
      if (y < 0 || y >= from.height) {
        std::fill_n(row, width, T(0));
        continue;
      }
      std::fill(row, row + begin, T(0));
      std::copy_n(image + y * from.width + begin - before.width, end - begin, row + begin);
      std::fill(row + end, row + width, T(0));
    }
    std::fill_n(plane + height * width, block, T(0));
    return plane;
  }
};

// y[q] = Σ_t w[t] · x[q + offsets[t]] for whole blocks of q that cover [0, n).
template <class T>
STRETTO_CLONES void correlate(const T* x, const T* w, const int64_t* offsets, int64_t taps,
                              int64_t n, T* __restrict y) {
  for (int64_t q = 0; q < n; q += block) {
    T a[lanes] = {}, b[lanes] = {}, c[lanes] = {}, d[lanes] = {};
    for (int64_t t = 0; t < taps; ++t) {
      const T* const from = x + q + offsets[t];
      const T weight = w[t];
      for (int j = 0; j < lanes; ++j) a[j] += weight * from[j];
      for (int j = 0; j < lanes; ++j) b[j] += weight * from[lanes + j];
      for (int j = 0; j < lanes; ++j) c[j] += weight * from[2 * lanes + j];
      for (int j = 0; j < lanes; ++j) d[j] += weight * from[3 * lanes + j];
    }
    for (int j = 0; j < lanes; ++j) y[q + j] = a[j];
    for (int j = 0; j < lanes; ++j) y[q + lanes + j] = b[j];
    for (int j = 0; j < lanes; ++j) y[q + 2 * lanes + j] = c[j];
    for (int j = 0; j < lanes; ++j) y[q + 3 * lanes + j] = d[j];
  }
}

template <class T>
STRETTO_CLONES T dot(const T* x, const T* g, int64_t n) {
  return rows::sum<T>(n, [&](int64_t i) { return g[i] * x[i]; });
}

// Convolves planes `from` with kernels w [G, taps], reversed if `flipped`, into planes `to`.
template <class T>
void convolve(const ConvSizes& s, const Plane& plane, bool flipped, const T* from, const T* w,
              const T* bias, T* to) {
  const int64_t taps = s.taps(), in = plane.from.height * plane.from.width;
  const int64_t out = plane.to.height * plane.to.width, sums = plane.sums();
  parallel_for(s.batch * s.groups, rows_per_chunk(out * taps / 8), [&](int64_t begin, int64_t end) {
    std::vector<T> weights(static_cast<size_t>(taps));
    T* const row = sum_memory.reserve<T>(kernels::round_up(sums, block));
    for (int64_t i = begin; i < end; ++i) {
      const T* const kernel = w + i % s.groups * taps;
      flipped ? std::reverse_copy(kernel, kernel + taps, weights.begin())
              : std::copy(kernel, kernel + taps, weights.begin());
      correlate(plane.copy(from + i * in), weights.data(), plane.offsets.data(), taps, sums, row);
      const T shift = bias ? bias[i % s.groups] : T(0);
      for (int64_t y = 0; y < plane.to.height; ++y)
        for (int64_t x = 0; x < plane.to.width; ++x)
          to[i * out + y * plane.to.width + x] = row[y * plane.width + x] + shift;
    }
  });
}

}  // namespace

template <class T>
void depthwise_forward(const ConvSizes& s, const T* x, const T* w, const T* bias, T* y) {
  convolve(s, Plane(s, s.image, s.padding, s.output), false, x, w, bias, y);
}

template <class T>
void depthwise_input_gradient(const ConvSizes& s, const T* g, const T* w, T* dx) {
  const Size2d before((s.kernel.height - 1) * s.dilation.height - s.padding.height,
                      (s.kernel.width - 1) * s.dilation.width - s.padding.width);
  convolve<T>(s, Plane(s, s.output, before, s.image), true, g, w, nullptr, dx);
}

template <class T>
void depthwise_weight_gradient(const ConvSizes& s, const T* x, const T* g, T* dw) {
  const Plane plane(s, s.image, s.padding, s.output);
  const int64_t taps = s.taps(), positions = s.positions();
  parallel_for(s.groups, 1, [&](int64_t group, int64_t) {
    T* const row = sum_memory.reserve<T>(plane.sums());  // g with the width of the plane
    T* const to = dw + group * taps;
    std::fill_n(to, taps, T(0));
    std::fill_n(row, plane.sums(), T(0));
    for (int64_t i = group; i < s.batch * s.groups; i += s.groups) {
      for (int64_t y = 0; y < s.output.height; ++y)
        std::copy_n(g + i * positions + y * s.output.width, s.output.width, row + y * plane.width);
      const T* const image = plane.copy(x + i * s.pixels());
      for (int64_t t = 0; t < taps; ++t)
        to[t] += dot(image + plane.offsets[size_t(t)], row, plane.sums());
    }
  });
}

template void depthwise_forward(const ConvSizes&, const float*, const float*, const float*, float*);
template void depthwise_forward(const ConvSizes&, const double*, const double*, const double*,
                                double*);
template void depthwise_input_gradient(const ConvSizes&, const float*, const float*, float*);
template void depthwise_input_gradient(const ConvSizes&, const double*, const double*, double*);
template void depthwise_weight_gradient(const ConvSizes&, const float*, const float*, float*);
template void depthwise_weight_gradient(const ConvSizes&, const double*, const double*, double*);

}  // namespace stretto::conv_cpu
