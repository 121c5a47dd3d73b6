#include "nn/init.h"

#include <algorithm>
#include <numbers>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/random.h"
#include "core/thread_state.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/orthogonal.h"
#include "ops/view.h"

namespace stretto::nn {
namespace {

TensorOptions draw_options(const Tensor& x) {
  return {.dtype = compute_type(x.dtype()), .device = x.device()};
}

// x = offset + scale · draws
void assign(const Tensor& x, const Tensor& draws, double scale, double offset) {
  NoGrad guard;
  x.copy_(draws.mul_(scale).add_(scalar(offset, draw_options(x))));
}

// Distribution function of the standard normal, accurate in both tails.
double normal_cdf(double z) { return 0.5 * std::erfc(-z / std::numbers::sqrt2); }

// Returns z in [low, high] with normal_cdf(z) = p: Newton's method, with bisection if a
// step leaves the bracket.
double normal_quantile(double p, double low, double high) {
  double z = std::clamp(0.0, low, high);
  for (int i = 0; i < 100; ++i) {
    const double excess = normal_cdf(z) - p;
    (excess > 0 ? high : low) = z;
    const double density =
        std::exp(-0.5 * z * z) / (std::numbers::sqrt2 / std::numbers::inv_sqrtpi);
    const double step = excess / density;
    if (std::abs(step) < 1e-12 * std::max(1.0, std::abs(z))) break;
    const double next = z - step;
    z = next > low && next < high ? next : 0.5 * (low + high);
  }
  return z;
}

}  // namespace

SkipInit::SkipInit(std::optional<DType> dtype)
    : before_(thread_state.skip_init), dtype_before_(thread_state.parameter_dtype) {
  check(!dtype || is_floating(*dtype), "SkipInit", "dtype ", dtype.value_or(f32),
        "; must be floating");
  thread_state.skip_init = true;
  thread_state.parameter_dtype = dtype;
}
SkipInit::~SkipInit() {
  thread_state.skip_init = before_;
  thread_state.parameter_dtype = dtype_before_;
}
bool SkipInit::active() { return thread_state.skip_init; }

void constant_(const Tensor& x, double value) {
  if (SkipInit::active()) return;
  NoGrad guard;
  x.fill_(value);
}

void uniform_(const Tensor& x, double low, double high) {
  check(low <= high, "uniform_", "needs low ≤ high, got ", low, " and ", high);
  if (SkipInit::active()) return;
  assign(x, rand(x.shape(), next_random_key(), draw_options(x)), high - low, low);
}

void normal_(const Tensor& x, double mean, double std) {
  check(std >= 0, "normal_", "needs std ≥ 0, got ", std);
  if (SkipInit::active()) return;
  assign(x, randn(x.shape(), next_random_key(), draw_options(x)), std, mean);
}

void trunc_normal_(const Tensor& x, double mean, double std, double low, double high) {
  check(std > 0 && low < high, "trunc_normal_", "needs std > 0 and low < high, got std ", std,
        ", low ", low, ", high ", high);
  if (SkipInit::active()) return;
  double a = (low - mean) / std, b = (high - mean) / std;
  const bool mirrored = a > 0;  // normal_cdf() is more precise in the left tail
  if (mirrored) {
    std::swap(a, b);
    a = -a;
    b = -b;
  }
  const double from = normal_cdf(a), to = normal_cdf(b);
  check(from < to, "trunc_normal_", "[", low, ", ", high, "] has no probability under mean ", mean,
        ", std ", std);
  const RandomKey key = next_random_key();
  Tensor values = empty(x.shape(), {.dtype = f64, .device = cpu});
  double* v = values.data<double>();
  parallel_for(x.numel(), 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const double u = (double(random_bits(key, uint64_t(i))) + 0.5) * 0x1p-32;
      const double z = normal_quantile(from + u * (to - from), a, b);
      v[i] = std::clamp(mean + std * (mirrored ? -z : z), low, high);
    }
  });
  NoGrad guard;
  x.copy_(values);
}

Fans fans(const Tensor& x) {
  check(x.dim() >= 2, "fans", "needs at least 2 dimensions, got ", x);
  int64_t field = 1;
  for (int64_t d = 2; d < x.dim(); ++d) field *= x.size(d);
  return {.in = x.size(1) * field, .out = x.size(0) * field};
}

void xavier_uniform_(const Tensor& x, double gain) {
  const Fans f = fans(x);
  const double bound = gain * std::sqrt(6.0 / double(std::max<int64_t>(f.in + f.out, 1)));
  uniform_(x, -bound, bound);
}

void xavier_normal_(const Tensor& x, double gain) {
  const Fans f = fans(x);
  normal_(x, 0, gain * std::sqrt(2.0 / double(std::max<int64_t>(f.in + f.out, 1))));
}

namespace {

double kaiming_std(const Tensor& x, double a, Fan fan) {
  const Fans f = fans(x);
  return std::sqrt(2.0 /
                   ((1 + a * a) * double(std::max<int64_t>(fan == Fan::in ? f.in : f.out, 1))));
}

}  // namespace

void lecun_normal_(const Tensor& x) {
  // The divisor is the standard deviation of the standard normal distribution truncated to ±2.
  const double std = 1 / std::sqrt(double(fans(x).in)) / 0.87962566103423978;
  trunc_normal_(x, 0, std, -2 * std, 2 * std);
}

void kaiming_uniform_(const Tensor& x, double a, Fan fan) {
  const double bound = std::sqrt(3.0) * kaiming_std(x, a, fan);
  uniform_(x, -bound, bound);
}

void kaiming_normal_(const Tensor& x, double a, Fan fan) { normal_(x, 0, kaiming_std(x, a, fan)); }

void orthogonal_(const Tensor& x, double gain) {
  check(x.dim() >= 2, "orthogonal_", "needs at least 2 dimensions, got ", x);
  if (SkipInit::active() || x.numel() == 0) return;
  orthogonal_(x, gain, next_random_key());
}

void orthogonal_(const Tensor& x, double gain, RandomKey key) {
  check(x.dim() >= 2, "orthogonal_", "needs at least 2 dimensions, got ", x);
  if (SkipInit::active() || x.numel() == 0) return;
  const int64_t rows = x.size(0), columns = x.numel() / rows;
  const Shape drawn{std::min(rows, columns), std::max(rows, columns)};
  NoGrad guard;
  const Tensor q = orthogonal_rows(randn(drawn, key, {.dtype = f64, .device = cpu}));
  x.copy_(((rows <= columns ? q : q.transpose(0, 1)) * gain).reshape(x.shape()));
}

}  // namespace stretto::nn
