// FAVOR+ with queries and keys of any norm: the output is that of log-sum-exp arithmetic, in one
// pass, with a state and over several processes. STRETTO_FUZZ_ROUNDS=n runs n cases.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "autograd/tape.h"
#include "core/error.h"
#include "nn/attention/attention.h"
#include "nn/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/gradcheck.h"
#include "tests/support/process_threads.h"

using namespace stretto;
using nn::AttentionInputs;
using testing::fixed_noise;
using testing::worst_error;

namespace {

uint64_t rounds(uint64_t ordinary) {
  const char* text = std::getenv("STRETTO_FUZZ_ROUNDS");
  return text != nullptr ? std::stoull(text) : ordinary;
}

bool on_gpu() { return default_device().is_cuda(); }

struct Model : nn::Module {
  Model(const nn::FavorOptions& favor, int64_t d, int64_t heads, nn::LinearKernelOptions o = {}) {
    manual_seed(3);
    kernel = nn::linear_kernel(nn::favor(favor), o)(*this, {heads, d, d, heads * d});
  }
  const Tensor& projection() const {
    const auto& linear = dynamic_cast<const nn::LinearKernel&>(*kernel);
    return dynamic_cast<const nn::Favor&>(linear.feature_map()).projection;
  }
  std::unique_ptr<nn::AttentionKernel> kernel;
};

// Computes Σ_j e^s_ij v_j / Σ_j e^s_ij with s_ij = log Σ_f φ_f(q_i) φ_f(k_j), in f64.
Tensor by_definition(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& projection,
                     bool pairs, const AttentionMask& mask) {
  const int64_t heads = q.size(1), m = q.size(2), n = k.size(2);
  const double scale = std::pow(double(q.size(3)), -0.25);
  const auto of_head = [&](const Tensor& x) {
    const Tensor wide = x.to(f64);
    return wide.unsqueeze(2)
        .expand({x.size(0), x.size(1), heads / x.size(1), x.size(2), x.size(3)})
        .reshape({x.size(0), heads, x.size(2), x.size(3)});
  };
  const auto exponents = [&](const Tensor& x) {
    const Tensor u = linear(x * scale, projection.to(f64));
    return pairs ? cat({u, -u}, 3) : u;
  };
  const Tensor keys = of_head(k), values = of_head(v);
  const Tensor a = exponents(keys) - sum(square(keys * scale), {3}, true) * 0.5;
  Tensor s = logsumexp(exponents(q.to(f64)).unsqueeze(3) + a.unsqueeze(2), -1);
  constexpr double never = -std::numeric_limits<double>::infinity();
  if (const Tensor hidden = attention_mask(m, n, mask); hidden.defined())
    s = masked_fill(s, hidden, never);
  if (mask.key_padding.defined())
    s = masked_fill(s, mask.key_padding.unsqueeze(1).unsqueeze(1), never);
  return matmul(softmax(s, -1), values);
}

struct Dice {
  uint64_t number, index = 0;
  uint64_t below(uint64_t n) { return random_bits({.seed = 78, .stream = number}, index++) % n; }
  double one_of(std::initializer_list<double> x) { return x.begin()[below(x.size())]; }
};

// Inputs of random sizes, masks and norms of queries and keys.
struct Case {
  int64_t batch, heads = 2, groups, m, n, d, features;
  DType dtype;
  nn::FavorKind kind;
  nn::LinearKernelOptions options;
  AttentionMask mask;
  Tensor q, k, v;
  double largest = 0;  // largest exponent

  explicit Case(uint64_t number, bool decoding) {
    Dice dice{number};
    batch = 1 + int64_t(dice.below(2)), groups = 1 + int64_t(dice.below(2));
    m = 1 + int64_t(dice.below(12));
    n = decoding ? m : std::max<int64_t>(1, m + int64_t(dice.below(5)) - 2);
    d = int64_t(dice.one_of({1, 4, 8, 64, 128})), features = int64_t(dice.one_of({2, 8, 32}));
    dtype = dice.below(2) ? f64 : f32;
    kind = dice.below(2) ? nn::FavorKind::positive : nn::FavorKind::hyperbolic;
    options.chunk = 1 + int64_t(dice.below(8));
    options.implementation = dice.below(2) ? Implementation::automatic : Implementation::composed;
    mask.causal = decoding || dice.below(3) > 0;
    if (!decoding && dice.below(3) == 0) {
      mask.key_padding = zeros({batch, n}, {.dtype = u8});
      mask.key_padding[0].slice(0, 0, 1 + int64_t(dice.below(uint64_t(n)))).fill_(1);
    }
    const auto sizes = [&] { return dice.one_of({0.3, 1, 3, 5.5, 7.5, 12, 30, 100}); };
    const double of_q = sizes(), of_k = sizes(), offset = dice.one_of({0, 0, 7.5, -20});
    q = fixed_noise({batch, heads, m, d}, 3 * number) * of_q;
    k = fixed_noise({batch, groups, n, d}, 3 * number + 1) * of_k;
    if (offset != 0) k = k + offset;
    if (dice.below(4) == 0) q = q - offset;               // far from all keys
    if (const uint64_t turn = dice.below(4); turn < 2) {  // keys with large norms last, or first
      const Tensor ramp = arange(0, double(n), 1, {.dtype = f64}).reshape({1, 1, n, 1}) / double(n);
      k = k * (turn == 0 ? ramp : 1 - ramp);
    }
    v = fixed_noise({batch, groups, n, 3}, 3 * number + 2);
    for (Tensor* x : {&q, &k, &v}) *x = x->to(dtype).detach().set_requires_grad();
  }

  Model model() const { return Model({.features = features, .kind = kind}, d, heads, options); }
  AttentionInputs inputs(int64_t begin, int64_t end, nn::ProcessGroup* group = nullptr) const {
    AttentionInputs c{q.slice(2, begin, end), k.slice(2, begin, end), v.slice(2, begin, end), {}};
    c.options.mask = mask;
    c.forward.sequence_group = group;
    return c;
  }
  // Exponents have an error relative to their size, which is the relative error of the results.
  double tolerance(const Model& model) const {
    const double scale = std::pow(double(d), -0.25);
    const auto norm = [&](const Tensor& x) {
      return std::sqrt(max(sum(square(x.detach().to(f64)), {-1})).item());
    };
    const double w = norm(model.projection()), a = norm(q) * scale, b = norm(k) * scale;
    return (dtype == f64 ? 0x1p-52 : 0x1p-23) * 4 * (8 + w * (a + b) + b * b);
  }
  std::string text(uint64_t number) const {
    return str("case ", number, ": ", dtype, ", q ", q, ", k ", k, ", ", features,
               kind == nn::FavorKind::positive ? " positive" : " hyperbolic",
               mask.causal ? ", causal" : "", mask.key_padding.defined() ? ", padded" : "");
  }
  Tensor expected(const Model& model) const {
    return by_definition(q, k, v, model.projection(), kind == nn::FavorKind::hyperbolic, mask);
  }
};

}  // namespace

TEST_CASE("Favor: queries and keys of any norm give the right output and gradients") {
  if (on_gpu()) return;
  for (uint64_t number = 0; number < rounds(60); ++number) {
    const Case c(number, false);
    INFO(c.text(number));
    const Model model = c.model();
    AttentionInputs inputs{c.q, c.k, c.v, {}};
    inputs.options.mask = c.mask;
    const Tensor y = (*model.kernel)(inputs), want = c.expected(model);
    const double tolerance = c.tolerance(model);
    REQUIRE(worst_error(y.to(f64), want) < tolerance);
    const Tensor g = fixed_noise(y.shape(), 9);
    const Tensors leaves{c.q, c.k, c.v}, got = grad({y}, leaves, {g.to(c.dtype)}),
                                         expected = grad({want}, leaves, {g});
    // Slopes of exponents are as large as rows of the projection and keys, and sums have M terms.
    for (size_t i = 0; i < 3; ++i)
      REQUIRE(worst_error(got[i].to(f64), expected[i].to(f64)) < 200 * tolerance);
  }
}

TEST_CASE("Favor: a continued state equals one pass, whatever the norm of the keys") {
  if (on_gpu()) return;
  const NoGrad guard;
  for (uint64_t number = 0; number < rounds(40); ++number) {
    const Case c(number, true);
    INFO(c.text(number));
    const Model model = c.model();
    LinearState state;
    Tensors rows;
    Dice dice{number + 1000000};
    for (int64_t at = 0, end; at < c.m; at = end) {
      end = std::min(c.m, at + 1 + int64_t(dice.below(3)));
      AttentionInputs inputs = c.inputs(at, end);
      inputs.state = &state;
      rows.push_back((*model.kernel)(inputs));
    }
    CHECK(state.length == c.m);
    REQUIRE(worst_error(cat(rows, 2).to(f64), c.expected(model)) < c.tolerance(model));
  }
}

TEST_CASE(
    "Favor: a sequence over several processes equals one pass, whatever the norm of the keys") {
  if (on_gpu()) return;
  for (uint64_t number = 0; number < std::min<uint64_t>(500, rounds(8)); ++number) {
    const Case c(number, true);
    if (c.m % 2 != 0) continue;
    INFO(c.text(number));
    const Model model = c.model();
    const Tensor want = c.expected(model), g = fixed_noise(want.shape(), 9);
    const Tensor dk = grad({want}, {c.k}, {g})[0];
    Tensors rows(2), gradients(2);
    testing::each_of(2, [&](nn::ProcessGroup& group) {
      const int64_t half = c.m / 2, begin = group.rank() * half;
      AttentionInputs inputs = c.inputs(begin, begin + half, &group);
      inputs.k = inputs.k.detach().clone().set_requires_grad();
      const auto at = size_t(group.rank());
      rows[at] = (*model.kernel)(inputs);
      gradients[at] =
          grad({rows[at]}, {inputs.k}, {g.slice(2, begin, begin + half).to(c.dtype)})[0];
    });
    REQUIRE(worst_error(cat(rows, 2).to(f64), want) < c.tolerance(model));
    REQUIRE(worst_error(cat(gradients, 2).to(f64), dk.to(f64)) < 200 * c.tolerance(model));
  }
}

TEST_CASE("Favor: queries and keys with large norms in bf16 have outputs and gradients") {
  if (on_gpu()) return;
  for (const double size : {5.5, 7.5, 20.0}) {
    const Model model({.features = 64}, 64, 2);
    const auto leaf = [&](uint64_t stream, double factor) {
      return (fixed_noise({1, 2, 9, 64}, stream) * factor).to(bf16).set_requires_grad();
    };
    const Tensor q = leaf(1, 1.7 * size), k = leaf(2, 1.7 * size), v = leaf(3, 1);
    AttentionInputs inputs{q, k, v, {}};
    const Tensor y = (*model.kernel)(inputs);
    CHECK(worst_error(y.to(f64), by_definition(q, k, v, model.projection(), false, {})) < 0.03);
    for (const Tensor& dx : grad({y}, {q, k, v}, {fixed_noise(y.shape(), 9).to(bf16)}))
      CHECK(max(abs(dx.to(f64))).item() > 0);
  }
}

TEST_CASE("Favor: weights and a reordered state are right for keys with large norms") {
  if (on_gpu()) return;
  const NoGrad guard;
  const Model model({.features = 32}, 64, 2);
  const auto noise = [](uint64_t stream) { return fixed_noise({2, 2, 6, 64}, stream) * 20; };
  AttentionInputs inputs{noise(1), noise(2), noise(3), {}};
  inputs.options.mask.causal = true;
  const Tensor w = model.kernel->weights(inputs);
  CHECK(worst_error(sum(w, {-1}), ones({2, 2, 6}, {.dtype = f64})) < 1e-12);
  CHECK(worst_error(matmul(w, inputs.v), (*model.kernel)(inputs)) < 1e-10);

  const auto rows = [&](int64_t begin, int64_t end) {
    AttentionInputs part{inputs.q.slice(2, begin, end), inputs.k.slice(2, begin, end),
                         inputs.v.slice(2, begin, end), inputs.options};
    return part;
  };
  LinearState state;
  AttentionInputs first = rows(0, 4), rest = rows(4, 6);
  first.state = rest.state = &state;
  (*model.kernel)(first);
  const Tensor order = tensor<int64_t>({1, 0});
  state.reorder(order);
  for (Tensor* x : {&rest.q, &rest.k, &rest.v}) *x = index_select(*x, 0, order);
  const Tensor want = index_select((*model.kernel)(inputs), 0, order).slice(2, 4);
  CHECK(worst_error((*model.kernel)(rest), want) < 1e-10);
}

TEST_CASE("Favor: a head whose features all underflow in training is an error") {
  const Model model({.features = 16}, 64, 2, {.eps = 1e-6});
  Tensor k = fixed_noise({1, 2, 5, 64}, 1, f32) * 0.5;
  k.slice(1, 1, 2).copy_(k.slice(1, 1, 2) * 100);
  AttentionInputs inputs{fixed_noise({1, 2, 5, 64}, 2, f32),
                         k.set_requires_grad(),
                         fixed_noise({1, 2, 5, 64}, 3, f32),
                         {}};
  const auto message = [&] {
    return testing::error_of<Error>([&] {
      (*model.kernel)(inputs);
      synchronize(default_device());  // a GPU reports the error here
    });
  };
  CHECK(message() ==
        "[LinearKernel] in head 1 of 2 all products of the features of Favor(16 positive, "
        "orthogonal) are 0, with eps 1e-06, so that the head gets no gradient; reduce the norms of "
        "queries and keys (qk_norm, a smaller learning rate), or use eps 0 with Stabilizer::max");
  if (on_gpu()) {  // a head without visible keys is not an error
    inputs.options.mask.key_padding = ones({1, 5}, {.dtype = DType::boolean});
    CHECK(message() == "(nothing thrown)");
    inputs.options.mask.key_padding = {};
  }
  const NoGrad guard;
  CHECK(max(abs((*model.kernel)(inputs).slice(1, 1, 2))).item() < 1e-6);
}
