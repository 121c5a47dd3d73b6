#include "ops/attention/skew.h"

#include <algorithm>
#include <cstring>

#include "autograd/tape.h"
#include "cuda/attention/skew.h"
#include "ops/loops.h"

namespace stretto {
namespace {

// Copies x [.., M, W] to [.., M, width], with row i moved to the left by shift(i) columns. skew and
// unskew use opposite shifts.
template <class Shift>
Tensor move_rows(const Tensor& x, int64_t width, Shift shift) {
  Shape shape = x.shape();
  shape.back() = width;
  Tensor y = empty(shape, options_of(x));
  const int64_t m = x.size(-2), from = x.size(-1);
  if (y.numel() == 0) return y;
  const int64_t bytes = item_size(x.dtype());
  const char* px = static_cast<const char*>(x.raw_data());
  char* py = static_cast<char*>(y.raw_data());
  parallel_for(y.numel() / width, rows_per_chunk(width), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t s = shift(row % m);  // column j of y is column j + s of x
      const int64_t first = std::clamp<int64_t>(-s, 0, width);
      const int64_t last = std::clamp<int64_t>(from - s, first, width);
      char* to = py + row * width * bytes;
      std::memset(to, 0, size_t(first * bytes));
      if (last > first)
        std::memcpy(to + first * bytes, px + (row * from + first + s) * bytes,
                    size_t((last - first) * bytes));
      std::memset(to + last * bytes, 0, size_t((width - last) * bytes));
    }
  });
  return y;
}

Tensor skew_cpu(const Tensor& x, int64_t n_keys) {
  return move_rows(x, n_keys, [m = x.size(-2)](int64_t i) { return m - 1 - i; });
}

Tensor unskew_cpu(const Tensor& y, int64_t width) {
  return move_rows(y, width, [m = y.size(-2)](int64_t i) { return i - m + 1; });
}

void check_arguments(const char* op, const Tensor& x, const char* name, int64_t width) {
  check(x.dim() >= 2 && is_floating(x.dtype()), op, "got ", x,
        "; accepted: a floating-point tensor with at least 2 dimensions");
  check(width >= 0, op, name, " is ", width, "; must be 0 or more");
}

}  // namespace

Tensor skew(const Tensor& x, Int n_keys) {
  check_arguments("skew", x, "n_keys", n_keys);
  Tensor y = on_device(x.detach().contiguous(), skew_cpu, cuda::skew, n_keys);
  return record("skew", {x}, y,
                [width = x.size(-1)](Backward& b) { return Tensors{unskew(b.grad(), width)}; });
}

Tensor unskew(const Tensor& y, Int width) {
  check_arguments("unskew", y, "width", width);
  Tensor x = on_device(y.detach().contiguous(), unskew_cpu, cuda::unskew, width);
  return record("unskew", {y}, x,
                [n = y.size(-1)](Backward& b) { return Tensors{skew(b.grad(), n)}; });
}

}  // namespace stretto
