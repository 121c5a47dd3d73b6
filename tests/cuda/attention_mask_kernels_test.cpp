// Fused attention on CUDA with masks that are tensors, windows to both sides, soft caps and sinks:
// forward and backward against the formula in f64 on the CPU, and the cost of hidden tiles.
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
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

using S = AttentionSetup;

AttentionSetup of_size(int64_t d, int64_t queries, int64_t keys = 0) {
  return {.batch = 1, .queries = queries, .keys = keys, .d = d, .scale = 4 / std::sqrt(double(d))};
}

// Terms of relative positions, one setting for each kernel.
void set_positions(AttentionSetup& s, int kind) {
  s.bidirectional = !s.causal;
  if (kind > 0) s.table = 100;
  if (kind == 1) s.relative_bias = true;
  if (kind == 2) s.relative_query = true;
  if (kind == 3) s.values = true, s.bias = "HMN";
}

void compare(const AttentionSetup& s, const std::function<void(AttentionOptions&)>& change = {}) {
  check_fused(s, gpu, bf16, change);
  if (s.d <= 64) check_fused(s, gpu, f32, change);
}

// Segment ids of N keys: id(j) of key j.
template <class F>
Tensor segments_of(int64_t n, DType type, const F& id) {
  const Tensor x = empty({1, n}, {.dtype = i64, .device = cpu});
  for (int64_t j = 0; j < n; ++j) x.data<int64_t>()[j] = id(j);
  return x.to(type);
}

}  // namespace

TEST_CASE("attention masks: each mask agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  const auto add = [&](int64_t m, int64_t n, auto change) {
    AttentionSetup s = of_size(64, m, n);
    s.batch = 2;
    change(s);
    all.push_back(s);
  };
  add(150, 150, [](S& s) { s.window = 30, s.window_after = 20; });
  add(150, 170, [](S& s) { s.window_after = 1; });
  add(150, 150, [](S& s) { s.segments = 4; });
  add(100, 170, [](S& s) { s.causal = true, s.segments = 4, s.padded = 20, s.key_heads = 1; });
  add(70, 90, [](S& s) { s.segments = -1; });
  add(150, 150, [](S& s) { s.causal = true, s.prefix = true; });
  add(170, 100, [](S& s) { s.causal = true, s.prefix = true, s.window = 33; });
  add(150, 170, [](S& s) { s.window = 20, s.window_after = 20, s.global = 3; });
  add(170, 170, [](S& s) { s.causal = true, s.window = 40, s.global = 2; });
  for (const char* axes : {"BHMN", "MN", "BHN", "BM"})
    add(130, 101, [&](S& s) { s.hidden = axes, s.heads = 4, s.key_heads = 2; });
  add(150, 150, [](S& s) { s.segments = 3, s.dropout = 0.25; });
  int kind = 0;
  for (AttentionSetup s : all) {
    set_positions(s, kind++ % 4);
    compare(s);
    set_positions(s, kind % 4);
    s.d = kind % 2 ? 128 : 24;
    check_fused(s, gpu, bf16);
  }
}

TEST_CASE("attention masks: soft caps and sinks agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {24, 64, 128})
    for (const int kind : {0, 1, 2, 3}) {
      AttentionSetup s = of_size(d, 100, 130);
      s.causal = kind % 2 == 0;
      s.key_heads = 1;
      set_positions(s, kind);
      s.sinks = true;
      compare(s);
      s.soft_cap = 0.5;
      s.sinks = kind > 1;
      compare(s);
      if (d != 64) continue;
      s.dropout = 0.25;
      s.segments = 3;
      compare(s);
    }
  // Very large, very small and missing sinks. The first query sees no key.
  AttentionSetup s = of_size(32, 70);
  s.heads = 4;
  s.sinks = true;
  s.hidden = "MN";
  for (const int kind : {0, 3}) {
    set_positions(s, kind);
    compare(s, [](AttentionOptions& o) {
      o.mask.hidden[0].fill_(1);
      o.sinks = tensor<float>({-INFINITY, -1e4f, 40, 0.5f}).to(o.sinks.dtype());
    });
  }
}

TEST_CASE("attention masks: steps after hidden ones agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  const int64_t n = 450;
  const auto two_documents = [](int64_t j) { return j / 130 % 2 ? int64_t(1) << 40 : 0; };
  for (const int64_t d : {32, 64, 128})
    for (const int kind : {0, 1, 2, 3}) {
      AttentionSetup s = of_size(d, d == 64 ? n - 20 : n, n);
      s.heads = 1;
      s.causal = kind % 2 == 1;
      set_positions(s, kind);
      compare(s,
              [&](AttentionOptions& o) { o.mask.segments = segments_of(n, i64, two_documents); });
    }
}

TEST_CASE("attention masks: segments of i32 and i64 agree", "[cuda]") {
  NEEDS_GPU();
  AttentionSetup s = of_size(32, 100);
  for (const auto& [type, factor] :
       std::vector<std::pair<DType, int64_t>>{{i32, 1}, {i64, 1}, {i64, int64_t(1) << 32}})
    compare(s, [&, type = type, factor = factor](AttentionOptions& o) {
      o.mask.segments = segments_of(100, type, [&](int64_t j) { return (j / 37 - 1) * factor; });
    });
}

TEST_CASE("attention masks: random settings agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (uint64_t number = 600; number < 624; ++number) {
    AttentionSetup s = random_masked_setup(number);
    s.d = 8 * (1 + int64_t(number) % 12);
    s.d_value = number % 3 == 0 ? 24 : 0;
    s.scale = 4 / std::sqrt(double(s.d));
    s.dropout = number % 4 == 0 ? 0.25 : 0;
    check_fused(s, gpu, bf16);
    if (s.d <= 64 && s.d_value <= 64) check_fused(s, gpu, f32);
  }
}

TEST_CASE("attention masks: wholly hidden tiles cost nothing", "[cuda][large]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const int64_t n = 1024;
  // Products of matrices by kernel, of a mask that leaves a share of the tiles.
  const auto products = [&](int kind, const std::function<void(AttentionMask&)>& set) {
    AttentionSetup s = of_size(64, n);
    s.heads = 1;
    set_positions(s, kind);
    if (kind > 0) s.table = n;
    AttentionCase in = make_inputs(s, bf16);
    set(in.options.mask);
    in = moved(in, gpu, bf16);
    std::vector<std::pair<std::string, double>> all;
    for (const KernelCounts& k :
         counts_of([&] { output_and_gradients(in, Implementation::fused); }))
      if (k["matrix"] > 0) all.emplace_back(k.kernel.substr(0, k.kernel.find('<')), k["matrix"]);
    return all;
  };
  const std::vector<std::pair<std::function<void(AttentionMask&)>, double>> masks = {
      // Eight documents, whose tiles are aligned.
      {[&](AttentionMask& m) {
         m.segments = segments_of(n, i64, [](int64_t j) { return j / 128; });
       },
       1. / 8},
      {[](AttentionMask& m) { m.window = m.window_after = 65; }, 3. / 16},
      {[](AttentionMask& m) {
         m.window = m.window_after = 65;
         m.global_tokens = zeros({1, n}, {.dtype = boolean, .device = cpu});
         m.global_tokens[0].slice(0, 0, 32).fill_(1);
       },
       3. / 16 + 3. / 16},
      {[](AttentionMask& m) {
         m.causal = true;
         m.prefix_lengths = zeros({1}, {.dtype = i64, .device = cpu});
       },
       1. / 2},
      {[](AttentionMask& m) {
         m.hidden = ones({n, n}, {.dtype = boolean, .device = cpu});
         for (int64_t i = 0; i < n; i += 128)
           m.hidden.slice(0, i, i + 128).slice(1, (i + 384) % n, (i + 384) % n + 128).fill_(0);
       },
       1. / 8}};
  for (const int kind : {0, 1, 3}) {
    const auto hide_nothing = [](AttentionMask& m) {
      m.hidden = zeros({1, 1}, {.dtype = boolean, .device = cpu});
    };
    const auto dense = products(kind, hide_nothing);
    for (const auto& [mask, share] : masks) {
      const auto some = products(kind, mask);
      REQUIRE(some.size() == dense.size());
      for (size_t i = 0; i < some.size(); ++i) {
        CAPTURE(kind, share, some[i].first, some[i].second / dense[i].second);
        CHECK(some[i].first == dense[i].first);
        CHECK(some[i].second > 0);
        // Tiles of keys and relative positions are parallelograms, of which more are cut.
        const double slack = some[i].first.starts_with("attention_relative") ? 1.5 : 1;
        CHECK(some[i].second < slack * (share + 0.13) * dense[i].second);
      }
    }
  }
}

TEST_CASE("attention masks: no bank conflicts, no local memory and no atomics", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  for (const auto& [d, type] :
       std::vector<std::pair<int64_t, DType>>{{64, bf16}, {128, bf16}, {64, f32}})
    for (const int kind : {0, 1, 3}) {
      AttentionSetup s = of_size(d, 140);
      s.segments = 2;
      s.hidden = "HMN";
      s.soft_cap = 2;
      s.sinks = true;
      set_positions(s, kind);
      const AttentionCase in = moved(make_inputs(s, type), gpu, type);
      for (const KernelCounts& k :
           counts_of([&] { output_and_gradients(in, Implementation::fused); })) {
        if (!k.kernel.starts_with("attention_")) continue;
        CAPTURE(k.kernel, d);
        CHECK(k["wavefronts"] == k["wavefronts_ideal"]);
        CHECK(k["local"] == 0);
        CHECK(k["atomics"] == 0);
      }
    }
}

TEST_CASE("attention masks: memory is linear in the length", "[cuda]") {
  NEEDS_GPU();
  const auto peak = [](int64_t n) {
    AttentionSetup s = of_size(32, n);
    s.causal = s.prefix = true;
    s.segments = 4;
    s.window = 64;
    s.global = 2;
    s.soft_cap = 1;
    s.sinks = true;
    const AttentionCase in = moved(make_inputs(s, bf16), gpu, bf16);
    const Tensor g = noise(in.q.shape(), 5, bf16).to(gpu);
    release_cached_memory(gpu);
    const int64_t before = memory_stats(gpu).live;
    reset_peak_memory(gpu);
    in(Implementation::fused).backward(g);
    return memory_stats(gpu).peak - before;
  };
  const int64_t short_one = peak(1024), long_one = peak(2048);
  INFO(short_one << " bytes, " << long_one << " bytes");
  CHECK(double(long_one) < 2.2 * double(short_one));
  CHECK(long_one < 2 * 2048 * 2048 / 2);
}

TEST_CASE("attention masks: a bias that all keys share has a gradient with sinks or a soft cap",
          "[cuda]") {
  NEEDS_GPU();
  for (const char* bias : {"BHM", "M", "H", "-"})
    for (const bool capped : {false, true}) {  // with a soft cap attention is composed
      AttentionSetup s = of_size(32, 40, 50);
      s.batch = 2;
      s.bias = bias;
      s.sinks = !capped;
      s.soft_cap = capped ? 0.5 : 0;
      compare(s);
    }
}

TEST_CASE("attention masks: a dense bias of −∞ agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  AttentionSetup s = of_size(32, 70);
  s.segments = 2;
  s.bias = "MN";
  for (const bool sinks : {false, true}) {
    s.sinks = sinks;
    compare(s, [](AttentionOptions& o) {
      for (int64_t i = 0; i < 70; ++i) o.bias[i].slice(0, i / 2, i).fill_(-INFINITY);
    });
  }
}

TEST_CASE("attention masks: later documents change nothing", "[cuda]") {
  NEEDS_GPU();
  AttentionSetup s = of_size(64, 200);
  s.causal = true;
  s.table = 50;
  const NoGrad guard;
  AttentionCase in = make_inputs(s, bf16);
  in.options.mask.segments = segments_of(200, i32, [](int64_t j) { return j / 77; });
  in = moved(in, gpu, bf16);
  const Tensor before = in(Implementation::fused);
  for (const Tensor& x : {in.q, in.k, in.v}) x.slice(2, 77, 154).fill_(7);
  const Tensor after = in(Implementation::fused);
  CHECK(same_values(after.slice(2, 0, 77), before.slice(2, 0, 77)));
  CHECK(same_values(after.slice(2, 154), before.slice(2, 154)));
  CHECK(!same_values(after.slice(2, 77, 154), before.slice(2, 77, 154)));
}
