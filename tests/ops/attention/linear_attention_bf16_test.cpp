// Chunked linear attention with native bf16 and with segments: rounding errors, memory, and results
// for any number of threads and any instruction set.
#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/linear_attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_noise;
using testing::same_bits;

namespace {

bool on_gpu() { return default_device().is_cuda(); }

struct Setup {
  int64_t batch = 1, heads = 2, key_heads = 2, queries = 130, keys = 130, f = 20, d_value = 17;
  bool causal = true;
  int64_t chunk = 32;
  double mean = 0;  // of the values
};

// Features in [0.1, 2.1), values in [mean − 1, mean + 1), and an incoming gradient.
struct Call {
  Tensor q, k, v, g;
  LinearAttentionOptions options;

  // On a GPU, dimensions that its kernels support; it does not fuse empty tensors and f64.
  Call(Setup s, DType dtype) {
    if (on_gpu())
      for (int64_t* x : {&s.f, &s.d_value}) *x = (*x + 7) / 8 * 8;
    const auto rounded = [dtype](const Tensor& x) { return x.to(bf16).to(dtype); };
    const auto positive = [&](const Shape& shape, uint64_t stream) {
      return rounded(fixed_noise(shape, stream) + 1.1).set_requires_grad();
    };
    q = positive({s.batch, s.heads, s.queries, s.f}, 1);
    k = positive({s.batch, s.key_heads, s.keys, s.f}, 2);
    v = rounded(fixed_noise({s.batch, s.key_heads, s.keys, s.d_value}, 3) + s.mean)
            .set_requires_grad();
    g = rounded(fixed_noise({s.batch, s.heads, s.queries, s.d_value}, 4));
    const bool fused = !on_gpu() || (dtype != f64 && q.numel() && k.numel() && v.numel());
    options = {.mask = {.causal = s.causal},
               .chunk = s.chunk,
               .implementation = fused ? Implementation::fused : Implementation::automatic};
  }
  // Returns y and the gradients of q, k and v.
  Tensors results() const {
    for (const Tensor& x : {q, k, v}) x.set_grad({});
    Tensor y = linear_attention(q, k, v, options);
    y.backward(g);
    return {y.detach(), q.grad(), k.grad(), v.grad()};
  }
};

// Runs f with each instruction set of this processor, or once on a GPU.
template <class F>
void under_each_isa(F&& f) {
  if (on_gpu()) return f();
  for (const Isa most :
       {Isa::portable, Isa::neon, Isa::avx2, Isa::avx512, Isa::amx, Isa::emulated}) {
    const IsaCap cap(most);
    INFO(cpu_description());
    if (isa() == most) f();
  }
}

// Returns the error bound of each result: one rounding of 2^-8 for each place where something is
// rounded to bf16, times the sum of magnitudes that the rounded value is part of. With the products
// p = tril(q·k), w = p / D, G = g / D and e_ij = Σ_d |G_id| |v_jd − y_id|:
//
//   y   p of its own chunk, as an operand; the result                2 (Σ_j w_ij |v_j − y_i|, |y|)
//   dq  G, tril(G Vᵀ + δ), the result                                3 Σ_j e_ij k_j
//   dk  the same                                                     3 Σ_i e_ij q_i
//   dv  G, p, the result                                             3 Σ_i p_ij |G_i|
//
// (A rounded p changes the numerators by Σ_j p_ij ε_j v_j but not the denominators, so the factor
// is |v_j| and not |v_j − y_i|.) States are sums of two bf16 operands with errors of 2^-16 of the
// magnitudes before cancellation, more than f32 sums of a few hundred terms have.
Tensors bounds(const Setup& s, const Call& exact) {
  const double one = 0x1p-8, small = 0x1p-15;
  const auto heads = [&](const Tensor& x) {  // repeats the key heads
    const int64_t per = s.heads / s.key_heads;
    return x.detach()
        .unsqueeze(2)
        .expand({x.size(0), x.size(1), per, x.size(2), x.size(3)})
        .reshape({x.size(0), s.heads, x.size(2), x.size(3)});
  };
  const auto by_group = [&](const Tensor& x) {
    return sum(x.reshape({x.size(0), s.key_heads, s.heads / s.key_heads, x.size(2), x.size(3)}),
               {2});
  };
  const Tensor q = exact.q.detach(), k = heads(exact.k), v = heads(exact.v);
  Tensor p = matmul(q, k.transpose(2, 3));
  if (s.causal) p = masked_fill(p, attention_mask(s.queries, s.keys, {.causal = true}), 0);
  const Tensor total = sum(p, {3}, true);
  const Tensor w = p / total, y = matmul(w, v), big_g = abs(exact.g) / total;
  const Tensor away = abs(v.unsqueeze(2) - y.unsqueeze(3));  // [B, H, M, N, Dv]
  const Tensor e = sum(big_g.unsqueeze(3) * away, {4});
  const Tensor all = matmul(big_g, abs(v).transpose(2, 3)) + sum(big_g * abs(y), {3}, true);
  const Tensor both = where(gt(p, 0), e * (3 * one) + all * small, zeros_like(p));
  return {matmul(w, abs(v)) * (one + small) + abs(y) * one, matmul(both, k),
          by_group(matmul(both.transpose(2, 3), q)),
          by_group(matmul(p.transpose(2, 3), big_g)) * (3 * one + small)};
}

double worst_of(const Tensor& got, const Tensor& want, const Tensor& bound) {
  REQUIRE(got.shape() == want.shape());
  const double least = 1e-30;
  return max(abs(got.to(f64) - want) / (bound + least)).item();
}

const Setup setups[] = {{},
                        {.mean = 30},
                        {.causal = false, .mean = 3},
                        {.batch = 2, .heads = 4, .key_heads = 2, .queries = 70, .keys = 99},
                        {.queries = 40, .keys = 40, .f = 64, .d_value = 64, .chunk = 16},
                        {.queries = 40, .keys = 40, .chunk = 8}};

}  // namespace

TEST_CASE("linear_attention: bf16 errors stay within those of its roundings") {
  for (const Setup& s : setups) {
    const Call exact(s, f64), call(s, bf16);
    const Tensors want = exact.results(), most = bounds(s, exact);
    under_each_isa([&] {
      const Tensors got = call.results();
      for (size_t i = 0; i < got.size(); ++i) {
        INFO("result " << i << ", mean " << s.mean << ", M " << s.queries << ", chunk " << s.chunk);
        CHECK(got[i].dtype() == bf16);
        CHECK(worst_of(got[i], want[i], most[i]) <= 1);
      }
    });
  }
}

TEST_CASE("linear_attention: the composed implementation has the same bf16 gradients") {
  const Setup s{.queries = 70, .keys = 70};
  const Call exact(s, f64);
  Call call(s, bf16);
  const Tensors fused = call.results(), most = bounds(s, exact);
  call.options.implementation = Implementation::composed;
  const Tensors composed = call.results();
  // Each errs by at most this bound; composed, only the result is rounded.
  for (size_t i = 0; i < fused.size(); ++i)
    CHECK(worst_of(fused[i], composed[i].to(f64), most[i] * 2) <= 1);
}

TEST_CASE("linear_attention: segments are bit-identical for any number of threads") {
  const int threads = num_threads();
  for (const Setup& s :
       {Setup{.heads = 1, .key_heads = 1, .queries = 1300, .keys = 1300, .f = 9, .d_value = 5},
        Setup{.heads = 2, .key_heads = 1, .queries = 600, .keys = 1700, .f = 9, .d_value = 5},
        Setup{.heads = 1, .key_heads = 1, .queries = 1700, .keys = 600, .f = 9, .d_value = 5},
        Setup{.heads = 3,
        .key_heads = 3,
        .queries = 1300,
        .keys = 1300,
        .f = 9,
        .d_value = 5,
        .causal = false}})
    for (const DType dtype : {f64, f32, bf16})
      under_each_isa([&] {
        if (on_gpu() && (dtype == f64 || s.heads == 2)) return;
        const Call call(s, dtype);
        std::vector<Tensors> runs;
        for (const int n : on_gpu() ? std::vector{1, 2} : std::vector{1, 2, 4}) {
          set_num_threads(n);
          runs.push_back(call.results());
          NoGrad guard;
          if (s.queries > s.keys && s.causal) continue;
          LinearState state;
          for (int turn = 0; turn < 2; ++turn)
            runs.back().push_back(linear_attention(call.q, call.k, call.v, state, call.options));
          runs.back().push_back(state.sums);
        }
        for (size_t i = 0; i < runs[0].size(); ++i) {
          CHECK(same_bits(runs[0][i], runs[1][i]));
          CHECK(same_bits(runs[0][i], runs.back()[i]));
        }
      });
  set_num_threads(threads);
}

TEST_CASE("linear_attention: segments equal the loops") {
  const int threads = num_threads();
  for (const int n : on_gpu() ? std::vector{1} : std::vector{1, 4})
    for (const bool causal : {false, true}) {
      set_num_threads(n);
      const Setup s{.heads = 1,
                    .key_heads = 1,
                    .queries = 1100,
                    .keys = 1100,
                    .f = 3,
                    .d_value = 2,
                    .causal = causal};
      const Call call(s, on_gpu() ? f32 : f64);
      const Tensor want = reference::linear_attention(call.q, call.k, call.v, call.options);
      // Sums of 1100 positive terms: 1100 roundings in either order.
      const double one = on_gpu() ? 0x1p-24 : 0x1p-53;
      CHECK(testing::worst_error(call.results()[0], want) <= 4 * 1100 * one);
      Call composed = call;
      composed.options.implementation = Implementation::composed;
      const Tensors a = call.results(), b = composed.results();
      for (size_t i = 0; i < a.size(); ++i)
        CHECK(testing::worst_error(a[i], b[i]) < 8 * 1100 * one);
    }
  set_num_threads(threads);
}

TEST_CASE("linear_attention: bf16 needs little more than half of the memory of f32") {
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t length = on_gpu() ? 1024 : 2048;
  const auto peak = [&](DType dtype) {
    const Call call({.queries = length, .keys = length, .f = 32, .d_value = 32}, dtype);
    call.results();
    for (const Tensor& x : {call.q, call.k, call.v}) x.set_grad({});
    const int64_t before = on_gpu() ? testing::gpu_bytes() : memory_stats().live;
    reset_peak_memory();
    call.results();
    return memory_stats().peak - before;
  };
  // Half of it, except for two values per row and the buffers of threads, which stay f32.
  const int64_t rows = 2 * length, thread = 4 * (3 * 32 * 32 + 8 * 32 * 33);
  const int64_t segments = 4 * 2 * 2 * (length / 256) * 32 * 33;  // on a GPU: sums of both sweeps
  CHECK(peak(bf16) <= peak(f32) / 2 + 4 * 2 * rows + (on_gpu() ? segments : 2 * thread) + 4096);
  set_num_threads(threads);
}

TEST_CASE("linear_attention in bf16: views, empty inputs and large values") {
  const Setup s{.queries = 67, .keys = 67};
  const Call call(s, bf16);
  const Tensors want = call.results();
  Call views = call;
  views.q = testing::strided_copy(call.q.detach()).set_requires_grad();
  views.k = testing::strided_copy(call.k.detach()).set_requires_grad();
  views.v = testing::strided_copy(call.v.detach()).set_requires_grad();
  views.g = testing::strided_copy(call.g);
  const Tensors got = views.results();
  for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], want[i]));

  for (const Setup& none : {Setup{.batch = 0}, Setup{.queries = 0}, Setup{.keys = 0}, Setup{.f = 0},
                            Setup{.d_value = 0}})
    for (const Tensor& x : Call(none, bf16).results())
      CHECK((x.numel() == 0 || max(abs(x.to(f32))).item() == 0));

  // Powers of two change no other bit.
  Call large = call;
  large.q = (call.q.detach() * 0x1p40).set_requires_grad();
  large.k = (call.k.detach() * 0x1p30).set_requires_grad();
  large.v = (call.v.detach() * 0x1p20).set_requires_grad();
  const Tensors scaled = large.results();
  CHECK(same_bits(scaled[0], want[0] * 0x1p20));
  CHECK(same_bits(scaled[1], want[1] * 0x1p-20));
  CHECK(same_bits(scaled[2], want[2] * 0x1p-10));
  CHECK(same_bits(scaled[3], want[3]));

  // A NaN reaches only the queries that see it, from its own chunk on.
  Call bad = call;
  bad.k = call.k.detach().clone();
  bad.k[0][0][40].fill_(std::numeric_limits<double>::quiet_NaN());
  const Tensor y = linear_attention(bad.q, bad.k, bad.v, bad.options).to(f32);
  const Tensor clean = want[0].to(f32);
  CHECK(same_bits(y[0].slice(1, 0, 40), clean[0].slice(1, 0, 40)));
  for (int64_t i = 40; i < 67; ++i) CHECK(std::isnan(sum(y[0][0][i]).item()));
  CHECK(same_bits(y[0][1], clean[0][1]));
}

TEST_CASE("linear_attention in bf16 can be differentiated twice") {
  const Call call({.queries = 20, .keys = 20, .f = 4, .d_value = 3}, bf16);
  const Tensor y = linear_attention(call.q, call.k, call.v, call.options);
  const Tensors first = grad({y}, {call.q, call.k, call.v}, {call.g}, {.create_graph = true});
  for (const Tensor& x : first) CHECK(x.dtype() == bf16);
  const Tensors second = grad({sum(square(first[0]))}, {call.k});
  CHECK(max(abs(second[0].to(f32))).item() > 0);
}
