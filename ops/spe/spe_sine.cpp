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

#include "core/blas.h"
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
  SineRows(const Tensors& inputs, const Tensors& gradients, int64_t segment)
      : d_(inputs[0].size(1)),
        k_(inputs[0].size(2)),
        r_(inputs[1].size(3)),
        segment_(segment),
        inputs_(inputs),
        gradients_(gradients) {
    const Options options{.dtype = dtype_of<T>()};
    const bool gradient = !gradients.empty();
    omega_ = empty({(gradient ? 4 : 2) * k_, segment}, options);
    rows_ = empty({segment, r_}, options);
    for (Tensor& sums : sums_)
      if (gradient) sums = zeros({4 * k_, r_}, options);
  }

  void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) override {
    index_ = h * d_ + d;
    p0_ = p0;
    T* omega = omega_.template data<T>();
    for (int64_t k = 0; k < k_; ++k)
      wave(double(inputs_[0].data<T>()[index_ * k_ + k]), p0, p1 - p0, omega + 2 * k * segment_,
           omega + (2 * k + 1) * segment_);
    for (int64_t k = 0; !gradients_.empty() && k < 2 * k_; ++k)
      times_position(omega + k * segment_, p0, p1 - p0, omega + (2 * k_ + k) * segment_);
  }

  const T* rows(SpeSide side, int64_t p0, int64_t p1) override {
    T* to = rows_.template data<T>();
    gemm(p1 - p0, r_, 2 * k_, T(1), {omega_.template data<T>() + (p0 - p0_), segment_, true},
         {weights(side), r_}, T(0), to, r_);
    return to;
  }

  void add_gradient(SpeSide side, int64_t p0, int64_t p1, const T* g) override {
    gemm(4 * k_, r_, p1 - p0, T(1), {omega_.template data<T>() + (p0 - p0_), segment_}, {g, r_},
         T(1), sums_[int(side)].template data<T>(), r_);
  }

  void finish_gradient() override {
    for (const SpeSide side : spe_sides) {
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
  const T* weights(SpeSide side) const {
    return inputs_[1 + size_t(side)].template data<T>() + index_ * 2 * k_ * r_;
  }

  const int64_t d_, k_, r_, segment_;
  const Tensors inputs_, gradients_;
  int64_t index_ = 0, p0_ = 0;
  Tensor omega_;    // [2K, segment], and n Ω below it where gradients are wanted
  Tensor rows_;     // [segment, R]
  Tensor sums_[2];  // [4K, R]: dW and V
};

class SineSource : public SpeSource {
 public:
  SineSource(Tensor freqs, Tensor offsets, Tensor gains, SpeNoise noise, int64_t r)
      : SpeSource(freqs.size(0), freqs.size(1), r),
        freqs_(std::move(freqs)),
        offsets_(std::move(offsets)),
        gains_(std::move(gains)),
        noise_(std::move(noise)) {}

  const Tensor& parameter() const override { return freqs_; }
  void check_reach(const char*, int64_t) const override {}

  Tensor codes(SpeSide side, int64_t p0, int64_t n, DType dtype) const override {
    const Tensor at = (arange(n, {.dtype = f64, .device = freqs_.device()}) + double(p0));
    Tensor phases = frequencies(dtype).to(f64).unsqueeze(2) * at.unsqueeze(-1) * turn;
    if (side == SpeSide::query) phases = phases + offsets_.to(dtype).to(f64).unsqueeze(2);
    const Tensor omega =
        stack({cos(phases), sin(phases)}, -1).to(dtype).reshape({heads, d, n, 2 * sines()});
    const Tensor twice = stack({lambda(dtype), lambda(dtype)}, -1).reshape({heads, d, -1, 1});
    return matmul(omega, twice * draws(dtype) * factor());  // (20, 21)
  }

  Tensor lags(int64_t n) const override {
    const DType dtype = own_dtype();
    const Tensor tau = arange(2 * n - 1, {.dtype = f64, .device = freqs_.device()}) - double(n - 1);
    const Tensor phases =
        frequencies(dtype).to(f64).unsqueeze(-1) * tau * turn + offsets_.to(f64).unsqueeze(-1);
    return sum(square(lambda(dtype)).unsqueeze(-1) * cos(phases).to(dtype), {2}) *
           (0.5 / double(sines()));
  }

  Tensors inputs(DType dtype) const override {
    const Tensor z = draws(dtype).reshape({heads, d, sines(), 2, realizations}) *
                     (lambda(dtype).reshape({heads, d, sines(), 1, 1}) * factor());
    const Tensor a = z.select(3, 0), b = z.select(3, 1);
    const Tensor theta = offsets_.to(dtype).unsqueeze(-1);
    const Tensor c = cos(theta), s = sin(theta);
    const Shape shape{heads, d, 2 * sines(), realizations};
    return {frequencies(dtype), stack({c * a + s * b, c * b - s * a}, 3).reshape(shape),
            z.reshape(shape)};
  }

  int64_t segment() const override { return 32; }
  int64_t dims() const override { return 16; }
  std::unique_ptr<SpeRows<float>> rows_f32(const Tensors& inputs,
                                           const Tensors& gradients) const override {
    return std::make_unique<SineRows<float>>(inputs, gradients, segment());
  }
  std::unique_ptr<SpeRows<double>> rows_f64(const Tensors& inputs,
                                            const Tensors& gradients) const override {
    return std::make_unique<SineRows<double>>(inputs, gradients, segment());
  }

 private:
  int64_t sines() const { return freqs_.size(2); }
  double factor() const { return scale() / std::sqrt(2 * double(sines())); }
  Tensor frequencies(DType dtype) const { return sigmoid(freqs_.to(dtype)) * 0.5; }
  Tensor lambda(DType dtype) const { return softplus(gains_.to(dtype)); }
  Tensor draws(DType dtype) const {
    if (noise_.given().defined()) return noise_.given().to(freqs_.device()).to(dtype);
    return randn({heads, d, 2 * sines(), realizations}, noise_.key(),
                 {.dtype = dtype, .device = freqs_.device()});
  }

  Tensor freqs_, offsets_, gains_;
  SpeNoise noise_;
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
  int64_t realizations = noise.realizations();
  if (const Tensor& z = noise.given(); z.defined()) {
    const int64_t h = freqs.size(0), d = freqs.size(1), k = freqs.size(2);
    check(z.dim() == 4 && z.size(0) == h && z.size(1) == d && z.size(2) == 2 * k && z.size(3) >= 1,
          op, "noise ", z, "; must be [", h, ", ", d, ", ", 2 * k, ", R] with R at least 1");
    realizations = z.size(3);
  }
  return SpeAccess::make(std::make_shared<SineSource>(
      std::move(freqs), std::move(offsets), std::move(gains), std::move(noise), realizations));
}

}  // namespace stretto
