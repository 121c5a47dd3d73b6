// The kernels of linear attention with decay [ops/attention/gated_linear_attention.h,
// cuda/attention/gated_linear_attention.h] against the definition in f64 and f64's gradients.
#include <cmath>

#include "autograd/tape.h"
#include "nn/data/draws.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/reference/gated_linear_attention.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

enum class Decay { none, head, token, feature };

struct Case {
  int64_t batch = 1, heads = 2, q_heads = 2, k_heads = 2, v_heads = 2;
  int64_t queries = 70, keys = 70, f = 8, dv = 8;
  Decay decay = Decay::token;
  bool delta = false, extreme = false, padded = false, segments = false, state = false;
  DType dtype = f32;
};

// Operands of norm about 1, with the values of the case's dtype.
struct Inputs {
  Tensors leaves;  // q, k, v, then log_decay and beta if there are any, then the state
  GatedLinearAttentionOptions options;

  Inputs(const Case& c, DType type, Device device) {
    uint64_t stream = 3000;
    const auto leaf = [&](const Tensor& x, DType of, DType as) {
      leaves.push_back(x.to(of).to(as).to(device).detach().set_requires_grad());
    };
    const double norm = 1 / std::sqrt(double(c.f));
    leaf(noise({c.batch, c.q_heads, c.queries, c.f}, ++stream), c.dtype, type);
    leaf(noise({c.batch, c.k_heads, c.keys, c.f}, ++stream) * norm, c.dtype, type);
    leaf(noise({c.batch, c.v_heads, c.keys, c.dv}, ++stream), c.dtype, type);
    const Shape tokens{c.batch, c.heads, c.keys};
    if (c.decay != Decay::none) {
      const Shape features{c.batch, c.heads, c.keys, c.f};
      const Tensor x = noise(c.decay == Decay::head      ? Shape{c.heads}
                             : c.decay == Decay::feature ? features
                                                         : tokens,
                             ++stream);
      Tensor log_decay = abs(x) * -0.2;
      if (c.extreme) {
        log_decay = masked_fill(log_decay, gt(x, 0.5), 0);
        log_decay = masked_fill(log_decay, gt(x, 1), -70);
        log_decay = masked_fill(log_decay, gt(x, 1.5), -inf);
        log_decay = masked_fill(log_decay, gt(-x, 1.5), 0.2);  // grows
      }
      leaf(log_decay, f32, compute_type(type));
    }
    if (c.delta) leaf(sigmoid(noise(tokens, ++stream)), f32, compute_type(type));
    if (c.state) leaf(noise({c.batch, c.heads, c.f, c.dv}, ++stream), f32, compute_type(type));
    const auto of_tokens = [&](auto value) {
      std::vector<int64_t> values;
      for (int64_t b = 0; b < c.batch; ++b)
        for (int64_t t = 0; t < c.keys; ++t) values.push_back(value(b, t));
      return tensor(values, {c.batch, c.keys}).to(device);
    };
    if (c.padded)
      options.mask.key_padding =
          of_tokens([](int64_t b, int64_t t) { return int64_t((t + b) % 3 == 0); }).to(boolean);
    if (c.segments)
      options.mask.segments = of_tokens([](int64_t b, int64_t t) { return (t + b) / 27; });
    options.chunk = 16;
  }
};

// The result, the state after it if there is one, and all gradients.
Tensors results(const Case& c, DType type, Device device) {
  Inputs in(c, type, device);
  GatedLinearAttentionOptions o = in.options;
  size_t next = 3;
  if (c.decay != Decay::none) o.log_decay = in.leaves[next++];
  if (c.delta) o.beta = in.leaves[next++];
  Tensors all;
  if (c.state) {
    LinearState state{.sums = in.leaves[next]};
    all.push_back(gated_linear_attention(in.leaves[0], in.leaves[1], in.leaves[2], state, o));
    all.push_back(state.sums);
  } else {
    all.push_back(gated_linear_attention(in.leaves[0], in.leaves[1], in.leaves[2], o));
  }
  Tensors into;
  for (const Tensor& y : all)
    into.push_back(noise(y.shape(), 2990 + into.size()).to(c.dtype).to(y.dtype()).to(device));
  const Tensors gradients = grad(all, in.leaves, into);
  for (Tensor& y : all) y = y.detach();
  all.insert(all.end(), gradients.begin(), gradients.end());
  return all;
}

// Each of the products that lead to a result has an error of 2^-21 (two tf32 values per operand):
// four of them, relative to the largest result.
constexpr double products = 2e-6;

void check_case(const Case& c) {
  const Tensors want = results(c, f64, cpu), got = results(c, c.dtype, gpu),
                again = results(c, c.dtype, gpu);
  for (size_t i = 0; i < want.size(); ++i) {
    CAPTURE(c.heads, c.q_heads, c.k_heads, c.v_heads, c.queries, c.keys, c.f, c.dv, int(c.decay),
            c.delta, c.extreme, c.padded, c.segments, c.state, name(c.dtype), i);
    const double rounding = unit(got[i].dtype());
    REQUIRE(got[i].shape() == want[i].shape());
    const std::vector<double> a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double largest = 0;
    for (const double x : b) largest = std::max(largest, std::abs(x));
    bool close = true;
    for (size_t k = 0; k < a.size(); ++k)
      close = close && std::abs(a[k] - b[k]) <= rounding * std::abs(b[k]) + products * largest;
    CHECK(close);
    CHECK(same_values(got[i], again[i]));
  }
}

}  // namespace

TEST_CASE("kernels of linear attention with decay: chunks and widths", "[cuda]") {
  NEEDS_GPU();
  for (const Decay decay : {Decay::token, Decay::feature})
    for (const bool delta : {false, true}) {
      for (const int64_t n : {1, 15, 16, 17, 63, 64, 65, 130})
        check_case({.queries = n, .keys = n, .decay = decay, .delta = delta});
      for (const auto& [f, dv] : {std::pair<int64_t, int64_t>{64, 64}, {4, 68}, {68, 4}, {128, 36}})
        check_case({.queries = 66, .keys = 66, .f = f, .dv = dv, .decay = decay, .delta = delta});
    }
}

TEST_CASE("kernels of linear attention with decay: random options", "[cuda]") {
  NEEDS_GPU();
  nn::Draws draws(8, 0);
  const auto one_of = [&](std::vector<int64_t> all) {
    return all[size_t(draws.below(int64_t(all.size())))];
  };
  for (int round = 0; round < 40; ++round) {
    Case c{.batch = one_of({1, 2}),
           .heads = one_of({1, 2, 4}),
           .keys = one_of({1, 7, 64, 65, 100, 129}),
           .f = one_of({4, 12, 20, 64, 72}),
           .dv = one_of({4, 8, 36, 64, 100}),
           .decay = Decay(draws.below(4)),
           .delta = draws.below(2) == 0,
           .extreme = draws.below(2) == 0,
           .padded = draws.below(3) == 0,
           .segments = draws.below(3) == 0,
           .dtype = round % 3 == 0 ? bf16 : f32};
    int64_t* const heads[] = {&c.q_heads, &c.k_heads, &c.v_heads};
    for (int64_t* const x : heads) *x = draws.below(2) == 0 ? 1 : c.heads;
    *heads[draws.below(3)] = c.heads;
    c.state = !c.segments && draws.below(2) == 0;
    c.queries = c.state || draws.below(2) == 0 ? c.keys : 1 + draws.below(c.keys);
    check_case(c);
  }
}

TEST_CASE("kernels of linear attention with decay serve what their header says", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const auto fused = [](const Case& c, Implementation implementation = Implementation::automatic) {
    Inputs in(c, c.dtype, gpu);
    in.options.log_decay = c.decay != Decay::none ? in.leaves[3] : Tensor();
    in.options.implementation = implementation;
    bool found = false;
    for (const KernelCounts& k : counts_of(
             [&] { gated_linear_attention(in.leaves[0], in.leaves[1], in.leaves[2], in.options); }))
      found = found || k.kernel.starts_with("gated::");
    return found;
  };
  const Case small{.queries = 3, .keys = 3};
  for (const DType t : {f32, bf16})
    for (const Decay decay : {Decay::none, Decay::head, Decay::token, Decay::feature}) {
      Case c = small;
      c.dtype = t, c.decay = decay;
      CHECK(fused(c));
      CHECK(fused(c, Implementation::fused));
      CHECK_FALSE(fused(c, Implementation::composed));
    }
  const auto composed = [&](const auto& change) {
    Case c = small;
    change(c);
    CHECK_FALSE(fused(c));
    CHECK_THROWS_WITH(fused(c, Implementation::fused), Containing("no fused implementation for q"));
  };
  composed([](Case& c) { c.dtype = f64; });
  composed([](Case& c) { c.f = 132; });
  composed([](Case& c) { c.f = 6; });
  composed([](Case& c) { c.dv = 6; });
  composed([](Case& c) { c.queries = c.keys = 0; });
  setenv("STRETTO_CUDA_COMPOSED", "linear_attention", 1);
  CHECK(fused(small));
  setenv("STRETTO_CUDA_COMPOSED", "gated_linear_attention", 1);
  CHECK_FALSE(fused(small));
  unsetenv("STRETTO_CUDA_COMPOSED");
}

TEST_CASE("kernels of linear attention with decay: one launch each, linear memory", "[cuda]") {
  NEEDS_GPU();
  const auto used = [](int64_t n, Decay decay) {
    const Case c{.queries = n, .keys = n, .f = 64, .dv = 64, .decay = decay, .delta = true};
    const int64_t before = gpu_bytes();
    reset_peak_memory(gpu);
    results(c, f32, gpu);
    return memory_stats(gpu).peak - before;
  };
  for (const Decay decay : {Decay::token, Decay::feature}) {
    const int64_t one = used(256, decay), two = used(512, decay);
    CHECK(two < 2.1 * double(one));
  }
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  for (const Decay decay : {Decay::token, Decay::feature}) {
    const Case c{.queries = 80, .keys = 80, .f = 64, .dv = 64, .decay = decay, .delta = true};
    double launches = 0;
    for (const KernelCounts& k : counts_of([&] { results(c, f32, gpu); }))
      if (k.kernel.starts_with("gated::")) {
        launches += k["launches"];
        CHECK(k["local"] == 0);
        CHECK(k["atomics"] == 0);
        CHECK(k["wavefronts"] <= 1.25 * k["wavefronts_ideal"]);  // almost no bank conflict
      }
    CHECK(launches == 2);
  }
}

TEST_CASE("gradients of gradients of linear attention with decay on a GPU are composed", "[cuda]") {
  NEEDS_GPU();
  const auto second = [](Device device, DType type) {
    const Case c{.queries = 5, .keys = 5, .f = 4, .dv = 4, .delta = true};
    Inputs in(c, type, device);
    in.options.log_decay = in.leaves[3], in.options.beta = in.leaves[4];
    const Tensor y = gated_linear_attention(in.leaves[0], in.leaves[1], in.leaves[2], in.options);
    const Tensors first = grad({sum(square(y))}, in.leaves, {}, {.create_graph = true});
    Tensor total = sum(square(first[0]));
    for (size_t i = 1; i < first.size(); ++i) total = total + sum(square(first[i]));
    return grad({total}, in.leaves);
  };
  const Tensors want = second(cpu, f64), got = second(gpu, f32);
  for (size_t i = 0; i < want.size(); ++i) {
    const std::vector<double> a = got[i].to_vector<double>(), b = want[i].to_vector<double>();
    double largest = 0, worst = 0;
    for (size_t k = 0; k < a.size(); ++k) {
      largest = std::max(largest, std::abs(b[k]));
      worst = std::max(worst, std::abs(a[k] - b[k]));
    }
    CHECK(worst <= 1e-4 * largest);
  }
}
