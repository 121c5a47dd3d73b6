// What the streamed form of stochastic positional encoding does in a segment of positions. Internal
// to ops/.
//
// Reference: tests/reference/spe.cpp, encoded()
#pragma once

#include <algorithm>
#include <array>
#include <vector>

#include "ops/create.h"
#include "ops/spe/spe_streamed.h"

namespace stretto {

/// Dimensions of which a thread makes rows side by side.
inline constexpr int64_t most_spe_dims = 16;

/// Their rows [positions, R].
template <class T>
using SpeCodeRows = std::array<const T*, most_spe_dims>;

/// Positions p0 … p1 − 1.
struct SpeSpan {
  int64_t p0, p1;
  int64_t size() const { return std::max<int64_t>(0, p1 - p0); }
  SpeSpan operator&(SpeSpan o) const { return {std::max(p0, o.p0), std::min(p1, o.p1)}; }
};
inline SpeSpan span_of(const SpeOperand& o) { return {o.at, o.at + o.x.size(2)}; }
/// From the first to the last of both.
inline SpeSpan around(SpeSpan a, SpeSpan b) {
  if (a.size() == 0) return b;
  if (b.size() == 0) return a;
  return {std::min(a.p0, b.p0), std::max(a.p1, b.p1)};
}

/// Rows of a kept code; what it has not kept is made by `anew`, null where it has all.
template <class T>
class KeptSpeRows : public SpeRows<T> {
 public:
  KeptSpeRows(const KeptCodes& kept, std::unique_ptr<SpeRows<T>> anew)
      : kept_(kept), anew_(std::move(anew)) {}
  void prepare(int64_t h, int64_t d, int64_t p0, int64_t p1) override {
    at_ = {h, d, p0, p1};
    prepared_ = false;
  }
  const T* rows(SpeSide side, int64_t p0, int64_t p1) override {
    const auto [h, d, first, last] = at_;
    const Tensor& codes = kept_.codes[int(side)];
    if (const int64_t place = kept_.place(side, h); place >= 0)
      return codes.data<T>() +
             ((place * codes.size(1) + d) * codes.size(2) + p0 - kept_.first) * codes.size(3);
    if (!prepared_) anew_->prepare(h, d, first, last);
    prepared_ = true;
    return anew_->rows(side, p0, p1);
  }
  void add_gradient(SpeSide, int64_t, int64_t, const T*) override {}
  void finish_gradient() override {}

 private:
  struct At {
    int64_t h, d, p0, p1;
  };
  const KeptCodes& kept_;
  const std::unique_ptr<SpeRows<T>> anew_;
  At at_{};
  bool prepared_ = false;  // anew_, for this
};

/// What rows are made from, besides the parameters.
struct SpeMaker {
  std::shared_ptr<const SpeSource> source;
  std::shared_ptr<KeptCodes> kept;

  bool has_all() const { return kept && kept->query_heads == source->heads; }
  int64_t segment() const { return has_all() ? 32 : source->segment(); }
  int64_t dims() const { return has_all() ? most_spe_dims : source->dims(); }
  template <class T>
  std::unique_ptr<SpeRows<T>> rows(const Tensors& inputs, const Tensors& gradients) const {
    if (!kept) return source->rows<T>(inputs, gradients);
    return std::make_unique<KeptSpeRows<T>>(
        *kept, has_all() ? nullptr : source->rows<T>(kept->inputs, {}));
  }
};

/// Of one thread: a maker of rows for each of the dimensions that it takes side by side.
template <class T>
struct SpeMakers {
  std::vector<std::unique_ptr<SpeRows<T>>> at;
  SpeMakers(const SpeMaker& maker, const Tensors& inputs, const Tensors& gradients) {
    for (int64_t i = 0; i < maker.dims(); ++i) at.push_back(maker.rows<T>(inputs, gradients));
  }
  void prepare(int64_t h, int64_t d0, int64_t n, SpeSpan s) {
    for (int64_t c = 0; c < n; ++c) at[size_t(c)]->prepare(h, d0 + c, s.p0, s.p1);
  }
  SpeCodeRows<T> rows(SpeSide side, int64_t n, SpeSpan s) {
    SpeCodeRows<T> codes{};
    for (int64_t c = 0; c < n; ++c) codes[size_t(c)] = at[size_t(c)]->rows(side, s.p0, s.p1);
    return codes;
  }
};

/// The gate's factors of a head; null without a gate.
template <class T>
const T* spe_factors(const Tensor& factors, int64_t h) {
  return factors.defined() ? factors.data<T>() + h * factors.size(1) : nullptr;
}

/// One side in a segment of positions, for one head and some dimensions, side by side: x
/// [positions, B, dims] and its gradient g [positions, B, R]. In memory they lie far apart.
template <class T>
class SpeGathered {
 public:
  SpeGathered(int64_t segment, int64_t batch, int64_t r);
  void load(const SpeOperand& o, const Tensor& grad, int64_t h, int64_t d0, int64_t n,
            SpeSpan span);

  /// t [positions, B, dims] = g Cᵀ.
  const T* products(const SpeCodeRows<T>& codes);
  /// Σ x t of a dimension, over batch and positions.
  double sum(int64_t c) const;
  /// Adds dC = Σ_b factor·x g of a dimension, [positions, R], to `to`.
  void add_code_gradient(int64_t c, T factor, T* to) const;

 private:
  const int64_t r_;
  int64_t batch_ = 0, rows_ = 0, dims_ = 0;
  Tensor x_, t_, g_;
};

/// Contiguous and off the tape; zeros of their shapes.
inline Tensors plain_tensors(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(x.detach().contiguous());
  return all;
}
inline Tensors zeros_of(const Tensors& tensors) {
  Tensors all;
  for (const Tensor& x : tensors) all.push_back(zeros_like(x));
  return all;
}

}  // namespace stretto
