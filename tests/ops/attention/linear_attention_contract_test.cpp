// What linear attention guarantees besides its values: empty inputs and errors.
#include "autograd/tape.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"

using namespace stretto;

TEST_CASE("linear_attention: empty inputs") {
  for (const Implementation implementation : {Implementation::composed, Implementation::fused})
    for (const bool causal : {false, true}) {
      auto run = [&](int64_t b, int64_t m, int64_t n, int64_t f, int64_t dv) {
        const Tensor q = ones({b, 2, m, f}).set_requires_grad();
        const Tensor k = ones({b, 2, n, f}).set_requires_grad();
        const Tensor v = ones({b, 2, n, dv}).set_requires_grad();
        const Implementation supported =
            default_device().is_cuda() && implementation == Implementation::fused
                ? Implementation::automatic
                : implementation;
        const Tensor y =
            linear_attention(q, k, v, {.mask = {.causal = causal}, .implementation = supported});
        CHECK(y.shape() == Shape{b, 2, m, dv});
        sum(y).backward();
        CHECK(q.grad().shape() == q.shape());
        CHECK(v.grad().shape() == v.shape());
        return y;
      };
      run(0, 3, 3, 2, 2);
      run(1, 0, 3, 2, 2);
      run(1, 3, 3, 2, 0);
      CHECK(max(abs(run(1, 3, 0, 2, 2))).item() == 0);
      CHECK(max(abs(run(1, 3, 3, 0, 2))).item() == 0);
    }
}

TEST_CASE("linear_attention: errors") {
  const Tensor x = ones({2, 4, 3, 5});
  auto call = [](const Tensor& q, const Tensor& k, const Tensor& v,
                 const LinearAttentionOptions& o = {}) { return linear_attention(q, k, v, o); };
  CHECK_THROWS_WITH(call(x, ones({2, 3, 3, 5}), ones({2, 3, 3, 5})),
                    "[linear_attention] q f32 [2, 4, 3, 5], k f32 [2, 3, 3, 5], v f32 [2, 3, 3, "
                    "5]; accepted: q [B, H, M, D], k [B, G, N, D], v [B, G, N, Dv] with H a "
                    "multiple of G");
  for (const Shape& wrong : {Shape{2, 4, 3, 4}, Shape{1, 4, 3, 5}, Shape{4, 3, 5}})
    CHECK_THROWS_WITH(call(x, ones(wrong), ones(wrong)), Containing("accepted: q [B, H, M, D]"));
  CHECK_THROWS_WITH(call(x, x, ones({2, 4, 4, 5})), Containing("accepted: q [B, H, M, D]"));
  CHECK_THROWS_WITH(call(x, x, x.to(f64)), Containing("all must have one floating-point dtype"));
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {.key_padding = ones({2, 4}, {.dtype = boolean})}}),
                    "[linear_attention] key_padding bool [2, 4]; must be bool or u8 [2, 3]");
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {.key_padding = ones({2, 3})}}),
                    Containing("must be bool or u8 [2, 3]"));
  CHECK_THROWS_WITH(call(x, x, x, {.eps = -1}), "[linear_attention] eps -1; must be 0 or more");
  CHECK_THROWS_WITH(call(x, x, x, {.chunk = 0}), "[linear_attention] chunk 0; must be at least 1");
  CHECK_THROWS_WITH(
      call(x, x, x, {.mask = {.window = 2}}),
      "[linear_attention] window is set; accepted: causal and key_padding, as there are no "
      "scores to mask");
}
