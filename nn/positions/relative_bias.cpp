#include "nn/positions/relative_bias.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/device_table.h"
#include "nn/init.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"

namespace stretto::nn {
namespace {

// Returns all relative positions of M queries and N keys.
RelativeRange range_of(int64_t n_queries, int64_t n_keys) {
  return {std::max<int64_t>(n_keys - 1, 0), std::max<int64_t>(n_queries - 1, 0)};
}

// With a causal mask relative positions end at 0, as for a single query.
int64_t queries_with_future(const AttentionInputs& inputs) {
  return inputs.options.mask.is_causal() ? 1 : inputs.n_queries();
}

class Buckets {
 public:
  Buckets(const char* op, int64_t buckets, int64_t max_distance, bool bidirectional)
      : bidirectional_(bidirectional) {
    check(!bidirectional || buckets % 2 == 0, op, buckets,
          " buckets, bidirectional; must be an even number, half of them for each direction");
    first_ = t5_thresholds(bidirectional ? buckets / 2 : buckets, max_distance);
  }
  int64_t operator()(int64_t relative) const {
    const int64_t distance = bidirectional_ ? std::abs(relative) : std::max<int64_t>(-relative, 0);
    const auto next = std::upper_bound(first_.begin(), first_.end(), distance);
    const int64_t bucket = next - first_.begin() - 1;
    return bucket + (bidirectional_ && relative > 0 ? int64_t(first_.size()) : 0);
  }

 private:
  bool bidirectional_;
  std::vector<int64_t> first_;  // smallest distance of each bucket of one direction
};

}  // namespace

// ------------------------------------------------------------------------------------------ T5

std::vector<int64_t> t5_thresholds(int64_t n, int64_t max_distance) {
  const char* op = "t5_thresholds";
  check(n >= 2, op, n, " buckets for one direction; needs at least 2");
  const int64_t e = n / 2;
  check(max_distance > e && max_distance < (int64_t(1) << 32), op, "max_distance ", max_distance,
        " with ", n, " buckets for one direction; must be above ", e, " and below 2^32");
  std::vector<int64_t> first;
  for (int64_t b = 0; b <= e; ++b) first.push_back(b);
  for (int64_t b = e + 1; b < n; ++b) {
    // e (max_distance / e)^t, rounded up; rounded to nearest if only a rounding error separates it
    // from a whole number.
    const double t = double(b - e) / double(n - e);
    const double border = double(e) * std::pow(double(max_distance) / double(e), t);
    const double nearest = std::round(border);
    const bool whole = std::fabs(border - nearest) < 1e-13 * border;
    first.push_back(int64_t(whole ? nearest : std::ceil(border)));
  }
  return first;
}

int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional) {
  return Buckets("t5_bucket", buckets, max_distance, bidirectional)(relative);
}

RelativeTable t5_bias(const Tensor& table, int64_t n_queries, int64_t n_keys, int64_t max_distance,
                      bool bidirectional) {
  check(table.dim() == 2, "t5_bias", "table ", table, "; must be [buckets, H]");
  const Buckets bucket("t5_bias", table.size(0), max_distance, bidirectional);
  const RelativeRange range = range_of(n_queries, n_keys);
  const auto make = [&] {
    std::vector<int64_t> index;
    for (int64_t r = -range.past; r <= range.future; ++r) index.push_back(bucket(r));
    return tensor(index, {range.count()});
  };
  const Tensor at = device_table(table.device(), make, "t5_bias", table.size(0), max_distance,
                                 bidirectional, range.past, range.future);
  return {.rows = index_select(table, 0, at).transpose(0, 1), .zero_row = range.past};
}

namespace {

Tensor t5_table(HeadShape shape, const T5Bias::Options& o) {
  t5_bucket(0, o.buckets, o.max_distance, false);  // checks the options
  Tensor table = empty({o.buckets, shape.n_heads});
  normal_(table, 0, 1 / std::sqrt(double(shape.d_model)));
  return table;
}

}  // namespace

T5Bias::T5Bias(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(o), table(parameter("table", t5_table(shape, o))) {}

void T5Bias::apply(AttentionInputs& inputs) const {
  const bool bidirectional = !inputs.options.mask.is_causal() || inputs.after_prefix;
  inputs.options.relative_bias = t5_bias(table, queries_with_future(inputs), inputs.n_keys_of_all(),
                                         options.max_distance, bidirectional);
}

std::string T5Bias::label() const {
  return str("T5Bias(", options.buckets, " buckets to distance ", options.max_distance, ")");
}

// --------------------------------------------------------------------------------------- ALiBi

std::vector<double> alibi_slopes(int64_t n_heads) {
  check(n_heads >= 1, "alibi_slopes", n_heads, " heads; needs at least 1");
  int64_t power = 1;
  while (2 * power <= n_heads) power *= 2;
  std::vector<double> slopes;
  for (int64_t h = 1; h <= power; ++h)
    slopes.push_back(std::exp2(-8.0 * double(h) / double(power)));
  for (int64_t h = 1; int64_t(slopes.size()) < n_heads; h += 2)
    slopes.push_back(std::exp2(-4.0 * double(h) / double(power)));
  return slopes;
}

RelativeTable alibi_bias(const std::vector<double>& slopes, int64_t n_queries, int64_t n_keys,
                         TensorOptions options) {
  const RelativeRange range = range_of(n_queries, n_keys);
  const auto make = [&] {
    std::vector<double> rows;
    for (const double slope : slopes)
      for (int64_t r = -range.past; r <= range.future; ++r)
        rows.push_back(-slope * double(std::abs(r)));
    return tensor(rows, {int64_t(slopes.size()), range.count()}).to(options.dtype);
  };
  return {.rows = device_table(options.device, make, "alibi_bias", options.dtype, range.past,
                               range.future, slopes),
          .zero_row = range.past};
}

namespace {

std::vector<double> slopes_of(int64_t n_heads, int64_t with_slope) {
  check(with_slope >= 0 && with_slope <= n_heads, "Alibi", "heads ", with_slope, " of ", n_heads,
        "; accepted: 0 (all) to ", n_heads);
  std::vector<double> slopes = alibi_slopes(with_slope > 0 ? with_slope : n_heads);
  slopes.resize(size_t(n_heads), 0);
  return slopes;
}

}  // namespace

Alibi::Alibi(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(o), slopes(slopes_of(shape.n_heads, o.heads)) {}

void Alibi::apply(AttentionInputs& inputs) const {
  inputs.options.relative_bias =
      alibi_bias(slopes, queries_with_future(inputs), inputs.n_keys_of_all(), options_of(inputs.q));
}

std::string Alibi::label() const {
  return options.heads > 0 ? str("Alibi(first ", options.heads, " heads)") : "Alibi";
}

// -------------------------------------------------------------------------------------- KERPLE

RelativeTable kerple_bias(const Tensor& p, const Tensor& a, int64_t n_queries, int64_t n_keys,
                          Kerple::Kind kind) {
  check(p.dim() == 1 && p.shape() == a.shape() && is_floating(p.dtype()) && p.dtype() == a.dtype(),
        "kerple_bias", "p ", p, ", a ", a, "; must be [H], both of one floating dtype");
  const DType dtype = compute_type(p.dtype());
  const Tensor exponent = p.to(dtype).unsqueeze(1), factor = a.to(dtype).unsqueeze(1);
  const RelativeRange range = range_of(n_queries, n_keys);
  const Tensor l = abs(arange(-double(range.past), double(range.future + 1), 1,
                              {.dtype = dtype, .device = p.device()}));
  Tensor rows;
  if (kind == Kerple::Kind::logarithmic) {
    rows = -(exponent * log(1 + factor * l));
  } else {
    // lᵖ = exp(p · log l) for l > 0, and 0 for l = 0.
    constexpr double infinity = std::numeric_limits<double>::infinity();
    rows = -(factor * exp(exponent * log(clamp(l, 1, infinity))) * gt(l, 0.0).to(dtype));
  }
  return {.rows = rows.to(p.dtype()), .zero_row = range.past};
}

namespace {

constexpr double lower_bound = 0.01;

// Returns x within the bounds. x outside gets a gradient if descent leads it back, as if x itself
// had been clamped before the call.
Tensor bounded(const Tensor& x, double low, double high) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  return record("bounded", {x}, clamp(x.detach(), low, high),
                [x = Saved(x), low, high](Backward& b) {
                  const Tensor back = where(lt(x(), low), clamp(b.grad(), -infinity, 0), b.grad());
                  return Tensors{where(gt(x(), high), clamp(back, 0, infinity), back)};
                });
}

}  // namespace

Kerple::Kerple(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent),
      options(o),
      p(parameter("p", empty({shape.n_heads}))),
      a(parameter("a", empty({shape.n_heads}))) {
  uniform_(p, lower_bound, 2);
  uniform_(a, lower_bound, 1);
}

void Kerple::apply(AttentionInputs& inputs) const {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const double upper_bound = options.kind == Kind::power ? 2 : infinity;
  inputs.options.relative_bias =
      kerple_bias(bounded(p, lower_bound, upper_bound), bounded(a, lower_bound, infinity),
                  queries_with_future(inputs), inputs.n_keys_of_all(), options.kind);
}

std::string Kerple::label() const {
  return options.kind == Kind::power ? "Kerple(power)" : "Kerple(logarithmic)";
}

}  // namespace stretto::nn
