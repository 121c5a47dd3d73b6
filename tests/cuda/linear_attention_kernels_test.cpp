// Linear attention on CUDA against the composed implementation in f64 on the CPU, on equal inputs.
#include <cstdlib>
#include <limits>

#include "autograd/tape.h"
#include "ops/attention/linear_attention.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

struct Setup {
  int64_t batch = 1, heads = 2, key_heads = 2, queries = 70, keys = 70, f = 64, dv = 64;
  bool causal = true;
  int64_t padded = 0;  // > 0: every n-th key is padding
  double eps = 0;
  bool state = false;     // a state of earlier keys
  bool by_layer = false;  // memory layout [B, L, H, D]
};

std::string describe(const Setup& s, DType t) {
  return str(name(t), ": B ", s.batch, ", H ", s.heads, ", G ", s.key_heads, ", M ", s.queries,
             ", N ", s.keys, ", F ", s.f, ", Dv ", s.dv, s.causal ? ", causal" : "", ", padded ",
             s.padded, ", eps ", s.eps, s.state ? ", state" : "", s.by_layer ? ", by layer" : "");
}

// ‖actual − expected‖ / ‖expected‖; the divisor is at least the norm of elements of size 0.01.
double error(const Tensor& expected, const Tensor& actual) {
  REQUIRE(actual.shape() == expected.shape());
  const std::vector<double> e = expected.to_vector<double>(), a = actual.to_vector<double>();
  double off = 0, all = 0;
  for (size_t i = 0; i < e.size(); ++i) {
    off += (a[i] - e[i]) * (a[i] - e[i]);
    all += e[i] * e[i];
  }
  return std::sqrt(off / std::max(all, 1e-4 * double(e.size())));
}

struct Call {
  Tensor q, k, v, g, sums, g_sums;
  LinearAttentionOptions options;
  bool state;

  Call(const Setup& s, DType t) : state(s.state) {
    const auto positive = [&](int64_t h, int64_t l, uint64_t stream) {
      return (rand({s.batch, l, h, s.f}, RandomKey{3, stream}) * 2.0 + 0.1).to(t);
    };
    const auto laid_out = [&](const Tensor& x) {
      return s.by_layer ? x.transpose(1, 2) : x.transpose(1, 2).contiguous();
    };
    q = laid_out(positive(s.heads, s.queries, 1));
    k = laid_out(positive(s.key_heads, s.keys, 2));
    v = laid_out((noise({s.batch, s.keys, s.key_heads, s.dv}, 3) + 0.5).to(t));
    g = laid_out(noise({s.batch, s.queries, s.heads, s.dv}, 4, t));
    if (state) {
      sums = noise({s.batch, s.key_heads, s.f, s.dv + 1}, 5) + 20.0;
      g_sums = noise(sums.shape(), 6) * 0.1;
    }
    options = {.mask = {.causal = s.causal}, .eps = s.eps};
    if (s.padded == 0) return;
    options.mask.key_padding = zeros({s.batch, s.keys}, {.dtype = boolean, .device = cpu});
    bool* at = options.mask.key_padding.data<bool>();
    for (int64_t i = 0; i < s.batch * s.keys; ++i) at[i] = i % s.padded == 0;
  }

  /// Returns y, the sums after (if `state`), and the gradients of q, k, v and the sums before.
  Tensors results(Implementation implementation, DType t, Device device) const {
    const auto on_device = [&](const Tensor& x) { return device.is_cpu() ? x.to(t) : on_gpu(x); };
    LinearAttentionOptions o = options;
    o.implementation = implementation;
    if (o.mask.key_padding.defined()) o.mask.key_padding = o.mask.key_padding.to(device);
    Tensors in{on_device(q), on_device(k), on_device(v)};
    for (const Tensor& x : in) x.set_requires_grad();
    if (!state) {
      const Tensor y = linear_attention(in[0], in[1], in[2], o);
      y.backward(on_device(g));
      return {y.detach(), in[0].grad(), in[1].grad(), in[2].grad()};
    }
    const DType wide = t == f64 ? f64 : f32;
    in.push_back(sums.to(wide).to(device).set_requires_grad());
    LinearState after{.sums = in[3], .length = 5};
    const Tensor y = linear_attention(in[0], in[1], in[2], after, o);
    const Tensors gradients = grad({y, after.sums}, in, {on_device(g), g_sums.to(wide).to(device)});
    Tensors all{y.detach(), after.sums.detach()};
    all.insert(all.end(), gradients.begin(), gradients.end());
    return all;
  }
};

void check_setup(const Setup& s, DType t) {
  INFO(describe(s, t));
  const Call call(s, t);
  const Tensors expected = call.results(Implementation::composed, f64, cpu);
  const Tensors actual = call.results(Implementation::fused, t, gpu);
  for (size_t i = 0; i < expected.size(); ++i) {
    CAPTURE(i);
    CHECK(error(expected[i], actual[i]) <= (t == f32 ? 3e-6 : i == 0 ? 2e-3 : 5e-3));
  }
}

// Sets STRETTO_CUDA_COMPOSED during its lifetime.
struct Composed {
  explicit Composed(const char* names) { ::setenv("STRETTO_CUDA_COMPOSED", names, 1); }
  ~Composed() { ::unsetenv("STRETTO_CUDA_COMPOSED"); }
};

}  // namespace

TEST_CASE("linear attention on CUDA: all lengths and masks agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const bool causal : {true, false}) {
      for (const int64_t n : {1, 15, 64, 65, 130})
        check_setup({.queries = n, .keys = n, .causal = causal}, t);
      check_setup({.queries = 40, .keys = 200, .causal = causal}, t);
      check_setup({.queries = 150, .keys = 70, .causal = causal}, t);
      check_setup({.batch = 2, .causal = causal, .padded = 3, .eps = 0.01}, t);
      check_setup({.heads = 4, .key_heads = 2, .queries = 80, .keys = 100, .causal = causal}, t);
      check_setup({.batch = 2, .heads = 3, .key_heads = 1, .causal = causal, .by_layer = true}, t);
    }
}

TEST_CASE("linear attention on CUDA: all widths agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  using Widths = std::pair<int64_t, int64_t>;
  for (const DType t : {f32, bf16})
    for (const auto& [f, dv] : {Widths{8, 16}, {40, 72}, {72, 8}, {128, 64}, {64, 128}, {128, 128}})
      for (const bool causal : {true, false})
        check_setup({.batch = 1,
                     .heads = 1,
                     .key_heads = 1,
                     .queries = 100,
                     .keys = 100,
                     .f = f,
                     .dv = dv,
                     .causal = causal},
                    t);
  for (const DType t : {f32, bf16})
    for (const bool causal : {true, false})
      check_setup({.heads = 2,
                   .key_heads = 1,
                   .queries = 100,
                   .keys = 130,
                   .f = 200,
                   .dv = 64,
                   .causal = causal,
                   .state = true},
                  t);
}

TEST_CASE("linear attention on CUDA: few heads, cut into segments, agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const bool causal : {true, false})
      for (const bool state : {true, false})
        check_setup({.heads = 2,
                     .key_heads = 1,
                     .queries = 1060,
                     .keys = 1100,
                     .f = 16,
                     .dv = 16,
                     .causal = causal,
                     .padded = 7,
                     .state = state},
                    t);
}

TEST_CASE("linear attention on CUDA: the state and its gradients agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const bool causal : {true, false}) {
      check_setup({.causal = causal, .state = true}, t);
      check_setup({.batch = 2,
                   .heads = 4,
                   .key_heads = 2,
                   .queries = 30,
                   .keys = 100,
                   .f = 72,
                   .dv = 40,
                   .causal = causal,
                   .padded = 4,
                   .eps = 1e-3,
                   .state = true},
                  t);
    }
}

TEST_CASE("linear attention on CUDA: second derivatives agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const bool has_state : {false, true}) {
    const Setup s{.heads = 2,
                  .key_heads = 1,
                  .queries = 9,
                  .keys = 12,
                  .f = 8,
                  .dv = 8,
                  .padded = 5,
                  .eps = 0.1,
                  .state = has_state};
    const Call call(s, f32);
    const auto twice = [&](DType t, Device device) {
      Tensors in{call.q.to(t).to(device), call.k.to(t).to(device), call.v.to(t).to(device)};
      if (has_state) in.push_back(call.sums.to(t).to(device));
      for (const Tensor& x : in) x.set_requires_grad();
      LinearAttentionOptions o = call.options;
      o.mask.key_padding = o.mask.key_padding.to(device);
      LinearState state{.sums = has_state ? in[3] : Tensor(), .length = 1};
      const Tensor y = has_state ? linear_attention(in[0], in[1], in[2], state, o)
                                 : linear_attention(in[0], in[1], in[2], o);
      const Tensors first = grad({sum(square(y))}, in, {}, {.create_graph = true});
      Tensor total = sum(square(first[0]));
      for (size_t i = 1; i < first.size(); ++i) total = total + sum(square(first[i]));
      return grad({total}, in);
    };
    const Tensors expected = twice(f64, cpu), actual = twice(f32, gpu);
    for (size_t i = 0; i < expected.size(); ++i) CHECK(error(expected[i], actual[i]) <= 1e-5);
  }
}

TEST_CASE("linear attention on CUDA: memory is linear in the length", "[cuda]") {
  NEEDS_GPU();
  const auto peak = [](int64_t length) {
    const Call call(
        {.heads = 1, .key_heads = 1, .queries = length, .keys = length, .f = 8, .dv = 8}, f32);
    gpu_bytes();  // allocates the workspace of matrix products
    reset_peak_memory(gpu);
    const int64_t before = memory_stats(gpu).live;
    call.results(Implementation::fused, f32, gpu);
    return memory_stats(gpu).peak - before;
  };
  // q, k, v, y, their gradients and the gradient of y: 9 rows of 8 elements of 4 bytes, and the
  // sums of segments.
  CHECK(peak(2048) <= 2048 * 400);
  CHECK(peak(2048) <= 2.1 * double(peak(1024)));
}

TEST_CASE("linear attention on CUDA: decoding in steps equals one pass", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f32, bf16})
    for (const int64_t f : {24, 7}) {
      const Setup s{.batch = 2,
                    .heads = 4,
                    .key_heads = 2,
                    .queries = 20,
                    .keys = 20,
                    .f = f,
                    .dv = 40,
                    .padded = 6,
                    .eps = 1e-4};
      INFO(describe(s, t));
      const Call call(s, t);
      const Tensor expected =
          linear_attention(call.q.to(f64), call.k.to(f64), call.v.to(f64), call.options);
      const NoGrad guard;
      LinearState state;
      Tensors parts;
      // The first three positions in one step, as a prompt.
      for (int64_t i = 0; i < s.keys; i += i == 0 ? 3 : 1) {
        const int64_t end = i == 0 ? 3 : i + 1;
        LinearAttentionOptions o = call.options;
        o.mask.key_padding = o.mask.key_padding.slice(1, i, end).to(gpu);
        parts.push_back(linear_attention(call.q.slice(2, i, end).to(gpu),
                                         call.k.slice(2, i, end).to(gpu),
                                         call.v.slice(2, i, end).to(gpu), state, o));
      }
      CHECK(state.length == s.keys);
      CHECK(error(expected, cat(parts, 2)) <= (t == f32 ? 1e-6 : 2e-3));
    }
}

TEST_CASE("linear attention on CUDA: masked keys and values have no influence, even if NaN",
          "[cuda]") {
  NEEDS_GPU();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType t : {f32, bf16}) {
    const Setup s{.batch = 1,
                  .heads = 1,
                  .key_heads = 1,
                  .queries = 130,
                  .keys = 130,
                  .f = 8,
                  .dv = 8,
                  .padded = 5};
    const Call call(s, t);
    LinearAttentionOptions o = call.options;
    o.mask.key_padding = o.mask.key_padding.to(gpu);
    Tensor k = call.k.clone(), v = call.v.clone();
    const Tensor expected = linear_attention(call.q.to(gpu), k.to(gpu), v.to(gpu), o);
    // Masked keys and values may be NaN; the NaN of key 101 reaches the queries that see it.
    k.select(2, 5).fill_(nan), v.select(2, 100).fill_(nan), k.select(2, 101).fill_(nan);
    const Tensor y = linear_attention(call.q.to(gpu), k.to(gpu), v.to(gpu), o);
    check_equal(expected.slice(2, 0, 101).to(cpu), y.slice(2, 0, 101));
    for (const double x : y.slice(2, 101, 130).to_vector<double>()) CHECK(std::isnan(x));
  }
}

TEST_CASE("linear attention on CUDA: a denominator of 0 gives zeros and no gradient", "[cuda]") {
  NEEDS_GPU();
  Setup s{.batch = 1, .heads = 1, .key_heads = 1, .queries = 9, .keys = 5, .f = 8, .dv = 8};
  Call call(s, f32);
  call.q.select(2, 6).fill_(0);
  const Tensors all = call.results(Implementation::fused, f32, gpu);
  for (const int64_t i : {0, 3, 6})
    for (const Tensor& x : {all[0], all[1]})
      for (const double y : x.select(2, i).to_vector<double>()) CHECK(y == 0);
}

TEST_CASE("linear attention on CUDA: repeated runs are bit-identical, composed ones are close",
          "[cuda]") {
  NEEDS_GPU();
  const Setup s{.heads = 4, .key_heads = 2, .queries = 600, .keys = 600, .f = 16, .dv = 8};
  const Call call(s, f32);
  const Tensors once = call.results(Implementation::automatic, f32, gpu),
                again = call.results(Implementation::fused, f32, gpu);
  const Composed guard("elu_features,linear_attention");
  const Tensors composed = call.results(Implementation::automatic, f32, gpu);
  for (size_t i = 0; i < once.size(); ++i) {
    check_equal(once[i].to(cpu), again[i]);
    CHECK(error(once[i], composed[i]) <= 3e-6);
    CHECK(!same_values(once[i], composed[i]));
  }
  CHECK_THROWS(call.results(Implementation::fused, f32, gpu));
}
