// Gradients of attention: fused against composed, both against differences, and gradients of zero.
#include <algorithm>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::AttentionCase;
using testing::AttentionSetup;
using testing::fixed_noise;
using testing::make_inputs;
using testing::name;
using testing::same_bits;
using testing::some_of;
using testing::Way;
using testing::ways;
using testing::worst_error;

namespace {

constexpr Implementation implementations[] = {Implementation::composed, Implementation::fused};

Tensors gradients(const AttentionCase& in, Implementation implementation) {
  Tensors all = testing::output_and_gradients(in, implementation);
  all.erase(all.begin());
  return all;
}
AttentionCase leaves_of(const AttentionSetup& s, DType dtype) {
  return testing::moved(make_inputs(s, dtype), default_device(), dtype);
}

double largest(const Tensor& x) {
  double most = 0;
  for (const double v : x.to_vector<double>()) most = std::max(most, std::fabs(v));
  return most;
}

// Attention as a function of its leaves, in their order.
testing::TensorFunction function(const AttentionCase& in, Implementation implementation) {
  return [in, implementation](const Tensors& x) {
    AttentionCase moved = in;
    moved.for_each_tensor([next = x.begin()](Tensor& t) mutable {
      if (t.defined()) t = *next++;
    });
    return moved(implementation);
  };
}

}  // namespace

TEST_CASE("attention gradients: fused equals composed under random options") {
  double worst = 0;
  for (uint64_t number = 3000; number < 3000 + some_of(300); ++number) {
    AttentionSetup s = testing::for_kernels(number % 2 ? testing::random_masked_setup(number)
                                                       : testing::random_setup(number));
    s.dropout = number % 4 == 0 ? 0.25 : 0;
    if (default_device().is_cuda()) {
      for (const DType dtype : testing::fused_types())
        testing::check_fused(s, default_device(), dtype);
      continue;
    }
    INFO(testing::describe(s));
    const AttentionCase in = make_inputs(s);
    const Tensors fused = gradients(in, Implementation::fused);
    const Tensors composed = gradients(in, Implementation::composed);
    for (size_t i = 0; i < fused.size(); ++i) {
      INFO("input "
           << i
           << " of q, k, v, position query, key table, value table, relative bias, bias, sinks");
      const double error = worst_error(fused[i], composed[i]);
      CHECK(error <= 1e-12);
      worst = std::max(worst, error);
    }
  }
  INFO("worst " << worst);
  CHECK(worst <= 1e-12);
}

TEST_CASE("attention gradients: they equal finite differences") {
  const AttentionSetup setups[] = {
      {.batch = 2,
       .heads = 2,
       .queries = 4,
       .d = 2,
       .d_value = 3,
       .causal = true,
       .table = 3,
       .relative_bias = true},
      {.batch = 1,
       .heads = 4,
       .key_heads = 2,
       .queries = 3,
       .keys = 5,
       .d = 2,
       .causal = true,
       .table = 9,
       .shared = true,
       .relative_query = true},
      {.queries = 4,
       .d = 3,
       .causal = true,
       .table = 3,
       .relative_query = true,
       .d_query = 1,
       .sinks = true},
      {.batch = 1,
       .queries = 3,
       .keys = 5,
       .d = 2,
       .table = 3,
       .bidirectional = true,
       .out_of_range = OutOfRange::clip,
       .relative_query = true,
       .d_query = 4,
       .dropout = 0.2,
       .soft_cap = 0.8},
      {.batch = 2,
       .heads = 1,
       .queries = 4,
       .d = 3,
       .padded = 3,
       .table = 2,
       .bidirectional = true,
       .out_of_range = OutOfRange::clip,
       .relative_bias = true},
      {.batch = 1, .heads = 2, .queries = 7, .d = 2, .block = 3, .table = 6},
      {.batch = 2,
       .heads = 1,
       .queries = 5,
       .d = 1,
       .causal = true,
       .window = 2,
       .padded = -1,
       .table = 1},
      {.batch = 1,
       .heads = 2,
       .queries = 5,
       .d = 2,
       .causal = true,
       .table = 5,
       .scale = 1,
       .dropout = 0.3},
      {.queries = 4,
       .d = 2,
       .table = 2,
       .bidirectional = true,
       .out_of_range = OutOfRange::clip,
       .values = true},
      {.queries = 3,
       .keys = 4,
       .d = 2,
       .causal = true,
       .padded = 2,
       .table = 3,
       .relative_query = true,
       .relative_bias = true,
       .values = true,
       .bias = "BHMN",
       .dropout = 0.2},
      {.queries = 3, .d = 2, .block = 2, .values = true, .bias = "HMN"},
      {.heads = 4, .key_heads = 2, .queries = 3, .d = 2, .bias = "MN"},
      {.queries = 3, .d = 2, .causal = true, .bias = "BM"},
      {.queries = 3, .d = 2, .window = 2, .bias = "N"},
      {.queries = 5, .d = 2, .causal = true, .table = 4, .values = true, .segments = 2},
      {.queries = 4, .d = 2, .causal = true, .relative_bias = true, .prefix = true, .sinks = true},
      {.queries = 5, .d = 2, .window = 2, .table = 3, .window_after = 2, .global = 1},
      {.queries = 4, .d = 2, .bias = "HMN", .dropout = 0.2, .hidden = "BMN", .soft_cap = 0.7},
      {.queries = 4, .d = 2, .padded = -1, .sinks = true, .soft_cap = 0.5},
      {.queries = 4, .d = 2, .padded = -1, .sinks = true, .query_sinks = true, .soft_cap = 0.5},
      {.heads = 4,
       .key_heads = 2,
       .queries = 5,
       .d = 2,
       .causal = true,
       .table = 3,
       .dropout = 0.3,
       .sinks = true,
       .query_sinks = true}};
  for (const AttentionSetup& s : setups)
    for (const Implementation implementation : testing::implementations()) {
      INFO(testing::describe(s) << ", " << name(implementation));
      const AttentionCase in = make_inputs(s);
      testing::check_gradients(function(in, implementation), in.leaves(), false);
    }
}

TEST_CASE("attention gradients: the composed implementation can be differentiated twice") {
  const AttentionCase in = make_inputs({.batch = 1,
                                        .heads = 2,
                                        .key_heads = 1,
                                        .queries = 3,
                                        .d = 2,
                                        .causal = true,
                                        .table = 2,
                                        .shared = true,
                                        .relative_bias = true});
  testing::check_gradients(function(in, Implementation::composed), in.leaves());
}

TEST_CASE("attention gradients: without queries they can be differentiated twice") {
  for (const Implementation implementation : testing::implementations())
    for (const OutOfRange out_of_range : {OutOfRange::zero, OutOfRange::clip})
      for (const int64_t zero_row : {0, 1}) {
        INFO(name(implementation) << ", row of 0 is " << zero_row);
        AttentionCase in = make_inputs({.batch = 1,
                                        .queries = 3,
                                        .d = 2,
                                        .table = 2,
                                        .out_of_range = out_of_range,
                                        .relative_bias = true,
                                        .values = true});
        for (RelativeTable* table :
             {&in.options.relative_keys, &in.options.relative_values, &in.options.relative_bias})
          table->zero_row = zero_row;
        in.q = zeros({1, 2, 0, 2}, {.dtype = f64, .requires_grad = true});
        const Tensor y = in(implementation);
        const Tensors first = grad({y}, {in.k, in.options.relative_keys.rows}, {ones_like(y)},
                                   {.create_graph = true});
        for (const Tensor& g : first)
          if (g.defined()) CHECK(max(abs(g)).item() == 0);
      }
}

TEST_CASE(
    "attention gradients: rows out of reach have gradients of exactly zero, the others do not") {
  struct Reach {
    AttentionSetup setup;
    int64_t past, future;  // the largest distances that are visible
  };
  const int64_t l = 70;
  const Reach all[] = {
      {{.queries = l, .causal = true, .table = 100}, 69, 0},
      {{.queries = l, .causal = true, .table = 100, .bidirectional = true}, 69, 0},
      {{.queries = l,
        .causal = true,
        .table = 100,
        .bidirectional = true,
        .out_of_range = OutOfRange::clip},
       69,
       0},
      {{.queries = l, .table = 100, .bidirectional = true}, 69, 69},
      {{.queries = 5, .keys = l, .table = 100, .bidirectional = true}, 69, 4},
      {{.queries = l, .causal = true, .window = 9, .table = 100}, 8, 0},
      {{.queries = l, .window = 9, .table = 100, .bidirectional = true}, 8, 69},
      {{.queries = l, .block = 8, .table = 32}, 15, 0},  // 4 blocks of rows, as in tensor2tensor
      {{.queries = l, .block = 32, .table = 128}, 63, 0},
      {{.queries = l, .block = 100, .table = 128}, 69, 0}};
  for (const Reach& reach : all)
    for (const Way& way : ways()) {
      AttentionSetup s = reach.setup;
      s.relative_bias = true;
      s.values = way.dtype == f64;  // unsupported by the kernels of a GPU
      INFO(testing::describe(s) << ", " << name(way));
      const AttentionCase in = leaves_of(s, way.dtype);
      const Tensors g = gradients(in, way.implementation);
      const int64_t zero_row = in.options.relative_keys.zero_row;
      for (size_t i = 3; i < g.size(); ++i) {
        const Tensor table = g[i].to(cpu);
        for (int64_t row = 0; row < table.size(1); ++row) {
          const int64_t r = row - zero_row;
          const bool reached = r >= -reach.past && r <= reach.future;
          if ((largest(table.select(1, row)) != 0) != reached) {
            CAPTURE(i, r);
            FAIL_CHECK("reached: " << reached << ", but gradient "
                                   << largest(table.select(1, row)));
          }
        }
      }
    }
  CHECK(true);
}

TEST_CASE("attention gradients: those of all key rows add up to zero if every key has a row") {
  const AttentionSetup setups[] = {
      {.queries = 67, .causal = true, .table = 67},
      {.queries = 67, .causal = true, .table = 10, .out_of_range = OutOfRange::clip},
      {.queries = 67, .table = 4, .bidirectional = true, .out_of_range = OutOfRange::clip},
      {.queries = 67, .block = 16, .table = 32},
      {.queries = 30, .keys = 67, .causal = true, .table = 67, .shared = true}};
  // The gradient of a row is a sum of score gradients. Each of them has an error of some 2 (D + 2)
  // units; in bf16 they are rounded too, and the sum is not zero.
  for (const AttentionSetup& s : setups)
    for (const Way& way : ways()) {
      if (way.dtype == bf16) continue;
      INFO(testing::describe(s) << ", " << name(way));
      const Tensors g = gradients(leaves_of(s, way.dtype), way.implementation);
      const double off = way.dtype == f64 ? 1e-13 : 20 * 0x1p-24 * double(s.batch);
      CHECK(largest(sum(g[3], {1})) < off * 67);
      CHECK(largest(g[3]) > 1e-3);
    }
}

TEST_CASE("attention gradients: those of all value rows add up to the incoming gradient") {
  const AttentionSetup setups[] = {
      {.queries = 67, .causal = true, .table = 67, .values = true},
      {.queries = 67,
       .causal = true,
       .table = 10,
       .out_of_range = OutOfRange::clip,
       .values = true},
      {.queries = 67, .table = 1, .out_of_range = OutOfRange::clip, .values = true},
      {.queries = 30,
       .keys = 67,
       .table = 4,
       .bidirectional = true,
       .out_of_range = OutOfRange::clip,
       .values = true}};
  for (const AttentionSetup& s : setups)
    for (const Implementation implementation : testing::implementations()) {
      INFO(testing::describe(s));
      const Tensor g = gradients(make_inputs(s), implementation)[4];
      const Tensor incoming = fixed_noise({s.batch, s.heads, s.queries, s.d}, 9).to(bf16).to(f64);
      CHECK(worst_error(sum(g, {1}), sum(incoming, {0, 2})) < 1e-13 * 67);
    }
}

TEST_CASE(
    "attention gradients: the outermost rows of a clipped table collect those of all rows beyond") {
  // A longer table whose outer rows repeat the last ones has the same result; the sums of its
  // gradients are those of the clipped rows.
  const int64_t l = 12, clip = 3;
  const AttentionCase in = make_inputs({.queries = l,
                                        .table = clip + 1,
                                        .bidirectional = true,
                                        .out_of_range = OutOfRange::clip,
                                        .values = true});
  for (auto table : {&AttentionOptions::relative_keys, &AttentionOptions::relative_values})
    for (const Implementation implementation : testing::implementations()) {
      const Tensor y = in(implementation), weights = fixed_noise(y.shape(), 9);
      const Tensor got = grad({y}, {(in.options.*table).rows}, {weights})[0];
      AttentionCase longer = in;
      Tensor rows = relative_rows(in.options.*table, -(l - 1), 2 * l - 1).detach();
      longer.options.*table = {rows.set_requires_grad(), l - 1, OutOfRange::error};
      const Tensor z = longer(implementation);
      CHECK(worst_error(y, z) < 1e-15 * l);
      const Tensor g = grad({z}, {rows}, {weights})[0];
      const int64_t first = l - 1 - clip, last = l - 1 + clip;
      CHECK(worst_error(got.select(1, 0), sum(g.slice(1, 0, first + 1), {1})) < 1e-14);
      CHECK(worst_error(got.select(1, 2 * clip), sum(g.slice(1, last), {1})) < 1e-14);
      CHECK(worst_error(got.slice(1, 1, 2 * clip), g.slice(1, first + 1, last)) < 1e-14);
    }
}

TEST_CASE("attention gradients: in bf16, weights and results are rounded") {
  // Nothing here is negative: the sum of weights with relative errors of at most 2⁻⁹, rounded once
  // itself, has a relative error of at most 2⁻⁸.
  const AttentionSetup setups[] = {{.queries = 130, .causal = true, .table = 130, .values = true},
                                   {.heads = 4,
                                    .key_heads = 2,
                                    .queries = 70,
                                    .keys = 131,
                                    .padded = 20,
                                    .table = 5,
                                    .bidirectional = true,
                                    .out_of_range = OutOfRange::clip,
                                    .values = true,
                                    .bias = "HMN"}};
  for (const AttentionSetup& s : setups) {
    INFO(testing::describe(s));
    AttentionCase in = make_inputs(s, bf16), wide = in;
    AttentionOptions& o = wide.options;
    for (Tensor* x :
         {&wide.q, &wide.k, &wide.v, &o.relative_keys.rows, &o.relative_values.rows, &o.bias})
      if (x->defined()) *x = x->to(f64).set_requires_grad();
    for (const Tensor& x : in.leaves()) Tensor(x).set_requires_grad();
    const Tensor incoming = abs(fixed_noise({s.batch, s.heads, s.queries, s.d}, 9)).to(bf16);
    const auto of = [&](const AttentionCase& a, Implementation implementation, const Tensor& g) {
      const Tensors x{a.v, a.options.relative_values.rows};
      return grad({a(implementation)}, x, {g});
    };
    const Tensors got = of(in, Implementation::fused, incoming),
                  want = of(wide, Implementation::composed, incoming.to(f64));
    for (size_t i = 0; i < got.size(); ++i) {
      INFO((i == 0 ? "v" : "value table"));
      CHECK(got[i].dtype() == bf16);
      const double rounding = 0x1p-8 + testing::attention_rounding(s, f32) * double(s.queries);
      CHECK(max(abs(got[i].to(f64) - want[i]) - want[i] * rounding).item() <= 0);
    }
  }
}

TEST_CASE(
    "attention gradients: only requested ones are computed, and in-place changes are detected") {
  AttentionCase in = make_inputs({.queries = 6, .causal = true, .table = 4}, f32);
  in.options.relative_keys.rows.set_requires_grad();
  for (const Implementation implementation : implementations) {
    const Tensor y = in(implementation);
    y.backward(ones(y.shape()));
    CHECK(in.options.relative_keys.rows.grad().defined());
    CHECK_FALSE(in.q.grad().defined());
    in.options.relative_keys.rows.set_grad({});
  }
  const Tensor y = in(Implementation::fused);
  in.k.fill_(1);
  CHECK_THROWS_WITH(y.backward(ones(y.shape())), Containing("changed in place"));
}

TEST_CASE("attention dropout: both implementations use the same mask, forward and backward") {
  const AttentionSetup setups[] = {
      {.queries = 67, .causal = true, .table = 20},
      {.heads = 4, .key_heads = 2, .queries = 70, .keys = 131, .table = 9, .bidirectional = true},
      {.queries = 67, .block = 5, .table = 10}};
  for (const double p : {0.1, 0.5, 0.9, 1.0})
    for (AttentionSetup s : setups) {
      s.dropout = p;
      for (const DType dtype : testing::fused_types()) {
        INFO(testing::describe(s) << ", " << name(dtype));
        if (default_device().is_cuda() && p != 0.5 && p != 1) continue;
        if (dtype == bf16) {
          testing::check_fused(s, default_device(), bf16);
          continue;
        }
        const AttentionCase in = leaves_of(s, dtype);
        // Kept weights are scaled, and sums of M terms have M rounding errors.
        const double f32_rounding = testing::attention_rounding(s, f32) / (p < 1 ? 1 - p : 1);
        const double off = dtype == f64 ? 1e-13 : 2 * f32_rounding;
        CHECK(worst_error(in(Implementation::fused), in(Implementation::composed)) < off);
        const Tensors fused = gradients(in, Implementation::fused);
        const Tensors composed = gradients(in, Implementation::composed);
        for (size_t i = 0; i < fused.size(); ++i)
          CHECK(worst_error(fused[i], composed[i]) < 10 * off);
        if (p == 1) CHECK(largest(in(Implementation::fused)) == 0);
      }
    }
}

TEST_CASE("attention dropout: weights are kept with probability 1 − p and scaled") {
  // With v the identity the output is the dropped weights; equal keys make all weights 1/N.
  const int64_t n = 64, heads = 8;
  for (const Implementation implementation : implementations) {
    const Tensor q = zeros({1, heads, n, 8});
    const Tensor v = eye(n).unsqueeze(0).unsqueeze(0).expand({1, heads, n, n});
    const auto w =
        attention(
            q, q, v,
            {.dropout = 0.25, .dropout_key = RandomKey{1, 2}, .implementation = implementation})
            .to_vector<double>();
    int64_t kept = 0;
    for (const double x : w) {
      if (x == 0) continue;
      ++kept;
      CHECK(std::fabs(x - 1 / (0.75 * double(n))) < 1e-8);
    }
    const double total = double(w.size());
    CHECK(std::fabs(double(kept) / total - 0.75) < 4 * std::sqrt(0.25 * 0.75 / total));
  }
}

TEST_CASE("attention dropout: the random numbers of weights are counted in 64 bits") {
  if (default_device().is_cuda()) return;
  const int64_t n = 65'600;  // n² > 2³²
  const RandomKey key{1, 2};
  const Tensor x = ones({1, 1, n, 1});
  const auto y = attention(x, x, x,
                           {.mask = {.causal = true, .window = 1},
                            .dropout = 0.5,
                            .dropout_key = key,
                            .implementation = Implementation::fused})
                     .to_vector<float>();
  int64_t wrong = 0;
  for (int64_t i = n - 100; i < n; ++i)
    wrong += (y[size_t(i)] == 0) !=
             (random_bits(key, uint64_t(i * n + i)) >> 8 < DropoutRule(0.5).below);
  CHECK(wrong == 0);
}

TEST_CASE("attention dropout: without a key every call uses another mask") {
  const AttentionCase in = make_inputs({.queries = 20}, f32);
  AttentionOptions o{.dropout = 0.5};
  manual_seed(3);
  const Tensor first = attention(in.q, in.k, in.v, o), second = attention(in.q, in.k, in.v, o);
  CHECK(!same_bits(first, second));
  manual_seed(3);
  CHECK(same_bits(attention(in.q, in.k, in.v, o), first));
}
