// What attention guarantees besides its values: empty inputs, errors, identities between options.
#include <algorithm>
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/ops/attention/attention_setup.h"
#include "tests/reference/attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on options inside options
#endif

using namespace stretto;
using testing::AttentionCase;
using testing::AttentionSetup;
using testing::fixed_noise;
using testing::make_inputs;
using testing::name;
using testing::same_bits;
using testing::Way;
using testing::ways;
using testing::worst_error;

namespace {

constexpr Implementation implementations[] = {Implementation::composed, Implementation::fused};

// How far two results may differ: by `exact` in f64, else by the rounding errors of both.
double allowed_difference(const Way& way, double exact, const AttentionSetup& s = {.queries = 70}) {
  return way.dtype == f64 ? exact : 2 * testing::attention_rounding(s, way.dtype);
}

}  // namespace

TEST_CASE("attention of empty inputs is empty or zero") {
  struct Sizes {
    int64_t b, m, n;
  };
  for (const auto& [b, m, n] : {Sizes{0, 4, 4}, Sizes{2, 0, 4}, Sizes{2, 4, 0}, Sizes{2, 0, 0}})
    for (const auto& [implementation, dtype] : ways())
      for (const bool masked : {false, true}) {
        INFO("B " << b << ", M " << m << ", N " << n << (masked ? ", causal" : ""));
        AttentionCase in = make_inputs(
            {.table = 3, .bidirectional = true, .relative_bias = true, .values = true}, dtype);
        const TensorOptions leaf{.dtype = dtype, .requires_grad = true};
        in.q = ones({b, 2, m, 8}, leaf);
        in.k = ones({b, 2, n, 8}, leaf);
        in.v = ones({b, 2, n, 8}, leaf);
        in.options.bias = ones({b, 1, m, n}, leaf);
        in.options.mask.causal = masked;
        in.options.mask.key_padding = zeros({b, n}, {.dtype = boolean});
        const Tensor y = in(implementation);
        CHECK(same_bits(y, zeros({b, 2, m, 8}, {.dtype = dtype})));
        sum(y).backward();
        for (const Tensor& x : in.leaves())
          if (x.grad().defined()) CHECK(same_bits(x.grad(), zeros_like(x)));
        CHECK(attention_weights(in.q, in.k, in.options).shape() == Shape{b, 2, m, n});
      }
}

TEST_CASE("attention identities: a block as long as the sequence equals causal attention") {
  for (const int64_t block : {50, 51, 1000})
    for (const auto& [implementation, dtype] : ways()) {
      const AttentionCase local = make_inputs({.queries = 50, .block = block, .table = 60}, dtype);
      AttentionCase global = local;
      global.options.mask.block = 0;
      global.options.mask.causal = true;
      CHECK(same_bits(local(implementation), global(implementation)));
    }
}

TEST_CASE(
    "attention identities: a table as long as the sequence is the same under every out-of-range "
    "policy") {
  for (const int64_t table : {50, 51, 90})
    for (const auto& [implementation, dtype] : ways()) {
      AttentionCase in = make_inputs({.queries = 50, .causal = true, .table = table}, dtype);
      const Tensor y = in(implementation);
      for (const OutOfRange out_of_range : {OutOfRange::clip, OutOfRange::error}) {
        in.options.relative_keys.out_of_range = out_of_range;
        CHECK(same_bits(in(implementation), y));
      }
      // Rows out of reach have no effect.
      in.options.relative_keys.rows.slice(1, 0, table - 50).detach().fill_(1e30);
      CHECK(same_bits(in(implementation), y));
    }
}

TEST_CASE(
    "attention identities: zero for out-of-range positions equals a longer table padded with "
    "zeros") {
  for (const auto& [implementation, dtype] : ways()) {
    AttentionCase in = make_inputs({.queries = 50, .causal = true, .table = 20}, dtype);
    const Tensor y = in(implementation);
    in.options.relative_keys = {pad(in.options.relative_keys.rows, 1, 30, 0), 49,
                                OutOfRange::error};
    CHECK(same_bits(in(implementation), y));
  }
}

TEST_CASE(
    "attention identities: Shaw's tables without clipping equal the bidirectional Music "
    "Transformer") {
  for (const Way& way : ways()) {
    const Implementation implementation = way.implementation;
    AttentionCase in = make_inputs(
        {.queries = 20, .table = 31, .bidirectional = true, .out_of_range = OutOfRange::clip},
        way.dtype);
    const Tensor y = in(implementation);
    in.options.relative_keys.rows = in.options.relative_keys.rows.slice(1, 11, 50);  // −19 … 19
    in.options.relative_keys.zero_row = 19;
    in.options.relative_keys.out_of_range = OutOfRange::zero;
    CHECK(worst_error(in(implementation), y) < allowed_difference(way, 1e-14));
    // With a causal mask the rows of later positions have no effect.
    in.options.mask.causal = true;
    const Tensor causal = in(implementation);
    in.options.relative_keys.rows = in.options.relative_keys.rows.slice(1, 0, 20);
    CHECK(worst_error(in(implementation), causal) < allowed_difference(way, 1e-14));
  }
}

TEST_CASE("attention identities: the biases u and v of Transformer-XL are options of attention") {
  // ((q + u)·k + (q + v)·r) / √D: the content query is q + u, the query of positions is q + v.
  const int64_t m = 9, n = 23, d = 8;
  const auto rounded = [](const Shape& shape, uint64_t stream) {  // sums of two are exact
    return (fixed_noise(shape, stream) * 64.0).to(i64).to(f64) / 64.0;
  };
  const Tensor q = rounded({2, 2, m, d}, 1), k = rounded({2, 2, n, d}, 2);
  const Tensor u = rounded({2, 1, d}, 3), v = rounded({2, 1, d}, 4);
  const Tensor r = rounded({2, n, d}, 5), values = rounded({2, 2, n, d}, 6);
  std::vector<double> scores;
  const auto query = q.to_vector<double>(), key = k.to_vector<double>(),
             content = u.to_vector<double>(), position = v.to_vector<double>(),
             row = r.to_vector<double>();
  for (int64_t bh = 0; bh < 4; ++bh)
    for (int64_t i = 0; i < m; ++i)
      for (int64_t j = 0; j < n; ++j) {
        const int64_t lag = i + n - m - j, h = bh % 2;
        double s = -HUGE_VAL;
        for (int64_t c = 0; c < d && lag >= 0; ++c) {
          if (c == 0) s = 0;
          const double x = query[size_t((bh * m + i) * d + c)];
          s += (x + content[size_t(h * d + c)]) * key[size_t((bh * n + j) * d + c)] +
               (x + position[size_t(h * d + c)]) * row[size_t((h * n + n - 1 - lag) * d + c)];
        }
        scores.push_back(s / std::sqrt(double(d)));
      }
  // The expected scores as a dense bias, with queries of zeros.
  const Tensor want = attention(zeros_like(q), k, values, {.bias = tensor(scores, {2, 2, m, n})});
  for (const Way& way : ways()) {
    INFO(name(way));
    const auto in_dtype = [&](const Tensor& x) { return x.to(way.dtype); };
    const Tensor got = attention(in_dtype(q + u), in_dtype(k), in_dtype(values),
                                 {.mask = {.causal = true},
                                  .relative_query = in_dtype(q + v),
                                  .relative_keys = {in_dtype(r), n - 1},
                                  .implementation = way.implementation});
    CHECK(worst_error(got, want) < allowed_difference(way, 1e-14));
  }
}

TEST_CASE("attention identities: narrow position queries equal wider ones that end in zeros") {
  for (const Way& way : ways())
    for (const int64_t narrow : {8, 16}) {
      INFO(name(way) << ", width " << narrow);
      const AttentionSetup s{.queries = 70,
                             .keys = 90,
                             .d = 24,
                             .causal = true,
                             .table = 40,
                             .relative_query = true,
                             .d_query = narrow};
      AttentionCase in = make_inputs(s, way.dtype);
      const Tensor got = in(way.implementation);
      for (Tensor* x : {&in.options.relative_query, &in.options.relative_keys.rows}) {
        Shape rest = x->shape();
        rest.back() = s.d - narrow;
        *x = cat({*x, zeros(rest, options_of(*x))}, -1);
      }
      CHECK(worst_error(got, in(way.implementation)) < allowed_difference(way, 1e-14, s));
    }
}

TEST_CASE("attention identities: a bias per relative position equals a dense bias") {
  const int64_t m = 7, n = 11, h = 2;
  for (const Way& way : ways()) {
    const AttentionCase in = make_inputs({.queries = m, .keys = n}, way.dtype);
    const Tensor lags = fixed_noise({h, m + n - 1}, 7, way.dtype);  // −(N − 1) … M − 1
    std::vector<double> dense;
    for (int64_t head = 0; head < h; ++head)
      for (int64_t i = 0; i < m; ++i)
        for (int64_t j = 0; j < n; ++j) dense.push_back(lags[head][j - (i + n - m) + n - 1].item());
    const Tensor want =
        attention(in.q, in.k, in.v, {.bias = tensor(dense, {h, m, n}).to(way.dtype)});
    AttentionOptions o{.implementation = way.implementation};
    o.relative_bias = {lags, n - 1, OutOfRange::error};
    CHECK(worst_error(attention(in.q, in.k, in.v, o), want) < allowed_difference(way, 1e-14));
  }
}

TEST_CASE("attention identities: a dense bias with fewer axes is broadcast") {
  const AttentionCase in = make_inputs({.batch = 2, .heads = 2, .queries = 3, .keys = 70});
  const Shape all{2, 2, 3, 70};
  for (const Shape& shape : {Shape{}, Shape{70}, Shape{3, 1}, Shape{3, 70}, Shape{2, 1, 70},
                             Shape{2, 1, 1, 70}, Shape{2, 1, 3, 70}, Shape{1, 2, 3, 1}})
    for (const Implementation implementation : testing::implementations()) {
      INFO(str("of ", shape));
      const Tensor bias = fixed_noise(shape, 7).set_requires_grad();
      const Tensor whole = broadcast_to(bias.detach(), all).contiguous().set_requires_grad();
      const auto call = [&](const Tensor& x) {
        return attention(in.q, in.k, in.v, {.bias = x, .implementation = implementation});
      };
      const Tensor y = call(bias), z = call(whole), g = fixed_noise(y.shape(), 8);
      CHECK(worst_error(y, z) < 1e-14);
      const Tensor got = grad({y}, {bias}, {g})[0], want = grad({z}, {whole}, {g})[0];
      CHECK(worst_error(got, sum_to(want, shape)) < 1e-13);
    }
}

TEST_CASE("attention identities: a table of equal rows") {
  // As relative keys it adds a constant to each query's scores, which softmax cancels. As relative
  // values its row is added to every output.
  for (const Way& way : ways()) {
    const AttentionCase in = make_inputs({.queries = 9}, way.dtype);
    const Tensor row = fixed_noise({2, 1, 8}, 8, way.dtype), rows = row.expand({2, 5, 8});
    const Tensor plain = attention(in.q, in.k, in.v, {.implementation = way.implementation});
    const double off = allowed_difference(way, 1e-14, {.queries = 9, .values = true});
    const auto with = [&](AttentionOptions o) {
      o.implementation = way.implementation;
      return attention(in.q, in.k, in.v, o);
    };
    CHECK(worst_error(with({.relative_keys = {rows, 2, OutOfRange::clip}}), plain) < off);
    CHECK(worst_error(with({.relative_values = {rows, 2, OutOfRange::clip}}), plain + row) < off);
  }
}

TEST_CASE("attention identities: shared key heads equal repeated key heads") {
  for (const Way& way : ways()) {
    AttentionCase in = make_inputs(
        {.heads = 6, .key_heads = 2, .queries = 9, .causal = true, .table = 5}, way.dtype);
    const Tensor y = in(way.implementation);
    const Tensor index = tensor<int64_t>({0, 0, 0, 1, 1, 1});
    in.k = index_select(in.k, 1, index);
    in.v = index_select(in.v, 1, index);
    CHECK(worst_error(in(way.implementation), y) < allowed_difference(way, 1e-14));
  }
}

TEST_CASE("attention_weights returns the weights that attention uses") {
  for (uint64_t number = 4000; number < 4000 + testing::some_of(40); ++number)
    for (const Way& way : ways()) {
      AttentionSetup s = testing::random_setup(number);
      s.values = false;        // of another dimension than the identity
      if (way.dtype != f64) {  // supported by the kernels of a GPU
        s = testing::for_kernels(s);
        s.keys = std::clamp<int64_t>(s.keys / 8 * 8, 8, 64);
        s.bias = {};
      }
      INFO(testing::describe(s) << ", " << name(way));
      AttentionCase in = make_inputs(s, way.dtype);
      const Tensor w = attention_weights(in.q, in.k, in.options);
      const int64_t n = in.k.size(2);
      const double off = allowed_difference(way, 1e-13, s);
      const Tensor totals = sum(w.to(f64), {-1});
      for (const double total : totals.to_vector<double>())
        if (total != 0) CHECK(std::fabs(total - 1) < off);
      // With the identity as values the output is the weights.
      const Tensor one = eye(n, {.dtype = way.dtype});
      in.v = one.unsqueeze(0).unsqueeze(0).expand({s.batch, in.k.size(1), n, n});
      CHECK(worst_error(in(way.dtype == f64 ? Implementation::automatic : way.implementation), w) <
            off);
      if (way.dtype != bf16)  // in which scores are rounded
        CHECK(worst_error(softmax(attention_scores(in.q, in.k, in.options), -1), w) == 0);
    }
}

TEST_CASE("attention_scores returns scaled products plus biases, and −∞ for hidden keys") {
  const Tensor q = fixed_noise({1, 2, 3, 4}, 1), k = fixed_noise({1, 2, 5, 4}, 2);
  const Tensor bias = fixed_noise({2, 3, 5}, 3);
  const Tensor s = attention_scores(q, k, {.mask = {.causal = true}, .scale = 0.3, .bias = bias});
  for (int64_t h = 0; h < 2; ++h)
    for (int64_t i = 0; i < 3; ++i)
      for (int64_t j = 0; j < 5; ++j) {
        const double score = s[0][h][i][j].item();
        if (j > i + 2)
          CHECK(score == -std::numeric_limits<double>::infinity());
        else
          CHECK(score == Approx(0.3 * sum(q[0][h][i] * k[0][h][j]).item() + bias[h][i][j].item()));
      }
}

TEST_CASE("attention_mask is true for hidden keys") {
  auto text = [](const Tensor& mask) {
    std::string rows;
    for (int64_t i = 0; i < mask.size(0); ++i) {
      for (int64_t j = 0; j < mask.size(1); ++j) rows += mask[i][j].item() != 0 ? 'x' : '.';
      rows += i + 1 < mask.size(0) ? "/" : "";
    }
    return rows;
  };
  CHECK_FALSE(attention_mask(3, 3, {}).defined());
  CHECK(text(attention_mask(3, 3, {.causal = true})) == ".xx/..x/...");
  CHECK(text(attention_mask(2, 4, {.causal = true})) == "...x/....");
  CHECK(text(attention_mask(4, 4, {.causal = true, .window = 2})) == ".xxx/..xx/x..x/xx..");
  CHECK(text(attention_mask(3, 4, {.window = 1})) == "x.../xx../xxx.");
  CHECK(text(attention_mask(5, 5, {.block = 2})) == ".xxxx/..xxx/...xx/....x/xx...");
  CHECK(text(attention_mask(2, 6, {.block = 2})) == "xx...x/xx....");
  CHECK(text(attention_mask(3, 3, {.block = 1})) == ".xx/..x/x..");
}

TEST_CASE("relative_rows follows the out-of-range policy of the table") {
  const Tensor rows = tensor<double>({10, 20, 30}).reshape({1, 3, 1});  // −1, 0, 1
  auto values = [&](OutOfRange out_of_range, int64_t first, int64_t count) {
    return relative_rows({rows, 1, out_of_range}, first, count).to_vector<double>();
  };
  using List = std::vector<double>;
  CHECK(values(OutOfRange::zero, -1, 3) == List{10, 20, 30});
  CHECK(values(OutOfRange::zero, -3, 7) == List{0, 0, 10, 20, 30, 0, 0});
  CHECK(values(OutOfRange::clip, -3, 7) == List{10, 10, 10, 20, 30, 30, 30});
  CHECK(values(OutOfRange::clip, -9, 3) == List{10, 10, 10});
  CHECK(values(OutOfRange::clip, 5, 2) == List{30, 30});
  CHECK(values(OutOfRange::zero, -9, 3) == List{0, 0, 0});
  CHECK(values(OutOfRange::zero, 5, 2) == List{0, 0});
  CHECK(values(OutOfRange::zero, 0, 0).empty());
  testing::check_gradients(
      [](const Tensors& in) {
        return relative_rows({in[0], 2, OutOfRange::clip}, -5, 9);
      },
      {testing::fixed_leaf({2, 4, 2}, 9)});
}

TEST_CASE("attention: errors") {
  const Tensor q = zeros({2, 4, 3, 8}), k = zeros({2, 2, 5, 8}), v = zeros({2, 2, 5, 6});
  auto error = [&](const AttentionOptions& o) {
    try {
      attention(q, k, v, o);
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  const std::string shapes =
      "; accepted: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] with H a "
      "multiple of G";
  CHECK_THROWS_WITH(
      attention(q, zeros({2, 3, 5, 8}), zeros({2, 3, 5, 6})),
      "[attention] q f32 [2, 4, 3, 8], k f32 [2, 3, 5, 8], v f32 [2, 3, 5, 6]" + shapes);
  for (const auto& [bad_k, bad_v] :
       std::vector<std::pair<Shape, Shape>>{{{1, 2, 5, 8}, {1, 2, 5, 6}},
                                            {{2, 2, 5, 7}, {2, 2, 5, 6}},
                                            {{2, 2, 5, 8}, {2, 4, 5, 6}},
                                            {{2, 2, 5, 8}, {2, 2, 4, 6}},
                                            {{2, 0, 5, 8}, {2, 0, 5, 6}},
                                            {{2, 5, 8}, {2, 5, 6}}})
    CHECK_THROWS_WITH(attention(q, zeros(bad_k), zeros(bad_v)), Containing(shapes));
  CHECK_THROWS_WITH(attention(q, k.to(f64), v),
                    "[attention] q f32 [2, 4, 3, 8], k f64 [2, 2, 5, 8], v f32 [2, 2, 5, 6]; all "
                    "must have one floating-point dtype");
  CHECK_THROWS_WITH(attention(q.to(i64), k.to(i64), v.to(i64)),
                    Containing("all must have one floating-point dtype"));
  CHECK(error({.mask = {.window = -1}}) ==
        "[attention] window -1, window_after 0, block 0; must not be negative");
  CHECK(error({.mask = {.block = -2}}) ==
        "[attention] window 0, window_after 0, block -2; must not be negative");
  CHECK(error({.mask = {.window = 3, .block = 2}}) ==
        "[attention] window and block are both set; choose one");
  CHECK(error({.mask = {.key_padding = zeros({2, 4}, {.dtype = boolean})}}) ==
        "[attention] key_padding bool [2, 4]; must be bool or u8 [2, 5]");
  CHECK(error({.mask = {.key_padding = zeros({2, 5})}}) ==
        "[attention] key_padding f32 [2, 5]; must be bool or u8 [2, 5]");
  CHECK(error({.dropout = 1.5}) == "[attention] dropout 1.5; accepted: 0 to 1");
  CHECK(error({.dropout = -0.1}) == "[attention] dropout -0.1; accepted: 0 to 1");
  CHECK(error({.dropout = NAN}) == "[attention] dropout nan; accepted: 0 to 1");
  CHECK(error({.relative_query = k}) ==
        "[attention] relative_query f32 [2, 2, 5, 8] for q f32 [2, 4, 3, 8]; must be [2, 4, 3, P]");
  CHECK(error({.relative_query = zeros({2, 4, 2})}) ==
        "[attention] relative_query f32 [2, 4, 2] for q f32 [2, 4, 3, 8]; must be [2, 4, 3, P]");
  CHECK(error({.relative_query = zeros({2, 4, 3, 2}), .relative_keys = {zeros({4, 5, 8}), 0}}) ==
        "[attention] key table f32 [4, 5, 8]; must be [4 or 1, R, 2]");
  CHECK(error({.relative_keys = {zeros({2, 5, 8}), 0}}) ==
        "[attention] key table f32 [2, 5, 8]; must be [4 or 1, R, 8]");
  CHECK(error({.relative_keys = {zeros({4, 5, 6}), 0}}) ==
        "[attention] key table f32 [4, 5, 6]; must be [4 or 1, R, 8]");
  CHECK(error({.relative_values = {zeros({4, 5, 8}), 0}}) ==
        "[attention] value table f32 [4, 5, 8]; must be [4 or 1, R, 6]");
  CHECK(error({.relative_bias = {zeros({4, 5, 1}), 0}}) ==
        "[attention] bias table f32 [4, 5, 1]; must be [4 or 1, R]");
  CHECK(error({.relative_keys = {zeros({4, 5, 8}), 5}}) ==
        "[attention] key table has 5 rows, but zero_row is 5; set it to the row of relative "
        "position 0");
  CHECK(error({.relative_bias = {.rows = zeros({4, 5})}}) ==
        "[attention] bias table has 5 rows, but zero_row is -1; set it to the row of relative "
        "position 0");
  CHECK(error({.mask = {.causal = true},
               .relative_keys = {zeros({1, 4, 8}), 3, OutOfRange::error}}) ==
        "[attention] key table reaches from -3 to 0, but relative positions from -4 to 0 are "
        "needed; make the table longer, or set `out_of_range` to zero or clip");
  CHECK(error({.relative_keys = {zeros({1, 5, 8}), 4, OutOfRange::error}}) ==
        "[attention] key table reaches from -4 to 0, but relative positions from -4 to 2 are "
        "needed; make the table longer, or set `out_of_range` to zero or clip");
  CHECK(error({.mask = {.causal = true, .window = 4},
               .relative_keys = {zeros({1, 4, 8}), 3, OutOfRange::error}}) == "no error");
  CHECK(
      error({.bias = zeros({3, 3, 5})}) ==
      "[attention] shapes [3, 3, 5] and [2, 4, 3, 5] do not broadcast: sizes 4 and 3 at dimension "
      "1; each pair of sizes, aligned at the right, must be equal or contain a 1");
  CHECK(error({.bias = zeros({7, 2, 4, 3, 5})}) ==
        "[attention] bias f32 [7, 2, 4, 3, 5]; must broadcast to [2, 4, 3, 5]");
  for (const Implementation implementation : implementations) {
    CHECK(error({.relative_keys = {zeros({1, 5, 8}, {.dtype = f64}), 4},
                 .implementation = implementation}) ==
          "[attention] key table f64 [1, 5, 8] for q f32 [2, 4, 3, 8]; dtypes must agree");
    CHECK(error({.relative_bias = {zeros({1, 5}, {.dtype = f64}), 4},
                 .implementation = implementation}) ==
          "[attention] bias table f64 [1, 5] for q f32 [2, 4, 3, 8]; dtypes must agree");
    CHECK(error({.relative_query = q.to(f64),
                 .relative_keys = {zeros({1, 5, 8}), 4},
                 .implementation = implementation}) ==
          "[attention] relative_query f64 [2, 4, 3, 8] for q f32 [2, 4, 3, 8]; dtypes must agree");
  }
  CHECK(error({.bias = zeros({1}, {.dtype = f64})}) ==
        "[attention] bias f64 [1] for q f32 [2, 4, 3, 8]; dtypes must agree");
}

TEST_CASE("attention: relative_query without a key table is an error") {
  const Tensor x = fixed_noise({1, 2, 3, 4}, 1, f32);
  const AttentionOptions o{.relative_query = x};
  for (const Implementation implementation : implementations) {
    AttentionOptions with_form = o;
    with_form.implementation = implementation;
    CHECK_THROWS_WITH(attention(x, x, x, with_form),
                      Containing("[attention] relative_query is set without relative_keys"));
  }
  CHECK_THROWS_WITH(attention_scores(x, x, o), Containing("set without relative_keys"));
}

TEST_CASE("attention: head dimension 0 gives scores of 0") {
  const Tensor q = zeros({1, 2, 3, 0}), v = fixed_noise({1, 2, 5, 4}, 2, f32);
  const Tensor k = zeros({1, 2, 5, 0});
  for (const Implementation implementation : implementations)
    for (const bool table : {false, true}) {
      AttentionOptions o{.implementation = implementation};
      if (table) o.relative_keys = {.rows = zeros({1, 9, 0}), .zero_row = 4};
      const Tensor y = attention(q, k, v, o);
      CHECK(worst_error(y, mean(v, {2}, true).expand(y.shape())) < 1e-6);
      if (!table) continue;
      // The same of position queries alone: their term is 0.
      const Tensor x = fixed_noise({1, 2, 5, 4}, 3, f32), p = x.slice(2, 2);
      const Tensor plain = attention(p, x, v, {.implementation = implementation});
      o.relative_query = q;
      CHECK(worst_error(attention(p, x, v, o), plain) < 1e-6);
    }
  for (const double w : attention_weights(q, k).to_vector<double>()) CHECK(w == Approx(0.2));
}
