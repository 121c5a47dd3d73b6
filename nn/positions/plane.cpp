#include "nn/positions/plane.h"

#include <cmath>

#include "core/device_table.h"
#include "nn/init.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

template <class Options>
const Options& checked(const char* op, const Options& o) {
  check(o.height >= 1 && o.width >= 1 && o.class_tokens >= 0, op, "height ", o.height, ", width ",
        o.width, ", class_tokens ", o.class_tokens,
        "; height and width must be at least 1, class_tokens not negative");
  return o;
}

template <class Options>
PositionTraits plane_traits(const Options& o) {
  return {.causal = false,
          .memory = false,
          .plane = true,
          .max_positions = o.class_tokens + o.height * o.width};
}

// Of a dense bias of the scores.
template <class Options>
PositionTraits bias_traits(const Options& o) {
  PositionTraits traits = plane_traits(o);
  traits.scores = traits.dense = true;
  return traits;
}

template <class Options>
void check_tokens(const char* op, const AttentionInputs& inputs, const Options& o) {
  const int64_t tokens = o.class_tokens + o.height * o.width;
  check(inputs.n_queries() == tokens && inputs.n_keys() == tokens, op, inputs.n_queries(),
        " queries and ", inputs.n_keys(), " keys; must be ",
        o.class_tokens > 0 ? str("class_tokens ", o.class_tokens, " + ") : "", o.height, " x ",
        o.width, " = ", tokens, " each",
        inputs.n_keys() == tokens + 1 && o.class_tokens == 0
            ? "; set class_tokens = 1 if the first token is a class token"
            : "");
}

template <class Options>
std::string plane_label(const char* name, const Options& o) {
  return str(name, "(", o.height, " x ", o.width,
             o.class_tokens > 0 ? str(", class_tokens ", o.class_tokens) : "", ")");
}

Tensor window_table(HeadShape shape, const SwinBias::Options& o) {
  const int64_t cells = (2 * o.height - 1) * (2 * o.width - 1);
  Tensor table = empty({cells + (o.class_tokens > 0 ? 3 : 0), shape.n_heads});
  trunc_normal_(table, 0, 0.02);
  return table;
}

Tensor axis_table(HeadShape shape, int64_t length) {
  Tensor table = empty({shape.n_heads, 2 * length - 1, shape.d_key});
  normal_(table, 0, 1 / std::sqrt(double(shape.d_key)));
  return table;
}

}  // namespace

// --------------------------------------------------------------------------------- SwinBias

SwinBias::SwinBias(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(checked("SwinBias", o)),
      table(parameter("table", window_table(shape, o))) {}

PositionTraits SwinBias::traits(const Options& o) { return bias_traits(o); }

void SwinBias::apply(AttentionInputs& inputs) const {
  check_tokens("SwinBias", inputs, options);
  const int64_t h = options.height, w = options.width, first = options.class_tokens;
  const int64_t tokens = first + h * w, cells = (2 * h - 1) * (2 * w - 1);
  const auto make = [&] {
    std::vector<int64_t> index;
    for (int64_t i = 0; i < tokens; ++i)
      for (int64_t j = 0; j < tokens; ++j) {
        const int64_t q = i - first, k = j - first;
        if (q >= 0 && k >= 0)
          index.push_back((q / w - k / w + h - 1) * (2 * w - 1) + q % w - k % w + w - 1);
        else
          index.push_back(cells + (k >= 0 ? 0 : q >= 0 ? 1 : 2));
      }
    return tensor(index, {tokens * tokens});
  };
  const Tensor rows = device_table(table.device(), make, "swin_bias", h, w, first);
  add_bias(inputs,
           index_select(table, 0, rows).transpose(0, 1).reshape({table.size(1), tokens, tokens}));
}

std::string SwinBias::label() const { return plane_label("SwinBias", options); }

// ------------------------------------------------------------------------------- GridRelative

GridRelative::GridRelative(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(checked("GridRelative", o)),
      height_table(parameter("height_table", axis_table(shape, o.height))),
      width_table(parameter("width_table", axis_table(shape, o.width))) {}

PositionTraits GridRelative::traits(const Options& o) { return bias_traits(o); }

void GridRelative::apply(AttentionInputs& inputs) const {
  check_tokens("GridRelative", inputs, options);
  const int64_t h = options.height, w = options.width, cells = h * w, first = options.class_tokens;
  const Tensor q = inputs.q.slice(2, first);
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
  const Tensor bias = sum.reshape({batch, heads, cells, cells}) * scale;
  add_bias(inputs, first == 0 ? bias : pad(pad(bias, 2, first, 0), 3, first, 0));
}

std::string GridRelative::label() const { return plane_label("GridRelative", options); }

// ----------------------------------------------------------------------------------- Rotary2d

Rotary2d::Rotary2d(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(checked("Rotary2d", o)) {
  check(shape.d_key % 4 == 0, "Rotary2d", "heads with ", shape.d_key,
        " features; must be a multiple of 4");
  rotary_dims("Rotary2d", {.base = o.base}, shape.d_key / 2);
}

PositionTraits Rotary2d::traits(const Options& o) {
  PositionTraits traits = plane_traits(o);
  traits.multiple = 4;
  return traits;
}

Tensor Rotary2d::rotated(const Tensor& x, Side side) const {
  const int64_t h = options.height, w = options.width, first = options.class_tokens;
  const int64_t batch = x.size(0), heads = x.size(1), half = x.size(3) / 2;
  const RotaryOptions rotary{.base = options.base, .pairing = options.pairing};
  const Tensor cells = x.slice(2, first);
  const auto part = [&](int64_t begin) {
    return cells.slice(3, begin, begin + half).reshape({batch, heads * h, w, half});
  };
  const Tensor columns = rotate(part(0), 0, rotary, side).reshape({batch, heads, h * w, half});
  const Tensor rows =  // rotated as [B, H·w, h, D/2]
      rotate(part(half)
                 .reshape({batch, heads, h, w, half})
                 .transpose(2, 3)
                 .reshape({batch, heads * w, h, half}),
             0, rotary, side)
          .reshape({batch, heads, w, h, half})
          .transpose(2, 3)
          .reshape({batch, heads, h * w, half});
  const Tensor all = cat({columns, rows}, 3);
  return first == 0 ? all : cat({x.slice(2, 0, first), all}, 2);
}

void Rotary2d::apply(AttentionInputs& inputs) const {
  check_tokens("Rotary2d", inputs, options);
  inputs.q = rotated(inputs.q, Side::query);
  inputs.k = rotated(inputs.k, Side::key);
}

std::string Rotary2d::label() const { return plane_label("Rotary2d", options); }

// ---------------------------------------------------------------------------------- sinusoids

Tensor sinusoids_2d(int64_t height, int64_t width, int64_t d, Sinusoid layout,
                    TensorOptions options) {
  check(height >= 1 && width >= 1 && d >= 2 && d % 2 == 0, "sinusoids_2d", "height ", height,
        ", width ", width, ", d ", d, "; must be at least 1, and d even");
  const Tensor columns = sinusoids(width, d / 2, layout, 0, 1, options);
  const Tensor rows = sinusoids(height, d / 2, layout, 0, 1, options);
  const Shape all{height, width, d / 2};
  return cat({columns.unsqueeze(0).expand(all), rows.unsqueeze(1).expand(all)}, 2)
      .reshape({height * width, d});
}

}  // namespace stretto::nn
