// Both implementations of linear attention with decay against loops over the definition.
#include "ops/attention/gated_linear_attention.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/random.h"
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

enum class Decay { none, head, token, feature };
enum class Strength { mild, extreme };  // decays in [e^−2, 1], or 0, 1e-30, 1 and some of these

struct Setup {
  int64_t batch = 2, heads = 2, q_heads = 2, k_heads = 2, v_heads = 2;
  int64_t queries = 5, keys = 5;
  int64_t f = 4, d_value = 3;
  Decay decay = Decay::token;
  bool delta = false;
  Strength strength = Strength::mild;
  int64_t padded = 0;   // n > 0: every n-th key is padded
  int64_t segment = 0;  // n > 0: segments of n positions
  int64_t chunk = 64;
};

std::string describe(const Setup& s) {
  return str("B ", s.batch, ", heads ", s.q_heads, " ", s.k_heads, " ", s.v_heads, ", M ",
             s.queries, ", N ", s.keys, ", F ", s.f, ", Dv ", s.d_value, ", decay ", int(s.decay),
             s.delta ? ", delta" : "", s.strength == Strength::extreme ? ", extreme" : "",
             ", padded ", s.padded, ", segment ", s.segment, ", chunk ", s.chunk);
}

// The logarithms of decays from numbers in [−1, 1).
Tensor decays(const Tensor& noise, Strength strength) {
  if (strength == Strength::mild) return noise - 1;
  std::vector<double> values = noise.to_vector<double>();
  for (double& x : values)
    x = x < -0.6   ? -std::numeric_limits<double>::infinity()
        : x < -0.2 ? std::log(1e-30)
        : x < 0.4  ? 0
                   : x - 1;
  return tensor(values, noise.shape());
}

// Queries and values in [−1, 1), keys of norm at most 1, β in [0, 1).
struct Inputs {
  Tensor q, k, v;
  GatedLinearAttentionOptions options;

  explicit Inputs(const Setup& s, DType dtype = f64, uint64_t seed = 0) {
    const auto noise = [&](const Shape& shape, uint64_t stream) {
      return fixed_noise(shape, 10 * seed + stream);
    };
    q = noise({s.batch, s.q_heads, s.queries, s.f}, 1).to(dtype);
    k = (noise({s.batch, s.k_heads, s.keys, s.f}, 2) / std::sqrt(double(s.f))).to(dtype);
    v = noise({s.batch, s.v_heads, s.keys, s.d_value}, 3).to(dtype);
    options.chunk = s.chunk;
    Shape shape{s.batch, s.heads, s.keys};
    if (s.decay == Decay::head) shape = {s.heads};
    if (s.decay == Decay::feature) shape.push_back(s.f);
    const DType wide = compute_type(dtype);
    if (s.decay != Decay::none) options.log_decay = decays(noise(shape, 4), s.strength).to(wide);
    if (s.delta) options.beta = ((noise({s.batch, s.heads, s.keys}, 5) + 1) / 2).to(wide);
    const auto of_tokens = [&](auto f) {
      std::vector<int64_t> values;
      for (int64_t b = 0; b < s.batch; ++b)
        for (int64_t t = 0; t < s.keys; ++t) values.push_back(f(b, t));
      return tensor(values, {s.batch, s.keys});
    };
    if (s.padded > 0)
      options.mask.key_padding = of_tokens([&](int64_t b, int64_t t) {
                                   return int64_t((t + b) % s.padded == 0);
                                 }).to(boolean);
    if (s.segment > 0)
      options.mask.segments =
          of_tokens([&](int64_t b, int64_t t) { return 7 - (t + b) / s.segment; });
  }
  Tensor operator()(Implementation implementation) const {
    GatedLinearAttentionOptions o = options;
    o.implementation = implementation;
    return gated_linear_attention(q, k, v, o);
  }
  Tensor reference() const { return reference::gated_linear_attention(q, k, v, options); }

  // The inputs that have gradients, and the call as a function of them.
  Tensors leaves() const {
    Tensors all{q, k, v};
    for (const Tensor& x : {options.log_decay, options.beta})
      if (x.defined()) all.push_back(x);
    for (Tensor& x : all) x = x.detach().clone().set_requires_grad();
    return all;
  }
  Tensor of(const Tensors& x, Implementation implementation) const {
    GatedLinearAttentionOptions o = options;
    o.implementation = implementation;
    size_t next = 3;
    if (o.log_decay.defined()) o.log_decay = x[next++];
    if (o.beta.defined()) o.beta = x[next];
    return gated_linear_attention(x[0], x[1], x[2], o);
  }
  Tensors gradients(Implementation implementation) const {
    const Tensors x = leaves();
    const Tensor y = of(x, implementation);
    y.backward(fixed_noise(y.shape(), 9, y.dtype()));
    Tensors all{y.detach()};
    for (const Tensor& leaf : x) all.push_back(leaf.grad());
    return all;
  }
};

std::vector<Setup> some_setups() {
  std::vector<Setup> all;
  for (const Decay decay : {Decay::none, Decay::head, Decay::token, Decay::feature})
    for (const bool delta : {false, true}) {
      all.push_back({.decay = decay, .delta = delta, .chunk = 3});
      all.push_back({.batch = 1,
                     .heads = 4,
                     .q_heads = 4,
                     .k_heads = 1,
                     .queries = 4,
                     .keys = 7,
                     .decay = decay,
                     .delta = delta,
                     .padded = 3});
      all.push_back({.batch = 1,
                     .q_heads = 1,
                     .k_heads = 1,
                     .queries = 6,
                     .keys = 6,
                     .f = 2,
                     .decay = decay,
                     .delta = delta,
                     .segment = 2,
                     .chunk = 4});
    }
  return all;
}

Setup random_setup(uint64_t seed) {
  uint64_t next = 0;
  const auto below = [&](int64_t n) {
    return int64_t(random_bits({.seed = 35, .stream = seed}, next++) % uint64_t(n));
  };
  Setup s{.batch = 1 + below(2), .heads = 1 + below(4)};
  const auto divisor = [&] {
    int64_t d = 1 + below(s.heads);
    while (s.heads % d != 0) --d;
    return d;
  };
  s.q_heads = divisor(), s.k_heads = divisor(), s.v_heads = divisor();
  int64_t* const heads[] = {&s.q_heads, &s.k_heads, &s.v_heads};
  *heads[below(3)] = s.heads;
  s.keys = 1 + below(below(4) == 0 ? 150 : 40);
  s.queries = below(3) == 0 ? 1 + below(s.keys) : s.keys;
  s.f = 1 + below(12), s.d_value = 1 + below(9);
  s.decay = Decay(below(4));
  s.delta = below(2) == 0;
  s.strength = Strength(below(2));
  if (below(4) == 0) s.padded = 2 + below(5);
  if (below(4) == 0) s.segment = 1 + below(20);
  s.chunk = below(2) == 0 ? 1 + below(20) : below(2) == 0 ? 64 : 24;
  return s;
}

}  // namespace

TEST_CASE("gated_linear_attention agrees with the reference in random setups") {
  NoGrad guard;
  for (uint64_t seed = 0; seed < testing::some_of(2000); ++seed) {
    const Setup s = random_setup(seed);
    INFO(describe(s));
    for (const DType dtype : {f64, f32}) {
      const Inputs in(s, dtype, seed);
      const Tensor want = in.reference();
      for (const Implementation implementation : implementations()) {
        if (implementation == Implementation::composed && seed % 4 > 0) continue;
        INFO(name(implementation) << ", " << name(dtype));
        const Tensor got = in(implementation);
        CHECK(got.dtype() == dtype);
        CHECK(worst_error(got, want) <= (dtype == f64 ? 1e-10 : 3e-6));
      }
    }
  }
}

TEST_CASE("gated_linear_attention: gradients equal finite differences", "[exhaustive]") {
  for (const Setup& s : some_setups()) {
    const Inputs in(s);
    for (const Implementation implementation : implementations()) {
      INFO(name(implementation) << ", " << describe(s));
      testing::check_gradients([&](const Tensors& x) { return in.of(x, implementation); },
                               in.leaves(), s.batch * s.heads == 2 && s.f == 2);
    }
  }
}

TEST_CASE("gated_linear_attention: both implementations have the same gradients") {
  if (default_device().is_cuda()) return;
  for (uint64_t seed = 0; seed < testing::some_of(300); ++seed) {
    const Setup s = random_setup(seed);
    INFO(describe(s));
    for (const DType dtype : {f64, f32}) {
      const Inputs in(s, dtype, seed);
      const Tensors fused = in.gradients(Implementation::fused);
      const Tensors composed = Inputs(s, f64, seed).gradients(Implementation::composed);
      for (size_t i = 0; i < fused.size(); ++i) {
        INFO("gradient " << i);
        CHECK(worst_error(fused[i], composed[i]) <= (dtype == f64 ? 1e-10 : 1e-5));
      }
    }
  }
}

TEST_CASE("gated_linear_attention: gradients of decays of 0, 1e-30 and 1 are finite") {
  for (const DType dtype : {f64, f32})
    for (const Decay decay : {Decay::head, Decay::token, Decay::feature})
      for (const bool delta : {false, true})
        for (const double log_alpha :
             {-std::numeric_limits<double>::infinity(), std::log(1e-30), -1e30, 0.0})
          for (const Implementation implementation : implementations()) {
            Inputs in({.queries = 70, .keys = 70, .decay = decay, .delta = delta}, dtype);
            in.options.log_decay =
                full(in.options.log_decay.shape(), log_alpha, options_of(in.options.log_decay));
            INFO(name(implementation) << ", " << name(dtype) << ", decay " << int(decay)
                                      << (delta ? ", delta, " : ", ") << log_alpha);
            const Tensors g = in.gradients(implementation);
            CHECK(worst_error(g[0], in.reference()) <= (dtype == f64 ? 1e-10 : 3e-6));
            for (const Tensor& x : g) CHECK(std::isfinite(max(abs(x)).item()));
            // A gradient of log α has the factor α, exactly.
            const double largest = max(abs(g[4])).item();
            if (log_alpha < -100) CHECK(largest == 0);
            if (log_alpha < -60 && log_alpha > -100) CHECK(largest < 1e-27);
            if (log_alpha == 0) CHECK(largest > 0.01);
          }
}

TEST_CASE("gated_linear_attention: segments equal separate sequences") {
  for (const Implementation implementation : implementations()) {
    Inputs in({.batch = 1, .queries = 12, .keys = 12, .delta = true, .chunk = 4});
    in.options.mask.segments = tensor<int64_t>({0, 0, 0, 0, 0, 5, 5, 5, 5, 2, 2, 2}).unsqueeze(0);
    Tensors parts;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{0, 5}, {5, 9}, {9, 12}}) {
      const auto cut = [from = from, to = to](const Tensor& x) { return x.slice(2, from, to); };
      GatedLinearAttentionOptions o{.log_decay = cut(in.options.log_decay),
                                    .beta = cut(in.options.beta),
                                    .implementation = implementation};
      parts.push_back(gated_linear_attention(cut(in.q), cut(in.k), cut(in.v), o));
    }
    CHECK(worst_error(in(implementation), cat(parts, 2)) < 1e-14);
  }
}

TEST_CASE("gated_linear_attention: padding may have any values") {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const Implementation implementation : implementations()) {
    Inputs in({.queries = 9, .keys = 9, .decay = Decay::feature, .delta = true, .padded = 3});
    const Tensors want = in.gradients(implementation);
    const Tensor hidden = in.options.mask.key_padding.unsqueeze(1);
    in.k = masked_fill(in.k, hidden.unsqueeze(3), nan);
    in.v = masked_fill(in.v, hidden.unsqueeze(3), nan);
    in.options.log_decay = masked_fill(in.options.log_decay, hidden.unsqueeze(3), nan);
    in.options.beta = masked_fill(in.options.beta, hidden, nan);
    const Tensors got = in.gradients(implementation);
    for (size_t i = 0; i < want.size(); ++i) CHECK(same_bits(got[i], want[i]));
  }
}

TEST_CASE("gated_linear_attention: bf16 is computed in f32 and rounded once") {
  for (const Decay decay : {Decay::head, Decay::feature}) {
    const Setup s{.queries = 30, .keys = 40, .f = 8, .decay = decay, .delta = true};
    const Inputs in(s, bf16);
    Inputs wide = in;
    for (Tensor* x : {&wide.q, &wide.k, &wide.v}) *x = x->to(f32);
    const Implementation automatic = Implementation::automatic;
    CHECK(same_bits(in(automatic), wide(automatic).to(bf16)));
    const Tensors leaves = in.leaves();
    in.of(leaves, automatic).backward(ones_like(in(automatic)));
    const Tensors wide_leaves = wide.leaves();
    wide.of(wide_leaves, automatic).backward(ones_like(wide(automatic)));
    for (size_t i = 0; i < leaves.size(); ++i)
      CHECK(same_bits(leaves[i].grad(), wide_leaves[i].grad().to(leaves[i].dtype())));
  }
}

TEST_CASE("gated_linear_attention: 1 to 4 threads are bit-identical") {
  const int before = num_threads();
  for (const Decay decay : {Decay::token, Decay::feature})
    for (const DType dtype : {f64, f32}) {
      const Setup s{.heads = 4,
                    .q_heads = 4,
                    .k_heads = 2,
                    .v_heads = 4,
                    .queries = 90,
                    .keys = 100,
                    .decay = decay,
                    .delta = true,
                    .chunk = 16};
      Tensors one;
      for (int threads = 1; threads <= 4; ++threads) {
        set_num_threads(threads);
        const Tensors got = Inputs(s, dtype).gradients(Implementation::automatic);
        if (threads == 1) one = got;
        for (size_t i = 0; i < got.size(); ++i) CHECK(same_bits(got[i], one[i]));
      }
      set_num_threads(before);
    }
}

TEST_CASE("gated_linear_attention accepts strided inputs") {
  for (const Decay decay : {Decay::token, Decay::feature})
    for (const Implementation implementation : implementations()) {
      const Setup s{.queries = 9, .keys = 11, .decay = decay, .delta = true, .chunk = 4};
      Inputs in(s);
      const Tensor want = in(implementation);
      for (Tensor* x : {&in.q, &in.k, &in.v, &in.options.log_decay, &in.options.beta})
        *x = testing::strided_copy(*x);
      CHECK(same_bits(in(implementation), want));
    }
}
