#include "nn/positions/relative_bias.h"

#include <cmath>

#include "nn/attention/attention.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/attention.h"
#include "tests/reference/relative_bias.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/position_check.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on options inside options
#endif

using namespace stretto;
using nn::Kerple;
using testing::check_gradients;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Parent : nn::Module {};

constexpr Implementation implementations[] = {Implementation::automatic, Implementation::composed};

struct Size {
  int64_t m, n;
};
constexpr Size sizes[] = {{1, 1}, {7, 7}, {3, 9}, {1, 9}, {9, 3}, {70, 150}};

// Checks attention with `table` against the reference with the bias as a matrix.
void check_equals_dense(const RelativeTable& table, const Tensor& bias, Size size, bool causal) {
  const int64_t heads = bias.size(0);
  const Tensor q = fixed_noise({2, heads, size.m, 5}, 1), k = fixed_noise({2, heads, size.n, 5}, 2),
               v = fixed_noise({2, heads, size.n, 3}, 3);
  const Tensor want = reference::attention(q, k, v, {.mask = {.causal = causal}, .bias = bias});
  for (const Implementation implementation : implementations) {
    const Tensor got = attention(
        q, k, v,
        {.mask = {.causal = causal}, .relative_bias = table, .implementation = implementation});
    CHECK(worst_error(got, want) < 1e-12);
  }
}

// Attention inputs of zeros with these sizes.
nn::AttentionInputs call_of(int64_t heads, Size size, bool causal, DType dtype = f32) {
  nn::AttentionInputs inputs{zeros({1, heads, size.m, 4}, {.dtype = dtype}),
                             zeros({1, heads, size.n, 4}, {.dtype = dtype}),
                             zeros({1, heads, size.n, 4}, {.dtype = dtype}),
                             {}};
  inputs.options.mask.causal = causal;
  return inputs;
}

}  // namespace

// ------------------------------------------------------------------------------------------ T5

TEST_CASE("T5: smallest distance of each bucket") {
  CHECK(nn::t5_thresholds(16, 128) ==
        std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 23, 32, 46, 64, 91});
  CHECK(nn::t5_thresholds(32, 128) ==
        std::vector<int64_t>{0,  1,  2,  3,  4,  5,  6,  7,  8,  9,  10, 11, 12, 13, 14, 15,
                             16, 19, 21, 24, 27, 31, 35, 40, 46, 52, 59, 67, 77, 87, 99, 113});
  CHECK(nn::t5_thresholds(2, 2) == std::vector<int64_t>{0, 1});
  CHECK(nn::t5_thresholds(3, 9) == std::vector<int64_t>{0, 1, 3});
  // Buckets grow by less than 1: no distance is in buckets 5 and 6.
  CHECK(nn::t5_thresholds(8, 5) == std::vector<int64_t>{0, 1, 2, 3, 4, 5, 5, 5});
  // Distances whose 16th powers exceed any machine integer: 16·2^(27·15/16), rounded up.
  CHECK(nn::t5_thresholds(32, int64_t(1) << 31)[31] == 666717337);
}

TEST_CASE("T5: buckets are right where logarithms round wrongly") {
  // 5·(160/5)^(4/5) = 80 exactly; in double precision the logarithms give 3.9999….
  CHECK(nn::t5_thresholds(10, 160)[9] == 80);
  CHECK(reference::t5_bucket_by_logarithms(-80, 10, 160, false) == 8);
  CHECK(nn::t5_bucket(-80, 10, 160, false) == 9);
  CHECK(nn::t5_bucket(-79, 10, 160, false) == 8);

  // Elsewhere they agree, except where an exact step is rounded.
  for (int64_t n = 2; n <= 21; ++n)
    for (const int64_t max_distance : {n, n + 1, 2 * n + 3, 100 + n, 16 * n}) {
      const int64_t e = n / 2;
      int64_t wrong = 0;
      for (int64_t a = e; a <= max_distance + 2; ++a) {
        const double steps = std::log(double(a) / double(e)) /
                             std::log(double(max_distance) / double(e)) * double(n - e);
        const double nearest = std::round(steps);
        const double whole = std::fabs(steps - nearest) < 1e-9 ? nearest : std::floor(steps);
        wrong += nn::t5_bucket(-a, n, max_distance, false) != std::min(n - 1, e + int64_t(whole));
      }
      INFO(n << " buckets to " << max_distance);
      CHECK(wrong == 0);
    }
}

TEST_CASE("T5: smallest distances equal those of exact arithmetic") {
  std::vector<int64_t> longest{100,  127,  128,  160,  256,  500,  512,
                               1000, 1024, 2048, 4096, 6561, 10000};
  for (int64_t n = 2; n <= 64; ++n) {
    const int64_t e = n / 2;
    for (const int64_t factor : {2, 3, 4, 8, 9, 16, 27, 32, 64, 81, 243, 1024})
      longest.push_back(e * factor);
    for (const int64_t max_distance : longest) {
      if (max_distance <= e) continue;
      INFO(n << " buckets to " << max_distance);
      CHECK(nn::t5_thresholds(n, max_distance) == reference::t5_thresholds(n, max_distance));
    }
    longest.resize(13);
  }
}

TEST_CASE("T5: the buckets of both directions") {
  for (int64_t r = -200; r <= 200; ++r)
    for (const bool bidirectional : {false, true})
      CHECK(nn::t5_bucket(r, 32, 128, bidirectional) ==
            reference::t5_bucket_by_logarithms(r, 32, 128, bidirectional));
  CHECK(nn::t5_bucket(0, 32, 128, true) == 0);
  CHECK(nn::t5_bucket(1, 32, 128, true) == 17);
  CHECK(nn::t5_bucket(1000000, 32, 128, true) == 31);
  CHECK(nn::t5_bucket(-1000000, 32, 128, true) == 15);
  CHECK(nn::t5_bucket(1000000, 32, 128, false) == 0);
}

TEST_CASE("T5: invalid numbers of buckets, distances and tables are errors") {
  CHECK_THROWS_WITH(nn::t5_thresholds(1, 128),
                    "[t5_thresholds] 1 buckets for one direction; needs at least 2");
  CHECK_THROWS_WITH(nn::t5_thresholds(32, 16),
                    "[t5_thresholds] max_distance 16 with 32 buckets for one direction; must be "
                    "above 16 and below 2^32");
  CHECK_THROWS_WITH(nn::t5_thresholds(32, int64_t(1) << 32), Containing("below 2^32"));
  CHECK_THROWS_WITH(nn::t5_bucket(0, 7, 128, true),
                    "[t5_bucket] 7 buckets, bidirectional; must be an even number, half of them "
                    "for each direction");
  CHECK_THROWS_WITH(nn::t5_bias(zeros({32}), 3, 3, 128, false),
                    "[t5_bias] table f32 [32]; must be [buckets, H]");
  Parent parent;
  CHECK_THROWS_WITH(nn::T5Bias(parent, {.n_heads = 2, .d_model = 4}, {.max_distance = 8}),
                    Containing("max_distance 8 with 32 buckets"));
  // Whether positions are bidirectional depends on the mask.
  Parent odd;
  const nn::T5Bias bias(odd, {.n_heads = 2, .d_model = 4}, {.buckets = 7});
  nn::AttentionInputs inputs = call_of(2, {3, 3}, true);
  bias.apply(inputs);
  inputs.options.mask.causal = false;
  CHECK_THROWS_WITH(bias.apply(inputs),
                    Containing("7 buckets, bidirectional; must be an even number"));
}

TEST_CASE("T5 equals a dense bias") {
  const Tensor table = fixed_noise({32, 3}, 5);
  for (const Size size : sizes)
    for (const bool bidirectional : {false, true})
      for (const bool causal : {false, true}) {
        if (causal && size.m > size.n) continue;
        check_equals_dense(nn::t5_bias(table, causal ? 1 : size.m, size.n, 128, bidirectional),
                           reference::t5_bias(table, size.m, size.n, 128, bidirectional), size,
                           causal);
      }
}

TEST_CASE("T5: gradients") {
  const Tensor q = fixed_leaf({1, 2, 3, 4}, 1), k = fixed_leaf({1, 2, 7, 4}, 2),
               v = fixed_noise({1, 2, 7, 3}, 3);
  for (const bool bidirectional : {false, true})
    for (const Implementation implementation : implementations)
      check_gradients(
          [&](const Tensors& in) {
            return attention(in[0], in[1], v,
                             {.mask = {.causal = !bidirectional},
                              .relative_bias = nn::t5_bias(in[2], 3, 7, 9, bidirectional),
                              .implementation = implementation});
          },
          {q, k, fixed_leaf({6, 2}, 4)}, implementation == Implementation::composed);
}

TEST_CASE("T5: unused buckets have a gradient of exactly zero, and all gradients sum to zero") {
  const int64_t l = 9;
  const Tensor q = fixed_noise({2, 3, l, 4}, 1), k = fixed_noise({2, 3, l, 4}, 2),
               v = fixed_noise({2, 3, l, 4}, 3);
  for (const bool bidirectional : {false, true})
    for (const Implementation implementation : implementations) {
      const Tensor table = fixed_leaf({32, 3}, 4);
      const Tensor y = attention(q, k, v,
                                 {.mask = {.causal = !bidirectional},
                                  .relative_bias = nn::t5_bias(table, l, l, 128, bidirectional),
                                  .implementation = implementation});
      sum(y * fixed_noise(y.shape(), 5)).backward();
      const Tensor g = table.grad();
      for (int64_t bucket = 0; bucket < 32; ++bucket) {
        const bool met = bidirectional ? (bucket < 9 || (bucket > 16 && bucket < 25)) : bucket < 9;
        CHECK((max(abs(g[bucket])).item() > 0) == met);
      }
      // A constant added to all scores of a query changes nothing.
      CHECK(max(abs(sum(g, {0}))).item() < 1e-13);
    }
}

TEST_CASE("T5Bias: parameter, initial values, label") {
  manual_seed(4);
  Parent parent;
  const nn::T5Bias position(parent, {.n_heads = 64, .d_key = 8, .d_value = 8, .d_model = 100}, {});
  REQUIRE(parent.named_parameters().size() == 1);
  CHECK(parent.named_parameters()[0].name == "position.table");
  CHECK(position.table.shape() == Shape{32, 64});
  CHECK(position.label() == "T5Bias(32 buckets to distance 128)");
  double total = 0, squares = 0;
  for (const double x : position.table.to_vector<double>()) {
    total += x;
    squares += x * x;
  }
  const double n = 32 * 64, variance = 1.0 / 100;
  CHECK(std::fabs(total / n) < 4 * std::sqrt(variance / n));
  CHECK(std::fabs(squares / n - variance) < 4 * variance * std::sqrt(2 / n));

  Parent other;
  const nn::T5Bias bias(other, {.n_heads = 2, .d_model = 4}, {.buckets = 8, .max_distance = 20});
  CHECK(bias.label() == "T5Bias(8 buckets to distance 20)");
  for (const bool causal : {false, true})
    for (const Size size : sizes) {
      nn::AttentionInputs inputs = call_of(2, size, causal);
      bias.apply(inputs);
      const RelativeTable want = nn::t5_bias(bias.table, causal ? 1 : size.m, size.n, 20, !causal);
      CHECK(same_bits(inputs.options.relative_bias.rows, want.rows));
      CHECK(inputs.options.relative_bias.zero_row == want.zero_row);
    }
}

TEST_CASE("T5Bias works in a decoder") {
  testing::check_causal_position(nn::t5_bias({.max_distance = 20}));
}

TEST_CASE("T5Bias after a cached prefix has the buckets of one pass") {
  const NoGrad guard;
  manual_seed(3);
  nn::MultiHeadAttention layer({.d_model = 8, .n_heads = 2, .position = nn::t5_bias()});
  layer.to(f64);
  const Tensor x = fixed_noise({2, 40, 8}, 1);
  const AttentionMask causal{.causal = true};
  const nn::ForwardContext prefix{.prefix_lengths = tensor<int64_t>({3, 5})};
  const Tensor once = layer(x, causal, nullptr, prefix);
  for (const bool again : {false, true}) {
    nn::KeyValueCache cache;
    Tensors rows{layer(x.slice(1, 0, 6), causal, &cache, prefix)};
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{6, 7}, {7, 30}, {30, 40}}) {
      if (from == 30) cache.reorder(tensor<int64_t>({0, 1}));
      rows.push_back(
          layer(x.slice(1, from, to), causal, &cache, again ? prefix : nn::ForwardContext{}));
    }
    CHECK(worst_error(cat(rows, 1), once) < 1e-14);
  }
}

TEST_CASE("T5Bias is shared by all layers, without a scale") {
  struct Model : nn::Module {
    Tensor operator()(const Tensor& x) const { return b(a(x)); }
    const nn::MultiHeadAttention::Options options{
        .d_model = 8, .n_heads = 2, .scale = 1, .position = nn::t5_bias()};
    nn::MultiHeadAttention a{*this, "a", options}, b{*this, "b", options};
  };
  manual_seed(3);
  Model model;
  model.to(f64);
  std::vector<Tensor> tables;
  for (const auto& [name, tensor] : model.named_parameters())
    if (name.find("position") != std::string::npos) tables.push_back(tensor);
  REQUIRE(tables.size() == 1);

  const Tensor x = fixed_noise({2, 11, 8}, 1);
  auto by_hand = [&](const nn::MultiHeadAttention& layer, const Tensor& in) {
    const nn::AttentionInputs c = layer.project(in, in, {});
    const Tensor bias = reference::t5_bias(tables[0], 11, 11, 128, true);
    const Tensor y = reference::attention(c.q, c.k, c.v, {.scale = 1, .bias = bias});
    return layer.out(y.transpose(1, 2).flatten(2));
  };
  CHECK(worst_error(model(x), by_hand(model.b, by_hand(model.a, x))) < 1e-12);
}

// --------------------------------------------------------------------------------------- ALiBi

TEST_CASE("ALiBi: slopes are those of the paper") {
  CHECK(nn::alibi_slopes(1) == std::vector<double>{1.0 / 256});
  const std::vector<double> eight{.5, .25, .125, .0625, .03125, .015625, .0078125, .00390625};
  CHECK(nn::alibi_slopes(8) == eight);
  const std::vector<double> twelve = nn::alibi_slopes(12);
  REQUIRE(twelve.size() == 12);
  for (size_t h = 0; h < 8; ++h) CHECK(twelve[h] == eight[h]);
  const double rest[] = {.70710678, .35355339, .1767767, .08838835};
  for (size_t h = 0; h < 4; ++h) CHECK(std::fabs(twelve[8 + h] - rest[h]) < 5e-9);
  CHECK_THROWS_WITH(nn::alibi_slopes(0), "[alibi_slopes] 0 heads; needs at least 1");
}

TEST_CASE("ALiBi equals a dense bias") {
  for (const int64_t heads : {1, 2, 3, 8, 12})
    for (const Size size : sizes)
      for (const bool causal : {false, true}) {
        if (causal && size.m > size.n) continue;
        check_equals_dense(
            nn::alibi_bias(nn::alibi_slopes(heads), causal ? 1 : size.m, size.n, {.dtype = f64}),
            reference::alibi_bias(heads, size.m, size.n), size, causal);
      }
}

TEST_CASE("Alibi: no parameters, the dtype of q, and heads without a slope") {
  Parent parent, other, third;
  const nn::Alibi all(parent, {.n_heads = 12}, {});
  const nn::Alibi some(other, {.n_heads = 12}, {.heads = 8});
  CHECK(parent.parameter_count() == 0);
  CHECK(all.slopes == nn::alibi_slopes(12));
  std::vector<double> eight = nn::alibi_slopes(8);
  eight.resize(12);
  CHECK(some.slopes == eight);
  CHECK(all.label() == "Alibi");
  CHECK(some.label() == "Alibi(first 8 heads)");
  for (const int64_t heads : {-1, 13})
    CHECK_THROWS_WITH(nn::Alibi(third, {.n_heads = 12}, {.heads = heads}),
                      str("[Alibi] heads ", heads, " of 12; accepted: 0 (all) to 12"));

  for (const DType dtype : {f64, f32, bf16}) {
    nn::AttentionInputs inputs = call_of(12, {5, 7}, false, dtype);
    all.apply(inputs);
    const RelativeTable& b = inputs.options.relative_bias;
    CHECK(b.rows.dtype() == dtype);
    CHECK(b.zero_row == 6);
    REQUIRE(b.rows.shape() == Shape{12, 11});
    for (int64_t r = -6; r <= 4; ++r) {  // rounded once
      const Tensor want = scalar(-std::exp2(-0.5) * std::fabs(double(r)), {.dtype = f64});
      CHECK(b.rows[8][6 + r].item() == want.to(dtype).item());
    }
    inputs.options.mask.causal = true;
    some.apply(inputs);
    CHECK(b.rows.shape() == Shape{12, 7});
    CHECK(max(abs(b.rows.slice(0, 8))).item() == 0);
    CHECK(same_bits(b.rows.slice(0, 0, 8),
                    nn::alibi_bias(nn::alibi_slopes(8), 1, 7, {.dtype = dtype}).rows));
    CHECK(attention(inputs.q, inputs.k, inputs.v, inputs.options).dtype() == dtype);
  }
}

TEST_CASE("Alibi works in a decoder") {
  testing::check_causal_position(nn::alibi());
  testing::check_causal_position(nn::alibi({.heads = 3}));
}

// -------------------------------------------------------------------------------------- KERPLE

TEST_CASE("KERPLE equals a dense bias") {
  const Tensor p = tensor<double>({0.01, 0.7, 2}), a = tensor<double>({0.9, 0.01, 0.4});
  for (const Size size : sizes)
    for (const bool causal : {false, true}) {
      if (causal && size.m > size.n) continue;
      const int64_t m = causal ? 1 : size.m;
      check_equals_dense(nn::kerple_bias(p, a, m, size.n),
                         reference::kerple_log_bias(p, a, size.m, size.n), size, causal);
      check_equals_dense(nn::kerple_bias(p, a, m, size.n, Kerple::Kind::power),
                         reference::kerple_power_bias(p, a, size.m, size.n), size, causal);
    }
}

TEST_CASE("KERPLE: gradients") {
  const Tensor q = fixed_leaf({1, 2, 3, 4}, 1), k = fixed_leaf({1, 2, 7, 4}, 2),
               v = fixed_noise({1, 2, 7, 3}, 3);
  const Tensor p = tensor<double>({0.3, 1.6}).set_requires_grad(),
               a = tensor<double>({0.8, 0.1}).set_requires_grad();
  for (const auto kind : {Kerple::Kind::logarithmic, Kerple::Kind::power})
    for (const Implementation implementation : implementations)
      for (const bool causal : {false, true})
        check_gradients(
            [&](const Tensors& in) {
              return attention(in[0], in[1], v,
                               {.mask = {.causal = causal},
                                .relative_bias = nn::kerple_bias(in[2], in[3], 3, 7, kind),
                                .implementation = implementation});
            },
            {q, k, p, a}, implementation == Implementation::composed);
}

TEST_CASE("KERPLE: parameters of a wrong shape or dtype are errors") {
  CHECK_THROWS_WITH(nn::kerple_bias(ones({2}), ones({3}), 1, 4),
                    "[kerple_bias] p f32 [2], a f32 [3]; must be [H], both of one floating dtype");
  CHECK_THROWS_WITH(nn::kerple_bias(ones({2, 1}), ones({2, 1}), 1, 4), Containing("must be [H]"));
  CHECK_THROWS_WITH(nn::kerple_bias(ones({2}), ones({2}, {.dtype = f64}), 1, 4),
                    Containing("both of one floating dtype"));
}

TEST_CASE("Kerple: parameters, initial values, label") {
  manual_seed(7);
  Parent parent, other;
  const Kerple position(parent, {.n_heads = 1000}, {});
  const auto parameters = parent.named_parameters();
  REQUIRE(parameters.size() == 2);
  CHECK(parameters[0].name == "position.p");
  CHECK(parameters[1].name == "position.a");
  CHECK(position.label() == "Kerple(logarithmic)");
  CHECK(Kerple(other, {.n_heads = 2}, {.kind = Kerple::Kind::power}).label() == "Kerple(power)");
  auto spans = [](const Tensor& x, double high) {
    const double width = high - 0.01, error = width / std::sqrt(12.0 * 1000);
    CHECK(x.shape() == Shape{1000});
    CHECK(min(x).item() >= double(float(0.01)));
    CHECK(max(x).item() < high);
    CHECK(std::fabs(mean(x).item() - (high + 0.01) / 2) < 4 * error);
  };
  spans(position.p, 2);
  spans(position.a, 1);
}

TEST_CASE("Kerple: parameters outside their bounds count as the bounds and can return") {
  for (const auto kind : {Kerple::Kind::logarithmic, Kerple::Kind::power}) {
    const bool power = kind == Kerple::Kind::power;
    Parent parent;
    const Kerple position(parent, {.n_heads = 4}, {.kind = kind});
    parent.to(f64);
    position.p.detach().copy_(tensor<double>({-1, 0.5, 3, 0.01}));
    position.a.detach().copy_(tensor<double>({0.5, 0.001, 0.5, 3}));
    const Tensor p = tensor<double>({0.01, 0.5, power ? 2.0 : 3.0, 0.01}).set_requires_grad(),
                 a = tensor<double>({0.5, 0.01, 0.5, 3}).set_requires_grad();
    const RelativeTable want = nn::kerple_bias(p, a, 1, 6, kind);
    nn::AttentionInputs inputs = call_of(4, {5, 6}, true, f64);
    for (const double sign : {1, -1}) {  // descent increases the parameters, then decreases them
      position.apply(inputs);
      CHECK(same_bits(inputs.options.relative_bias.rows, want.rows));
      CHECK(inputs.options.relative_bias.zero_row == 5);
      const Tensors got = grad({sum(inputs.options.relative_bias.rows) * sign},
                               {position.p, position.a}),
                    of_bounds = grad({sum(want.rows) * sign}, {p, a}, {}, {.retain_graph = true});
      for (int64_t h = 0; h < 4; ++h) {
        const bool p_stays = sign > 0 ? power && h == 2 : h == 0, a_stays = sign < 0 && h == 1;
        CHECK(got[0][h].item() == (p_stays ? 0 : of_bounds[0][h].item()));
        CHECK(got[1][h].item() == (a_stays ? 0 : of_bounds[1][h].item()));
      }
    }
  }
}

TEST_CASE("Kerple: a parameter that training has driven below its bound returns") {
  Parent parent;
  const Kerple position(parent, {.n_heads = 3}, {});
  parent.to(f64);
  nn::AdamW optimizer(parent.parameters(), {.lr = 0.05, .weight_decay = 0.1});
  const auto steps = [&](double slope) {
    for (int step = 0; step < 100; ++step) {
      nn::AttentionInputs inputs = call_of(3, {5, 6}, true, f64);
      position.apply(inputs);
      optimizer.zero_grad();
      (sum(inputs.options.relative_bias.rows) * slope).backward();
      optimizer.step();
    }
  };
  steps(-1);
  CHECK(max(position.p).item() < 0.01);
  CHECK(max(position.a).item() < 0.01);
  steps(1);
  CHECK(min(position.p).item() > 1);
  CHECK(min(position.a).item() > 1);
}

TEST_CASE("Kerple in bf16 is computed in f32") {
  const Tensor p = tensor<float>({0.5f, 1.25f}).to(bf16), a = tensor<float>({0.5f, 0.75f}).to(bf16);
  for (const auto kind : {Kerple::Kind::logarithmic, Kerple::Kind::power}) {
    const RelativeTable got = nn::kerple_bias(p, a, 4, 2000, kind);
    CHECK(same_bits(got.rows, nn::kerple_bias(p.to(f32), a.to(f32), 4, 2000, kind).rows.to(bf16)));
  }
}

TEST_CASE("Kerple works in a decoder") {
  testing::check_causal_position(nn::kerple());
  testing::check_causal_position(nn::kerple({.kind = Kerple::Kind::power}));
}

TEST_CASE("biases work without queries or keys") {
  const Tensor table = fixed_noise({8, 2}, 1), p = ones({2}, {.dtype = f64});
  for (const Size size : {Size{0, 3}, Size{3, 0}, Size{0, 0}})
    for (const RelativeTable& b :
         {nn::t5_bias(table, size.m, size.n, 20, true), nn::kerple_bias(p, p, size.m, size.n),
          nn::alibi_bias({.5, .25}, size.m, size.n, {.dtype = f64})})
      for (const Implementation implementation : implementations) {
        const Tensor q = zeros({1, 2, size.m, 4}, {.dtype = f64});
        const Tensor k = zeros({1, 2, size.n, 4}, {.dtype = f64});
        const Tensor y = attention(q, k, k, {.relative_bias = b, .implementation = implementation});
        CHECK(same_bits(y, zeros_like(q)));
      }
}
