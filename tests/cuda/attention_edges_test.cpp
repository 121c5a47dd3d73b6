// The edges of masks: windows, bands, global tokens and prefixes of every size, so that the first and
// the last visible key of a query are at every place of the tiles of fused attention.
#include "autograd/tape.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "tests/ops/attention/attention_check.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

// Checks the output for every mask that `masks` passes to its argument, in f32 against f64 on the CPU.
template <class F>
void check_masks(int64_t m, int64_t n, int64_t batch, const F& masks) {
  const NoGrad guard;
  AttentionCase in =
      make_inputs({.batch = batch, .heads = 1, .queries = m, .keys = n, .scale = 1.5});
  masks([&](const AttentionMask& mask) {
    in.options.mask = mask;
    const Tensor expected = in(Implementation::composed),
                 got = moved(in, gpu, f32)(Implementation::fused);
    const Difference e = difference(got, expected);
    CAPTURE(m, n, mask.causal, mask.window, mask.window_after, mask.global_tokens.defined());
    CHECK(e.size < 3e-6);
    CHECK(e.worst < 1e-5);
  });
}

struct Size {
  int64_t m, n;
};

}  // namespace

TEST_CASE("attention edges: windows and bands of every size agree with the CPU", "[cuda][large]") {
  NEEDS_GPU();
  for (const auto& [m, n] : {Size{97, 97}, Size{70, 100}})
    check_masks(m, n, 1, [n = n](const auto& check) {
      const Tensor global = zeros({1, n}, {.dtype = boolean, .device = cpu});
      global.data<bool>()[0] = true;
      for (int64_t window = 1; window <= n + 1; ++window)
        for (const Tensor& tokens : {Tensor(), global}) {
          check({.causal = true, .window = window, .global_tokens = tokens});
          check({.window = window, .window_after = window, .global_tokens = tokens});
        }
    });
}

TEST_CASE("attention edges: prefixes of every length agree with the CPU", "[cuda][large]") {
  NEEDS_GPU();
  for (const auto& [m, n] : {Size{130, 130}, Size{70, 100}})
    check_masks(m, n, n + 1, [n = n](const auto& check) {
      check({.causal = true, .prefix_lengths = arange(n + 1, {.dtype = i64, .device = cpu})});
    });
}

TEST_CASE("attention edges: gradients for every number of earlier keys and every window agree",
          "[cuda][large]") {
  NEEDS_GPU();
  AttentionSetup s{.batch = 1, .heads = 1, .queries = 66, .keys = 66, .causal = true};
  for (s.window = 1; s.window <= 66; ++s.window) check_fused(s, gpu, f32);
  s.window = 0;
  for (int64_t shift = 0; shift < 40; ++shift) {
    s.queries = 66 - shift;
    check_fused(s, gpu, f32);
  }
}
