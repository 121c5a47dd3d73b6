#include "ops/attention/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "autograd/tape.h"
#include "core/device_table.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/on_device.h"
#include "ops/view.h"

namespace stretto {
namespace {

// log ζ_i / xpos_scale_base: the logarithm of the factor by which xPos multiplies a
// query per position.
double decay(const RotaryOptions& o, int64_t i, double d) {
  return std::log((2 * double(i) + 0.4 * d) / (1.4 * d)) / o.xpos_scale_base;
}

void check_reach(const RotaryOptions& o, int64_t first, int64_t count, int64_t dims, DType dtype) {
  const double largest = dtype == f64 ? 1e300 : 1e30;  // so that products do not overflow
  const auto reach = int64_t(std::min(std::log(largest) / -decay(o, 0, double(dims)), 1e18));
  const int64_t last = first + count - 1;
  check(first >= -reach && last <= reach, "rotate", "xPos factors at positions ", first, " to ",
        last, " overflow ", dtype, "; accepted: ", -reach, " to ", reach,
        ", or more with a larger xpos_scale_base");
}

// A rotation, x·along + partner(x)·across with tables [L, dims]. The transposed rotation, which the
// gradient needs, has −across in place of across.
struct Turn {
  Tensor along, across;
};

Turn turn(int64_t first, int64_t count, int64_t dims, const RotaryOptions& o, Side side) {
  const auto d = double(dims);
  const bool half = o.pairing == RotaryPairing::half;
  const double base = o.base * std::pow(o.ntk, d / (d - 2));
  std::vector<double> rates, decays;
  for (int64_t i = 0; i < dims / 2; ++i) {
    rates.push_back(o.frequencies.empty() ? std::pow(base, -2 * double(i) / d)
                                          : o.frequencies[size_t(i)]);
    decays.push_back(o.xpos ? decay(o, i, d) * (side == Side::key ? -1 : 1) : 0);
  }
  const Tensor along = empty({count, dims}, {.dtype = f64}), across = empty_like(along);
  double* const c = along.data<double>();
  double* const s = across.data<double>();
  parallel_for(count, rows_per_chunk(16 * dims), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      const auto t = double(first + l);
      for (int64_t i = 0; i < dims / 2; ++i) {
        const double angle = t / o.scale * rates[size_t(i)];
        const double factor = o.attention_factor * (o.xpos ? std::exp(t * decays[size_t(i)]) : 1);
        const int64_t a = l * dims + (half ? i : 2 * i), b = a + (half ? dims / 2 : 1);
        c[a] = c[b] = factor * std::cos(angle);
        s[b] = factor * std::sin(angle);
        s[a] = -s[b];
      }
    }
  });
  return {along, across};
}

// y = x·along + partner(x)·across for one row; features from `dims` on are copied.
template <class T>
STRETTO_CLONES void turn_row(const T* x, T* __restrict y, const compute_t<T>* along,
                             const compute_t<T>* across, int64_t dims, int64_t size,
                             RotaryPairing pairing) {
  using C = compute_t<T>;
  if (pairing == RotaryPairing::half) {
    const int64_t half = dims / 2;
    for (int64_t i = 0; i < half; ++i) {
      const C a = C(x[i]), b = C(x[i + half]);
      y[i] = T(a * along[i] + b * across[i]);
      y[i + half] = T(b * along[i + half] + a * across[i + half]);
    }
  } else {
    for (int64_t i = 0; i < dims; i += 2) {
      const C a = C(x[i]), b = C(x[i + 1]);
      y[i] = T(a * along[i] + b * across[i]);
      y[i + 1] = T(b * along[i + 1] + a * across[i + 1]);
    }
  }
  for (int64_t i = dims; i < size; ++i) y[i] = x[i];
}

Tensor turned_cpu(const Tensor& input, const Turn& by, RotaryPairing pairing) {
  const Tensor x = input.contiguous(), y = empty_like(x);
  const int64_t length = x.size(2), size = x.size(3), dims = by.along.size(1);
  dispatch_floating(x.dtype(), "rotate", [&]<class T>() {
    using C = compute_t<T>;
    const T* from = x.data<T>();
    T* to = y.data<T>();
    const C *along = by.along.data<C>(), *across = by.across.data<C>();
    parallel_for(x.numel() / size, rows_per_chunk(size), [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row)
        turn_row(from + row * size, to + row * size, along + row % length * dims,
                 across + row % length * dims, dims, size, pairing);
    });
  });
  return y;
}

// x with the two features of each pair exchanged.
Tensor partner(const Tensor& x, RotaryPairing pairing) {
  const int64_t last = x.dim() - 1, half = x.size(last) / 2;
  Shape pairs = x.shape();
  pairs[last] = pairing == RotaryPairing::half ? 2 : half;
  pairs.push_back(pairing == RotaryPairing::half ? half : 2);
  const int64_t d = pairing == RotaryPairing::half ? last : last + 1;
  return flip(x.reshape(pairs), d).reshape(x.shape());
}

Tensor turned_cuda(const Tensor& x, const Turn& by, RotaryPairing pairing) {
  const int64_t dims = by.along.size(1);
  const Tensor y = x.slice(3, 0, dims).to(by.along.dtype());
  const Tensor z = (y * by.along + partner(y, pairing) * by.across).to(x.dtype());
  return dims == x.size(3) ? z : cat({z, x.slice(3, dims)}, 3);
}

Tensor turned(const Tensor& x, const Turn& by, RotaryPairing pairing) {
  return record("rotate", {x}, on_device(x.detach(), turned_cpu, turned_cuda, by, pairing),
                [by, pairing](Backward& b) {
                  return Tensors{turned(b.grad(), {by.along, -by.across}, pairing)};
                });
}

}  // namespace

int64_t rotary_dims(const char* op, const RotaryOptions& o, int64_t d_key) {
  const int64_t dims = o.dims > 0 ? o.dims : d_key;
  check(o.dims >= 0 && dims <= d_key && dims % 2 == 0, op, "dims ", o.dims, " of heads with ",
        d_key, " features; accepted: an even number up to ", d_key, ", or 0 for all of an even ",
        "number");
  check(o.base > 0 && o.scale > 0 && o.ntk > 0 && o.xpos_scale_base > 0, op, "base ", o.base,
        ", scale ", o.scale, ", ntk ", o.ntk, ", xpos_scale_base ", o.xpos_scale_base,
        "; all must be positive");
  check(o.frequencies.empty() || (2 * int64_t(o.frequencies.size()) == dims && o.ntk == 1), op,
        int64_t(o.frequencies.size()), " frequencies for ", dims, " features and ntk ", o.ntk,
        "; accepted: one for each pair with ntk 1, or none");
  check(std::isfinite(o.attention_factor), op, "attention_factor ", o.attention_factor,
        "; must be finite");
  return dims;
}

namespace {

std::vector<double> frequencies(const char* op, int64_t dims, double base, double factor,
                                double length) {
  check(dims >= 2 && dims % 2 == 0 && base > 0 && factor > 0 && length > 0, op, "dims ", dims,
        ", base ", base, ", factor ", factor, ", length ", length,
        "; dims must be even, all positive");
  std::vector<double> all;
  for (int64_t i = 0; i < dims / 2; ++i)
    all.push_back(std::pow(base, -2 * double(i) / double(dims)));
  return all;
}

}  // namespace

std::vector<double> llama3_frequencies(const Llama3Scaling& s) {
  const char* op = "llama3_frequencies";
  check(s.low_frequency_factor < s.high_frequency_factor, op, "low_frequency_factor ",
        s.low_frequency_factor, " and high_frequency_factor ", s.high_frequency_factor,
        "; must be in rising order");
  std::vector<double> all = frequencies(op, s.dims, s.base, s.factor, s.length);
  for (double& frequency : all) {
    const double turns = s.length * frequency / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - s.low_frequency_factor) / (s.high_frequency_factor - s.low_frequency_factor), 0.0,
        1.0);
    frequency *= kept + (1 - kept) / s.factor;
  }
  return all;
}

std::vector<double> yarn_frequencies(const YarnScaling& s) {
  const char* op = "yarn_frequencies";
  check(s.base != 1 && s.beta_fast > 0 && s.beta_slow > 0, op, "base ", s.base, ", beta_fast ",
        s.beta_fast, ", beta_slow ", s.beta_slow, "; base must not be 1, the others positive");
  std::vector<double> all = frequencies(op, s.dims, s.base, s.factor, s.length);
  const auto d = double(s.dims);
  // The (fractional) index of the pair that has this number of rotations in `length`.
  const auto pair = [&](double turns) {
    return d * std::log(s.length / (turns * 2 * std::numbers::pi)) / (2 * std::log(s.base));
  };
  double first = pair(s.beta_fast), last = pair(s.beta_slow);
  if (s.truncate) {
    first = std::floor(first);
    last = std::ceil(last);
  }
  first = std::max(first, 0.0);
  last = std::min(last, d - 1);
  if (first == last) last += 0.001;  // as the authors' code
  for (size_t i = 0; i < all.size(); ++i) {
    const double divided = std::clamp((double(i) - first) / (last - first), 0.0, 1.0);
    all[i] *= (1 - divided) + divided / s.factor;
  }
  return all;
}

double yarn_attention_factor(double factor) { return factor <= 1 ? 1 : 0.1 * std::log(factor) + 1; }

Tensor rotate(const Tensor& x, int64_t first_position, const RotaryOptions& o, Side side) {
  const char* op = "rotate";
  check(x.dim() == 4 && is_floating(x.dtype()), op, "x ", x,
        "; must be a floating-point tensor [B, H, L, D]");
  const int64_t l = x.size(2), dims = rotary_dims(op, o, x.size(3));
  if (x.numel() == 0 || dims == 0) return x;
  if (o.xpos) check_reach(o, first_position, l, dims, x.dtype());
  const DType dtype = compute_type(x.dtype());
  const auto table = [&](Tensor Turn::*part, const char* name) {
    return device_table(
        x.device(), [&] { return (turn(first_position, l, dims, o, side).*part).to(dtype); }, name,
        first_position, l, dims, o.pairing, o.base, o.scale, o.ntk, o.frequencies,
        o.attention_factor, o.xpos, o.xpos_scale_base, side, dtype);
  };
  Turn by;
  if (x.device().is_cpu()) {
    by = turn(first_position, l, dims, o, side);
    by = {by.along.to(dtype), by.across.to(dtype)};
  } else {
    by = {table(&Turn::along, "rotate along"), table(&Turn::across, "rotate across")};
  }
  return turned(x, by, o.pairing);
}

}  // namespace stretto
