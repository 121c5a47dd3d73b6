// Fused attention on CUDA: every setting, forward and backward, against the formula in f64 on the
// CPU; reproducibility, memory use, and the composed implementation for unsupported settings.
#include <cmath>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
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

void compare(const AttentionSetup& s, DType type) { check_fused(s, gpu, type); }
void compare(const AttentionSetup& s) {
  compare(s, bf16);
  if (s.d == 8 || s.d == 64) compare(s, f32);
}

AttentionSetup of_size(int64_t d, int64_t queries, int64_t keys = 0) {
  return {.batch = 1, .queries = queries, .keys = keys, .d = d, .scale = 4 / std::sqrt(double(d))};
}

}  // namespace

TEST_CASE("attention kernels: all head dimensions agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {8, 32, 40, 64, 96, 128})
    for (const bool causal : {true, false}) {
      AttentionSetup s = of_size(d, 130);
      s.causal = causal;
      compare(s);
    }
  for (const auto& [d, dv] :
       std::vector<std::pair<int64_t, int64_t>>{{64, 16}, {16, 64}, {72, 8}}) {
    AttentionSetup s = of_size(d, 70);
    s.d_value = dv;
    s.causal = true;
    compare(s);
  }
}

TEST_CASE("attention kernels: relative keys of all head dimensions agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {24, 32, 64, 96, 128})
    for (const bool apart : {false, true}) {
      AttentionSetup s = of_size(d, 150, 170);
      s.causal = true;
      s.table = 170;
      s.relative_query = apart;
      s.relative_bias = apart == (d == 64);
      compare(s);
    }
}

TEST_CASE("attention kernels: position queries of another width agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  for (const auto& [d, width] : std::vector<std::pair<int64_t, int64_t>>{
           {32, 8}, {64, 16}, {64, 40}, {64, 12}, {128, 16}, {128, 72}, {24, 64}}) {
    AttentionSetup s = of_size(d, 150, 170);
    s.relative_query = true;
    s.d_query = width;
    s.causal = true;
    s.table = 140;
    all.push_back(s);
    s.relative_bias = true, s.dropout = 0.25, s.shared = true, s.key_heads = 1;
    all.push_back(s);
    s.values = true, s.dropout = 0, s.padded = 9;
    all.push_back(s);
    s.values = false, s.segments = 20, s.soft_cap = 2;
    all.push_back(s);
    s.segments = 0, s.causal = false, s.bidirectional = true, s.table = 30;
    s.out_of_range = OutOfRange::clip;
    all.push_back(s);
  }
  for (const AttentionSetup& s : all) compare(s, bf16);
  for (const AttentionSetup& s : all)
    if (s.d == 64) compare(s, f32);
}

TEST_CASE("attention kernels: narrow position queries take less work than wide ones", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  // Matrix instructions of the kernels of all gradients, and of each kernel: forward, gradients of
  // queries, of keys, of the table.
  using Counts = std::map<std::string, double>;
  const auto instructions = [](int64_t table, int64_t width) {
    AttentionSetup s = of_size(128, 256);
    s.causal = true, s.table = table, s.shared = true;
    s.relative_query = width > 0, s.d_query = width;
    const AttentionCase in = moved(make_inputs(s, bf16), gpu, bf16);
    Counts all;
    const auto run = [&] { output_and_gradients(in, Implementation::fused); };
    for (const KernelCounts& c : counts_of(run))
      for (const char* kernel : {"forward", "queries", "keys", "relative"})
        if (c.kernel.find(std::string("attention_") + kernel) != std::string::npos)
          all[kernel] += c["matrix"];
    return all;
  };
  Counts plain = instructions(0, 0), narrow = instructions(256, 16), wide = instructions(256, 128);
  for (const auto& [kernel, count] : wide) {
    INFO(kernel << ": " << plain[kernel] << ", " << narrow[kernel] << ", " << count);
    CHECK(narrow[kernel] < 0.85 * count);
    if (kernel != "relative") CHECK(narrow[kernel] < 1.2 * plain[kernel]);
  }
}

TEST_CASE("attention kernels: a relative bias without relative keys agrees with the CPU",
          "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {32, 64, 128})
    for (const bool causal : {true, false}) {
      AttentionSetup s = of_size(d, 140);
      s.causal = causal;
      s.relative_bias = true;
      s.bidirectional = !causal;
      s.out_of_range = OutOfRange::clip;
      compare(s);
    }
}

TEST_CASE("attention kernels: lengths that are no multiples of a tile agree with the CPU",
          "[cuda]") {
  NEEDS_GPU();
  const std::vector<std::pair<int64_t, int64_t>> lengths = {
      {1, 1}, {1, 70}, {70, 1}, {33, 300}, {64, 64}, {129, 128}, {190, 100}, {256, 257}};
  for (const auto& [m, n] : lengths)
    for (const bool causal : {true, false})
      for (const int64_t table : {int64_t(0), n + 3}) {
        AttentionSetup s = of_size(64, m, n);
        s.causal = causal;
        s.table = table;
        s.bidirectional = !causal;
        compare(s, bf16);
        if (causal && table > 0) compare(s, f32);
      }
}

TEST_CASE("attention kernels: tables and masks agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  const auto add = [&](int64_t d, int64_t m, int64_t n, auto change) {
    AttentionSetup s = of_size(d, m, n);
    s.batch = 2;
    change(s);
    all.push_back(s);
  };
  using S = AttentionSetup;
  for (const int64_t d : {32, 64, 128}) {
    add(d, 150, 150, [](S& s) { s.causal = true, s.window = 40, s.table = 150; });
    add(d, 150, 150, [](S& s) { s.window = 20, s.table = 9, s.bidirectional = true; });
    add(d, 150, 150, [](S& s) { s.block = 33, s.table = 66, s.relative_bias = true; });
    add(d, 100, 170, [](S& s) { s.causal = true, s.table = 60, s.padded = 40, s.key_heads = 1; });
    add(d, 100, 170, [](S& s) { s.padded = -1, s.relative_bias = true, s.bidirectional = true; });
    add(d, 170, 100, [](S& s) { s.causal = true, s.table = 100, s.shared = true; });
    add(d, 90, 90,
        [](S& s) { s.table = 5, s.bidirectional = true, s.out_of_range = OutOfRange::clip; });
    add(d, 90, 140, [](S& s) {
      s.causal = true, s.table = 140, s.heads = 4, s.key_heads = 2, s.relative_query = true;
      s.relative_bias = true, s.shared = true, s.padded = 30;
    });
  }
  for (const S& s : all) compare(s);
}

TEST_CASE("attention kernels: relative values of all head dimensions agree with the CPU",
          "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {8, 32, 64, 72, 128})
    for (const bool causal : {true, false}) {
      AttentionSetup s = of_size(d, 150, causal ? 170 : 130);
      s.causal = causal;
      s.table = causal ? 170 : 30;
      s.bidirectional = !causal;
      s.values = true;
      s.relative_query = d == 64;
      s.relative_bias = d == 32;
      compare(s);
    }
  AttentionSetup s = of_size(64, 70);
  s.values = true;  // no other table: 7 rows
  s.d_value = 16;
  compare(s);
  s.scale = 1;  // larger scores: the running maximum changes
  compare(s);
}

TEST_CASE("attention kernels: dense biases of every shape agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const char* bias : {"BHMN", "HMN", "BMN", "MN", "BHN", "N", "BHM", "-"})
    for (const int64_t d : {32, 128}) {
      AttentionSetup s = of_size(d, 70, 101);
      s.batch = 2;
      s.heads = 4;
      s.key_heads = 2;
      s.causal = d == 128;
      s.bias = bias;
      s.padded = 20;
      compare(s, bf16);
      if (d == 32) compare(s, f32);
    }
}

TEST_CASE("attention kernels: relative values and dense biases agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  std::vector<AttentionSetup> all;
  const auto add = [&](int64_t d, int64_t m, int64_t n, auto change) {
    AttentionSetup s = of_size(d, m, n);
    s.batch = 2;
    s.values = true;
    change(s);
    all.push_back(s);
  };
  using S = AttentionSetup;
  for (const int64_t d : {32, 64, 128}) {
    add(d, 150, 150, [](S& s) { s.causal = true, s.window = 40, s.table = 150, s.bias = "HMN"; });
    add(d, 150, 150, [](S& s) { s.window = 20, s.table = 9, s.bidirectional = true; });
    add(d, 150, 150,
        [](S& s) { s.block = 33, s.table = 66, s.relative_bias = true, s.bias = "MN"; });
    add(d, 100, 170, [](S& s) { s.causal = true, s.table = 60, s.padded = 40, s.key_heads = 1; });
    add(d, 100, 170, [](S& s) { s.padded = -1, s.relative_bias = true, s.bidirectional = true; });
    add(d, 170, 100, [](S& s) { s.causal = true, s.table = 100, s.shared = true, s.bias = "BN"; });
    add(d, 90, 90,
        [](S& s) { s.table = 5, s.bidirectional = true, s.out_of_range = OutOfRange::clip; });
    add(d, 75, 101, [](S& s) {
      s.causal = true, s.table = 101, s.heads = 4, s.key_heads = 2, s.relative_query = true;
      s.relative_bias = true, s.shared = true, s.padded = 30, s.bias = "BHMN", s.dropout = 0.25;
    });
  }
  for (const S& s : all) compare(s);
}

TEST_CASE("attention kernels: a dense bias of −∞ masks keys", "[cuda]") {
  NEEDS_GPU();
  for (const bool values : {false, true}) {
    AttentionSetup s = of_size(32, 70);
    s.bias = "MN";
    s.values = values;
    AttentionCase in = make_inputs(s, f32);
    for (int64_t i = 0; i < 70; ++i) in.options.bias[i].slice(0, i / 2).fill_(-inf);
    in.options.bias[0].fill_(-inf);  // all keys of the first query are masked
    const Tensors want = output_and_gradients(moved(in, cpu, f64), Implementation::composed);
    const Tensors got = output_and_gradients(moved(in, gpu, f32), Implementation::fused);
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], want[i]).size < 3e-6);
  }
}

TEST_CASE("attention kernels: very negative dense biases give finite results", "[cuda]") {
  NEEDS_GPU();
  for (const float low : {-1e5f, -1e9f, -1e10f, -3e11f, -1e12f, -1e20f, -1e30f, -3.4e38f}) {
    CAPTURE(low);
    AttentionSetup s = of_size(32, 70);
    s.bias = "MN";
    s.values = true;
    AttentionCase in = make_inputs(s, f32);
    in.options.bias.slice(0, 0, 35).fill_(low);  // whole rows
    for (int64_t i = 35; i < 70; ++i) in.options.bias[i].slice(0, i / 2).fill_(low);
    const Tensors got = output_and_gradients(moved(in, gpu, f32), Implementation::fused);
    for (size_t i = 0; i < got.size(); ++i) {
      CAPTURE(i);
      bool finite = true;
      for (const double x : got[i].to_vector<double>()) finite = finite && std::isfinite(x);
      CHECK(finite);
    }
    const Tensor want = moved(in, cpu, f64)(Implementation::composed);
    CHECK(difference(got[0].slice(2, 35), want.detach().slice(2, 35)).size < 3e-6);
  }
}

TEST_CASE("attention kernels: dropout drops the same weights as on the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const int64_t d : {32, 64, 128})
    for (const int64_t table : {0, 80})
      for (const bool apart : {false, true}) {
        // Rows of weights begin at all four places of a group of four random numbers.
        AttentionSetup s = of_size(d, 75, 100 + (table ? 1 : 0) + (apart ? 2 : 0));
        s.batch = 2;
        s.causal = true;
        s.table = table;
        s.relative_query = apart;
        s.relative_bias = apart;
        s.dropout = apart ? 0.5 : 0.1;
        compare(s);
      }
  AttentionSetup s = of_size(64, 70);
  s.table = 70;
  s.dropout = 1;
  compare(s);
}

TEST_CASE("attention kernels: random settings agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (uint64_t number = 500; number < 516; ++number) {
    AttentionSetup s = random_setup(number);
    s.d = 8 * (1 + int64_t(number) % 12);
    s.d_value = number % 3 == 0 ? 24 : 0;
    s.scale = 4 / std::sqrt(double(s.d));
    s.dropout = number % 4 == 0 ? 0.25 : 0;
    compare(s);
  }
}

TEST_CASE("attention kernels: later positions and other sequences change nothing", "[cuda]") {
  NEEDS_GPU();
  AttentionSetup s = of_size(64, 130);
  s.batch = 2;
  s.causal = true;
  s.table = 50;
  NoGrad guard;
  AttentionCase in = moved(make_inputs(s, bf16), gpu, bf16);
  for (Tensor* x : {&in.q, &in.k, &in.v, &in.options.relative_keys.rows}) *x = x->detach();
  const Tensor before = in(Implementation::automatic);
  for (const Tensor& x : {in.q, in.k, in.v}) x[1].slice(1, 63).fill_(7);
  const Tensor after = in(Implementation::automatic);
  CHECK(same_values(after[0], before[0]));
  CHECK(same_values(after[1].slice(1, 0, 63), before[1].slice(1, 0, 63)));
  CHECK(!same_values(after[1].slice(1, 63), before[1].slice(1, 63)));
}

TEST_CASE("attention kernels: strided and unaligned inputs give bit-identical results", "[cuda]") {
  NEEDS_GPU();
  AttentionSetup s = of_size(32, 70);
  s.batch = 2;
  s.causal = true;
  s.table = 70;
  s.relative_query = true;
  for (const DType type : {bf16, f32}) {
    CAPTURE(name(type));
    const AttentionCase in = moved(make_inputs(s, type), gpu, type);
    const Tensors want = output_and_gradients(in, Implementation::fused);
    // [B, L, 4, H, D], viewed as four tensors [B, H, L, D].
    const Tensor packed = stack({in.q, in.k, in.v, in.options.relative_query}, 2)
                              .transpose(1, 3)
                              .contiguous()
                              .detach();
    const auto part = [&](int64_t i) {
      return packed.select(2, i).transpose(1, 2).detach().set_requires_grad();
    };
    AttentionCase apart = in;
    apart.q = part(0), apart.k = part(1), apart.v = part(2);
    apart.options.relative_query = part(3);
    REQUIRE(!apart.q.is_contiguous());
    const Tensors got = output_and_gradients(apart, Implementation::fused);
    for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(got[i], want[i]));
    // Rows that are not aligned to 16 bytes are copied.
    AttentionCase shifted = in;
    shifted.q = cat({in.q.slice(3, 0, 1), in.q}, 3).slice(3, 1).detach().set_requires_grad();
    shifted.k = in.k.transpose(2, 3).contiguous().transpose(2, 3).detach().set_requires_grad();
    const Tensors again = output_and_gradients(shifted, Implementation::fused);
    for (size_t i = 0; i < got.size(); ++i) CHECK(same_values(again[i], want[i]));
  }
}

TEST_CASE("attention kernels: memory is linear in the length", "[cuda]") {
  NEEDS_GPU();
  const auto peak = [](int64_t n) {
    const Shape shape{2, 1, n, 32};
    const auto leaf = [](const Shape& of, uint64_t stream) {
      return noise(of, stream, bf16).to(gpu).set_requires_grad();
    };
    const Tensor q = leaf(shape, 1), k = leaf(shape, 2), v = leaf(shape, 3);
    const Tensor rows = leaf({1, n, 32}, 4), g = noise(shape, 5, bf16).to(gpu);
    release_cached_memory(gpu);
    const int64_t before = memory_stats(gpu).live;
    reset_peak_memory(gpu);
    attention(q, k, v, {.mask = {.causal = true}, .relative_keys = {rows, n - 1}}).backward(g);
    return memory_stats(gpu).peak - before;
  };
  const int64_t short_one = peak(1024), long_one = peak(2048);
  INFO(short_one << " bytes, " << long_one << " bytes");
  CHECK(double(long_one) < 2.2 * double(short_one));
  CHECK(long_one < 2 * 2048 * 2048 / 2);
}

TEST_CASE("attention kernels: no bank conflicts, no local memory and no atomics", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  for (const auto& [d, type] : std::vector<std::pair<int64_t, DType>>{
           {32, bf16}, {64, bf16}, {128, bf16}, {32, f32}, {64, f32}}) {
    AttentionSetup s = of_size(d, 140);
    s.causal = true;
    s.table = 140;
    s.relative_query = s.relative_bias = s.values = true;
    s.bias = "HMN";
    const AttentionCase in = moved(make_inputs(s, type), gpu, type);
    int seen = 0;
    for (const KernelCounts& k :
         counts_of([&] { output_and_gradients(in, Implementation::fused); })) {
      if (!k.kernel.starts_with("attention_")) continue;
      CAPTURE(k.kernel, d);
      ++seen;
      CHECK(k["wavefronts"] == k["wavefronts_ideal"]);
      CHECK(k["local"] == 0);
      CHECK(k["atomics"] == 0);
    }
    CHECK(seen >= 4);  // forward; backward for queries, relative positions and keys
  }
}

TEST_CASE("attention kernels: unsupported and disabled settings are composed", "[cuda]") {
  NEEDS_GPU();
  const auto fused = [](const AttentionCase& in, Implementation implementation) {
    bool seen = false;
    for (const KernelCounts& c : counts_of([&] { in(implementation); }))
      seen = seen || c.kernel.find("attention_forward") != std::string::npos;
    return seen;
  };
  AttentionSetup s = of_size(32, 40);
  const auto gpu_case = [&](const AttentionSetup& setup, DType type) {
    return moved(make_inputs(setup, bf16), gpu, type);
  };
  if (has_counters()) {
    CHECK(fused(gpu_case(s, bf16), Implementation::automatic));
    CHECK(fused(gpu_case(s, bf16), Implementation::fused));
    CHECK_FALSE(fused(gpu_case(s, bf16), Implementation::composed));
    CHECK(fused(gpu_case(s, f32), Implementation::fused));
    CHECK_FALSE(fused(gpu_case(s, f32), Implementation::automatic));  // too few scores
    CHECK_FALSE(fused(gpu_case(s, f64), Implementation::automatic));
    setenv("STRETTO_CUDA_COMPOSED", "spe,attention", 1);
    CHECK_FALSE(fused(gpu_case(s, bf16), Implementation::automatic));
    setenv("STRETTO_CUDA_COMPOSED", "spe,linear_attention", 1);
    CHECK(fused(gpu_case(s, bf16), Implementation::automatic));
    setenv("STRETTO_CUDA_COMPOSED", "attentions", 1);
    CHECK_THROWS_WITH(fused(gpu_case(s, bf16), Implementation::automatic),
                      Containing("STRETTO_CUDA_COMPOSED contains \"attentions\"; accepted"));
    unsetenv("STRETTO_CUDA_COMPOSED");
  }
  for (const int64_t other : {0, 1, 2}) {
    AttentionSetup t = s;
    if (other == 0) t.d = 9;
    if (other == 1) t.values = true;
    if (other == 2) t.bias = "HMN";
    if (has_counters()) CHECK(fused(gpu_case(t, bf16), Implementation::automatic) == (other > 0));
    compare(t, bf16);
  }
  // Few queries to many keys: those kernels support neither relative values nor dense biases.
  AttentionSetup few = of_size(32, 2, 600);
  few.values = true;
  NoGrad guard;
  if (has_counters()) {
    CHECK_FALSE(fused(gpu_case(few, bf16), Implementation::automatic));
    CHECK(fused(gpu_case(few, bf16), Implementation::fused));
  }
}

TEST_CASE("attention kernels: second derivatives agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  const auto twice = [&](const AttentionCase& in) {
    const Tensor y = in(Implementation::automatic);
    const Tensors first =
        grad({sum(y * y)}, {in.q, in.options.relative_keys.rows}, {}, {.create_graph = true});
    return grad({sum(first[0] * first[0]) + sum(first[1])}, {in.q, in.k, in.v});
  };
  for (const bool all : {false, true}) {
    AttentionSetup s = of_size(16, 20);
    s.causal = true;
    s.table = 20;
    s.relative_query = true;
    s.relative_bias = true;
    s.values = all;
    s.bias = all ? "MN" : "";
    const AttentionCase in = make_inputs(s, bf16);
    const Tensors want = twice(moved(in, cpu, f64)), got = twice(moved(in, gpu, bf16));
    for (size_t i = 0; i < got.size(); ++i) CHECK(difference(got[i], want[i]).size < 5e-2);
  }
}
