// Gradients of spe() in all implementations, codes cached for several calls, memory and threads.
#include <cmath>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/ops/spe/spe_setup.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::CodeKind;
using testing::exact_noise;
using testing::fixed_noise;
using testing::same_bits;
using testing::spe_ways;
using testing::SpeCall;
using testing::SpeSetup;
using testing::SpeWay;
using testing::within;
using testing::worst_error;

namespace {

constexpr CodeKind kinds[] = {CodeKind::sine, CodeKind::conv, CodeKind::image};

Tensors leaves(const SpeCall& call) {
  Tensors all;
  for (const Tensor& x : call.inputs)
    if (x.defined() && x.requires_grad()) all.push_back(x);
  return all;
}

// A sum of the results with fixed weights, so that gradients of several calls can be added.
Tensor weighted(const SpePair& y, uint64_t stream) {
  return sum(y.q * fixed_noise(y.q.shape(), stream, y.q.dtype())) +
         sum(y.k * fixed_noise(y.k.shape(), stream + 1, y.k.dtype()));
}

// Replaces undefined gradients by zeros.
Tensors gradients(const SpeCall& call, SpeWay way) {
  const Tensors sources = leaves(call);
  Tensors all = grad({weighted(call(way), 50)}, sources);
  for (size_t i = 0; i < all.size(); ++i)
    if (!all[i].defined()) all[i] = zeros_like(sources[i]);
  return all;
}

}  // namespace

TEST_CASE("spe: gradients of all inputs equal finite differences") {
  for (const CodeKind kind : kinds) {
    std::vector<SpeSetup> setups = {
        {.kind = kind, .queries = 4, .keys = 5, .first = 1},
        {.kind = kind, .batch = 1, .heads = 1, .d = 5, .r = 1, .gated = false, .given = true},
        {.kind = kind, .batch = 5, .heads = 1, .queries = 2, .keys = 2, .sines = 1, .taps = 5}};
    for (const SpeSetup& s : setups)
      for (const SpeWay way : spe_ways) {
        INFO(name(way) << ", " << describe(s));
        if (default_device().is_cuda() && way != SpeWay::composed) continue;  // f64 is composed
        SpeCall call(s, f64);
        call.with_gradients();
        testing::check_gradients([&](const Tensors& in) { return testing::joined(call(way, in)); },
                                 call.inputs, s.batch == 1);
      }
  }
}

TEST_CASE("spe: all implementations have the same gradients") {
  std::vector<SpeSetup> setups = testing::spe_setups();
  if (default_device().is_cpu())  // two segments of positions, both by Fourier transforms
    setups.push_back({.kind = CodeKind::conv,
                      .batch = 1,
                      .heads = 1,
                      .queries = 1200,
                      .keys = 1200,
                      .taps = 300});
  for (const SpeSetup& s : setups) {
    SpeCall call(s);
    call.with_gradients();
    const Tensors want = gradients(call, SpeWay::composed);
    for (const SpeWay way : {SpeWay::fused, SpeWay::kept}) {
      INFO(name(way) << ", " << describe(s));
      const Tensors got = gradients(call, way);
      for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) <= within(1e-12));
    }
  }
}

TEST_CASE("spe: gradients of single inputs are right") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      SpeCall call({.kind = kind});
      call.with_gradients();
      const Tensors want = gradients(call, SpeWay::composed);
      CHECK_FALSE(SpeCall(call.s)(way).q.requires_grad());
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        INFO(name(way) << ", kind " << int(kind) << ", input " << i);
        SpeCall one(call.s);
        one.inputs[i].set_requires_grad();
        CHECK(worst_error(gradients(one, way)[0], want[i]) <= within(1e-13));
      }
    }
}

TEST_CASE("spe: gradients of a single result are right") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      SpeCall call({.kind = kind});
      call.with_gradients();
      auto of_keys = [&](SpeWay by) { return grad({sum(call(by).k)}, leaves(call)); };
      const Tensors want = of_keys(SpeWay::composed), got = of_keys(way);
      for (size_t i = 0; i < want.size(); ++i)
        CHECK(worst_error(got[i].defined() ? got[i] : zeros_like(call.inputs[i]),
                          want[i].defined() ? want[i] : zeros_like(call.inputs[i])) <=
              within(1e-13));
    }
}

TEST_CASE("a cached spe code has the summed gradients of all calls") {
  for (const CodeKind kind : kinds) {
    // Three layers: two with gates and one without; other lengths, positions and batches.
    std::vector<SpeCall> calls;
    for (const SpeSetup& s :
         {SpeSetup{.kind = kind}, SpeSetup{.kind = kind, .queries = 2, .keys = 4, .first = 5},
          SpeSetup{.kind = kind, .batch = 1, .gated = false}})
      calls.emplace_back(s).with_gradients();
    for (SpeCall& call : calls) {
      std::copy(calls[0].inputs.begin() + 2, calls[0].inputs.end() - 1, call.inputs.begin() + 2);
      if (call.s.gated) call.inputs.back() = exact_noise({2, 3}, 70).set_requires_grad();
    }
    auto total = [&](const SpeCode& code, Implementation implementation) {
      Tensor sum;
      for (size_t i = 0; i < calls.size(); ++i) {
        const Tensors& in = calls[i].inputs;
        const Tensor term =
            weighted(spe(in[0], in[1], code, calls[i].options(in, implementation)), 80 + 2 * i);
        sum = sum.defined() ? sum + term : term;
      }
      return sum;
    };
    Tensors sources;
    for (const SpeCall& call : calls)
      for (const Tensor& x : leaves(call)) sources.push_back(x);
    const Tensors want = grad({total(calls[0].code(), Implementation::composed)}, sources);
    const SpeCode kept = calls[0].code().kept(9);
    const Tensor y = total(kept, Implementation::automatic);
    const Tensors got = grad({y}, sources, {}, {.retain_graph = true});
    for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) <= within(1e-13));
    // The same graph again, in one pass and with another pass in between.
    grad({calls[0](SpeWay::fused).q}, {sources[2]}, {exact_noise({2, 2, 6, 4}, 3)});
    grad({y}, {calls[0].inputs[0]}, {}, {.retain_graph = true});  // does not reach the code
    const Tensors again = grad({y}, sources, {}, {.retain_graph = true});
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(again[i], got[i]));

    // A pass that was aborted leaves nothing for the next one.
    bool fails = true;
    const SpeCode fresh = calls[0].code().kept(9);
    const Tensor q = calls[0].inputs[0] * 1.0;  // its hook runs before the code's backward
    q.register_hook([&](const Tensor&) {
      if (fails) throw Error("stop");
    });
    const Tensor first = weighted(spe(q, calls[0].inputs[1], fresh), 90);
    CHECK_THROWS_WITH(grad({first}, {calls[0].inputs[0], sources[2]}, {}, {.retain_graph = true}),
                      "stop");
    fails = false;
    const Tensor once = grad({first}, {sources[2]}, {}, {.retain_graph = true})[0];
    const Tensor alone =
        grad({weighted(spe(q, calls[0].inputs[1], calls[0].code()), 90)}, {sources[2]})[0];
    CHECK(worst_error(once, alone) <= within(1e-13));

    // An unused code, cached again with a greater length; gradients of gradients.
    CHECK_FALSE(grad({sum(calls[0].inputs[0])}, {sources[2]})[0].defined());
    CHECK(worst_error(total(kept.kept(6).kept(12), Implementation::automatic), y) <= within(1e-14));
    const auto second = [&](const SpeCode& code, Implementation implementation) {
      const Tensor slope =
          grad({total(code, implementation)}, {calls[0].inputs[0]}, {}, {.create_graph = true})[0];
      return grad({sum(square(slope))}, {sources[2]})[0];
    };
    const Tensor twice = second(calls[0].code(), Implementation::composed);
    CHECK(worst_error(second(kept, Implementation::automatic), twice) <= within(1e-12));
  }
}

TEST_CASE("spe is bit-identical when repeated and for any number of threads") {
  const int before = num_threads();
  for (const CodeKind kind : kinds)
    for (const SpeWay way : spe_ways) {
      INFO(name(way) << ", kind " << int(kind));
      const bool on_gpu = default_device().is_cuda();  // where no CPU threads compute
      SpeCall call({.kind = kind,
                    .queries = on_gpu ? 60 : 280,
                    .keys = on_gpu ? 70 : 300,
                    .d = on_gpu ? 5 : 18,
                    .r = 17,
                    .rows = 20,
                    .columns = 15},
                   f32);
      call.with_gradients();
      set_num_threads(1);
      const SpePair y = call(way);
      const Tensors g = gradients(call, way);
      for (const int threads : {1, 2, 5}) {
        if (on_gpu && threads > 1) continue;
        set_num_threads(threads);
        const SpePair again = call(way);
        CHECK(same_bits(again.q, y.q));
        CHECK(same_bits(again.k, y.k));
        const Tensors more = gradients(call, way);
        for (size_t i = 0; i < g.size(); ++i) CHECK(same_bits(more[i], g[i]));
      }
    }
  set_num_threads(before);
}

TEST_CASE("spe: memory without codes, and without gradients of cached ones", "[large]") {
  if (default_device().is_cuda()) STRETTO_SKIP("tests/cuda/spe_kernels_test.cpp counts it there");
  const int before = num_threads();
  set_num_threads(2);
  for (const CodeKind kind : {CodeKind::sine, CodeKind::conv, CodeKind::image}) {
    SpeCall call({.kind = kind,
                  .batch = 1,
                  .heads = 4,
                  .queries = 2048,
                  .keys = 2048,
                  .d = 32,
                  .r = 32,
                  .taps = 9,
                  .tap_rows = 9,
                  .rows = 32,
                  .columns = 64},
                 f32);
    call.with_gradients();
    const int64_t operand = 4 * 2048 * 32 * 4, code = operand * 32;
    const int64_t without = memory_stats().live;
    const SpeCode kept = call.code().kept(2048);
    CHECK(memory_stats().live - without < 2 * code + code / 4);
    for (const SpeWay way : {SpeWay::fused, SpeWay::kept}) {
      INFO(name(way) << ", kind " << int(kind));
      auto peak_of = [&](auto f) {
        reset_peak_memory();
        const int64_t live = memory_stats().live;
        f();
        return memory_stats().peak - live;
      };
      SpePair y;
      const SpeOptions options = call.options(call.inputs);
      const int64_t forward = peak_of([&] {
        y = spe(call.inputs[0], call.inputs[1], way == SpeWay::kept ? kept : call.code(), options);
      });
      // Results, two operands, and the buffers of the two threads.
      CHECK(forward < 2 * operand + code / 4);
      const Tensor gq = ones_like(y.q), gk = ones_like(y.k);
      const int64_t back = peak_of([&] {
        grad({y.q, y.k}, leaves(call), {gq, gk}, {.retain_graph = true});
      });
      CHECK(back < 2 * operand + code / 4);
    }
  }
  set_num_threads(before);
}

TEST_CASE("spe: later ops do not keep its results alive") {
  for (const CodeKind kind : kinds)
    for (const SpeWay way : {SpeWay::fused, SpeWay::kept}) {
      INFO(name(way) << ", kind " << int(kind));
      const bool on_gpu = default_device().is_cuda();
      const int64_t m = on_gpu ? 20 : 200, n = on_gpu ? 30 : 300, d = on_gpu ? 2 : 8, r = 64;
      SpeCall call(
          {.kind = kind, .queries = m, .keys = n, .d = d, .r = r, .rows = 20, .columns = 15});
      call.with_gradients();
      // Squares, whose backward needs their operand.
      auto loss = [&](SpeWay how) {
        const SpePair y = call(how);
        return sum(square(y.q)) + sum(square(y.k));
      };
      const Tensors want = grad({loss(SpeWay::composed)}, leaves(call));
      const int64_t before = memory_stats().live;
      const Tensor y = loss(way);
      const int64_t item = item_size(call.inputs[0].dtype()), code = 2 * d * n * r * item,
                    both = 2 * 2 * (m + n) * r * item;
      const int64_t codes = way == SpeWay::kept && !on_gpu ? 2 * code : 0;
      CHECK(memory_stats().live - before - codes < both / 2);
      const Tensors got = grad({y}, leaves(call));
      for (size_t i = 0; i < want.size(); ++i) CHECK(worst_error(got[i], want[i]) < within(1e-12));
      // Recomputed in a recorded pass, it stays on the tape.
      const auto slope = [&](SpeWay how) {
        const Tensors sides{call.inputs[0], call.inputs[1]};
        const Tensors first = grad({loss(how)}, sides, {}, {.create_graph = true});
        return grad({sum(square(first[0])) + sum(square(first[1]))}, leaves(call));
      };
      const Tensors twice = slope(way), by_composed = slope(SpeWay::composed);
      for (size_t i = 0; i < twice.size(); ++i)
        CHECK(worst_error(twice[i], by_composed[i]) <= within(1e-11));
    }
}
