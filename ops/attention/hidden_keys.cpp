#include "ops/attention/hidden_keys.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <limits>
#include <type_traits>
#include <vector>

#include "autograd/tape.h"
#include "core/math.h"
#include "core/parallel.h"
#include "ops/attention/heads.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/view.h"

namespace stretto {
namespace {

// The largest magnitude of an ordinary value. Products of gradients with larger ones may overflow.
constexpr double max_ordinary = 1e15;

template <class S>
using BitsOf = std::conditional_t<sizeof(S) == 8, int64_t,
                                  std::conditional_t<sizeof(S) == 4, int32_t, int16_t>>;

// The bits of |limit|. Read as integers, the bits of non-negative floating-point numbers have the
// same order as the numbers; NaN comes after infinity.
template <class S>
BitsOf<S> bits_of(double limit) {
  return std::bit_cast<BitsOf<S>>(S(compute_t<S>(limit)));
}

// True if no element of rows [rows, n], with stride `row`, is NaN or has a magnitude
// above the limit.
template <class S>
STRETTO_CLONES bool within(const S* x, int64_t row, int64_t rows, int64_t n, BitsOf<S> limit) {
  if (row == n) n *= rows, rows = 1;
  constexpr auto sign = std::numeric_limits<BitsOf<S>>::max();
  BitsOf<S> largest = 0;
  for (int64_t i = 0; i < rows; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto size = BitsOf<S>(std::bit_cast<BitsOf<S>>(x[i * row + j]) & sign);
      largest = size > largest ? size : largest;
    }
  return largest <= limit;
}

enum class Kind : uint8_t { ordinary, large, not_finite };

template <class S>
Kind kind_of(const S* x, int64_t n) {
  if (within(x, n, 1, n, bits_of<S>(max_ordinary))) return Kind::ordinary;
  // In every dtype, bf16 included, the bits of infinity minus 1 are those of the
  // largest finite number.
  const auto finite = BitsOf<S>(bits_of<S>(std::numeric_limits<double>::infinity()) - 1);
  return within(x, n, 1, n, finite) ? Kind::large : Kind::not_finite;
}

// True if the mask of a query is a range of keys, apart from padding.
bool is_range(const AttentionMask& mask) {
  return !setting_besides(mask, {"causal", "window", "block", "key_padding", "window_after"});
}

// Keys that all queries see, ignoring padding.
KeyRange seen_by_all(int64_t m, int64_t n, const AttentionMask& mask) {
  if (!is_range(mask)) return {0, 0};
  const KeyRange first = visible_keys(n - m, n, mask), last = visible_keys(n - 1, n, mask);
  return {last.begin, std::max(last.begin, first.end)};
}

// For each batch entry, the ranges of keys that some queries do not see, padding included.
std::vector<std::vector<KeyRange>> hidden_from_some(int64_t batch, int64_t n,
                                                    const uint8_t* padding, KeyRange common) {
  std::vector<std::vector<KeyRange>> all(static_cast<size_t>(batch));
  const auto hidden = [&](int64_t b, int64_t j) {
    return j < common.begin || j >= common.end || (padding && padding[b * n + j]);
  };
  for (int64_t b = 0; b < batch; ++b) {
    int64_t j = padding || common.begin > 0 ? 0 : common.end;
    while (j < n) {
      const int64_t begin = j;
      while (j < n && hidden(b, j)) ++j;
      if (j > begin) all[size_t(b)].push_back({begin, j});
      while (j < n && !hidden(b, j)) ++j;
    }
  }
  return all;
}

struct Scan {
  const int64_t batch, groups, n;
  const uint8_t* padding;                     // [B, N] or null
  std::vector<std::vector<KeyRange>> ranges;  // keys to examine in each batch entry
  // [B, G, N]. cleared: rows to replace by zeros. seen_nan: the cleared rows that are not padding;
  // they contain NaN or infinity.
  std::vector<uint8_t> cleared = {}, seen_nan = {};
  std::atomic<bool> any = false, any_nan = false, huge = false;

  // f(batch entry, key head, range)
  template <class F>
  void each(F&& f) const {
    parallel_for(batch * groups, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at)
        for (const KeyRange& range : ranges[size_t(at / groups)])
          f(at / groups, at % groups, range);
    });
  }
  template <class S>
  bool ordinary(const Tensor& x) const {
    const Heads<S> heads = heads_of<S>(x);
    const auto limit = bits_of<S>(max_ordinary);
    std::atomic<bool> all = true;
    each([&](int64_t b, int64_t g, KeyRange r) {
      if (!within(heads.at(b, g, r.begin), heads.row, r.end - r.begin, x.size(3), limit))
        all = false;
    });
    return all;
  }

  template <class S>
  void rows(const Tensor& x) {
    const Heads<S> heads = heads_of<S>(x);
    each([&](int64_t b, int64_t g, KeyRange range) {
      for (int64_t j = range.begin; j < range.end; ++j) {
        const Kind kind = kind_of(heads.at(b, g, j), x.size(3));
        const bool padded = padding && padding[b * n + j];
        if (!padded && kind == Kind::large) huge = true;
        if (kind == Kind::ordinary || (!padded && kind == Kind::large)) continue;
        const auto at = size_t((b * groups + g) * n + j);
        cleared[at] = 1, any = true;
        if (!padded) seen_nan[at] = 1, any_nan = true;
      }
    });
  }
};

Tensor bool_tensor(const std::vector<uint8_t>& x, const Shape& shape) {
  const Tensor y = empty(shape, {.dtype = boolean, .device = cpu});
  std::transform(x.begin(), x.end(), y.data<bool>(), [](uint8_t one) { return one != 0; });
  return y;
}

// The queries that see a row in seen_nan, bool [B, H, M, 1].
Tensor queries_seeing(const Scan& scan, int64_t heads, int64_t m, const AttentionMask& mask) {
  const int64_t n = scan.n, per_group = heads / scan.groups;
  if (!is_range(mask)) {
    const Tensor row = bool_tensor(scan.seen_nan, {scan.batch, scan.groups, 1, 1, n})
                           .expand({scan.batch, scan.groups, per_group, 1, n})
                           .reshape({scan.batch, heads, 1, n});
    const Tensor visible = logical_not(attention_mask(m, n, mask, cpu));
    return gt(sum(logical_and(row, visible), {3}, true), 0);
  }
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
  return bool_tensor(found, {scan.batch, heads, m, 1});
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
  // Gradients: g, but its nonzero elements become NaN for queries that see a NaN or an infinity.
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
  const KeyRange common = seen_by_all(n_queries, n, mask);
  if (!padding.defined() && common.begin == 0 && common.end == n) return {};
  // bool and u8 masks are both bytes.
  const Tensor padded = padding.defined() ? padding.contiguous() : Tensor();
  const auto* bytes = padding.defined() ? static_cast<const uint8_t*>(padded.raw_data()) : nullptr;
  Scan scan{batch, groups, n, bytes, hidden_from_some(batch, n, bytes, common)};
  const Tensor rows[] = {rows_contiguous(k), rows_contiguous(v)};
  bool ordinary = true;
  for (const Tensor& x : rows)
    dispatch_floating(x.dtype(), "attention",
                      [&]<class S>() { ordinary = ordinary && scan.ordinary<S>(x); });
  if (ordinary) return {};
  scan.cleared.resize(size_t(batch * groups * n));
  scan.seen_nan.resize(scan.cleared.size());
  for (const Tensor& x : rows)
    dispatch_floating(x.dtype(), "attention", [&]<class S>() { scan.rows<S>(x); });
  HiddenKeys found{.huge = scan.huge};
  if (scan.any) found.cleared = bool_tensor(scan.cleared, {batch, groups, n, 1});
  if (scan.any_nan) found.nan = queries_seeing(scan, heads, n_queries, mask);
  return found;
}

bool all_finite(const Tensor& x) {
  const Tensor from = rows_contiguous(x);
  const int64_t heads = x.size(1), length = x.size(2), width = x.size(3);
  std::atomic<bool> finite = true;
  dispatch_floating(x.dtype(), "attention", [&]<class S>() {
    const Heads<S> rows = heads_of<S>(from);
    const auto most = BitsOf<S>(bits_of<S>(std::numeric_limits<double>::infinity()) - 1);
    parallel_for(x.size(0) * heads, 1, [&](int64_t begin, int64_t end) {
      for (int64_t at = begin; at < end; ++at)
        if (!within(rows.at(at / heads, at % heads), rows.row, length, width, most)) finite = false;
    });
  });
  return finite;
}

}  // namespace stretto
