// Both implementations of linear attention against loops over the definition.
#include "ops/attention/linear_attention.h"

#include <cmath>
#include <limits>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/linear_attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::fixed_noise;
using testing::name;
using testing::same_bits;
using testing::Way;
using testing::ways;
using testing::worst_error;

namespace {

constexpr Implementation implementations[] = {Implementation::composed, Implementation::fused};
bool on_gpu() { return default_device().is_cuda(); }

struct Setup {
  int64_t batch = 2, heads = 2, key_heads = 2;
  int64_t queries = 5, keys = 5;
  int64_t f = 4, d_value = 3;
  bool causal = true;
  int64_t padded = 0;  // n > 0: every n-th key is padded; −1: all keys of entry 0
  double eps = 0;
  int64_t chunk = 64;
};

std::string describe(const Setup& s) {
  return str("B ", s.batch, ", H ", s.heads, ", G ", s.key_heads, ", M ", s.queries, ", N ", s.keys,
             ", F ", s.f, ", Dv ", s.d_value, s.causal ? ", causal" : "", ", padded ", s.padded,
             ", eps ", s.eps, ", chunk ", s.chunk);
}

// On a GPU, in f32 and bf16, dimensions that its kernels support.
Setup fit(Setup s, DType dtype) {
  if (!on_gpu() || dtype == f64) return s;
  for (int64_t* x : {&s.f, &s.d_value}) *x = (*x + 7) / 8 * 8;
  return s;
}

// Features in [0.1, 2.1), values in [−1, 1).
struct Call {
  Tensor q, k, v;
  LinearAttentionOptions options;

  explicit Call(const Setup& setup, DType dtype = f64) {
    const Setup s = fit(setup, dtype);
    auto positive = [dtype](const Shape& shape, uint64_t stream) {
      return (fixed_noise(shape, stream) + 1.1).to(dtype);
    };
    q = positive({s.batch, s.heads, s.queries, s.f}, 1);
    k = positive({s.batch, s.key_heads, s.keys, s.f}, 2);
    v = fixed_noise({s.batch, s.key_heads, s.keys, s.d_value}, 3, dtype);
    options = {.mask = {.causal = s.causal}, .eps = s.eps, .chunk = s.chunk};
    if (s.padded == 0) return;
    const Tensor padding = zeros({s.batch, s.keys}, {.dtype = boolean, .device = cpu});
    bool* at = padding.data<bool>();
    for (int64_t i = 0; i < s.batch * s.keys; ++i)
      at[i] = s.padded < 0 ? i < s.keys : i % s.padded == 0;
    options.mask.key_padding = padding.to(default_device());
  }
  Tensor operator()(Implementation implementation) const {
    LinearAttentionOptions o = options;
    o.implementation = implementation;
    return linear_attention(q, k, v, o);
  }
  Call& with_gradients() {
    for (Tensor* x : {&q, &k, &v}) x->set_requires_grad();
    return *this;
  }
};

// Numerator and denominator are sums over N keys of products of F features, all positive except for
// the value: each has a relative error of N + F roundings, in any order, and |y| is at most 1. In
// bf16 the products of a chunk and the result are rounded, by half of 2⁻⁸ each.
double rounding(const Setup& s, DType dtype) {
  const double unit = dtype == f64 ? 0x1p-53 : 0x1p-24;
  const double sums =
      2 * unit * double(s.keys + s.f + 4) * (dtype == f64 ? 2 : 1);  // the f64 reference rounds too
  return dtype == bf16 ? sums + 0x1p-8 : sums;
}
// How far two results may differ: by `exact` in f64, else by the rounding errors of both.
double allowed_difference(const Way& way, double exact, const Setup& s) {
  return way.dtype == f64 ? exact : 2 * rounding(fit(s, way.dtype), way.dtype);
}

// f32 in both implementations, and on a GPU bf16 too.
std::vector<Way> float_ways() {
  std::vector<Way> all{{Implementation::composed, f32}, {Implementation::fused, f32}};
  if (on_gpu()) all.push_back({Implementation::fused, bf16});
  return all;
}

void check_setup(const Setup& setup, DType dtype = f64) {
  const Setup s = fit(setup, dtype);
  const Call call(s, dtype);
  const Tensor want = reference::linear_attention(call.q, call.k, call.v, call.options);
  for (const Implementation implementation :
       dtype == f64 ? testing::implementations()
                    : std::vector(implementations, implementations + 2)) {
    INFO(name(implementation) << ", " << describe(s));
    const Tensor got = call(implementation);
    CHECK(got.dtype() == dtype);
    CHECK(worst_error(got, want) <= rounding(s, dtype));
  }
}

std::vector<Setup> some_setups() {
  return {{},
          {.causal = false},
          {.queries = 7, .keys = 7, .chunk = 3},
          {.queries = 7, .keys = 7, .causal = false, .chunk = 3},
          {.queries = 7, .keys = 7, .chunk = 1},
          {.queries = 4, .keys = 9, .chunk = 3},
          {.queries = 9, .keys = 4, .chunk = 3},
          {.queries = 9, .keys = 4, .causal = false, .chunk = 3},
          {.heads = 4, .key_heads = 2, .queries = 7, .keys = 8, .chunk = 3},
          {.heads = 3, .key_heads = 1, .queries = 5, .keys = 5, .causal = false, .chunk = 2},
          {.queries = 8, .keys = 8, .padded = 3, .eps = 0.01, .chunk = 3},
          {.queries = 8, .keys = 8, .padded = -1, .eps = 0.01, .chunk = 3},
          {.queries = 8, .keys = 8, .causal = false, .padded = 3, .chunk = 3},
          {.queries = 1, .keys = 1, .f = 1, .d_value = 1},
          {.queries = 6, .keys = 6, .f = 2, .d_value = 7, .chunk = 4}};
}

}  // namespace

TEST_CASE("linear_attention agrees with the reference") {
  for (const Setup& s : some_setups()) {
    check_setup(s, f64);
    check_setup(s, f32);
  }
  for (const int64_t m : {1, 5, 63, 64, 65, 130})
    for (const int64_t extra : {0, 7, -1, -60})
      for (const int64_t chunk : {1, 3, 64})
        for (const bool causal : {false, true}) {
          Setup s{.batch = 1, .queries = m, .keys = std::max<int64_t>(1, m + extra), .f = 5};
          s.causal = causal;
          s.chunk = chunk;
          s.padded = m > 1 ? 4 : 0;
          if (on_gpu() && (m % 65 > 1 || chunk < 64)) continue;  // all its chunks have 64
          check_setup(s, f64);
          check_setup(s, f32);
        }
  for (const DType dtype : {f64, f32})
    check_setup({.batch = 1, .queries = 1000, .keys = 1000, .f = 41, .d_value = 20, .eps = 1e-6},
                dtype);
}

TEST_CASE("linear_attention: gradients equal finite differences") {
  for (Setup s : some_setups()) {
    if (s.padded == 0) s.batch = 1;
    Call call(s);
    call.with_gradients();
    for (const Implementation implementation : testing::implementations()) {
      INFO(name(implementation) << ", " << describe(s));
      const bool twice = s.queries <= 5;
      LinearAttentionOptions o = call.options;
      o.implementation = implementation;
      testing::check_gradients(
          [&](const Tensors& in) { return linear_attention(in[0], in[1], in[2], o); },
          {call.q, call.k, call.v}, twice);
    }
  }
}

TEST_CASE("linear_attention: both implementations have the same gradients") {
  for (const int64_t chunk : {1, 3, 64})
    for (const bool causal : {false, true})
      for (const DType dtype : testing::fused_types()) {
        if (on_gpu() && (chunk < 64 || dtype == bf16)) continue;  // linear_attention_bf16_test.cpp
        const Setup s{.heads = 4,
                      .key_heads = 2,
                      .queries = 130,
                      .keys = 150,
                      .f = 9,
                      .d_value = 6,
                      .causal = causal,
                      .padded = 7,
                      .eps = 0.1,
                      .chunk = chunk};
        INFO(describe(s));
        Tensors gradients[2];
        for (const Implementation implementation : implementations) {
          Call call(s, dtype);
          call.with_gradients();
          const Tensor y = call(implementation);
          y.backward(fixed_noise(y.shape(), 4, dtype));
          gradients[int(implementation) - 1] = {call.q.grad(), call.k.grad(), call.v.grad()};
        }
        // Sums of terms of which 2 Dv / (0.1 F) add up to a result of at most 1, in f32.
        const double off =
            dtype == f64 ? 1e-12 : allowed_difference({Implementation::fused, f32}, 0, s) * 10;
        for (size_t i = 0; i < 3; ++i) CHECK(worst_error(gradients[1][i], gradients[0][i]) < off);
      }
}

TEST_CASE("linear_attention: a query without visible keys gives zeros and has no gradient") {
  for (const auto& [implementation, dtype] : ways())
    for (const bool causal : {false, true}) {
      INFO(name(implementation) << ", " << name(dtype));
      Call call({.queries = 9, .keys = 7, .causal = causal, .chunk = 3}, dtype);
      call.options.mask.key_padding = zeros({2, 7}, {.dtype = boolean});
      call.options.mask.key_padding[0].fill_(1);
      // A query that shares no feature with the keys has none either.
      call.q[1][0][5].fill_(0);
      call.with_gradients();
      const Tensor y = call(implementation);
      CHECK(same_bits(y[0], zeros(y[0].shape(), {.dtype = dtype})));
      CHECK(same_bits(y[1][0][5], zeros({y.size(3)}, {.dtype = dtype})));
      if (causal) CHECK(max(abs(y.slice(2, 0, 2))).item() == 0);
      CHECK(max(abs(y[1][0][4])).item() > 0);
      sum(y * fixed_noise(y.shape(), 4, dtype)).backward();
      for (const Tensor& x : {call.q, call.k, call.v}) {
        CHECK(max(abs(x.grad()[0])).item() == 0);
        CHECK(max(abs(x.grad()[1])).item() > 0);
        CHECK(std::isfinite(max(abs(x.grad())).item()));
      }
      CHECK(max(abs(call.q.grad()[1][0][5])).item() == 0);
    }
}

TEST_CASE("linear_attention: padded keys have no effect, whatever their values") {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Way& way : ways())
    for (const bool causal : {false, true})
      for (const double junk : {1e9, infinity, std::numeric_limits<double>::quiet_NaN()}) {
        const Implementation implementation = way.implementation;
        const Setup s{.batch = 2, .queries = 11, .keys = 11, .causal = causal, .chunk = 4};
        const Call whole(s, way.dtype);
        Call some(s, way.dtype);
        some.options.mask.key_padding = zeros({2, 11}, {.dtype = u8});
        some.options.mask.key_padding.slice(1, 3, 6).fill_(1);
        some.k.slice(2, 3, 6).fill_(junk);
        some.v.slice(2, 3, 6).fill_(junk);
        some.with_gradients();
        const Tensor y = some(implementation);
        CHECK(max(abs(y)).item() < 1);
        // Without a mask only the queries depend on positions.
        Call fewer = whole;
        auto rest = [](const Tensor& x) { return cat({x.slice(2, 0, 3), x.slice(2, 6)}, 2); };
        fewer.k = rest(whole.k);
        fewer.v = rest(whole.v);
        fewer.q = causal ? rest(whole.q) : whole.q;
        CHECK(worst_error(causal ? rest(y) : y, fewer(implementation)) <
              allowed_difference(way, 1e-14, s));
        y.backward(fixed_noise(y.shape(), 4, way.dtype));
        for (const Tensor& x : {some.k, some.v}) {
          CHECK(max(abs(x.grad().slice(2, 3, 6))).item() == 0);
          CHECK(std::isfinite(max(abs(x.grad())).item()));
        }
        if (on_gpu()) continue;
        // They have no gradient of a query with NaN either.
        some.q = some.q.detach().clone();
        some.q.slice(2, 8, 9).fill_(std::numeric_limits<double>::quiet_NaN());
        for (const Tensor& g : grad({some(implementation)}, {some.k, some.v}, {ones_like(y)}))
          CHECK(max(abs(g.slice(2, 3, 6))).item() == 0);
      }
}

TEST_CASE("linear_attention: later keys change nothing, bit for bit, under a causal mask") {
  for (const auto& [implementation, dtype] : float_ways())
    for (const int64_t extra : {0, 30}) {
      Call call({.batch = 1, .queries = 130, .keys = 130 + extra, .f = 7}, dtype);
      const Tensor before = call(implementation);
      for (const int64_t t : {129, 64, 63, 1}) {
        call.q.slice(2, t).fill_(7);
        call.k.slice(2, t + extra).fill_(5);
        call.v.slice(2, t + extra).fill_(1000);
        const Tensor after = call(implementation);
        CHECK(same_bits(after.slice(2, 0, t), before.slice(2, 0, t)));
        CHECK(!same_bits(after.slice(2, t), before.slice(2, t)));
      }
    }
}

TEST_CASE("linear_attention: batch entries are independent of each other") {
  for (const auto& [implementation, dtype] : float_ways()) {
    Call call({.batch = 3, .queries = 70, .keys = 70, .padded = 5}, dtype);
    const Tensor before = call(implementation);
    for (const Tensor& x : {call.q, call.k, call.v}) x[1].fill_(3);
    call.options.mask.key_padding[1].fill_(1);
    const Tensor after = call(implementation);
    for (const int64_t other : {0, 2}) CHECK(same_bits(after[other], before[other]));
    CHECK(!same_bits(after[1], before[1]));
  }
}

TEST_CASE("linear_attention: a NaN reaches only the queries that see it") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  auto rows = [](const Tensor& y) {  // rows of head 0 with a NaN
    std::vector<int64_t> found;
    for (int64_t i = 0; i < y.size(2); ++i)
      if (std::isnan(sum(y[0][0][i]).item())) found.push_back(i);
    return found;
  };
  const Setup s{.batch = 1, .queries = 9, .keys = 9, .chunk = 4};
  for (const auto& [implementation, dtype] : ways()) {
    Call query(s, dtype), key(s, dtype), value(s, dtype);
    query.q[0][0][3].fill_(nan);
    CHECK(rows(query(implementation)) == std::vector<int64_t>{3});
    key.k[0][0][5].fill_(nan);
    CHECK(rows(key(implementation)) == std::vector<int64_t>{5, 6, 7, 8});
    CHECK(!std::isnan(sum(key(implementation)[0][1]).item()));
    value.v[0][0][5].fill_(nan);
    if (!on_gpu()) CHECK(rows(value(implementation)) == std::vector<int64_t>{5, 6, 7, 8});
  }
}

TEST_CASE(
    "linear_attention: results are bit-identical for any number of threads and in every run") {
  const int threads = num_threads();
  for (const auto& [implementation, dtype] : float_ways())
    for (const bool causal : {false, true}) {
      std::vector<Tensors> runs;
      for (const int n : {1, 2, 2}) {
        set_num_threads(n);
        Call call({.heads = 4, .queries = 130, .keys = 195, .f = 41, .causal = causal}, dtype);
        call.with_gradients();
        const Tensor y = call(implementation);
        sum(y * y).backward();
        runs.push_back({y, call.q.grad(), call.k.grad(), call.v.grad()});
      }
      for (size_t i = 0; i < runs[0].size(); ++i) {
        CHECK(same_bits(runs[0][i], runs[1][i]));
        CHECK(same_bits(runs[1][i], runs[2][i]));
      }
    }
  set_num_threads(threads);
}

TEST_CASE("linear_attention: views give the same results as contiguous tensors") {
  for (const auto& [implementation, dtype] : ways()) {
    // Copies are bit-identical, except that f64 may use other kernels for its products.
    const double off = dtype == f64 ? 1e-14 : 1e-30;
    Call call({.batch = 3, .queries = 67, .keys = 67, .f = 5, .d_value = 5}, dtype);
    const Tensor want = call(implementation);
    const Tensor packed = stack({call.q, call.k, call.v}, 2).transpose(1, 3).contiguous();
    auto part = [&](int64_t i) { return packed.select(2, i).transpose(1, 2); };
    Call views = call;
    views.q = part(0);
    views.k = part(1);
    views.v = part(2);
    REQUIRE(!views.q.is_contiguous());
    CHECK(worst_error(views(implementation), want) < off);
    views.q = testing::strided_copy(call.q);
    views.k = testing::strided_copy(call.k);
    views.v = testing::strided_copy(call.v);
    CHECK(worst_error(views(implementation), want) < off);
    views.k = call.k.slice(2, 0, 1).expand(call.k.shape());
    views.v = call.v[0].unsqueeze(0).expand(call.v.shape());
    Call copies = views;
    copies.k = views.k.contiguous();
    copies.v = views.v.contiguous();
    CHECK(worst_error(views(implementation), copies(implementation)) < off);
  }
}

TEST_CASE("linear_attention: equal values, scaled features, equal keys and grouped heads") {
  const Setup s{.queries = 70, .keys = 70, .f = 6, .d_value = 4};
  for (const Way& way : ways())
    for (const bool causal : {false, true}) {
      const auto& [implementation, dtype] = way;
      INFO(name(way));
      Call call(s, dtype);
      call.options.mask.causal = causal;
      const Tensor y = call(implementation);
      // The average of equal values is the value.
      Call constant = call;
      constant.v = full(call.v.shape(), 0.75, {.dtype = dtype});
      CHECK(worst_error(constant(implementation), full(y.shape(), 0.75, {.dtype = f64})) <
            allowed_difference(way, 1e-13, s));
      // Factors of the queries and keys cancel; powers of two do so exactly.
      Call scaled = call;
      scaled.q = call.q * 0x1p60;
      scaled.k = call.k * 0x1p-90;
      CHECK(same_bits(scaled(implementation), y));
      scaled.q = call.q * fixed_noise({2, 2, 70, 1}, 9, dtype);
      if (dtype != bf16)  // which rounds each scaled feature
        CHECK(worst_error(scaled(implementation), y) < allowed_difference(way, 1e-12, s));
      // Equal keys: the mean of the visible values.
      Call equal = call;
      equal.k = ones(call.k.shape(), {.dtype = dtype});
      const Tensor counts = arange(70, {.dtype = f64}) + 1, v = call.v.to(f64);
      const Tensor mean_seen =
          causal ? cumsum(v, 2) / counts.unsqueeze(1) : mean(v, {2}, true).expand(v.shape());
      CHECK(worst_error(equal(implementation), mean_seen) < allowed_difference(way, 1e-13, s));
      // Grouped key heads equal repeated key heads.
      Call grouped({.heads = 6, .key_heads = 2, .queries = 10, .keys = 10, .causal = causal},
                   dtype);
      Call repeated = grouped;
      const Tensor which = tensor<int64_t>({0, 0, 0, 1, 1, 1});
      repeated.k = index_select(grouped.k, 1, which);
      repeated.v = index_select(grouped.v, 1, which);
      CHECK(worst_error(grouped(implementation), repeated(implementation)) <
            allowed_difference(way, 1e-14, s));
    }
  // The last query sees all keys, with and without a causal mask.
  for (const DType dtype : testing::fused_types()) {
    Call call(s, dtype);
    const Tensor causal = call(Implementation::fused);
    call.options.mask.causal = false;
    const Tensor whole = call(Implementation::fused);
    CHECK(worst_error(causal.slice(2, 69), whole.slice(2, 69)) <
          allowed_difference({Implementation::fused, dtype}, 1e-14, s));
  }
}

TEST_CASE("linear_attention: large features and values do not overflow") {
  for (const Implementation implementation : implementations) {
    const Setup s{.queries = 65, .keys = 65, .f = 8, .chunk = 16};
    Call small(s, f32), large(s, f32);
    large.q = small.q * 0x1p44;
    large.k = small.k * 0x1p40;
    large.v = small.v * 0x1p20;
    CHECK(same_bits(large(implementation), small(implementation) * 0x1p20));
    large.with_gradients();
    const Tensor y = large(implementation);
    y.backward(ones(y.shape()));
    for (const Tensor& x : {large.q, large.k, large.v})
      CHECK(std::isfinite(max(abs(x.grad())).item()));
  }
}

TEST_CASE("linear_attention: bf16 is computed in f32") {
  for (const Implementation implementation : implementations) {
    const Setup s{.queries = 70, .keys = 80, .f = 8, .padded = 9};
    const Call call(s, bf16);
    const Tensor y = call(implementation);
    CHECK(y.dtype() == bf16);
    const Tensor want = reference::linear_attention(call.q, call.k, call.v, call.options);
    CHECK(worst_error(y, want) <= 0x1p-8 + rounding(s, f32));
  }
}

TEST_CASE("linear_attention memory: chunked is linear in the length, composed is quadratic",
          "[large]") {
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t h = 2, f = 24, dv = 16, chunk = 64;
  auto peak = [&](int64_t n, Implementation implementation) {
    Call call({.batch = 1,
               .heads = h,
               .key_heads = h,
               .queries = n,
               .keys = n,
               .f = f,
               .d_value = dv,
               .chunk = chunk},
              f32);
    call.with_gradients();
    const int64_t before = on_gpu() ? testing::gpu_bytes() : memory_stats().live;
    reset_peak_memory();
    {
      const Tensor y = call(implementation);
      y.backward(ones(y.shape()));
    }
    return memory_stats().peak - before;
  };
  const int64_t length = on_gpu() ? 1024 : 2048;
  for (const int64_t n : {length, 2 * length}) {
    // Per position: the output, its gradient, the denominator; the gradients of q, k and v, and the
    // leaves' copies of them. Per thread: V' and its gradient, G', the products, the state. On a
    // GPU: one sum per row, and the states of both sweeps for each segment of 4 chunks.
    const int64_t position = 2 * dv + 1 + 2 * (2 * f + dv), state = f * (dv + 1);
    const int64_t thread = 3 * chunk * (dv + 1) + chunk * chunk + state;
    const int64_t segments = n * h + 2 * h * (n / 256) * state;
    CHECK(peak(n, Implementation::fused) <=
          4 * (n * h * position + (on_gpu() ? segments : 2 * thread)) + 4096);
  }
  CHECK(peak(length, Implementation::composed) > 4 * h * length * length);
  set_num_threads(threads);
}
