#include "nn/positions/dense_bias.h"

#include <cmath>

#include "core/device_table.h"
#include "nn/init.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"

namespace stretto::nn {

// ---------------------------------------------------------------------------------------- FIRE

Fire::Fire(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(o),
      c(parameter("c", full({1}, 0.1))),
      multiplier(parameter("multiplier", ones({1}))),
      linear2(*this, "linear2", {o.hidden, shape.n_heads}) {
  check(o.hidden >= 1 && o.threshold >= 0, "Fire", "hidden ", o.hidden, ", threshold ", o.threshold,
        "; hidden must be at least 1, threshold not negative");
}

void Fire::apply(AttentionInputs& inputs) const {
  const auto m = double(inputs.n_queries()), n = double(inputs.n_keys()),
             first = double(inputs.first_position);
  const DType dtype = compute_type(c.dtype());  // bf16: integers only up to 256
  const TensorOptions number{.dtype = dtype, .device = c.device()};
  // Distances are computed from indices into these keys, for which f32 is exact; the query position
  // i is that in the whole sequence.
  const Tensor distance = arange(n - m, n, 1, number).unsqueeze(1) - arange(0, n, 1, number);
  const Tensor i = arange(first + n - m, first + n, 1, number).unsqueeze(1);
  const Tensor curve = c.to(dtype), threshold = abs(multiplier.to(dtype) * options.threshold);
  const Tensor x =
      log(abs(curve * distance) + 1) / (log(abs(curve * maximum(i, threshold)) + 1) + 1e-6);
  const Tensor b = linear2(relu(linear1(x.to(c.dtype()).unsqueeze(2))));
  add_bias(inputs, b.permute({2, 0, 1}));
}

std::string Fire::label() const {
  return str("Fire(hidden ", options.hidden, ", threshold ", options.threshold, ")");
}

// ------------------------------------------------------------------------------ two dimensions

namespace {

void check_grid(const char* op, int64_t height, int64_t width) {
  check(height >= 1 && width >= 1, op, "height ", height, ", width ", width,
        "; both must be at least 1");
}

void check_cells(const char* op, const AttentionInputs& inputs, int64_t height, int64_t width) {
  const int64_t cells = height * width;
  check(inputs.n_queries() == cells && inputs.n_keys() == cells, op, inputs.n_queries(),
        " queries and ", inputs.n_keys(), " keys; must be ", height, " x ", width, " = ", cells,
        " each (no class token: use Pooling::mean)");
}

Tensor window_table(HeadShape shape, const WindowBias::Options& o) {
  check_grid("WindowBias", o.height, o.width);
  Tensor table = empty({(2 * o.height - 1) * (2 * o.width - 1), shape.n_heads});
  trunc_normal_(table, 0, 0.02);
  return table;
}

const GridRelative::Options& checked(const GridRelative::Options& o) {
  check_grid("GridRelative", o.height, o.width);
  return o;
}

Tensor axis_table(HeadShape shape, int64_t length) {
  Tensor table = empty({shape.n_heads, 2 * length - 1, shape.d_key});
  normal_(table, 0, 1 / std::sqrt(double(shape.d_key)));
  return table;
}

}  // namespace

WindowBias::WindowBias(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(o), table(parameter("table", window_table(shape, o))) {}

void WindowBias::apply(AttentionInputs& inputs) const {
  const int64_t h = options.height, w = options.width, cells = h * w;
  check_cells("WindowBias", inputs, h, w);
  const auto make = [&] {
    std::vector<int64_t> index;
    for (int64_t q = 0; q < cells; ++q)
      for (int64_t k = 0; k < cells; ++k)
        index.push_back((q / w - k / w + h - 1) * (2 * w - 1) + q % w - k % w + w - 1);
    return tensor(index, {cells * cells});
  };
  const Tensor rows = device_table(table.device(), make, "window_bias", h, w);
  add_bias(inputs,
           index_select(table, 0, rows).transpose(0, 1).reshape({table.size(1), cells, cells}));
}

std::string WindowBias::label() const {
  return str("WindowBias(", options.height, " x ", options.width, ")");
}

GridRelative::GridRelative(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(checked(o)),
      height_table(parameter("height_table", axis_table(shape, o.height))),
      width_table(parameter("width_table", axis_table(shape, o.width))) {}

void GridRelative::apply(AttentionInputs& inputs) const {
  const int64_t h = options.height, w = options.width, cells = h * w;
  check_cells("GridRelative", inputs, h, w);
  const Tensor& q = inputs.q;
  const int64_t batch = q.size(0), heads = q.size(1);
  // One score per cell and distance along an axis: [B, H, y, x, 2·length − 1].
  auto along = [&](const Tensor& table) {
    return matmul(q, table.transpose(1, 2)).reshape({batch, heads, h, w, table.size(1)});
  };
  // After the skew the last index is the key's row y', or its column x'.
  const Tensor vertical = skew(along(height_table).transpose(2, 3), h).transpose(2, 3);
  const Tensor horizontal = skew(along(width_table), w);
  const double scale = inputs.options.scale.value_or(1 / std::sqrt(double(q.size(3))));
  const Tensor sum = vertical.unsqueeze(5) + horizontal.unsqueeze(4);  // [B, H, y, x, y', x']
  add_bias(inputs, sum.reshape({batch, heads, cells, cells}) * scale);
}

std::string GridRelative::label() const {
  return str("GridRelative(", options.height, " x ", options.width, ")");
}

}  // namespace stretto::nn
