#include "ops/attention/rotary.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "autograd/tape.h"
#include "core/device_table.h"
#include "core/math.h"
#include "core/parallel.h"
#include "cuda/attention/rotary.h"
#include "ops/attention/heads.h"

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
  const int64_t last = first > reach ? first : first + count - 1;
  check(first >= -reach && last <= reach, "rotate", "xPos factors at positions ", first, " to ",
        last, " overflow ", dtype, "; accepted: ", -reach, " to ", reach,
        ", or more with a larger xpos_scale_base");
}

// A rotation of pairs (a, b) into (a·c − b·s, b·c + a·s), with rows of cosines c and sines s for L
// positions [L, dims/2], both times the factors of YaRN and xPos. The inverse, which the gradient
// needs, has −s in place of s.
struct Rotation {
  Tensor cosines, sines;
  RotaryPairing pairing;
  bool inverse = false;
};

Rotation rotation(int64_t first, int64_t count, int64_t dims, const RotaryOptions& o, Side side) {
  const auto d = double(dims);
  const int64_t pairs = dims / 2;
  const double base = o.base * std::pow(o.ntk, d / (d - 2));
  std::vector<double> rates, decays;
  for (int64_t i = 0; i < pairs; ++i) {
    rates.push_back(o.frequencies.empty() ? std::pow(base, -2 * double(i) / d)
                                          : o.frequencies[size_t(i)]);
    decays.push_back(o.xpos ? decay(o, i, d) * (side == Side::key ? -1 : 1) : 0);
  }
  const Tensor cosines = empty({count, pairs}, {.dtype = f64}), sines = empty_like(cosines);
  double* const c = cosines.data<double>();
  double* const s = sines.data<double>();
  parallel_for(count, rows_per_chunk(16 * dims), [&](int64_t begin, int64_t end) {
    for (int64_t l = begin; l < end; ++l) {
      const auto t = double(first) + double(l);
      for (int64_t i = 0; i < pairs; ++i) {
        const double angle = t / o.scale * rates[size_t(i)];
        const double factor = o.attention_factor * (o.xpos ? std::exp(t * decays[size_t(i)]) : 1);
        c[l * pairs + i] = factor * std::cos(angle);
        s[l * pairs + i] = factor * std::sin(angle);
      }
    }
  });
  return {cosines, sines, o.pairing};
}

// Rotates the pairs (a, b) of one row x of `size` features into y: (a·c + b·(first·s),
// b·c + a·(second·s)), first = −second = −1, or 1 for the inverse. Features after the pairs are
// copied. Two factors, because GCC 12 rounds a·c − b·s next to b·c + a·s only once, in spite of
// -ffp-contract=off, where the machine can.
template <class T>
STRETTO_CLONES void rotate_row(const T* x, T* __restrict y, const compute_t<T>* c,
                               const compute_t<T>* s, compute_t<T> first, compute_t<T> second,
                               int64_t pairs, int64_t size, bool interleaved) {
  using C = compute_t<T>;
  if (interleaved) {
    for (int64_t i = 0; i < pairs; ++i) {
      const C a = C(x[2 * i]), b = C(x[2 * i + 1]);
      y[2 * i] = T(a * c[i] + b * (first * s[i]));
      y[2 * i + 1] = T(b * c[i] + a * (second * s[i]));
    }
  } else {
    for (int64_t i = 0; i < pairs; ++i) {
      const C a = C(x[i]), b = C(x[i + pairs]);
      y[i] = T(a * c[i] + b * (first * s[i]));
      y[i + pairs] = T(b * c[i] + a * (second * s[i]));
    }
  }
  for (int64_t i = 2 * pairs; i < size; ++i) y[i] = x[i];
}

void rotate_cpu(const Tensor& x, const Rotation& by, const Tensor& y) {
  const int64_t heads = x.size(1), length = x.size(2), size = x.size(3);
  const int64_t pairs = by.cosines.size(1);
  dispatch_floating(x.dtype(), "rotate", [&]<class T>() {
    using C = compute_t<T>;
    const Heads<T> from = heads_of<T>(x), to = heads_of<T>(y);
    const C *c = by.cosines.data<C>(), *s = by.sines.data<C>();
    const C first = by.inverse ? 1 : -1;
    const bool interleaved = by.pairing == RotaryPairing::interleaved;
    parallel_for(x.size(0) * length, rows_per_chunk(heads * size), [&](int64_t begin, int64_t end) {
      for (int64_t token = begin; token < end; ++token) {
        const int64_t n = token / length, l = token % length;
        for (int64_t h = 0; h < heads; ++h)
          rotate_row<T>(from.at(n, h, l), to.at(n, h, l), c + l * pairs, s + l * pairs, first,
                        -first, pairs, size, interleaved);
      }
    });
  });
}

Tensor rotated(const Tensor& given, const Rotation& by) {
  const Tensor x = rows_contiguous(given), y = heads_like(x);
  if (x.device().is_cpu())
    rotate_cpu(x, by, y);
  else
    cuda::rotate(x, by.cosines, by.sines, by.pairing == RotaryPairing::interleaved, by.inverse, y);
  return record("rotate", {given}, y, [by](Backward& b) {
    Rotation back = by;
    back.inverse = !by.inverse;
    return Tensors{rotated(b.grad(), back)};
  });
}

Tensors rotated(Tensors given, const Rotation& by) {
  const bool on_gpu = given[0].device().is_cuda();
  const Tensor block = on_gpu && given.size() > 1 ? join_parts(given, 1) : Tensor();
  Tensors y;
  if (!block.defined()) {
    for (const Tensor& x : given) y.push_back(rotated(x, by));
    return y;
  }
  if (std::all_of(given.begin(), given.end(), [](const Tensor& x) { return x.unique(); }))
    for (const Tensor& x : given) y.push_back(x.detach());
  else
    y = heads_like(given);
  cuda::rotate(block, by.cosines, by.sines, by.pairing == RotaryPairing::interleaved, by.inverse,
               join_parts(y, 1));
  // Gradients: each rotated back.
  return record("rotate", given, y, [by, count = given.size()](Backward& b) {
    Rotation back = by;
    back.inverse = !by.inverse;
    Tensors g;
    for (size_t i = 0; i < count; ++i) g.push_back(b.take_grad(i));
    return rotated(std::move(g), back);
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
  check(o.max_length >= 0, op, "max_length ", o.max_length, "; must be 0 (no limit) or more");
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

namespace {

// The rotation of x, after checks; without cosines if there is nothing to rotate.
Rotation rotation_of(const Tensor& x, int64_t first_position, const RotaryOptions& o, Side side) {
  const char* op = "rotate";
  check(x.dim() == 4 && is_floating(x.dtype()), op, "x ", x,
        "; must be a floating-point tensor [B, H, L, D]");
  const int64_t l = x.size(2), dims = rotary_dims(op, o, x.size(3));
  Rotation by{.cosines = {}, .sines = {}, .pairing = o.pairing};
  if (x.numel() == 0 || dims == 0) return by;
  if (o.xpos) check_reach(o, first_position, l, dims, x.dtype());
  check(o.max_length == 0 || first_position <= o.max_length - l, op, "positions ", first_position,
        " to ", first_position + l - 1, " with frequencies for sequences of at most ", o.max_length,
        " positions (max_length); accepted: shorter sequences");
  const DType dtype = compute_type(x.dtype());
  if (x.device().is_cpu()) {
    by = rotation(first_position, l, dims, o, side);
    by.cosines = by.cosines.to(dtype);
    by.sines = by.sines.to(dtype);
  } else {
    const auto table = [&](Tensor Rotation::*part, const char* name) {
      return device_table(
          x.device(), [&] { return (rotation(first_position, l, dims, o, side).*part).to(dtype); },
          name, first_position, l, dims, o.base, o.scale, o.ntk, o.frequencies, o.attention_factor,
          o.xpos, o.xpos_scale_base, side, dtype);
    };
    by.cosines = table(&Rotation::cosines, "rotate cosines");
    by.sines = table(&Rotation::sines, "rotate sines");
  }
  return by;
}

}  // namespace

Tensor rotate(const Tensor& x, int64_t first_position, const RotaryOptions& o, Side side) {
  const Rotation by = rotation_of(x, first_position, o, side);
  return by.cosines.defined() ? rotated(x, by) : x;
}

Tensors rotate(Tensors x, int64_t first_position, const RotaryOptions& o) {
  const char* op = "rotate";
  check(!x.empty() && !o.xpos, op, "needs at least one tensor, and options without xpos");
  for (const Tensor& other : x)
    check(other.dim() == 4 && other.size(0) == x[0].size(0) && other.size(2) == x[0].size(2) &&
              other.size(3) == x[0].size(3) && other.dtype() == x[0].dtype() &&
              other.device() == x[0].device(),
          op, "got ", x[0], " and ", other, "; must be [B, H_i, L, D] of one dtype and device");
  const auto first =
      std::find_if(x.begin(), x.end(), [](const Tensor& t) { return t.numel() > 0; });
  if (first == x.end()) return x;
  const Rotation by = rotation_of(*first, first_position, o, Side::query);
  return by.cosines.defined() ? rotated(std::move(x), by) : x;
}

}  // namespace stretto
