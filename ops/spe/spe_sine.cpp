// sineSPE: codes that are sums of sinusoids, Ω(n) W with Ω(n) = [cos 2πf_k n, sin 2πf_k n]_k.
//
// Ω needs no phases: cos(φ + θ) a + sin(φ + θ) b = cos φ (cos θ a + sin θ b) + sin φ (cos θ b −
// sin θ a), so queries and keys share it and differ in W [2K, R]. In a tile of rows n, for each
// head and dimension:
//
//     C = Ω W      dW = Ωᵀ dC      df_k = 2π Σ_r W[2k+1, r] V[2k, r] − W[2k, r] V[2k+1, r]
//
// with V = (n Ω)ᵀ dC. Phases are reduced to a turn in f64, so that they are as exact at position
// 10⁹ as at 0. The rest (f, λ, θ and the noise to W) are differentiable ops on small tensors.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/gemm/gemm.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/spe/spe_source.h"

namespace stretto {
namespace {

constexpr double turn = 2 * std::numbers::pi;

// cos and sin of 2πf·n for n = p0 … p0 + count − 1, and the same times n.
template <class T>
STRETTO_CLONES void wave(double f, int64_t p0, int64_t count, T* cosines, T* sines) {
  constexpr double magic = 6755399441055744.0;  // 1.5·2^52: adding it rounds to an integer
  for (int64_t i = 0; i < count; ++i) {
    const double turns = f * double(p0 + i);
    const double whole = (turns + magic) - magic;
    // In f32 the product was exact: f has 24 bits.
    const double rest =
        std::is_same_v<T, float> ? turns - whole : std::fma(f, double(p0 + i), -whole);
    const T phase = T(rest * turn);
    cosines[i] = math::cos(phase);
    sines[i] = math::sin(phase);
  }
}

template <class T>
STRETTO_CLONES void times_position(const T* x, int64_t p0, int64_t count, T* y) {
  for (int64_t i = 0; i < count; ++i) y[i] = T(p0 + i) * x[i];
}

template <class T>
class SineRows : public SpeRows<T> {
 public:
  SineRows(const SpeSource& s, const Tensors& inputs, const Tensors& gradients)
      : d_(s.d),
        k_(inputs[0].size(2)),
        r_(s.realizations),
        segment_(s.segment),
        inputs_(inputs),
        gradients_(gradients) {
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    const bool gradient = !gradients.empty();
    omega_ = empty({(gradient ? 4 : 2) * k_, segment_}, options);
    rows_ = empty({segment_, r_}, options);
    for (Tensor& sums : sums_)
      if (gradient) sums = zeros({4 * k_, r_}, options);
  }

  void prepare(int64_t h, int64_t d, SpeSpan span) override {
    index_ = h * d_ + d;
    p0_ = span.p0;
    T* omega = omega_.template data<T>();
    for (int64_t k = 0; k < k_; ++k)
      wave(double(inputs_[0].data<T>()[index_ * k_ + k]), p0_, span.size(),
           omega + 2 * k * segment_, omega + (2 * k + 1) * segment_);
    for (int64_t k = 0; !gradients_.empty() && k < 2 * k_; ++k)
      times_position(omega + k * segment_, p0_, span.size(), omega + (2 * k_ + k) * segment_);
  }

  const T* rows(Side side, SpeSpan span) override {
    T* to = rows_.template data<T>();
    gemm(span.size(), r_, 2 * k_, T(1),
         {omega_.template data<T>() + (span.p0 - p0_), segment_, true}, {weights(side), r_}, T(0),
         to, r_);
    return to;
  }

  void add_gradient(Side side, SpeSpan span, const T* g) override {
    gemm(4 * k_, r_, span.size(), T(1), {omega_.template data<T>() + (span.p0 - p0_), segment_},
         {g, r_}, T(1), sums_[int(side)].template data<T>(), r_);
  }

  void finish_gradient() override {
    for (const Side side : both_sides) {
      T* sums = sums_[int(side)].template data<T>();
      const T *w = weights(side), *v = sums + 2 * k_ * r_;
      std::copy_n(sums, 2 * k_ * r_,
                  gradients_[1 + size_t(side)].template data<T>() + index_ * 2 * k_ * r_);
      for (int64_t k = 0; k < k_; ++k) {
        const int64_t cosine = 2 * k * r_, sine = cosine + r_;
        double sum = 0;
        for (int64_t r = 0; r < r_; ++r)
          sum += double(w[sine + r]) * double(v[cosine + r]) -
                 double(w[cosine + r]) * double(v[sine + r]);
        gradients_[0].template data<T>()[index_ * k_ + k] += T(turn * sum);
      }
      std::fill_n(sums, 4 * k_ * r_, T(0));
    }
  }

 private:
  const T* weights(Side side) const {
    return inputs_[1 + size_t(side)].template data<T>() + index_ * 2 * k_ * r_;
  }

  const int64_t d_, k_, r_, segment_;
  const Tensors inputs_, gradients_;
  int64_t index_ = 0, p0_ = 0;
  Tensor omega_;    // [2K, segment], and n Ω below it where gradients are wanted
  Tensor rows_;     // [segment, R]
  Tensor sums_[2];  // [4K, R]: dW and V
};

struct SineSource : SpeSource {
  SineSource(Tensor f, Tensor o, Tensor g, SpeNoise z, int64_t r)
      : SpeSource({f.size(0), f.size(1), r, 32, most_dims}, f),
        freqs(std::move(f)),
        offsets(std::move(o)),
        gains(std::move(g)),
        noise(std::move(z)) {}
  const Tensor freqs, offsets, gains;
  const SpeNoise noise;

  int64_t sines() const { return freqs.size(2); }
  Tensor frequencies(DType dtype) const { return sigmoid(freqs.to(dtype)) * 0.5; }
  Tensor lambda(DType dtype) const { return softplus(gains.to(dtype)); }

  // f [H, D, K], and W [H, D, 2K, R] of queries and of keys.
  Tensors inputs(DType dtype) const override {
    const Shape shape{heads, d, 2 * sines(), realizations};
    const Tensor draws = noise.given.defined()
                             ? noise.given.to(freqs.device()).to(dtype)
                             : randn(shape, noise.key, {.dtype = dtype, .device = freqs.device()});
    const double factor = scale() / std::sqrt(2 * double(sines()));
    const Tensor z = draws.reshape({heads, d, sines(), 2, realizations}) *
                     (lambda(dtype).reshape({heads, d, sines(), 1, 1}) * factor);
    const Tensor a = z.select(3, 0), b = z.select(3, 1);
    const Tensor theta = offsets.to(dtype).unsqueeze(-1);
    const Tensor c = cos(theta), s = sin(theta);
    return {frequencies(dtype), stack({c * a + s * b, c * b - s * a}, 3).reshape(shape),
            z.reshape(shape)};
  }

  Tensor codes(const Tensors& inputs, Side side, int64_t p0, int64_t n) const override {
    const Tensor at = arange(n, {.dtype = f64, .device = freqs.device()}) + double(p0);
    const Tensor phases = inputs[0].to(f64).unsqueeze(2) * at.unsqueeze(-1) * turn;
    const Tensor omega = stack({cos(phases), sin(phases)}, -1).to(inputs[0].dtype());
    return matmul(omega.reshape({heads, d, n, 2 * sines()}), inputs[1 + size_t(side)]);
  }

  Tensor lags(int64_t n) const override {
    const DType dtype = own_dtype();
    const Tensor tau = arange(2 * n - 1, {.dtype = f64, .device = freqs.device()}) - double(n - 1);
    const Tensor phases =
        frequencies(dtype).to(f64).unsqueeze(-1) * tau * turn + offsets.to(f64).unsqueeze(-1);
    return sum(square(lambda(dtype)).unsqueeze(-1) * cos(phases).to(dtype), {2}) *
           (0.5 / double(sines()));
  }

  AnySpeRows rows(const Tensors& in, const Tensors& gradients) const override {
    return rows_of<SineRows>(*this, in, gradients);
  }
};

}  // namespace

SpeCode SpeCode::sine(Tensor freqs, Tensor offsets, Tensor gains, SpeNoise noise) {
  constexpr const char* op = "SpeCode::sine";
  check(freqs.dim() == 3 && freqs.shape() == offsets.shape() && freqs.shape() == gains.shape(), op,
        "freqs ", freqs, ", offsets ", offsets, ", gains ", gains, "; all three must be [H, D, K]");
  check(is_floating(freqs.dtype()) && freqs.dtype() == offsets.dtype() &&
            freqs.dtype() == gains.dtype(),
        op, "freqs ", freqs, ", offsets ", offsets, ", gains ", gains,
        "; all must have one floating dtype");
  check_same_device(op, {&freqs, &offsets, &gains});
  check(freqs.numel() > 0, op, "freqs ", freqs, "; H, D and K must be at least 1");
  int64_t realizations = noise.realizations;
  if (const Tensor& z = noise.given; z.defined()) {
    const int64_t h = freqs.size(0), d = freqs.size(1), k = freqs.size(2);
    check(z.dim() == 4 && z.size(0) == h && z.size(1) == d && z.size(2) == 2 * k && z.size(3) >= 1,
          op, "noise ", z, "; must be [", h, ", ", d, ", ", 2 * k, ", R] with R at least 1");
    realizations = z.size(3);
  }
  return SpeCode(std::make_shared<SineSource>(freqs, offsets, gains, noise, realizations));
}

}  // namespace stretto
