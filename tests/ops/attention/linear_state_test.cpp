// The state of linear attention: a sequence in chunks, down to one token at a time.
#include <cmath>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/implementations.h"
#include "tests/support/memory_failures.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"  // false alarms on options inside options
#endif

using namespace stretto;
using testing::fail_until_it_fits;
using testing::fixed_noise;
using testing::name;
using testing::same_bits;
using testing::Way;
using testing::ways;
using testing::worst_error;

namespace {

bool on_gpu() { return default_device().is_cuda(); }

// How far two results may differ: by `exact` in f64; in f32 by sums of at most 40 terms each, in
// bf16 by a rounding of the products and one of the result.
double allowed_difference(const Way& way, double exact) {
  return way.dtype == f64 ? exact : way.dtype == f32 ? 4 * 40 * 0x1p-24 : 2 * 0x1p-8;
}

// A GPU does not fuse empty tensors.
Implementation supported(Implementation implementation) {
  return on_gpu() && implementation == Implementation::fused ? Implementation::automatic
                                                             : implementation;
}

// On a GPU, in f32 and bf16, dimensions that its kernels support.
struct Sequence {
  int64_t f, d_value;
  Tensor q, k, v, padding;

  explicit Sequence(int64_t length, DType dtype = f64, int64_t heads = 4, int64_t key_heads = 2)
      : f(on_gpu() && dtype != f64 ? 8 : 5),
        d_value(on_gpu() && dtype != f64 ? 16 : 3),
        q((fixed_noise({2, heads, length, f}, 1) + 1.1).to(dtype)),
        k((fixed_noise({2, key_heads, length, f}, 2) + 1.1).to(dtype)),
        v(fixed_noise({2, key_heads, length, d_value}, 3, dtype)) {}

  Tensor piece(int64_t at, int64_t n, LinearState& state, LinearAttentionOptions o) const {
    auto cut = [&](const Tensor& x) { return x.slice(2, at, at + n); };
    if (padding.defined()) o.mask.key_padding = padding.slice(1, at, at + n);
    return linear_attention(cut(q), cut(k), cut(v), state, o);
  }
  Tensor in_pieces(const std::vector<int64_t>& sizes, LinearState& state,
                   const LinearAttentionOptions& o) const {
    Tensors parts;
    int64_t at = 0;
    for (const int64_t n : sizes) {
      parts.push_back(piece(at, n, state, o));
      at += n;
    }
    return cat(parts, 2);
  }
  Tensor whole(LinearAttentionOptions o) const {
    o.mask.key_padding = padding;
    return linear_attention(q, k, v, o);
  }
};

}  // namespace

TEST_CASE("LinearState: a sequence in chunks equals one pass") {
  NoGrad guard;
  const int64_t l = 23;
  for (const bool padded : {false, true})
    for (const Way& way : ways())
      for (const std::vector<int64_t>& sizes :
           {std::vector<int64_t>(size_t(l), 1), {7, 1, 1, 0, 5, 9}, {23}, {1, 22}}) {
        INFO(name(way));
        Sequence x(l, way.dtype);
        if (padded) {
          x.padding = zeros({2, l}, {.dtype = boolean});
          x.padding[1].slice(0, 0, 9).fill_(1);
        }
        const LinearAttentionOptions o{.mask = {.causal = true},
                                       .eps = 1e-3,
                                       .chunk = 4,
                                       .implementation = supported(way.implementation)};
        LinearState state;
        CHECK(worst_error(x.in_pieces(sizes, state, o), x.whole(o)) <
              allowed_difference(way, 1e-14));
        CHECK(state.length == l);
        CHECK(state.sums.shape() == Shape{2, 2, x.f, x.d_value + 1});
      }
}

TEST_CASE("LinearState: s and z are the sums over the keys") {
  NoGrad guard;
  for (const Way& way : ways()) {
    INFO(name(way));
    const Sequence x(9, way.dtype);
    LinearState state;
    x.in_pieces({4, 5}, state, {.mask = {.causal = true}, .implementation = way.implementation});
    const double off = way.dtype == f64 ? 1e-14 : 2 * 9 * 0x1p-24;  // bf16 has f32 sums too
    CHECK(worst_error(state.s(), matmul(x.k.to(f64).transpose(2, 3), x.v.to(f64))) < off);
    CHECK(worst_error(state.z(), sum(x.k.to(f64), {2})) < off);
  }
}

TEST_CASE("LinearState: queries without keys can read a context from the state") {
  NoGrad guard;
  for (const Way& way : ways())
    for (const bool causal : {false, true}) {
      INFO(name(way));
      const Implementation implementation = supported(way.implementation);
      const Sequence context(11, way.dtype), reader(6, way.dtype);
      const Tensor none = context.k.slice(2, 0, 0), no_values = context.v.slice(2, 0, 0);
      const Tensor want = linear_attention(reader.q, context.k, context.v);
      LinearState state;
      // Keys without queries: they are added to the state and the output is empty.
      const Tensor nothing =
          linear_attention(context.q.slice(2, 0, 0), context.k, context.v, state,
                           {.mask = {.causal = causal}, .implementation = implementation});
      CHECK(nothing.shape() == Shape{2, 4, 0, context.d_value});
      const LinearAttentionOptions o{.mask = {.causal = causal}, .implementation = implementation};
      const Tensor y = linear_attention(reader.q, none, no_values, state, o);
      CHECK(worst_error(y, want) < allowed_difference(way, 1e-14));
      CHECK(state.length == 11);
      // Without a causal mask the queries also see all new keys.
      const Tensor more =
          linear_attention(reader.q, reader.k, reader.v, state, {.implementation = implementation});
      CHECK(worst_error(more, linear_attention(reader.q, cat({context.k, reader.k}, 2),
                                               cat({context.v, reader.v}, 2))) <
            allowed_difference(way, 1e-14));
    }
}

TEST_CASE("LinearState: an empty batch and empty heads are chunks too") {
  const NoGrad guard;
  for (const Shape& shape : {Shape{0, 4, 3, 5}, Shape{0, 4, 1, 5}, Shape{2, 4, 3, 0}})
    for (const Implementation implementation :
         {Implementation::composed, supported(Implementation::fused)}) {
      const Tensor x = ones(shape, {.dtype = f64});
      LinearState state;
      for (int piece = 0; piece < 2; ++piece) {
        const Tensor y = linear_attention(
            x, x, x, state, {.mask = {.causal = true}, .implementation = implementation});
        CHECK(y.shape() == shape);
      }
      CHECK(state.sums.shape() == Shape{shape[0], 4, shape[3], shape[3] + 1});
      CHECK(state.length == 2 * shape[2]);
    }
}

TEST_CASE("LinearState: its size does not grow with the sequence") {
  NoGrad guard;
  const Sequence x(600, f32, 2, 2);
  LinearState state;
  auto live_after = [&](int64_t at) {
    const Tensor y = x.piece(at, 1, state, {.mask = {.causal = true}});
    return memory_stats().live;
  };
  live_after(0);
  const int64_t bytes = state.sums.storage().bytes, live = live_after(1);
  CHECK(bytes == 2 * 2 * x.f * (x.d_value + 1) * 4);
  for (int64_t at = 2; at < 600; ++at) CHECK(live_after(at) == live);
  CHECK(state.sums.storage().bytes == bytes);
}

TEST_CASE("LinearState: a copy is independent of the original") {
  NoGrad guard;
  for (const auto& [implementation, dtype] : ways()) {
    const LinearAttentionOptions o{.mask = {.causal = true}, .implementation = implementation};
    const Sequence x(12, dtype);
    LinearState state;
    x.in_pieces({5}, state, o);
    LinearState copy = state;
    const Tensor s = state.s(), before = s.clone();
    const Tensor y = x.piece(5, 7, state, o);
    CHECK(same_bits(s, before));
    CHECK(copy.length == 5);
    CHECK(same_bits(x.piece(5, 7, copy, o), y));
  }
}

TEST_CASE("LinearState: reorder() permutes the batch rows") {
  NoGrad guard;
  for (const Way& way : ways()) {
    const Sequence x(8, way.dtype);
    const LinearAttentionOptions o{.mask = {.causal = true}, .implementation = way.implementation};
    LinearState state;
    state.reorder(tensor<int64_t>({1, 0}));  // an empty state stays empty
    CHECK(!state.sums.defined());
    x.in_pieces({5}, state, o);
    state.reorder(tensor<int64_t>({1, 1, 0}));
    CHECK(state.length == 5);
    auto rows = [](const Tensor& t) {
      return index_select(t.slice(2, 5), 0, tensor<int64_t>({1, 1, 0}));
    };
    const Tensor y = linear_attention(rows(x.q), rows(x.k), rows(x.v), state, o);
    CHECK(worst_error(y, rows(x.whole(o))) < allowed_difference(way, 1e-14));
  }
}

TEST_CASE("LinearState: gradients flow through it in the composed implementation") {
  Sequence x(9, f64, 2, 1);
  auto gradients = [&](auto&& f) {
    for (Tensor* t : {&x.q, &x.k, &x.v}) *t = t->detach().clone().set_requires_grad();
    const Tensor y = f();
    y.backward(fixed_noise(y.shape(), 5));
    return Tensors{y, x.q.grad(), x.k.grad(), x.v.grad()};
  };
  const LinearAttentionOptions o{.mask = {.causal = true}};
  const Tensors whole = gradients([&] { return x.whole(o); });
  const Tensors pieces = gradients([&] {
    LinearState state;
    return x.in_pieces({4, 1, 4}, state, o);
  });
  for (size_t i = 0; i < whole.size(); ++i) CHECK(worst_error(pieces[i], whole[i]) < 1e-13);

  // Detached from the tape, the past is a constant.
  LinearState state;
  const Tensors cut = gradients([&] {
    x.piece(0, 4, state, o);
    state.sums = state.sums.detach();
    return x.piece(4, 5, state, o);
  });
  CHECK(max(abs(cut[2].slice(2, 0, 4))).item() == 0);
  CHECK(max(abs(cut[2].slice(2, 4))).item() > 0);
  testing::check_gradients(
      [&](const Tensors& in) {
        LinearState from{in[3], 4};
        return linear_attention(in[0], in[1], in[2], from, {.mask = {.causal = true}, .eps = 0.1});
      },
      {fixed_noise({1, 2, 3, 2}, 1) + 1.5, fixed_noise({1, 1, 3, 2}, 2) + 1.5,
       testing::fixed_leaf({1, 1, 3, 2}, 3),
       (fixed_noise({1, 1, 2, 3}, 4) + 2).set_requires_grad()});
}

TEST_CASE("LinearState: the sums of bf16 inputs are f32") {
  NoGrad guard;
  const Sequence x(40, bf16);
  LinearState state;
  const LinearAttentionOptions o{.mask = {.causal = true}};
  const Tensor y = x.in_pieces(std::vector<int64_t>(40, 1), state, o);
  CHECK(y.dtype() == bf16);
  CHECK(state.sums.dtype() == f32);
  CHECK(worst_error(y, x.whole(o)) <= 0x1p-8);  // neighbors: each is rounded once
}

TEST_CASE("LinearState: errors leave the state unchanged") {
  NoGrad guard;
  const Sequence x(6);
  LinearState state;
  x.in_pieces({4}, state, {.mask = {.causal = true}});
  const Tensor before = state.sums.clone();
  auto with_keys = [&](int64_t n) {
    return linear_attention(x.q, x.k.slice(2, 0, n), x.v.slice(2, 0, n), state,
                            {.mask = {.causal = true}});
  };
  CHECK_THROWS_WITH(with_keys(5),
                    "[linear_attention] 6 queries and 5 keys continue a state causally; accepted: "
                    "a key for each query, or no keys, because no query may precede keys in the "
                    "state");
  CHECK_THROWS_WITH(linear_attention(x.q, x.k, x.v.slice(3, 0, 2), state, {}),
                    Containing("[linear_attention] the state is f64 [2, 2, 5, 4]; for k f64 [2, 2, "
                               "6, 5] and v f64 [2, 2, 6, 2] it must be f64 [2, 2, 5, 3]"));
  CHECK_THROWS_WITH(linear_attention(x.q.to(f32), x.k.to(f32), x.v.to(f32), state, {}),
                    Containing("it must be f32 [2, 2, 5, 4]"));
  GradMode on(!on_gpu());  // f64 on a GPU is composed and has a gradient
  const Tensor leaf = x.v.clone().set_requires_grad();
  if (!on_gpu())
    CHECK_THROWS_WITH(
        linear_attention(x.q, x.k, leaf, state,
                         {.mask = {.causal = true}, .implementation = Implementation::fused}),
        Containing("the fused implementation has no gradient through its state; use "
                   "Implementation::composed, or a NoGrad guard"));
  CHECK(same_bits(state.sums, before));
  CHECK(state.length == 4);
}

TEST_CASE("LinearState: running out of memory leaves the state unchanged") {
  const int threads = num_threads();
  NoGrad guard;
  for (const DType dtype : {f64, f32, bf16})
    for (const Implementation implementation : {Implementation::fused, Implementation::composed}) {
      if (on_gpu() && implementation == Implementation::fused && dtype == f64) continue;
      for (const bool copied : {false, true})
        for (int repeat = 0;
             repeat < (implementation == Implementation::fused && !on_gpu() ? 20 : 1); ++repeat) {
          set_num_threads(repeat == 0 ? 1 : 4);
          const Tensor q = fixed_noise({2, 6, 9, 8}, 1, dtype),
                       k = fixed_noise({2, 6, 9, 8}, 2, dtype),
                       v = fixed_noise({2, 6, 9, 8}, 3, dtype);
          LinearState undisturbed, disturbed;
          for (int64_t at = 0; at < 9; at += 3) {
            const auto call = [&](LinearState& state) {
              const auto part = [&](const Tensor& x) { return x.slice(2, at, at + 3); };
              return linear_attention(
                  part(q), part(k), part(v), state,
                  {.mask = {.causal = true}, .chunk = 2, .implementation = implementation});
            };
            const Tensor want = call(undisturbed);
            Tensor got;
            LinearState before = copied ? disturbed : LinearState{};
            CHECK(fail_until_it_fits([&] { got = call(disturbed); }, 64) > 2);
            CHECK(same_bits(got, want));
            CHECK(same_bits(disturbed.sums, undisturbed.sums));
            CHECK(disturbed.length == undisturbed.length);
            CHECK((!copied || before.length == at));
          }
        }
    }
  set_num_threads(threads);
}
