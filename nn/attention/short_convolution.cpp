#include "nn/attention/short_convolution.h"

#include <cmath>

#include "nn/init.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

constexpr const char* op = "ShortConvolution";

ShortConvolution::Options checked(ShortConvolution::Options o) {
  check(o.features >= 1 && o.taps >= 1, op, o.features, " features and ", o.taps,
        " taps; must be at least 1");
  check((o.groups == 0 && o.d_input == 0) ||
            (o.groups > 0 && o.features % o.groups == 0 && o.d_input > 0),
        op, o.groups, " groups of ", o.features, " features, d_input ", o.d_input,
        "; accepted: none, or a divisor of the features and an input");
  check(o.residual || !o.scaled, op, "`scaled` without `residual`; set both");
  return o;
}

}  // namespace

ShortConvolution::ShortConvolution(Module& parent, std::string name, Options o)
    : Module(parent, std::move(name)), options(checked(o)) {
  const double bound = 1 / std::sqrt(double(options.taps));
  uniform_(weight, -bound, bound);
  if (options.groups > 0)
    filters.emplace(*this, "filters",
                    Linear::Options{options.d_input, options.groups * options.taps, false});
}

std::string ShortConvolution::label() const {
  return str("ShortConvolution(", options.features, ", ", options.taps, " taps)");
}

Tensor ShortConvolution::operator()(const Tensor& x, const AttentionMask& mask, Tensor* history,
                                    const Tensor& input) const {
  const int64_t n = x.dim() == 3 ? x.size(1) : 0, before = options.taps - 1;
  check(x.dim() == 3 && x.size(2) == options.features, op, "input ", x, "; must be [B, N, ",
        options.features, "]");
  const bool continued = history && history->defined();
  check(!continued || history->shape() == Shape{x.size(0), before, options.features}, op,
        "history ", continued ? *history : Tensor(), " for input ", x, "; must be [", x.size(0),
        ", ", before, ", ", options.features, "]");
  Tensor inputs = mask.key_padding.defined() ? masked_fill(x, mask.key_padding.unsqueeze(2), 0) : x;
  inputs = continued ? cat({*history, inputs}, 1) : pad(inputs, 1, before, 0);
  if (history) *history = inputs.slice(1, n).clone();
  Tensor y = bias, own;  // own: [B, N, groups, T]
  if (filters) own = (*filters)(input).reshape({x.size(0), n, options.groups, options.taps});
  for (int64_t j = 0; j <= before; ++j) {
    Tensor shifted = inputs.slice(1, j, j + n);
    if (mask.segments.defined() && j < before) {
      const int64_t distance = std::min(before - j, n);
      const Tensor differs =
          ne(mask.segments.slice(1, distance), mask.segments.slice(1, 0, n - distance));
      shifted = masked_fill(shifted, pad(differs.to(u8), 1, distance, 0, 1).unsqueeze(2), 0);
    }
    Tensor filter = weight.select(1, j);
    if (filters)
      filter = (filter.reshape({options.groups, options.features / options.groups}) +
                own.select(3, before - j).unsqueeze(3))
                   .flatten(2);
    const Tensor term = shifted * filter;
    y = y.defined() ? y + term : term;
  }
  if (!options.residual) return silu(y);
  return options.scaled ? (x + y) * (1 / std::sqrt(double(options.taps * (filters ? 2 : 1) + 1)))
                        : x + y;
}

}  // namespace stretto::nn
