// What linear attention with decay guarantees besides its values: states, memory, empty inputs and
// errors.
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/reduce.h"
#include "tests/reference/gated_linear_attention.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"

using namespace stretto;
using testing::fixed_noise;
using testing::implementations;
using testing::name;
using testing::same_bits;
using testing::worst_error;

namespace {

struct Sequence {
  Tensor q, k, v, log_decay, beta;

  explicit Sequence(int64_t n, bool by_feature = false, DType dtype = f64)
      : q(fixed_noise({2, 4, n, 5}, 1, dtype)),
        k((fixed_noise({2, 2, n, 5}, 2) / 3).to(dtype)),
        v(fixed_noise({2, 4, n, 3}, 3, dtype)),
        log_decay(fixed_noise(by_feature ? Shape{2, 4, n, 5} : Shape{2, 4, n}, 4) - 1),
        beta((fixed_noise({2, 4, n}, 5) + 1) / 2) {}

  Tensor piece(int64_t at, int64_t n, LinearState& state, GatedLinearAttentionOptions o) const {
    const auto cut = [&](const Tensor& x) { return x.slice(2, at, at + n); };
    o.log_decay = cut(log_decay), o.beta = cut(beta);
    return gated_linear_attention(cut(q), cut(k), cut(v), state, o);
  }
  Tensor pieces(const std::vector<int64_t>& sizes, LinearState& state,
                const GatedLinearAttentionOptions& o) const {
    Tensors parts;
    int64_t at = 0;
    for (const int64_t n : sizes) {
      parts.push_back(piece(at, n, state, o));
      at += n;
    }
    return cat(parts, 2);
  }
};

}  // namespace

TEST_CASE("gated_linear_attention: a sequence in pieces equals one pass") {
  NoGrad guard;
  for (const bool by_feature : {false, true})
    for (const Implementation implementation : implementations())
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>(40, 1), {7, 1, 1, 0, 20, 11}, {40}, {1, 39}}) {
        INFO(name(implementation));
        const Sequence x(40, by_feature);
        LinearState state;
        const Tensor y = x.pieces(sizes, state, {.chunk = 4, .implementation = implementation});
        Tensor last;
        const Tensor want = reference::gated_linear_attention(
            x.q, x.k, x.v, {.log_decay = x.log_decay, .beta = x.beta}, &last);
        CHECK(worst_error(y, want) < 1e-13);
        CHECK(worst_error(state.sums, last) < 1e-13);
        CHECK(state.length == 40);
        state.reorder(tensor<int64_t>({1, 1, 0}));
        CHECK(worst_error(state.sums[2], last[0]) < 1e-13);
      }
}

TEST_CASE("gated_linear_attention: gradients flow through the state") {
  for (const bool by_feature : {false, true})
    for (const Implementation implementation : implementations()) {
      const Sequence x(5, by_feature);
      const auto call = [&](const Tensors& in) {
        LinearState state{in[5], 3};
        const Tensor y = gated_linear_attention(
            in[0], in[1], in[2], state,
            {.log_decay = in[3], .beta = in[4], .chunk = 2, .implementation = implementation});
        return cat({y.flatten(), state.sums.flatten()}, 0);
      };
      const auto leaf = [](const Tensor& t) {
        return t.slice(0, 0, 1).slice(1, 0, 1).clone().set_requires_grad();
      };
      testing::check_gradients(call, {leaf(x.q), leaf(x.k), leaf(x.v), leaf(x.log_decay),
                                      leaf(x.beta), testing::fixed_leaf({1, 1, 5, 3}, 6)});
    }
}

TEST_CASE("gated_linear_attention: memory is linear in the length") {
  if (default_device().is_cuda()) return;
  const int threads = num_threads();
  set_num_threads(2);
  const int64_t heads = 2, f = 32, dv = 48;
  const auto peak = [&](int64_t n, bool by_feature, bool delta) {
    const auto leaf = [](const Shape& shape, double value) {
      return full(shape, value, {.dtype = f32}).set_requires_grad();
    };
    const Tensor q = leaf({1, heads, n, f}, 0.1), k = leaf({1, heads, n, f}, 0.1),
                 v = leaf({1, heads, n, dv}, 0.1);
    const Tensor log_decay = leaf(by_feature ? Shape{1, heads, n, f} : Shape{1, heads, n}, -0.1);
    const Tensor beta = delta ? leaf({1, heads, n}, 0.5) : Tensor();
    const int64_t before = memory_stats().live;
    reset_peak_memory();
    sum(gated_linear_attention(q, k, v, {.log_decay = log_decay, .beta = beta})).backward();
    return memory_stats().peak - before;
  };
  for (const bool by_feature : {false, true})
    for (const bool delta : {false, true}) {
      const int64_t n = 2048, step = peak(2 * n, by_feature, delta) - peak(n, by_feature, delta);
      INFO("by feature " << by_feature << ", delta " << delta);
      // y and dy, four gradients of inputs, a second copy of those kept by the leaves, and a state
      // for every 512 positions.
      const int64_t floats =
          heads * n * (2 * dv + 2 * (3 * f + dv + 2)) + heads * (n / 512) * f * dv;
      CHECK(step <= 4 * floats);
      CHECK(step < 4 * heads * n * n / 4);
    }
  set_num_threads(threads);
}

TEST_CASE("gated_linear_attention: empty inputs") {
  for (const Implementation implementation : implementations())
    for (const bool by_feature : {false, true})
      for (const bool delta : {false, true}) {
        const auto run = [&](int64_t b, int64_t m, int64_t n, int64_t f, int64_t dv) {
          const Tensor q = ones({b, 2, m, f}).set_requires_grad();
          const Tensor k = ones({b, 2, n, f}).set_requires_grad();
          const Tensor v = ones({b, 2, n, dv}).set_requires_grad();
          GatedLinearAttentionOptions o{
              .log_decay = zeros(by_feature ? Shape{b, 2, n, f} : Shape{b, 2, n}),
              .implementation = implementation};
          if (delta) o.beta = ones({b, 2, n});
          const Tensor y = gated_linear_attention(q, k, v, o);
          CHECK(y.shape() == Shape{b, 2, m, dv});
          sum(y).backward();
          CHECK(q.grad().shape() == q.shape());
          CHECK(v.grad().shape() == v.shape());
          return y;
        };
        run(0, 3, 3, 2, 2);
        run(1, 0, 0, 2, 2);
        run(1, 0, 3, 2, 2);
        run(1, 3, 3, 2, 0);
        CHECK(max(abs(run(1, 3, 3, 0, 2))).item() == 0);
      }
}

TEST_CASE("gated_linear_attention: errors") {
  const Tensor x = ones({2, 4, 3, 5});
  const auto call = [](const Tensor& q, const Tensor& k, const Tensor& v,
                       const GatedLinearAttentionOptions& o = {}) {
    return gated_linear_attention(q, k, v, o);
  };
  CHECK_THROWS_WITH(call(x, ones({2, 3, 3, 5}), x),
                    "[gated_linear_attention] q f32 [2, 4, 3, 5], k f32 [2, 3, 3, 5], v f32 [2, 4, "
                    "3, 5]; accepted: q [B, H, M, F], k [B, H, N, F], v [B, H, N, Dv], where H may "
                    "be a divisor of the largest number of heads");
  for (const Shape& wrong : {Shape{2, 4, 3, 4}, Shape{1, 4, 3, 5}, Shape{4, 3, 5}})
    CHECK_THROWS_WITH(call(x, ones(wrong), ones(wrong)), Containing("accepted: q [B, H, M, F]"));
  CHECK_THROWS_WITH(call(x, x, x.to(f64)), Containing("all must have one floating-point dtype"));
  CHECK_THROWS_WITH(call(x, x.slice(2, 1), x.slice(2, 1)),
                    "[gated_linear_attention] 3 queries for 2 keys; accepted: at most as many "
                    "queries as keys, because no query may precede the keys");
  CHECK_THROWS_WITH(call(x, x, x, {.log_decay = ones({3})}),
                    "[gated_linear_attention] log_decay f32 [3]; must be floating-point [4], [2, "
                    "4, 3] or [2, 4, 3, 5]");
  CHECK_THROWS_WITH(call(x, x, x, {.beta = ones({4})}),
                    "[gated_linear_attention] beta f32 [4]; must be floating-point [2, 4, 3]");
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {}}),
                    "[gated_linear_attention] the mask is not causal; accepted: a causal mask, as "
                    "the state holds only earlier positions");
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {.causal = true, .window = 2}}),
                    "[gated_linear_attention] window is set; accepted: causal, key_padding and "
                    "segments, as there are no scores to mask");
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {.causal = true, .key_padding = ones({2, 3})}}),
                    "[gated_linear_attention] key_padding f32 [2, 3]; must be bool or u8 [2, 3]");
  CHECK_THROWS_WITH(call(x, x, x, {.mask = {.causal = true, .segments = ones({2, 3})}}),
                    "[gated_linear_attention] segments f32 [2, 3]; must be i64 or i32 [2, 3]");
  const Tensor apart = tensor<int64_t>({0, 0, 0, 1, 2, 1}).reshape({2, 3});
  if (!default_device().is_cuda())
    CHECK_THROWS_WITH(call(x, x, x, {.mask = {.causal = true, .segments = apart}}),
                      "[gated_linear_attention] segment 1 of batch entry 1 is not contiguous; "
                      "accepted: contiguous segments, as the state is cleared between them");
  CHECK_THROWS_WITH(call(x, x, x, {.chunk = 0}),
                    "[gated_linear_attention] chunk 0; must be at least 1");
  CHECK_THROWS_WITH(call(x, x, x, {.scale = std::nan("")}),
                    "[gated_linear_attention] scale nan; must be finite");

  LinearState state;
  gated_linear_attention(x, x, x, state);
  const Tensor before = state.sums.clone();
  CHECK_THROWS_WITH(gated_linear_attention(x.slice(2, 1), x, x, state),
                    "[gated_linear_attention] 2 queries and 3 keys continue a state; accepted: a "
                    "query for each key");
  CHECK_THROWS_WITH(
      gated_linear_attention(x, x, x, state, {.mask = {.causal = true, .segments = apart}}),
      "[gated_linear_attention] segments with a state; accepted: none, as a state does not store "
      "its last segment");
  CHECK_THROWS_WITH(gated_linear_attention(x, x, x.slice(3, 1), state),
                    "[gated_linear_attention] the state is f32 [2, 4, 5, 5]; for q f32 [2, 4, 3, "
                    "5], k f32 [2, 4, 3, 5] and v f32 [2, 4, 3, 4] it must be f32 [2, 4, 5, 4]");
  CHECK(same_bits(state.sums, before));
  CHECK(state.length == 3);
}
