// Both implementations of attention against loops over the definition.
#include "ops/attention/attention.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/reference/attention.h"
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
// f32 in both implementations, and on a GPU bf16 too.
std::vector<Way> float_ways() {
  std::vector<Way> all{{Implementation::composed, f32}, {Implementation::fused, f32}};
  if (default_device().is_cuda()) all.push_back({Implementation::fused, bf16});
  return all;
}

// With value tables and dense biases and, on a GPU, also without them, as other kernels run then.
std::vector<std::pair<Way, bool>> ways_and_kernels(const std::vector<Way>& all = ways()) {
  std::vector<std::pair<Way, bool>> both;
  for (const Way& way : all) {
    both.push_back({way, true});
    if (default_device().is_cuda() && way.implementation == Implementation::fused)
      both.push_back({way, false});
  }
  return both;
}

void check_setup(const AttentionSetup& setup, DType dtype) {
  const AttentionSetup s = dtype == f64 ? setup : testing::for_kernels(setup);
  INFO(testing::describe(s));
  const AttentionCase in = make_inputs(s, dtype);
  const Tensor want = reference::attention(in.q, in.k, in.v, in.options);
  const double tolerance = testing::attention_rounding(s, dtype);
  for (const Implementation implementation :
       dtype == f64 ? testing::implementations()
                    : std::vector(implementations, implementations + 2)) {
    INFO(name(implementation) << ", tolerance " << tolerance);
    const Tensor got = in(implementation);
    CHECK(got.dtype() == dtype);
    CHECK(worst_error(got, want) <= tolerance);
  }
  const Tensor weights = attention_weights(in.q, in.k, in.options);
  CHECK(worst_error(weights, reference::attention_weights(in.q, in.k, in.options)) <= tolerance);
}

}  // namespace

TEST_CASE("attention: random options agree with the reference in f64") {
  for (uint64_t number = 0; number < some_of(300); ++number)
    check_setup(testing::random_setup(number), f64);
}

TEST_CASE("attention: random options agree with the reference in f32") {
  for (uint64_t number = 1000; number < 1000 + some_of(150); ++number)
    check_setup(testing::random_setup(number), f32);
}

TEST_CASE("attention: random masks, sinks and soft caps agree with the reference in f64") {
  for (uint64_t number = 0; number < some_of(400); ++number)
    check_setup(testing::random_masked_setup(number), f64);
}

TEST_CASE("attention: random masks, sinks and soft caps agree with the reference in f32") {
  for (uint64_t number = 1000; number < 1000 + some_of(150); ++number)
    check_setup(testing::random_masked_setup(number), f32);
}

TEST_CASE("attention: the schemes of the papers agree with the reference") {
  const DType dtype = GENERATE(f64, f32);
  const int64_t length = GENERATE(1, 5, 63, 64, 65, 130);
  if (default_device().is_cuda() && (dtype == f64 || length % 5 != 0)) return;
  const AttentionSetup music{.queries = length, .d = 4, .d_value = 6, .causal = true, .table = 65};
  std::vector<AttentionSetup> setups{
      {.queries = length, .d = 8},
      {.queries = length, .d = 41, .causal = true},
      {.heads = 4, .key_heads = 2, .queries = length, .keys = length + 3, .d = 4, .causal = true},
      {.heads = 4, .key_heads = 1, .queries = length, .d = 4, .causal = true, .table = 9},
      {.queries = length, .d = 4, .causal = true, .window = 1},
      {.queries = length, .d = 4, .window = 7, .table = 5, .bidirectional = true},
      {.queries = length, .d = 4, .padded = -1, .table = 5, .bidirectional = true},
      {.queries = length, .d = 4, .causal = true, .table = 17, .out_of_range = OutOfRange::clip},
      {.queries = length,
       .d = 4,
       .table = 17,
       .bidirectional = true,
       .out_of_range = OutOfRange::clip,
       .values = true},  // Shaw
      {.queries = length,
       .keys = 2 * length,
       .d = 4,
       .causal = true,
       .table = 2 * length,
       .relative_query = true},  // Transformer-XL
      {.queries = length,
       .d = 9,
       .causal = true,
       .table = 17,
       .shared = true,
       .relative_query = true,
       .d_query = 4},  // Inkling
      {.queries = length,
       .d = 4,
       .causal = true,
       .table = 65,
       .relative_query = true,
       .d_query = 24},
      {.queries = length, .d = 4, .bidirectional = true, .relative_bias = true, .scale = 1},  // T5
      {.queries = length, .d = 4, .causal = true, .relative_bias = true, .bias = "HN"},
      music};
  for (const int64_t block : {1, 3, 64, 65, 100, 1000}) {  // includes lengths below 2 blocks
    setups.push_back(music);
    setups.back().causal = false;  // implied
    setups.back().block = block;
    setups.back().table = 2 * block;
  }
  for (const AttentionSetup& s : setups) check_setup(s, dtype);
}

TEST_CASE("attention: queries before the first key") {
  // With more queries than keys, the first queries are before the first key; under a causal mask
  // they see nothing.
  for (const int64_t window : {0, 3})
    for (const int64_t block : {0, 2})
      for (const bool causal : {false, true})
        for (const OutOfRange out_of_range : {OutOfRange::zero, OutOfRange::clip}) {
          if (window > 0 && block > 0) continue;
          AttentionSetup s{.queries = 70,
                           .keys = 5,
                           .causal = causal,
                           .window = window,
                           .block = block,
                           .table = 6,
                           .bidirectional = !causal && block == 0,
                           .out_of_range = out_of_range,
                           .relative_bias = true};
          check_setup(s, f64);
        }
}

TEST_CASE("attention: a query without visible keys gives zeros, and zero gradients") {
  for (const auto& [way, all] : ways_and_kernels()) {
    const auto& [implementation, dtype] = way;
    INFO(name(way) << (all ? ", all" : ""));
    const AttentionCase in = testing::moved(make_inputs({.queries = 9,
                                                         .causal = true,
                                                         .padded = -1,
                                                         .table = 4,
                                                         .relative_query = true,
                                                         .relative_bias = true,
                                                         .values = all,
                                                         .bias = all ? "BHMN" : ""},
                                                        dtype),
                                            default_device(), dtype);
    const Tensor y = in(implementation);
    CHECK(same_bits(y[0], zeros(y[0].shape(), {.dtype = dtype})));
    sum(y * fixed_noise(y.shape(), 1, dtype)).backward();
    for (const Tensor& x : {in.q, in.k, in.v, in.options.relative_query, in.options.bias}) {
      if (!x.defined()) continue;
      const Tensor none = zeros_like(x.grad()[0]);
      CHECK(worst_error(x.grad()[0], none) == 0);
      CHECK(max(abs(x.grad()[1])).item() > 0);
    }
    for (const Tensor& x : {in.options.relative_keys.rows, in.options.relative_values.rows,
                            in.options.relative_bias.rows})
      CHECK((!x.defined() || std::isfinite(max(abs(x.grad())).item())));
  }
  // Queries before the first key that is not padded.
  for (const auto& [implementation, dtype] : ways()) {
    AttentionCase in = make_inputs({.batch = 1, .queries = 4, .causal = true}, dtype);
    in.options.mask.key_padding = tensor<bool>({true, true, false, false}, {1, 4});
    const Tensor y = in(implementation);
    CHECK(same_bits(y.slice(2, 0, 2), zeros({1, 2, 2, 8}, {.dtype = dtype})));
    const double rounding = dtype == f64 ? 1e-15 : dtype == f32 ? 0x1p-22 : 0;
    CHECK(worst_error(y[0].slice(1, 2, 3), in.v[0].slice(1, 2, 3)) <= rounding);
  }
}

TEST_CASE("attention: a bias of −∞ hides keys as a mask does") {
  constexpr double never = -std::numeric_limits<double>::infinity();
  AttentionCase in =
      make_inputs({.queries = 70, .table = 9, .bidirectional = true, .values = true});
  AttentionCase masked = in;
  masked.options.mask.causal = true;
  const Tensor hidden =
      masked_fill(zeros({70, 70}, {.dtype = f64}), attention_mask(70, 70, {.causal = true}), never);
  // Query 3 of entry 1 sees nothing.
  in.options.bias = stack({hidden, hidden}, 0).unsqueeze(1).contiguous();
  in.options.bias[1][0][3].fill_(never);
  in.options.bias.set_requires_grad();
  for (const Implementation implementation : testing::implementations()) {
    INFO(name(implementation));
    const Tensor y = in(implementation), want = masked(implementation);
    CHECK(worst_error(y[0], want[0]) < 1e-14);
    CHECK(same_bits(y[1].select(1, 3), zeros({2, 8}, {.dtype = f64})));
    const Tensor g = grad({y}, {in.options.bias}, {fixed_noise(y.shape(), 5)})[0];
    CHECK(worst_error(g * exp(in.options.bias), g) == 0);  // no gradient at hidden keys
    CHECK(max(abs(g[1][0][3])).item() == 0);
    CHECK(max(abs(g)).item() > 1e-3);
  }
}

TEST_CASE("attention: bf16 agrees with f32 within its rounding") {
  for (uint64_t number = 2000; number < 2000 + some_of(30); ++number) {
    const AttentionSetup s = testing::for_kernels(testing::random_setup(number));
    INFO(testing::describe(s));
    const AttentionCase in = make_inputs(s, bf16);
    const Tensor want = reference::attention(in.q, in.k, in.v, in.options);
    const Tensor fused = in(Implementation::fused);
    CHECK(fused.dtype() == bf16);
    CHECK(worst_error(fused, want) <= testing::attention_rounding(s, bf16));
    const Tensor y = in(Implementation::composed);
    CHECK(y.dtype() == bf16);
    CHECK(worst_error(y, want) <= 6e-2);  // every op rounds
  }
}

TEST_CASE("attention: views give the same results as contiguous tensors") {
  for (const auto& [way, all] : ways_and_kernels()) {
    const Implementation implementation = way.implementation;
    INFO(name(way) << (all ? ", all" : ""));
    const bool wide = way.dtype == f64;
    const AttentionSetup s{.batch = 3,
                           .queries = 67,
                           .d = wide ? 5 : 8,
                           .causal = true,
                           .table = 40,
                           .relative_query = true,
                           .relative_bias = true,
                           .values = all,
                           .bias = all ? "BHMN" : ""};
    // Copies are bit-identical, except that f64 may use other kernels for its products.
    const double off = wide ? 1e-14 : 1e-30;
    const AttentionCase in = make_inputs(s, way.dtype);
    // One projection of q, k, v [B, L, 3, H, D], viewed as three [B, H, L, D].
    const Tensor packed = stack({in.q, in.k, in.v}, 2).transpose(1, 3).contiguous();
    auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
    const Tensor rows = in.options.relative_keys.rows;
    const Tensor want = in(implementation);
    AttentionOptions o = in.options;
    o.implementation = implementation;
    REQUIRE(!part(0).is_contiguous());
    CHECK(worst_error(attention(part(0), part(1), part(2), o), want) < off);
    using testing::strided_copy;
    o.relative_query = strided_copy(o.relative_query);
    o.relative_keys.rows = rows.transpose(1, 2).contiguous().transpose(1, 2);
    o.relative_bias.rows = strided_copy(o.relative_bias.rows);
    if (all) o.relative_values.rows = strided_copy(o.relative_values.rows);
    if (all) o.bias = strided_copy(o.bias);
    CHECK(worst_error(attention(strided_copy(in.q), strided_copy(in.k), strided_copy(in.v), o),
                      want) < off);
    // One sequence for the whole batch, one key for all positions, one bias for all queries.
    AttentionOptions e = in.options;
    e.implementation = implementation;
    if (all) {
      e.bias = in.options.bias.slice(2, 3, 4);
      const Tensor one = attention(in.q, in.k, in.v, e);
      e.bias = e.bias.expand(in.options.bias.shape());
      CHECK(worst_error(attention(in.q, in.k, in.v, e), one) < off);
    }
    const Tensor q = in.q[0].unsqueeze(0).expand(in.q.shape());
    const Tensor k = in.k[0].unsqueeze(0).expand(in.k.shape());
    const Tensor v = in.v.slice(2, 0, 1).expand(in.v.shape());
    CHECK(worst_error(attention(q, k, v, e),
                      attention(q.contiguous(), k.contiguous(), v.contiguous(), e)) < off);
  }
}

TEST_CASE("attention: results are bit-identical for any number of threads and in every run") {
  const int threads = num_threads();
  const AttentionSetup setups[] = {{.heads = 4,
                                    .key_heads = 2,
                                    .queries = 130,
                                    .keys = 195,
                                    .d = 41,
                                    .causal = true,
                                    .table = 100,
                                    .relative_query = true,
                                    .relative_bias = true,
                                    .dropout = 0.3},
                                   {.queries = 150, .block = 40, .table = 80, .shared = true},
                                   {.batch = 3,
                                    .heads = 4,
                                    .key_heads = 2,
                                    .queries = 130,
                                    .d = 9,
                                    .causal = true,
                                    .table = 10,
                                    .shared = true,
                                    .out_of_range = OutOfRange::clip,
                                    .values = true,
                                    .dropout = 0.3},
                                   {.batch = 3, .queries = 70, .values = true, .bias = "BHMN"},
                                   {.batch = 3, .queries = 70, .causal = true, .bias = "HMN"},
                                   {.batch = 3, .queries = 300, .bias = "BMN"},
                                   {.batch = 3, .heads = 4, .queries = 300, .bias = "MN"},
                                   {.batch = 3, .queries = 70, .bias = "HN"},
                                   {.batch = 3, .queries = 70, .bias = "M"},
                                   {.batch = 3,
                                    .queries = 200,
                                    .causal = true,
                                    .window = 9,
                                    .table = 10,
                                    .global = 2,
                                    .hidden = "BMN",
                                    .sinks = true,
                                    .soft_cap = 1}};
  const bool on_gpu = default_device().is_cuda();  // threads do not matter there
  for (const auto& [implementation, dtype] : ways())
    for (const AttentionSetup& setup : setups) {
      const AttentionSetup s = testing::for_kernels(setup);
      if (on_gpu && implementation == Implementation::composed && !s.values && s.bias.empty())
        continue;
      INFO(name(implementation) << ", " << name(dtype) << ": " << testing::describe(s));
      std::vector<Tensors> runs;
      for (const int n : on_gpu ? std::vector{1, 2} : std::vector{1, 2, 4, 2}) {
        set_num_threads(n);
        const AttentionCase in = testing::moved(make_inputs(s, dtype), default_device(), dtype);
        const Tensor y = in(implementation);
        sum(y * y).backward();
        runs.push_back({y});
        for (const Tensor& x : in.leaves()) runs.back().push_back(x.grad());
      }
      for (size_t i = 0; i < runs[0].size(); ++i) {
        INFO("tensor " << i);
        for (size_t run = 1; run < runs.size(); ++run) CHECK(same_bits(runs[0][i], runs[run][i]));
      }
    }
  set_num_threads(threads);
}

TEST_CASE("attention: later keys change nothing, bit for bit, under a causal mask") {
  const AttentionSetup setups[] = {
      {.queries = 130, .causal = true, .table = 50, .out_of_range = OutOfRange::clip},
      {.queries = 130, .causal = true, .window = 20, .relative_bias = true},
      {.queries = 130, .block = 32, .table = 64},
      {.queries = 70, .keys = 130, .causal = true, .table = 130},
      {.queries = 130,
       .causal = true,
       .table = 9,
       .out_of_range = OutOfRange::clip,
       .values = true,
       .bias = "HMN"}};
  for (const AttentionSetup& s : setups)
    for (const auto& [implementation, dtype] : float_ways()) {
      INFO(name(implementation) << ", " << name(dtype) << ": " << testing::describe(s));
      NoGrad guard;
      AttentionCase in = make_inputs(s, dtype);
      const Tensor before = in(implementation);
      const int64_t m = s.queries, n = in.k.size(2);
      // Changes the queries and the keys from the position of query t on.
      for (const int64_t t : {m - 1, int64_t(64), int64_t(63), int64_t(1)}) {
        in.q.slice(2, t).fill_(7);
        in.k.slice(2, t + n - m).fill_(-5);
        in.v.slice(2, t + n - m).fill_(1000);
        CHECK(same_bits(in(implementation).slice(2, 0, t), before.slice(2, 0, t)));
        CHECK(!same_bits(in(implementation).slice(2, t), before.slice(2, t)));
      }
    }
}

TEST_CASE("attention: batch entries are independent of each other") {
  for (const auto& [way, all] : ways_and_kernels(float_ways())) {
    const auto& [implementation, dtype] = way;
    INFO(name(way) << (all ? ", all" : ""));
    AttentionCase in = make_inputs({.batch = 3,
                                    .queries = 70,
                                    .causal = true,
                                    .padded = 40,
                                    .table = 20,
                                    .relative_bias = true,
                                    .values = all,
                                    .bias = all ? "HMN" : ""},
                                   dtype);
    const Tensor before = in(implementation);
    for (const Tensor& x : {in.q, in.k, in.v}) x[1].fill_(3);
    in.options.mask.key_padding[1].fill_(1);
    const Tensor after = in(implementation);
    for (const int64_t other : {0, 2}) CHECK(same_bits(after[other], before[other]));
    CHECK(!same_bits(after[1], before[1]));
  }
}
