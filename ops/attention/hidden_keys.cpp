#include "ops/attention/hidden_keys.h"

#include <algorithm>
#include <atomic>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/view.h"

namespace stretto {
namespace {

// Products of larger values with gradients may overflow.
constexpr double most_plain = 1e15;

// The number of elements that are NaN or larger than the limit.
template <class S>
STRETTO_CLONES int count_beyond(const S* x, int64_t n, compute_t<S> limit) {
  int count = 0;
  for (int64_t i = 0; i < n; ++i) count += math::abs(compute_t<S>(x[i])) <= limit ? 0 : 1;
  return count;
}

enum class Kind : uint8_t { plain, large, not_finite };

template <class S>
Kind kind_of(const S* x, int64_t n) {
  using T = compute_t<S>;
  if (count_beyond(x, n, T(most_plain)) == 0) return Kind::plain;
  return count_beyond(x, n, std::numeric_limits<T>::max()) == 0 ? Kind::large : Kind::not_finite;
}

template <class F>
void with_type(DType type, F f) {
  type == f64 ? f(double()) : type == f32 ? f(float()) : f(BFloat16());
}

// The keys that all queries see, but for padding.
KeyRange seen_by_all(int64_t m, int64_t n, const AttentionMask& mask) {
  const KeyRange first = visible_keys(n - m, n, mask), last = visible_keys(n - 1, n, mask);
  return {last.begin, std::max(last.begin, first.end)};
}

struct Scan {
  const int64_t batch, groups, n;
  std::vector<uint8_t> cleared, seen_nan;  // [B, G, N]; seen_nan: and not padded
  std::atomic<bool> any = false, any_nan = false, huge = false;

  template <class S>
  void rows(const Tensor& x, const uint8_t* padding, KeyRange by_all) {
    const Heads<S> heads = heads_of<S>(x);
    const int64_t width = x.size(3);
    const auto row = [&](int64_t b, int64_t g, int64_t j) {
      const Kind kind = kind_of(heads.at(b, g, j), width);
      if (kind == Kind::plain) return;
      const bool padded = padding && padding[b * n + j];
      if (!padded && kind == Kind::large) huge = true;
      if (!padded && kind != Kind::not_finite) return;
      const auto at = size_t((b * groups + g) * n + j);
      cleared[at] = 1, any = true;
      if (!padded) seen_nan[at] = 1, any_nan = true;
    };
    parallel_for(batch * groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at) {
        const int64_t b = at / groups, g = at % groups;
        for (int64_t j = 0; j < n; ++j)
          if (j < by_all.begin || j >= by_all.end || (padding && padding[b * n + j])) row(b, g, j);
      }
    });
  }
};

Tensor truths(const std::vector<uint8_t>& x, const Shape& shape) {
  const Tensor y = empty(shape, {.dtype = boolean, .device = cpu});
  std::transform(x.begin(), x.end(), y.data<bool>(), [](uint8_t one) { return one != 0; });
  return y;
}

// Which queries see one of the rows, bool [B, H, M, 1].
Tensor who_sees(const Scan& scan, int64_t heads, int64_t m, const AttentionMask& mask) {
  const int64_t n = scan.n, per_group = heads / scan.groups;
  std::vector<uint8_t> found(size_t(scan.batch * heads * m));
  std::vector<int64_t> before(size_t(n + 1));
  for (int64_t unit = 0; unit < scan.batch * scan.groups; ++unit) {
    for (int64_t j = 0; j < n; ++j)
      before[size_t(j + 1)] = before[size_t(j)] + scan.seen_nan[size_t(unit * n + j)];
    for (int64_t i = 0; i < m; ++i) {
      const KeyRange r = visible_keys(i + n - m, n, mask);
      const bool sees = r.end > r.begin && before[size_t(r.end)] > before[size_t(r.begin)];
      for (int64_t h = unit * per_group; h < (unit + 1) * per_group; ++h)
        found[size_t(h * m + i)] = sees;
    }
  }
  return truths(found, {scan.batch, heads, m, 1});
}

}  // namespace

Tensor HiddenKeys::clean(const Tensor& x) const { return masked_fill(x, cleared, 0); }

Tensor HiddenKeys::mark(const Tensor& out) const {
  if (!nan.defined()) return out;
  constexpr double not_a_number = std::numeric_limits<double>::quiet_NaN();
  Tensor y;
  {
    const NoGrad guard;
    y = masked_fill(out, nan, not_a_number);
  }
  return record("attention", {out}, y, [rows = nan](Backward& b) {
    return Tensors{masked_fill(b.grad(), logical_and(rows, ne(b.grad(), 0)), not_a_number)};
  });
}

HiddenKeys hidden_keys(int64_t heads, int64_t n_queries, const Tensor& k, const Tensor& v,
                       const AttentionMask& mask) {
  const Tensor& padding = mask.key_padding;
  const int64_t batch = k.size(0), groups = k.size(1), n = k.size(2);
  if (batch * n_queries * n == 0) return {};
  if (!k.device().is_cpu())
    return {padding.defined() ? padding.unsqueeze(1).unsqueeze(-1) : Tensor(), {}};
  const KeyRange by_all = seen_by_all(n_queries, n, mask);
  if (!padding.defined() && by_all.begin == 0 && by_all.end == n) return {};
  const Tensor padded = padding.defined() ? padding.to(u8).contiguous() : Tensor();
  const auto units = size_t(batch * groups * n);
  Scan scan{batch, groups, n, std::vector<uint8_t>(units), std::vector<uint8_t>(units)};
  for (const Tensor* x : {&k, &v})
    with_type(x->dtype(), [&](auto t) {
      scan.rows<decltype(t)>(rows_contiguous(*x),
                             padded.defined() ? padded.data<uint8_t>() : nullptr, by_all);
    });
  HiddenKeys found{.huge = scan.huge};
  if (scan.any) found.cleared = truths(scan.cleared, {batch, groups, n, 1});
  if (scan.any_nan) found.nan = who_sees(scan, heads, n_queries, mask);
  return found;
}

bool all_finite(const Tensor& x) {
  const Tensor from = rows_contiguous(x);
  const int64_t heads = x.size(1), length = x.size(2), width = x.size(3);
  std::atomic<bool> finite = true;
  with_type(x.dtype(), [&](auto t) {
    using S = decltype(t);
    const Heads<S> rows = heads_of<S>(from);
    constexpr auto most = std::numeric_limits<compute_t<S>>::max();
    parallel_for(x.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at)
        for (int64_t i = 0; i < length; ++i)
          if (count_beyond(rows.at(at / heads, at % heads, i), width, most) > 0) finite = false;
    });
  });
  return finite;
}

}  // namespace stretto
