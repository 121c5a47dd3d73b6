#include "ops/attention/linear_attention_logarithms.h"

#include <algorithm>
#include <limits>

#include "autograd/tape.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

constexpr double minus_infinity = -std::numeric_limits<double>::infinity();
// A query's denominator is at least e^−most_lost if the largest product of a feature is
// scaled to 1.
constexpr double most_lost = 300;
// Memory of gradients through a state grows with the square of a range's length.
constexpr int64_t longest_recorded = 256;

// x with NaN and −∞ replaced by 0, because they would propagate.
Tensor or_zero(const Tensor& x) { return masked_fill(x, logical_not(gt(x, minus_infinity)), 0); }

// The largest value of each feature over the keys: [B, G, n, F] → [B, G, 1, F]; −∞ for n = 0.
Tensor largest_of_keys(const Tensor& log_k) {
  const NoGrad guard;
  const Tensor x = log_k.detach();
  if (x.size(2) == 0)
    return full({x.size(0), x.size(1), 1, x.size(3)}, minus_infinity, options_of(x));
  return max(masked_fill(x, ne(x, x), minus_infinity), 2, true);
}

// Expands [B, G, 1, F] to query heads, [B, H, 1, F].
Tensor for_heads(const Tensor& x, int64_t heads) {
  const int64_t groups = x.size(1);
  return x.unsqueeze(2)
      .expand({x.size(0), groups, heads / groups, 1, x.size(3)})
      .reshape({x.size(0), heads, 1, x.size(3)});
}

// The logarithm of a query's largest product with features that are at most
// e^largest, [B, H, M, 1].
Tensor largest_product(const Tensor& log_q, const Tensor& largest) {
  const NoGrad guard;
  return max(log_q.detach() + for_heads(largest, log_q.size(1)), 3, true);
}

// Linear attention of logarithms, computed on ranges of positions whose queries do not underflow.
class Ranges {
 public:
  Ranges(const Tensor& log_q, const Tensor& log_k, const Tensor& v, LinearAttentionOptions o,
         LinearState* state)
      : q_(log_q), k_(log_k), v_(v), o_(std::move(o)), state_(state) {
    o_.implementation = Implementation::automatic;
    offset_ = q_.size(2) - k_.size(2);
  }

  Tensor all() {
    const int64_t m = q_.size(2), n = k_.size(2);
    if (!o_.mask.causal || n == 0) return attend(0, m, 0, n, state_);
    if (!state_ && fits(std::max<int64_t>(0, -offset_), n)) return attend(0, m, 0, n, nullptr);
    LinearState own;
    if (!state_) state_ = &own;
    Tensors y;
    if (offset_ > 0)
      y.push_back(zeros({q_.size(0), q_.size(1), offset_, v_.size(3)}, options_of(v_)));
    if (offset_ < 0) attend(0, 0, 0, -offset_, state_);
    append(std::max<int64_t>(0, -offset_), n, y);
    return cat(y, 2);
  }

 private:
  // Appends the outputs of the queries at the positions of keys begin … end − 1. Halves the range
  // until no query in it underflows.
  void append(int64_t begin, int64_t end, Tensors& y) {
    const bool short_enough = end - begin <= longest_recorded || !recording({q_, k_, v_});
    if (end - begin <= 1 || (short_enough && fits(begin, end))) {
      y.push_back(attend(begin + offset_, end + offset_, begin, end, state_));
      return;
    }
    const int64_t middle = begin + (end - begin) / 2;
    append(begin, middle, y);
    append(middle, end, y);
  }

  // True if no query of the range underflows. Each query sees at least the keys up to and including
  // `begin`. Its largest product with these must not be smaller than its largest product with all
  // keys before `end` by more than a factor of e^most_lost.
  bool fits(int64_t begin, int64_t end) {
    const NoGrad guard;
    Tensor before = state_ && state_->shift.defined() ? state_->shift.unsqueeze(2)
                                                      : largest_of_keys(k_.slice(2, 0, 0));
    if (!state_) before = largest_of_keys(k_.slice(2, 0, begin));
    const Tensor q = q_.slice(2, begin + offset_, end + offset_);
    if (q.numel() == 0) return true;
    const Tensor least = maximum(before, largest_of_keys(k_.slice(2, begin, begin + 1))),
                 most = maximum(before, largest_of_keys(k_.slice(2, begin, end)));
    const Tensor lost = largest_product(q, most) - largest_product(q, least);
    return max(gt(lost, most_lost).to(f64)).item() == 0;
  }

  // Attention of queries i0 … i1 − 1 to keys j0 … j1 − 1 and those in the state.
  Tensor attend(int64_t i0, int64_t i1, int64_t j0, int64_t j1, LinearState* state) {
    const Tensor q = q_.slice(2, i0, i1), k = k_.slice(2, j0, j1), v = v_.slice(2, j0, j1);
    LinearAttentionOptions o = o_;
    if (o.mask.key_padding.defined()) o.mask.key_padding = o.mask.key_padding.slice(1, j0, j1);
    Tensor largest = largest_of_keys(k);
    if (state && state->shift.defined()) largest = maximum(largest, state->shift.unsqueeze(2));
    if (state && state->sums.defined()) {
      const Tensor factor = exp(or_zero(state->shift.unsqueeze(2) - or_zero(largest)));
      state->sums = state->sums * factor.transpose(2, 3);
    }
    if (state) state->shift = largest.squeeze(2);
    const Tensor keys = exp(k - or_zero(largest)), heads = for_heads(largest, q.size(1));
    const Tensor queries =
        q.size(2) == 0 ? q : exp(q + heads - or_zero(largest_product(q, largest)));
    return state ? linear_attention(queries, keys, v, *state, o)
                 : linear_attention(queries, keys, v, o);
  }

  const Tensor q_, k_, v_;
  LinearAttentionOptions o_;
  LinearState* state_;
  int64_t offset_;
};

// The state in f64. Without a shift, each feature is divided by its sum over keys, z.
LinearState shifted(const LinearState& from, double log_divisor) {
  LinearState to = from;
  if (!from.sums.defined()) return to;
  to.sums = from.sums.to(f64);
  if (to.shift.defined()) return to;
  const Tensor z = to.z().detach();
  to.shift = log(z) + log_divisor;
  to.sums = to.sums / masked_fill(z, eq(z, 0), 1).unsqueeze(-1);
  return to;
}

}  // namespace

Tensor linear_attention_of_logarithms(const Tensor& log_q, const Tensor& log_k, const Tensor& v,
                                      const LinearAttentionOptions& o, LinearState* state,
                                      double log_divisor, DType type) {
  Tensor k = log_k;
  if (o.mask.key_padding.defined())
    k = masked_fill(k, o.mask.key_padding.unsqueeze(1).unsqueeze(-1), minus_infinity);
  if (!state) return Ranges(log_q, k, v, o, nullptr).all();
  LinearState after = shifted(*state, log_divisor);
  const Tensor y = Ranges(log_q, k, v, o, &after).all();
  after.sums = after.sums.to(state->sums.defined() ? state->sums.dtype() : type);
  *state = after;
  return y;
}

}  // namespace stretto
