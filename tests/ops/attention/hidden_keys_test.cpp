// Keys and values that masks hide may have any values: outputs and gradients of queries that do not
// see them equal those with ordinary values. STRETTO_FUZZ_ROUNDS=n runs n random cases.
#include <cstdlib>
#include <limits>
#include <string>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/ops/attention/attention_setup.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::AttentionCase;
using testing::AttentionSetup;
using testing::fixed_noise;
using testing::name;
using testing::worst_error;

namespace {

constexpr double nan_value = std::numeric_limits<double>::quiet_NaN();
constexpr double infinity = std::numeric_limits<double>::infinity();

uint64_t rounds(uint64_t ordinary) {
  const char* text = std::getenv("STRETTO_FUZZ_ROUNDS");
  return text != nullptr ? std::stoull(text) : ordinary;
}

bool on_gpu() { return default_device().is_cuda(); }

// The random numbers of one case.
struct Dice {
  uint64_t number, index = 0;
  uint64_t below(uint64_t n) { return random_bits({.seed = 77, .stream = number}, index++) % n; }
};

// Rows of keys and values that are overwritten, and the values written to k and to v.
struct Junk {
  std::vector<int64_t> rows;
  double in_keys, in_values;
  bool whole;  // whole rows, or one element of each

  Junk(Dice& dice, int64_t n) : whole(dice.below(2)) {
    for (uint64_t i = 0; i <= dice.below(3); ++i) rows.push_back(int64_t(dice.below(uint64_t(n))));
    constexpr double kinds[] = {nan_value, -nan_value, infinity, -infinity, 0};
    in_keys = kinds[dice.below(5)];
    in_values = kinds[dice.below(5)];
  }
  // Returns x with these values written to rows of batch entry b; a leaf.
  Tensor put(const Tensor& x, double value, int64_t b) const {
    const Tensor y = x.detach().clone();
    for (const int64_t j : rows)
      if (value != 0) {
        const Tensor row = y[b].slice(1, j, j + 1);
        (whole ? row : row.slice(2, 0, 1)).fill_(value);
      }
    return y.set_requires_grad();
  }
};

// Returns 1 for queries that see none of these rows, else 0 [B, 1, M, 1].
Tensor clean_queries(const AttentionMask& mask, const Junk& junk, int64_t batch, int64_t heads,
                     int64_t b, int64_t m, int64_t n) {
  const Tensor clean = ones({batch, 1, m, 1}, {.dtype = f64, .device = cpu});
  const Tensor hidden = attention_mask(m, n, mask);  // tested against the reference
  if (!hidden.defined()) return clean.zero_();
  const Tensor all = hidden.to(cpu).to(f64).expand({batch, heads, m, n}).contiguous();
  for (int64_t h = 0; h < heads; ++h)
    for (const int64_t j : junk.rows)
      for (int64_t i = 0; i < m; ++i)
        if (all.data<double>()[((b * heads + h) * m + i) * n + j] == 0)
          clean.data<double>()[b * m + i] = 0;
  return clean;
}

// Returns the outputs of the queries that see none of these rows, and all gradients through them.
Tensors results(const AttentionCase& in, Implementation implementation, const Tensor& clean,
                double factor = 1) {
  const Tensor y = in(implementation), g = fixed_noise(y.shape(), 9, y.dtype()) * factor;
  const Tensor seen = ne(clean, 0).to(y.device());
  Tensors all{where(seen, y.detach(), zeros_like(y))};
  for (const Tensor& x : grad({y}, in.leaves(), {where(seen, g, zeros_like(g))}))
    if (x.defined()) all.push_back(x);
  return all;
}

// Random setups, most of them small, with any of the options.
AttentionSetup setup_of(uint64_t number) {
  AttentionSetup s = number % 2 && !on_gpu() ? testing::random_masked_setup(number)
                                             : testing::random_setup(number);
  if (number % 8 != 0) {
    const int64_t extra_keys = s.keys - s.queries;
    s.queries = 1 + s.queries % 23;
    s.keys = std::max<int64_t>(1, s.queries + extra_keys % 9);
    s.window = s.window % 11;
    s.block = s.block % 12;
    s.padded = std::min<int64_t>(s.padded, 5);
  }
  if (number % 5 == 0) s.dropout = 0.3;
  return testing::for_kernels(s);
}

}  // namespace

TEST_CASE("attention: hidden keys and values may have any values") {
  const uint64_t cases = rounds(60);
  uint64_t hidden = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Dice dice{number};
    const DType dtype = std::initializer_list<DType>{f64, f32, bf16}.begin()[dice.below(3)];
    const Implementation implementation =
        dice.below(2) ? Implementation::fused : Implementation::composed;
    AttentionSetup s = setup_of(number);
    if (on_gpu()) s.causal = false, s.window = 0, s.block = 0, s.padded = 3;
    AttentionCase in = testing::make_inputs(s, dtype);
    for (const Tensor& x : in.leaves()) Tensor(x).set_requires_grad();
    const int64_t n = in.k.size(2), b = int64_t(dice.below(uint64_t(s.batch)));
    const Junk junk(dice, n);
    const Tensor clean = clean_queries(in.options.mask, junk, s.batch, s.heads, b, s.queries, n);
    if (max(clean[b]).item() == 0) continue;
    AttentionCase with_junk = in;
    with_junk.k = junk.put(in.k, junk.in_keys, b);
    with_junk.v = junk.put(in.v, junk.in_values, b);
    INFO("case " << number << ": " << describe(s) << ", " << name(implementation) << " "
                 << name(dtype) << ", junk " << junk.in_keys << " and " << junk.in_values
                 << " from key " << junk.rows[0] << (junk.whole ? " in whole rows" : ""));
    const Tensors want = results(in, implementation, clean),
                  got = results(with_junk, implementation, clean);
    REQUIRE(got.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i) REQUIRE(worst_error(got[i], want[i]) == 0);
    ++hidden;
  }
  CHECK(hidden > cases / (on_gpu() ? 10 : 4));  // fewer masks on a GPU
}

TEST_CASE("linear_attention: hidden keys and values may have any values") {
  if (on_gpu()) return;
  const uint64_t cases = rounds(60);
  uint64_t hidden = 0;
  for (uint64_t number = 0; number < cases; ++number) {
    Dice dice{number + (uint64_t(1) << 40)};
    const DType dtype = std::initializer_list<DType>{f64, f32, bf16}.begin()[dice.below(3)];
    const Implementation implementation =
        dice.below(2) ? Implementation::fused : Implementation::composed;
    const int64_t batch = 1 + int64_t(dice.below(2)), heads = 2, m = 1 + int64_t(dice.below(40)),
                  n = std::max<int64_t>(1, m + int64_t(dice.below(5)) - 2);
    LinearAttentionOptions o{.chunk = 1 + int64_t(dice.below(33)),
                             .implementation = implementation};
    o.mask.causal = dice.below(4) > 0;
    if (dice.below(2)) {
      o.mask.key_padding = zeros({batch, n}, {.dtype = u8});
      o.mask.key_padding.slice(1, 0, 1 + int64_t(dice.below(uint64_t(n)))).fill_(1);
    }
    const auto positive = [&](const Shape& shape, uint64_t stream) {
      return (fixed_noise(shape, stream, dtype) + 1.25).detach().set_requires_grad();
    };
    const Tensor q = positive({batch, heads, m, 5}, 1), k = positive({batch, 1, n, 5}, 2),
                 v = positive({batch, 1, n, 3}, 3);
    const int64_t b = int64_t(dice.below(uint64_t(batch)));
    const Junk junk(dice, n);
    const Tensor clean = clean_queries(o.mask, junk, batch, heads, b, m, n);
    if (max(clean[b]).item() == 0) continue;
    const auto of = [&](const Tensor& keys, const Tensor& values) {
      const Tensor y = linear_attention(q, keys, values, o);
      const Tensor seen = ne(clean, 0), g = fixed_noise(y.shape(), 9, dtype);
      Tensors all = grad({y}, {q, keys, values}, {where(seen, g, zeros_like(g))});
      all.push_back(where(seen, y.detach(), zeros_like(y)));
      return all;
    };
    INFO("case " << number << ": M " << m << ", N " << n << (o.mask.causal ? ", causal" : "")
                 << ", " << name(implementation) << " " << name(dtype));
    const Tensors want = of(k, v),
                  got = of(junk.put(k, junk.in_keys, b), junk.put(v, junk.in_values, b));
    for (size_t i = 0; i < want.size(); ++i) REQUIRE(worst_error(got[i], want[i]) == 0);
    ++hidden;
  }
  CHECK(hidden > cases / 4);
}

TEST_CASE("attention: hidden values may be as large as the dtype allows") {
  if (on_gpu()) return;
  for (const Implementation implementation : {Implementation::composed, Implementation::fused})
    for (const DType dtype : {f32, bf16})
      for (const bool padded : {false, true}) {
        INFO(name(implementation) << " " << name(dtype) << (padded ? ", padded" : ", causal"));
        AttentionCase in = testing::make_inputs({.batch = 1, .causal = !padded}, dtype);
        const Tensor clean = ones({1, 1, 5, 1}, {.dtype = f64});
        if (padded) {
          in.options.mask.key_padding = zeros({1, 5}, {.dtype = u8});
          in.options.mask.key_padding.slice(1, 4).fill_(1);
        } else {
          clean.slice(2, 4).fill_(0);
        }
        for (const Tensor& x : in.leaves()) Tensor(x).set_requires_grad();
        AttentionCase large = in;
        large.v = in.v.detach().clone();
        for (const auto& [value, factor] : {std::pair{3e38, 1.0}, {1e30, 1e10}}) {
          large.v = large.v.detach();
          large.v.slice(2, 4).fill_(value);
          large.v.set_requires_grad();
          const Tensors want = results(in, implementation, clean, factor),
                        got = results(large, implementation, clean, factor);
          for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) == 0);
        }
      }
}

TEST_CASE("attention: a query that sees a NaN gives NaN, and so does its gradient") {
  if (on_gpu()) return;
  for (const Implementation implementation : {Implementation::composed, Implementation::fused}) {
    AttentionCase in = testing::make_inputs({.batch = 1, .heads = 1, .causal = true});
    in.v = in.v.detach().clone();
    in.v.slice(2, 3, 4).fill_(nan_value);
    in.v.set_requires_grad();
    const Tensor y = in(implementation);
    for (int64_t i = 0; i < 5; ++i) CHECK(std::isnan(sum(y[0][0][i]).item()) == (i >= 3));
    const Tensor dq = grad({y}, {in.q}, {ones_like(y)})[0];
    for (int64_t i = 0; i < 5; ++i) CHECK(std::isnan(sum(dq[0][0][i]).item()) == (i >= 3));
  }
}

TEST_CASE("attention: attention_with_lse and attention_weights ignore the values of hidden keys") {
  if (on_gpu()) return;
  AttentionCase in = testing::make_inputs({.batch = 1, .heads = 1, .causal = true});
  const AttentionWithLse want = attention_with_lse(in.q, in.k, in.v, in.options);
  const Tensor v = in.v.detach().clone(), k = in.k.detach().clone();
  v.slice(2, 4).fill_(nan_value);
  const AttentionWithLse got = attention_with_lse(in.q, in.k, v, in.options);
  CHECK(worst_error(got.out.slice(2, 0, 4), want.out.slice(2, 0, 4)) == 0);
  CHECK(worst_error(got.lse.slice(2, 0, 4), want.lse.slice(2, 0, 4)) == 0);
  in.options.mask.key_padding = zeros({1, 5}, {.dtype = u8});
  in.options.mask.key_padding.slice(1, 2, 3).fill_(1);
  k.slice(2, 2, 3).fill_(nan_value);
  const Tensor w = attention_weights(in.q, k, in.options);
  CHECK(worst_error(w, attention_weights(in.q, in.k, in.options)) == 0);
  CHECK(std::isfinite(sum(grad({w}, {in.q}, {fixed_noise(w.shape(), 4)})[0]).item()));
}
