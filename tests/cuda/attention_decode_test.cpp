// Attention of few queries on CUDA (split over the keys): every setting against the formula in f64
// on the CPU, and against the kernels for any number of queries.
#include <cmath>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/view.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/support/gpu.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on options inside options
#endif

using namespace stretto;
using namespace stretto::testing;

namespace {

bool splits_keys(const std::function<void()>& run) {
  bool seen = false;
  for (const KernelCounts& c : counts_of(run))
    seen = seen || c.kernel.find("attention_decode_splits") != std::string::npos;
  return seen;
}

// Weights and results in bf16 have 8 bits; averages of many values are small.
void check_near(const Tensor& got, const Tensor& want) {
  const bool half = got.dtype() == bf16;
  const Difference e = difference(got, want, 0.05);
  CHECK(e.size < (half ? 8e-3 : 3e-6));
  CHECK(e.worst < (half ? 2e-2 : 1e-5));
}

// change(inputs) replaces inputs of the setup on the CPU.
void compare(AttentionSetup s, DType type, const std::function<void(AttentionCase&)>& change = {}) {
  s.scale = 4 / std::sqrt(double(s.d));
  INFO(describe(s) << ", " << name(type));
  AttentionCase in = make_inputs(s, type);
  if (change) change(in);
  const AttentionCase gpu_case = moved(in, gpu, type);
  const Tensor trained = gpu_case(Implementation::fused);  // the kernels that save for backward
  const NoGrad guard;
  const Tensor want = moved(in, cpu, f64)(Implementation::composed);
  Tensor got;
  if (has_counters())
    CHECK(splits_keys([&] { got = gpu_case(Implementation::automatic); }));
  else
    got = gpu_case(Implementation::automatic);
  CHECK(got.dtype() == type);
  check_near(got, want);
  check_near(got, trained.detach());
  CHECK(same_values(gpu_case(Implementation::automatic), got));
}
void compare(const AttentionSetup& s) {
  compare(s, bf16);
  if (s.d <= 64 && s.d_value <= 64) compare(s, f32);
}

}  // namespace

TEST_CASE("attention of few queries: all head dimensions agree with the formula", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {8, 40, 64, 96, 128})
    for (const bool table : {false, true}) {
      AttentionSetup s{.batch = 1, .heads = 2, .queries = 1, .keys = 600, .d = d, .causal = true};
      if (table) s.table = 600;
      s.relative_query = d == 64 || d == 96;
      compare(s);
    }
  for (const auto& [d, width] :
       std::vector<std::pair<int64_t, int64_t>>{{128, 16}, {64, 24}, {40, 8}, {24, 64}, {32, 96}}) {
    AttentionSetup s{.batch = 1, .heads = 2, .queries = 3, .keys = 600, .d = d, .causal = true};
    s.table = 200, s.shared = true, s.relative_query = true, s.d_query = width;
    compare(s, bf16);
    if (d <= 64 && width <= 64) compare(s, f32);
  }
  for (const auto& [d, dv] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 16}, {16, 64}, {72, 8}, {24, 104}})
    compare({.batch = 1, .queries = 3, .keys = 530, .d = d, .d_value = dv, .causal = true});
}

TEST_CASE("attention of few queries: all numbers of queries, keys and heads agree with the formula",
          "[cuda]") {
  NEEDS_GPU();
  for (const int64_t queries : {1, 2, 5, 8})
    for (const int64_t keys : {512, 777, 1300}) {
      AttentionSetup s{.batch = 1, .heads = 2, .queries = queries, .keys = keys, .causal = true};
      s.table = keys;
      compare(s, queries % 2 ? bf16 : f32);
    }
  // Up to 64 query rows per key head; one table per head or one for all.
  for (const int64_t queries : {1, 3, 8})
    for (const int64_t key_heads : {1, 4})
      for (const bool shared : {false, true}) {
        AttentionSetup s{.batch = 2, .heads = 8, .key_heads = key_heads, .queries = queries};
        s.keys = 520;
        s.causal = true;
        s.table = 300;
        s.shared = shared;
        s.relative_bias = true;
        compare(s, shared ? bf16 : f32);
      }
}

TEST_CASE("attention of few queries: tables and masks agree with the formula", "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  const auto add = [&](int64_t d, int64_t m, auto change) {
    AttentionSetup s{.batch = 2, .queries = m, .keys = 650, .d = d};
    change(s);
    all.push_back(s);
  };
  using S = AttentionSetup;
  for (const int64_t d : {16, 64, 128}) {
    add(d, 4, [](S&) {});
    add(d, 3, [](S& s) { s.causal = true, s.relative_bias = true, s.table = 650; });
    add(d, 2, [](S& s) { s.relative_bias = true, s.bidirectional = true; });
    add(d, 8, [](S& s) { s.causal = true, s.window = 300, s.table = 650; });
    add(d, 7, [](S& s) { s.window = 90, s.table = 9, s.bidirectional = true; });
    add(d, 6, [](S& s) { s.block = 200, s.table = 400, s.relative_bias = true; });
    add(d, 4, [](S& s) { s.causal = true, s.table = 60, s.padded = 400, s.key_heads = 1; });
    add(d, 1, [](S& s) { s.padded = -1, s.relative_bias = true, s.bidirectional = true; });
    add(d, 5, [](S& s) { s.table = 5, s.bidirectional = true, s.out_of_range = OutOfRange::clip; });
    add(d, 8, [](S& s) { s.table = 3, s.bidirectional = true, s.out_of_range = OutOfRange::clip; });
    add(d, 5, [](S& s) { s.table = 40, s.causal = true, s.out_of_range = OutOfRange::clip; });
    add(d, 8, [](S& s) {
      s.causal = true, s.table = 640, s.heads = 4, s.key_heads = 2, s.relative_query = true;
      s.relative_bias = true, s.shared = true, s.padded = 30;
    });
  }
  for (const S& s : all) compare(s);
}

TEST_CASE(
    "attention of few queries: masks that are tensors, soft caps and sinks agree with the formula",
    "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  const auto add = [&](int64_t d, int64_t m, auto change) {
    AttentionSetup s{.batch = 2, .queries = m, .keys = 650, .d = d};
    change(s);
    all.push_back(s);
  };
  using S = AttentionSetup;
  for (const int64_t d : {16, 64, 128}) {
    add(d, 4, [](S& s) { s.segments = 3, s.causal = true; });
    add(d, 8, [](S& s) { s.window = 90, s.window_after = 3, s.sinks = true; });
    add(d, 3, [](S& s) { s.causal = true, s.window = 200, s.global = 4, s.padded = 40; });
    add(d, 5, [](S& s) { s.causal = true, s.prefix = true, s.soft_cap = 1, s.sinks = true; });
    add(d, 2, [](S& s) { s.hidden = "BHMN", s.heads = 4, s.key_heads = 1, s.soft_cap = 1; });
    add(d, 7, [](S& s) { s.hidden = "BN", s.segments = -1, s.relative_bias = true; });
  }
  for (const S& s : all) compare(s);
  for (S s : all) {  // with a table; f32 needs the kernels for any number of queries
    s.table = 60;
    s.bidirectional = true;
    compare(s, bf16);
  }
}

TEST_CASE("attention of few queries: decoding in steps equals one pass", "[cuda]") {
  NEEDS_GPU();
  const int64_t n = 540;
  for (const DType type : {bf16, f32}) {
    const AttentionSetup s{.batch = 1,
                           .heads = 4,
                           .key_heads = 2,
                           .queries = n,
                           .d = 32,
                           .causal = true,
                           .table = n,
                           .relative_bias = true,
                           .scale = 0.7};
    AttentionCase in = moved(make_inputs(s, type), gpu, type);
    const NoGrad guard;
    const Tensor all = in(Implementation::fused);
    const Tensor q = in.q, k = in.k, v = in.v;
    for (const auto& [from, to] :
         std::vector<std::pair<int64_t, int64_t>>{{512, 513}, {513, 514}, {514, 520}, {532, 540}}) {
      in.q = q.slice(2, from, to), in.k = k.slice(2, 0, to), in.v = v.slice(2, 0, to);
      check_near(in(Implementation::automatic), all.slice(2, from, to));
    }
  }
}

TEST_CASE("attention of few queries: large scores keep the differences between keys", "[cuda]") {
  NEEDS_GPU();
  const NoGrad guard;
  for (const double middle : {1e4, 1e6, 1e8}) {
    Tensor q = zeros({1, 2, 2, 8}), k = noise({1, 2, 600, 8}, 1);
    q.slice(3, 0, 1).fill_(1);
    k.slice(3, 0, 1).copy_((noise({1, 2, 600, 1}, 2) * 3.0 + middle).to(f32));
    const Tensor v = noise({1, 2, 600, 8}, 3);
    const Tensor want = attention(q.to(f64), k.to(f64), v.to(f64), {.scale = 1.0});
    const Tensor got = attention(q.to(gpu), k.to(gpu), v.to(gpu), {.scale = 1.0});
    CHECK(difference(got, want).worst < 2e-6);
  }
}

TEST_CASE("attention of few queries: extreme score terms agree with the formula", "[cuda]") {
  NEEDS_GPU();
  const AttentionSetup s{
      .batch = 1, .heads = 4, .queries = 3, .keys = 600, .d = 64, .causal = true};
  for (const DType type : {bf16, f32}) {
    // Sinks far below and far above all scores: the others, or nothing, remains.
    AttentionSetup terms = s;
    terms.sinks = true;
    for (const double cap : {0.0, 1.0}) {
      terms.soft_cap = cap;
      compare(terms, type, [](AttentionCase& in) {
        in.options.sinks = tensor<float>({-INFINITY, -1e4f, 100, 1e4f}).to(in.q.dtype());
      });
    }
    // Products far beyond the soft cap, which become the cap or its negative.
    terms = s, terms.soft_cap = 2;
    compare(terms, type, [](AttentionCase& in) {
      in.q.fill_(0), in.q.slice(3, 0, 1).fill_(1e4);
      for (int64_t j = 0; j < in.k.size(2); ++j) in.k.slice(2, j, j + 1).fill_(j % 3 == 0 ? 1 : -1);
    });
    // A bias far below or far above 0 for all keys, for one key, or for all except one.
    terms = s, terms.table = 600, terms.relative_bias = true;
    for (const double all : {0.0, -1e4, 1e4})
      for (const double one : {0.0, -1e4, 1e4})
        compare(terms, type, [&](AttentionCase& in) {
          in.q.fill_(0);
          in.options.relative_bias.rows.fill_(all);
          in.options.relative_bias.rows.slice(1, 300, 301).fill_(one);
        });
  }
}

TEST_CASE("attention of few queries: keys are split only in supported settings", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const auto splits = [](const AttentionSetup& s, bool gradient,
                         Implementation implementation = Implementation::automatic,
                         DType type = bf16) {
    AttentionCase in = moved(make_inputs(s, bf16), gpu, type);
    const GradMode mode(gradient);
    return splits_keys([&] { in(implementation); });
  };
  const AttentionSetup s{.batch = 1, .heads = 2, .queries = 8, .keys = 512};
  CHECK(splits(s, false));
  CHECK(splits(s, false, Implementation::fused));
  CHECK_FALSE(splits(s, false, Implementation::composed));
  CHECK_FALSE(splits(s, true));
  AttentionSetup other = s;
  other.queries = 9;
  CHECK_FALSE(splits(other, false));
  other = s, other.keys = 511;
  CHECK_FALSE(splits(other, false));
  other = s, other.heads = 66;
  CHECK_FALSE(splits(other, false));
  other = s, other.dropout = 0.5;
  CHECK_FALSE(splits(other, false));
  other = s, other.segments = 2;
  CHECK(splits(other, false));
  other.table = 9;
  CHECK(splits(other, false));
  CHECK_FALSE(splits(other, false, Implementation::automatic, f32));
}

TEST_CASE("attention of few queries: besides the output only sums of the splits are allocated",
          "[cuda]") {
  NEEDS_GPU();
  const NoGrad guard;
  const AttentionSetup s{
      .batch = 1, .heads = 4, .queries = 1, .keys = 4096, .d = 64, .causal = true, .table = 4096};
  const AttentionCase in = moved(make_inputs(s, bf16), gpu, bf16);
  const int64_t before = gpu_bytes();
  reset_peak_memory(gpu);
  in(Implementation::automatic);
  // Per split of 256 keys: 16 rows of 64 elements, a maximum and a sum.
  const int64_t splits = 4 * 4096 / 256;
  CHECK(memory_stats(gpu).peak - before <= splits * 16 * (64 + 2) * 4 + 4096);
}
