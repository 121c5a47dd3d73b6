// spe() in bf16: roundings, memory, threads, and a cached code used in two dtypes.
#include "autograd/tape.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/ops/spe/spe_setup.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::CodeKind;
using testing::fixed_noise;
using testing::same_bits;
using testing::SpeCall;
using testing::SpeSetup;
using testing::SpeWay;

namespace {

// Returns q̂, k̂ and the gradients of all inputs; q and k are `dtype`, everything else is f32.
Tensors results(const SpeSetup& s, SpeWay way, DType dtype) {
  SpeCall call(s, f32);
  for (size_t i = 0; i < 2; ++i) call.inputs[i] = call.inputs[i].to(bf16).to(dtype);
  for (Tensor& x : call.inputs)
    if (x.defined()) x = x.detach().set_requires_grad();
  const SpePair y = call(way);
  const auto noise = [dtype](const Tensor& of, uint64_t stream) {
    return fixed_noise(of.shape(), stream).to(bf16).to(dtype);
  };
  Tensors all{y.q.detach(), y.k.detach()}, leaves;
  for (const Tensor& x : call.inputs)
    if (x.defined()) leaves.push_back(x);
  for (const Tensor& g : grad({y.q, y.k}, leaves, {noise(y.q, 11), noise(y.k, 12)}))
    all.push_back(g);
  return all;
}

// Returns max |a − b| / |b| over the elements, counting 0 where they are equal.
double relative(const Tensor& a, const Tensor& b) {
  return max(abs(a.to(f64) - b.to(f64)) / (abs(b.to(f64)) + 1e-30)).item();
}

}  // namespace

TEST_CASE("spe in bf16 equals f32 with its results rounded once") {
  for (const SpeSetup& s : testing::spe_setups())
    for (const SpeWay way : {SpeWay::composed, SpeWay::fused, SpeWay::kept}) {
      INFO(testing::name(way) << ", " << testing::describe(s));
      const Tensors narrow = results(s, way, bf16), wide = results(s, way, f32);
      REQUIRE(narrow.size() == wide.size());
      for (size_t i = 0; i < narrow.size(); ++i) {
        INFO("result " << i);
        REQUIRE(narrow[i].defined() == wide[i].defined());
        if (!narrow[i].defined()) continue;  // of an input without positions
        const bool rounded = i < 4;          // the results of the size of q and k
        CHECK(narrow[i].dtype() == (rounded ? bf16 : f32));
        if (narrow[i].numel() == 0) continue;
        if (rounded)
          CHECK(relative(narrow[i], wide[i]) <= 0x1p-8);
        else  // sums over positions, which start again at other places
          CHECK(testing::worst_error(narrow[i], wide[i]) <= 1e-4);
      }
    }
}

TEST_CASE("spe in bf16 is bit-identical for any number of threads") {
  const int threads = num_threads();
  for (const CodeKind kind : {CodeKind::sine, CodeKind::conv})
    for (const Isa most : {Isa::portable, Isa::avx2, Isa::avx512, Isa::emulated}) {
      const IsaCap cap(most);
      const SpeSetup s{.kind = kind, .heads = 3, .queries = 300, .keys = 300, .d = 5, .r = 6};
      set_num_threads(1);
      const Tensors one = results(s, SpeWay::fused, bf16);
      for (const int n : {2, 4}) {
        set_num_threads(n);
        const Tensors more = results(s, SpeWay::fused, bf16);
        for (size_t i = 0; i < one.size(); ++i) CHECK(same_bits(more[i], one[i]));
      }
    }
  set_num_threads(threads);
}

TEST_CASE("spe in bf16 needs half of the memory of f32") {
  const int threads = num_threads();
  set_num_threads(2);
  const auto peak = [](DType dtype) {
    SpeCall call({.batch = 4, .heads = 4, .queries = 2048, .keys = 2048, .d = 16, .r = 16}, f32);
    for (size_t i = 0; i < 2; ++i) call.inputs[i] = call.inputs[i].to(dtype).set_requires_grad();
    const auto step = [&] {
      const SpePair y = call(SpeWay::fused);
      grad({y.q, y.k}, {call.inputs[0], call.inputs[1]}, {ones_like(y.q), ones_like(y.k)});
    };
    step();
    const int64_t before = memory_stats().live;
    reset_peak_memory();
    step();
    return memory_stats().peak - before;
  };
  // Except for the f32 sums of two threads: results of a segment of queries and of keys.
  CHECK(peak(bf16) <= peak(f32) / 2 + 2 * 4 * (2 * 4 * 32 * 16) + 256 * 1024);
  set_num_threads(threads);
}

TEST_CASE("spe: a cached code can be used in bf16 and in f32 in one pass") {
  SpeCall call({.queries = 20, .keys = 20, .gated = false}, f32);
  call.with_gradients();
  const auto gradient = [&](const SpeCode& code) {
    const SpePair a = spe(call.inputs[0], call.inputs[1], code),
                  b = spe(call.inputs[0].to(bf16), call.inputs[1].to(bf16), code);
    return grad({a.q, a.k, b.q, b.k}, {call.inputs[2]},
                {ones_like(a.q), ones_like(a.k), ones_like(b.q), ones_like(b.k)})[0];
  };
  const Tensor plain = gradient(call.code());
  CHECK(testing::worst_error(gradient(call.code().kept(20)), plain) <= 1e-5);
}
