// sineSPE: codes that are sums of sinusoids, Ω(n) W with Ω(n) = [cos 2πf_k n, sin 2πf_k n]_k.
//
// Ω contains no phases: cos(φ + θ) a + sin(φ + θ) b = cos φ (cos θ a + sin θ b) + sin φ (cos θ b −
// sin θ a). Queries and keys therefore share Ω and differ only in W [2K, R]. All blocks of 32
// positions also share their sinusoids: a block with middle c has the sinusoids of a block with
// middle 0, with weights rotated by 2πf_k c,
//
//     A' = cos A + sin B,  B' = cos B − sin A      (A and B the rows of W for cos and sin)
//
// and positions c + m and c − m share their products (ops/spe/spe_kernels.h). Each element of a
// code costs K multiplications, K more for its term of dW, and K for df. df is 2π times the sum
// over all blocks of
//
//     c (B' s0 − A' s1) + B' s2 − A' s3,   s0 = Σ_m cos dC,  s1 = Σ_m sin dC,  s2, s3 with m dC
//
// Blocks begin at multiples of 32, so that a position has the same code in every call. Phases are
// reduced modulo 2π in f64, so that they are as exact at position 10⁹ as at 0. W is computed from
// f, λ, θ and the noise by differentiable ops on small tensors.
#include "cuda/spe/spe_sine.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "cuda/runtime/composed.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/spe/spe_fused.h"
#include "ops/spe/spe_kernels.h"

namespace stretto {
namespace {

constexpr double two_pi = 2 * std::numbers::pi;

// cos and sin of 2πf·n, with a phase of higher precision than T.
template <class T>
STRETTO_CLONES void wave(const double* f, const double* n, int64_t count, T* cosines, T* sines) {
  constexpr double magic = 6755399441055744.0;  // 1.5·2^52: adding it rounds to an integer
  for (int64_t i = 0; i < count; ++i) {
    const double whole = (f[i] * n[i] + magic) - magic;
    const double phase = std::fma(f[i], n[i], -whole) * two_pi;
    const T near = T(phase), rest = T(phase - double(near));
    const T c = math::cos(near), s = math::sin(near);
    cosines[i] = c - rest * s;
    sines[i] = s + rest * c;
  }
}

// The middle of a block of positions, with cos and sin of the phase of one wave there.
template <class T>
struct Middle {
  T position, cosine, sine;
};

// A' = cos A + sin B and B' = cos B − sin A: the weights of one wave relative to another middle.
template <class T>
STRETTO_CLONES void rotate_weights(const Middle<T>& middle, const SpeWeights<T>& weights,
                                   T* __restrict to_a, T* __restrict to_b) {
  const T c = middle.cosine, s = middle.sine, *a = weights.of_cosines, *b = weights.of_sines;
  const int64_t r = weights.realizations;
  for (int64_t i = 0; i < r; ++i) {
    to_a[i] = c * a[i] + s * b[i];
    to_b[i] = c * b[i] - s * a[i];
  }
}

// Adds the sums of a block for one wave (SpeKernels::wave_sums), relative to its middle and with
// the weights rotated to it, to the gradients dA, dB and df.
template <class T>
STRETTO_CLONES void add_sums(const Middle<T>& middle, const SpeWeights<T>& weights, const T* sums,
                             T* __restrict da, T* __restrict db, T* __restrict df) {
  const T n = middle.position, c = middle.cosine, s = middle.sine;
  const T *a = weights.of_cosines, *b = weights.of_sines;
  const int64_t r = weights.realizations;
  const T *s0 = sums, *s1 = s0 + r, *s2 = s1 + r, *s3 = s2 + r;
  for (int64_t i = 0; i < r; ++i) {
    da[i] += c * s0[i] - s * s1[i];
    db[i] += s * s0[i] + c * s1[i];
    df[i] += n * (b[i] * s0[i] - a[i] * s1[i]) + (b[i] * s2[i] - a[i] * s3[i]);
  }
}

template <class T>
class SineRows : public SpeRows<T> {
 public:
  SineRows(const SpeSource& s, const Tensors& inputs, const Tensors& gradients)
      : d_(s.d),
        k_(inputs[0].size(2)),
        r_(s.realizations),
        inputs_(inputs),
        gradients_(gradients),
        frequencies_(size_t(entries(places + 1))),
        positions_(frequencies_.size()),
        cosines_(frequencies_.size()),
        sines_(frequencies_.size()) {
    const TensorOptions options{.dtype = dtype_of<T>(), .device = cpu};
    rows_ = empty({SpeWaves::block, r_}, options);
    rotated_ = empty({2, 2 * k_, r_}, options);
    if (gradients.empty()) return;
    block_sums_ = empty({4 * k_, r_}, options);
    for (Tensor& sums : sums_) sums = zeros({3 * k_, r_}, options);
  }

  void prepare(int64_t h, int64_t d, SpeSpan span) override {
    const int64_t index = h * d_ + d;
    p0_ = span.p0 / SpeWaves::block * SpeWaves::block;
    if (index != index_) {
      index_ = index;
      const T* f = inputs_[0].data<T>() + index_ * k_;
      for (int64_t i = 0; i <= places; ++i)
        for (int64_t k = 0; k < k_; ++k) {
          frequencies_[size_t(i * k_ + k)] = double(f[k]);
          positions_[size_t(i * k_ + k)] = double(i) + 0.5;
        }
      wave(frequencies_.data(), positions_.data(), entries(places), cosines_.data(), sines_.data());
    }
    const int64_t at = places * k_;
    std::fill_n(positions_.begin() + at, k_, double(p0_) + double(places) - 0.5);
    wave(frequencies_.data() + at, positions_.data() + at, entries(1), cosines_.data() + at,
         sines_.data() + at);
    for (const Side side : both_sides)
      for (int64_t k = 0; k < k_; ++k) {
        const T* w = weights(side) + 2 * k * r_;
        T* to = rotated(side) + k * r_;
        rotate_weights<T>(middle(k), {w, w + r_, r_}, to, to + k_ * r_);
      }
  }

  const T* rows(Side side, SpeSpan span) override {
    T* const to = rows_.template data<T>();
    const int64_t begin = span.p0 - p0_ - places, end = span.p1 - p0_ - places;
    const int64_t first = begin >= 0 ? begin : end <= 0 ? -end : 0;
    spe_kernels<T>().waves(angles(), rotated_weights(side), first, std::max(end, -begin), to);
    return to + (span.p0 - p0_) * r_;
  }

  void add_gradient(Side side, SpeSpan span, const T* g) override {
    if (span.size() < SpeWaves::block) {  // pad with zeros
      T* const to = rows_.template data<T>();
      std::fill_n(to, rows_.numel(), T(0));
      std::copy_n(g, span.size() * r_, to + (span.p0 - p0_) * r_);
      g = to;
    }
    T* const sums = block_sums_.template data<T>();
    T* const all = sums_[int(side)].template data<T>();
    spe_kernels<T>().wave_sums(angles(), g, r_, sums);
    for (int64_t k = 0; k < k_; ++k) {
      T* const to = all + 3 * k * r_;
      add_sums(middle(k), rotated_weights(side).from(k, 0), sums + 4 * k * r_, to, to + r_,
               to + 2 * r_);
    }
  }

  void finish_gradient() override {
    for (const Side side : both_sides) {
      T* sums = sums_[int(side)].template data<T>();
      T* dw = gradients_[1 + size_t(side)].template data<T>() + index_ * 2 * k_ * r_;
      for (int64_t k = 0; k < k_; ++k) {
        const T* of = sums + 3 * k * r_;
        std::copy_n(of, 2 * r_, dw + 2 * k * r_);
        double sum = 0;
        for (int64_t r = 0; r < r_; ++r) sum += double(of[2 * r_ + r]);
        gradients_[0].template data<T>()[index_ * k_ + k] += T(two_pi * sum);
      }
      std::fill_n(sums, 3 * k_ * r_, T(0));
    }
  }

 private:
  static constexpr int64_t places = SpeWaves::pairs;
  // The size of n · K elements, rounded up to whole vectors.
  int64_t entries(int64_t n) const { return (n * k_ + 15) / 16 * 16; }
  const T* weights(Side side) const {
    return inputs_[1 + size_t(side)].template data<T>() + index_ * 2 * k_ * r_;
  }
  SpeAngles<T> angles() const { return {cosines_.data(), sines_.data(), k_}; }
  // The middle of the block, for one wave.
  Middle<T> middle(int64_t k) const {
    const size_t at = size_t(places * k_ + k);
    return {T(positions_[at]), cosines_[at], sines_[at]};
  }
  SpeWeights<T> rotated_weights(Side side) { return {rotated(side), rotated(side) + k_ * r_, r_}; }
  T* rotated(Side side) { return rotated_.template data<T>() + int(side) * 2 * k_ * r_; }

  const int64_t d_, k_, r_;
  const Tensors inputs_, gradients_;
  int64_t index_ = -1, p0_ = 0;                  // h·D + d, and the block's first position
  std::vector<double> frequencies_, positions_;  // [pairs + 1, K]: positive offsets, the middle
  std::vector<T> cosines_, sines_;
  Tensor rows_;        // [block, R]
  Tensor rotated_;     // [2, 2K, R]: A' and B' of queries and of keys
  Tensor block_sums_;  // [K, 4, R]
  Tensor sums_[2];     // [K, 3, R]: dA, dB, and the terms of df before the sum over R
};

struct SineSource : SpeSource {
  SineSource(Tensor f, Tensor o, Tensor g, SpeNoise z, int64_t r)
      : SpeSource({f.size(0), f.size(1), r, SpeWaves::block, most_dims}, f),
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
    const Tensor phases = inputs[0].to(f64).unsqueeze(2) * at.unsqueeze(-1) * two_pi;
    const Tensor omega = stack({cos(phases), sin(phases)}, -1).to(inputs[0].dtype());
    return matmul(omega.reshape({heads, d, n, 2 * sines()}), inputs[1 + size_t(side)]);
  }

  Tensor lags(int64_t n) const override {
    const DType dtype = own_dtype();
    const Tensor tau = arange(2 * n - 1, {.dtype = f64, .device = freqs.device()}) - double(n - 1);
    const Tensor phases =
        frequencies(dtype).to(f64).unsqueeze(-1) * tau * two_pi + offsets.to(f64).unsqueeze(-1);
    return sum(square(lambda(dtype)).unsqueeze(-1) * cos(phases).to(dtype), {2}) *
           (0.5 / double(sines()));
  }

  AnySpeRows rows(const Tensors& in, const Tensors& gradients) const override {
    return rows_of<SineRows>(*this, in, gradients);
  }

  bool on_cuda(DType dtype) const override {
    return parameter.device().is_cuda() && dtype != f64 && cuda::makes_sine_codes(d, sines()) &&
           !cuda::composed("spe", parameter.device());
  }
  // The code with the gate's factors multiplied into its weights.
  cuda::SineCode code_of(const Tensors& inputs, const SpeCall& call, Side side) const {
    const Tensor& w = inputs[1 + size_t(side)];
    return {inputs[0], call.factors.defined() ? w * call.factors.reshape({heads, d, 1, 1}) : w,
            call.rows};
  }
  void forward_on_cuda(const Tensors& inputs, const SpeCall& call) const override {
    for (const Side side : both_sides)
      if (const SpeOperand& o = call.sides[int(side)]; o.y.defined())
        cuda::apply_sine_code(code_of(inputs, call, side), o.x, o.at, o.y);
  }
  void backward_on_cuda(const Tensors& inputs, const SpeCall& call,
                        const Tensors& gradients) const override {
    const auto add = [](const Tensor& to, const Tensor& x) { to.copy_(to + x); };
    for (const Side side : both_sides) {
      const SpeOperand& o = call.sides[int(side)];
      const cuda::SineCode code = code_of(inputs, call, side);
      if (o.dx.defined()) cuda::sine_code_dx(code, o.y, o.at, o.dx);
      if (gradients.empty() && !call.d_factors.defined() && !call.d_rows.defined()) continue;
      const Tensor sums = cuda::sine_code_sums(code, o.x, o.y, o.at);
      const Shape by_wave{heads, d, sines(), -1, realizations};
      const Tensor waves = sums.slice(2, 0, 4 * sines()).reshape(by_wave);
      const Tensor dw = waves.slice(3, 0, 2);
      const Tensor &w = inputs[1 + size_t(side)], &a = call.factors;
      if (call.d_rows.defined()) add(call.d_rows, sums.select(2, 4 * sines()));
      if (call.d_factors.defined())
        add(call.d_factors, sum(w.reshape(by_wave) * dw, {2, 3, 4}).to(f64));
      if (gradients.empty()) continue;
      const Tensor same = dw.reshape(w.shape());
      add(gradients[1 + size_t(side)], a.defined() ? same * a.reshape({heads, d, 1, 1}) : same);
      // df = 2π Σ p (cos dC B − sin dC A), A and B the weights of cos and sin.
      const Tensor rotated = code.w.reshape(by_wave);
      const Tensor slopes =
          waves.select(3, 2) * rotated.select(3, 1) - waves.select(3, 3) * rotated.select(3, 0);
      add(gradients[0], sum(slopes, {3}) * two_pi);
    }
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
        "; all must have one floating-point dtype");
  check_same_device(op, {&freqs, &offsets, &gains});
  check(freqs.numel() > 0, op, "freqs ", freqs, "; H, D and K must be at least 1");
  int64_t realizations = noise.realizations;
  if (const Tensor& z = noise.given; z.defined()) {
    const int64_t h = freqs.size(0), d = freqs.size(1), k = freqs.size(2);
    check(z.dim() == 4 && z.size(0) == h && z.size(1) == d && z.size(2) == 2 * k && z.size(3) >= 1,
          op, "noise ", z, "; must be [", h, ", ", d, ", ", 2 * k, ", R] with R at least 1");
    realizations = z.size(3);
  }
  return SpeCode(std::make_shared<SineSource>(std::move(freqs), std::move(offsets),
                                              std::move(gains), std::move(noise), realizations));
}

}  // namespace stretto
