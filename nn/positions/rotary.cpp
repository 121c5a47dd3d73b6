#include "nn/positions/rotary.h"

#include <algorithm>
#include <cmath>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

// How many of d_key numbers turn.
int64_t turning(const char* op, const RotaryOptions& o, int64_t d_key) {
  const int64_t dims = o.dims > 0 ? o.dims : d_key;
  check(o.dims >= 0 && dims <= d_key && dims % 2 == 0, op, "dims ", o.dims, " of heads with ",
        d_key, " numbers; accepted: an even number up to ", d_key, ", or 0 for all of an even ",
        "number");
  check(o.base > 0 && o.scale > 0 && o.ntk > 0 && o.xpos_scale_base > 0, op, "base ", o.base,
        ", scale ", o.scale, ", ntk ", o.ntk, ", xpos_scale_base ", o.xpos_scale_base,
        "; all must be positive");
  return dims;
}

// log ζ_i / xpos_scale_base: the logarithm of what xPos multiplies a query by per position.
double decay(const RotaryOptions& o, int64_t i, double d) {
  return std::log((2 * double(i) + 0.4 * d) / (1.4 * d)) / o.xpos_scale_base;
}

void check_reach(const RotaryOptions& o, int64_t first, int64_t count, int64_t dims, DType dtype) {
  const double largest = dtype == f64 ? 1e300 : 1e30;  // leaves room for the products
  const auto reach = int64_t(std::min(std::log(largest) / -decay(o, 0, double(dims)), 1e18));
  const int64_t last = first + count - 1;
  check(first >= -reach && last <= reach, "rotate", "xPos at positions ", first, " to ", last,
        " has factors beyond ", dtype, "; accepted: ", -reach, " to ", reach,
        "; a larger xpos_scale_base reaches further");
}

// A turn as x·along + partner(x)·across, tables [L, dims] in f64.
struct Turn {
  Tensor along, across;
};

Turn turn(int64_t first, int64_t count, int64_t dims, const RotaryOptions& o, RotaryPart part) {
  const auto d = double(dims);
  const bool half = o.pairing == RotaryPairing::half;
  const double base = o.base * std::pow(o.ntk, d / (d - 2));
  std::vector<double> rates, decays;
  for (int64_t i = 0; i < dims / 2; ++i) {
    rates.push_back(std::pow(base, -2 * double(i) / d));
    decays.push_back(o.xpos ? decay(o, i, d) * (part == RotaryPart::key ? -1 : 1) : 0);
  }
  const Tensor along = empty({count, dims}, {.dtype = f64}), across = empty_like(along);
  double* const c = along.data<double>();
  double* const s = across.data<double>();
  parallel_for(count, rows_per_chunk(16 * dims), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      const auto t = double(first + l);
      for (int64_t i = 0; i < dims / 2; ++i) {
        const double angle = t / o.scale * rates[size_t(i)];
        const double factor = o.xpos ? std::exp(t * decays[size_t(i)]) : 1;
        const int64_t a = l * dims + (half ? i : 2 * i), b = a + (half ? dims / 2 : 1);
        c[a] = c[b] = factor * std::cos(angle);
        s[b] = factor * std::sin(angle);
        s[a] = -s[b];
      }
    }
  });
  return {along, across};
}

// Both numbers of each pair change places.
Tensor partner(const Tensor& x, RotaryPairing pairing) {
  const int64_t last = x.dim() - 1, half = x.size(last) / 2;
  Shape pairs = x.shape();
  pairs[last] = pairing == RotaryPairing::half ? 2 : half;
  pairs.push_back(pairing == RotaryPairing::half ? half : 2);
  const int64_t d = pairing == RotaryPairing::half ? last : last + 1;
  return flip(x.reshape(pairs), d).reshape(x.shape());
}

}  // namespace

Tensor rotate(const Tensor& x, int64_t first_position, const RotaryOptions& o, RotaryPart part) {
  const char* op = "rotate";
  check(x.dim() == 4 && is_floating(x.dtype()), op, "x ", x, "; must be floating [B, H, L, D]");
  const int64_t l = x.size(2), dims = turning(op, o, x.size(3));
  if (x.numel() == 0 || dims == 0) return x;
  if (o.xpos) check_reach(o, first_position, l, dims, x.dtype());
  const DType dtype = x.dtype() == bf16 ? f32 : x.dtype();
  const Turn by = turn(first_position, l, dims, o, part);
  const Tensor y = x.slice(3, 0, dims).to(dtype);
  const Tensor turned = y * by.along.to(dtype).to(x.device()) +
                        partner(y, o.pairing) * by.across.to(dtype).to(x.device());
  if (dims == x.size(3)) return turned.to(x.dtype());
  return cat({turned.to(x.dtype()), x.slice(3, dims)}, 3);
}

Rotary::Rotary(Module& parent, HeadShape shape, Options o) : Position(parent), options(o) {
  turning("Rotary", o, shape.d_key);
}

void Rotary::apply(AttentionCall& call) const {
  const int64_t m = call.n_queries(), n = call.n_keys();
  check(
      !options.xpos || call.options.mask.is_causal(), "Rotary",
      "xPos in a call that is not causal: its factors grow into the future; make the call causal, "
      "or use Rotary without xpos, Alibi or a two-sided T5Bias");
  check(!options.xpos || !call.state, "Rotary",
        "xPos with a kernel that keeps a state: features of queries and keys depend on where "
        "its factors are counted from; use Rotary without xpos");
  // Only differences matter, but keys in a cache are turned for good.
  const int64_t first = options.xpos ? -(n / 2) : call.first;
  call.k = rotate(call.k, first, options, RotaryPart::key);
  call.q = rotate(call.q, first + n - m, options, RotaryPart::query);
}

std::string Rotary::label() const {
  std::string text = options.xpos ? "xPos" : "RoPE";
  text += options.pairing == RotaryPairing::half ? ", half" : ", interleaved";
  if (options.dims > 0) text += str(", ", options.dims, " dims");
  return str("Rotary(", text, ")");
}

}  // namespace stretto::nn
