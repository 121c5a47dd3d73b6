#include "nn/attention/feature_map.h"

#include <cmath>

#include "autograd/tape.h"
#include "nn/attention/linear_attention.h"
#include "nn/init.h"
#include "nn/training/checkpoint.h"
#include "ops/attention/elu_features.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/reference/linear_attention.h"
#include "tests/reference/random_features.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::Favor;
using nn::FavorKind;
using nn::FavorOptions;
using nn::RowNorms;
using nn::Stabilizer;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr FavorKind kinds[] = {FavorKind::positive, FavorKind::hyperbolic, FavorKind::trigonometric,
                               FavorKind::generalized};
constexpr Side sides[] = {Side::query, Side::key};

// A module with one map, in f64.
struct Owner : nn::Module {
  explicit Owner(const FavorOptions& o, int64_t d = 6)
      : map(*this, {.n_heads = 2, .d_key = d, .d_value = d, .d_model = 2 * d}, o) {
    to(f64);
  }
  Favor map;
};

Tensor by_formula(const Favor& map, const Tensor& x) {
  switch (map.options.kind) {
    case FavorKind::positive:
      return reference::positive_features(x, map.projection);
    case FavorKind::hyperbolic:
      return reference::hyperbolic_features(x, map.projection);
    default:
      return reference::trigonometric_features(x, map.projection);
  }
}

// Returns (mean of `samples` − expected) in standard errors of the mean.
double deviation(const std::vector<double>& samples, double expected) {
  const auto n = double(samples.size());
  double mean = 0, squares = 0;
  for (const double s : samples) mean += s / n;
  for (const double s : samples) squares += (s - mean) * (s - mean);
  return (mean - expected) / std::sqrt(squares / (n - 1) / n);
}

}  // namespace

TEST_CASE("EluPlusOne and Relu equal their formulas") {
  nn::Module owner;
  const nn::EluPlusOne elu(owner, {});
  nn::Module other;
  const nn::ReluFeatures relu_map(other, {}, 1e-3);
  for (const int64_t d : {1, 41}) {
    const Tensor x = fixed_noise({2, 3, 5, d}, 1) * 4;
    for (const Side side : sides) {
      CHECK(worst_error(elu(x, side), reference::elu_plus_one(x)) < 1e-15);
      CHECK(worst_error(relu_map(x, side), reference::relu_plus(x, 1e-3)) < 1e-15);
    }
    CHECK(elu.features(d) == d);
    CHECK(relu_map.features(d) == d);
  }
  // Large arguments, and 0, where elu + 1 has slope 1 from both sides.
  const Tensor x = tensor(std::vector<double>{-1e300, -800, 0, 1e300}, {1, 1, 1, 4});
  const Tensor y = Tensor(x.clone()).set_requires_grad();
  const Tensor features = elu(y, Side::key);
  CHECK(features.to_vector<double>() == std::vector<double>{0, 0, 1, 1e300});
  sum(features).backward();
  CHECK(y.grad().to_vector<double>() == std::vector<double>{0, 0, 1, 1});
  testing::check_gradients([&](const Tensors& in) { return elu(in[0], Side::query); },
                           {testing::fixed_leaf({1, 1, 3, 4}, 1)});
  CHECK(relu_map.label() == "ReluFeatures(+ 0.001)");
  nn::Module third;
  CHECK_THROWS_WITH(nn::ReluFeatures(third, {}, -1),
                    "[ReluFeatures] epsilon -1; must be 0 or more");
}

TEST_CASE("orthogonal_features: each block has orthogonal rows") {
  for (const int64_t d : {1, 2, 7, 16})
    for (const RowNorms norms : {RowNorms::chi, RowNorms::sqrt_d}) {
      const int64_t rows = 2 * d + (d + 1) / 2;
      const Tensor w = nn::orthogonal_features(rows, d, {3, 4}, norms);
      CHECK(w.dtype() == f64);
      CHECK(w.shape() == Shape{rows, d});
      for (int64_t at = 0; at < rows; at += d) {
        const Tensor block = w.slice(0, at, at + d);
        const Tensor lengths = sqrt(sum(square(block), {1}, true));
        const Tensor q = block / lengths;
        CHECK(worst_error(matmul(q, q.transpose(0, 1)), eye(block.size(0), {.dtype = f64})) <
              1e-13);
        if (norms == RowNorms::sqrt_d)
          CHECK(worst_error(lengths, full(lengths.shape(), std::sqrt(double(d)), {.dtype = f64})) <
                1e-14);
      }
      // A function of the key; a larger projection begins with the rows of a smaller one.
      CHECK(same_bits(nn::orthogonal_features(rows, d, {3, 4}, norms), w));
      CHECK(same_bits(nn::orthogonal_features(rows - 1, d, {3, 4}, norms), w.slice(0, 0, -1)));
      CHECK(!same_bits(nn::orthogonal_features(rows, d, {3, 5}, norms), w));
    }
  CHECK(nn::orthogonal_features(0, 4, {}).shape() == Shape{0, 4});
  CHECK_THROWS_WITH(nn::orthogonal_features(-1, 4, {}),
                    "[orthogonal_features] -1 rows of dimension 4; accepted: 0 or more rows of "
                    "dimension 1 or more");
}

TEST_CASE("orthogonal_features: rows have the norms of normal vectors and uniform directions") {
  // |ω|² is chi-squared: mean D, variance 2D, so |ω|⁴ has mean D² + 2D; ω_i² has mean 1, and both
  // signs of any entry, also of a diagonal one, are equally likely.
  for (const int64_t d : {2, 8}) {
    const Tensor w = nn::orthogonal_features(d * 2000, d, {8, uint64_t(d)});
    const std::vector<double> at = w.to_vector<double>();
    std::vector<double> squares, fourths, corners, diagonal;
    for (int64_t row = 0; row < w.size(0); ++row) {
      double square_sum = 0;
      for (int64_t i = 0; i < d; ++i) square_sum += std::pow(at[size_t(row * d + i)], 2);
      squares.push_back(square_sum);
      fourths.push_back(square_sum * square_sum);
    }
    for (int64_t block = 0; block < 2000; ++block) {
      corners.push_back(std::pow(at[size_t(block * d * d)], 2));
      diagonal.push_back(at[size_t(block * d * d + (d - 1) * (d + 1))]);
    }
    CHECK(std::fabs(deviation(squares, double(d))) < 4);
    CHECK(std::fabs(deviation(fourths, double(d * d + 2 * d))) < 4);
    CHECK(std::fabs(deviation(corners, 1)) < 4);
    CHECK(std::fabs(deviation(diagonal, 0)) < 4);
  }
}

TEST_CASE("orthogonal_features: e^(ω·x − ½|x|²) has mean 1") {
  // At |x| = 1, along one axis and along the diagonal. The mean over a block is one sample, because
  // the rows of a block depend on each other.
  for (const auto& [d, blocks] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 4000}, {16, 2000}, {32, 600}, {64, 150}}) {
    const Tensor w = nn::orthogonal_features(d * blocks, d, {5, uint64_t(d)}).to(default_device());
    Tensor axis = zeros({d}, {.dtype = f64});
    axis.slice(0, 0, 1).fill_(1);
    for (const Tensor& x : {axis, full({d}, 1 / std::sqrt(double(d)), {.dtype = f64})}) {
      const Tensor features = exp(matmul(w, x) - 0.5).reshape({blocks, d});
      INFO("D " << d);
      CHECK(std::fabs(deviation(mean(features, {1}).to_vector<double>(), 1)) < 4);
    }
  }
}

TEST_CASE("Favor equals its formula") {
  for (const FavorKind kind : kinds)
    for (const bool orthogonal : {false, true})
      for (const int64_t d : {1, 6}) {
        manual_seed(3);
        const Owner o({.features = 10,
                       .kind = kind,
                       .orthogonal = orthogonal,
                       .stabilizer = Stabilizer::none},
                      d);
        const Tensor x = fixed_noise({2, 3, 5, d}, 1) * 3;
        for (const Side side : sides) {
          const Tensor y = o.map(x, side);
          CHECK(y.shape() == Shape{2, 3, 5, 10});
          if (kind != FavorKind::generalized) {
            CHECK(worst_error(y, by_formula(o.map, x)) < 1e-13);
            continue;
          }
          const Tensor u = matmul(x, o.map.projection.transpose(0, 1)) / std::pow(double(d), 0.25);
          CHECK(worst_error(y, reference::relu_plus(u, 1e-3)) < 1e-14);
        }
        CHECK(o.map.features(d) == 10);
      }
}

TEST_CASE("Favor: products of features are unbiased estimates of the softmax kernel") {
  // Independent rows: each is a sample of e^(q·k/√D).
  const int64_t d = 6, rows = 40000;
  const Tensor q = fixed_noise({1, 1, 1, d}, 1), k = fixed_noise({1, 1, 1, d}, 2);
  const double want = std::exp(sum(q * k).item() / std::sqrt(double(d)));
  for (const FavorKind kind :
       {FavorKind::positive, FavorKind::hyperbolic, FavorKind::trigonometric}) {
    manual_seed(5);
    const bool pairs = kind != FavorKind::positive;
    const Owner o({.features = pairs ? 2 * rows : rows,
                   .kind = kind,
                   .orthogonal = false,
                   .stabilizer = Stabilizer::none});
    const Tensor products = o.map(q, Side::query) * o.map(k, Side::key) * double(rows);
    const Tensor samples = sum(products.reshape({pairs ? 2 : 1, rows}), {0});
    CHECK(std::fabs(deviation(samples.to_vector<double>(), want)) < 4);
  }
}

TEST_CASE("Favor: the stabilizer cancels, and depends only on its own position") {
  const Tensor q = fixed_noise({2, 2, 9, 6}, 1) * 3, k = fixed_noise({2, 2, 9, 6}, 2) * 3;
  const Tensor v = fixed_noise({2, 2, 9, 4}, 3);
  for (const FavorKind kind : kinds) {
    auto output = [&](Stabilizer stabilizer) {
      manual_seed(3);
      const Owner o({.features = 16, .kind = kind, .stabilizer = stabilizer});
      for (const Side side : sides) {
        const Tensor whole = o.map(k, side), begin = o.map(k.slice(2, 0, 4), side);
        CHECK(worst_error(begin, whole.slice(2, 0, 4)) < 1e-14);
        Tensor changed = k.clone();
        changed.slice(2, 4).fill_(9);
        CHECK(same_bits(o.map(changed, side).slice(2, 0, 4), whole.slice(2, 0, 4)));
      }
      return linear_attention(o.map(q, Side::query), o.map(k, Side::key), v,
                              {.mask = {.causal = true}});
    };
    const double tolerance = kind == FavorKind::trigonometric ? 1e-10 : 1e-13;
    CHECK(worst_error(output(Stabilizer::max), output(Stabilizer::none)) < tolerance);
  }
}

TEST_CASE("Favor: the stabilizer keeps exponentials in range") {
  // A key along the longest row of the projection, and as long, gives e^(|ω|²/2).
  const int64_t d = 400;
  for (const FavorKind kind : {FavorKind::positive, FavorKind::hyperbolic})
    for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::max}) {
      manual_seed(3);
      Owner o({.features = 8, .kind = kind, .stabilizer = stabilizer}, d);
      o.to(f32);
      const Tensor x = (o.map.projection[0] * std::pow(double(d), 0.25)).reshape({1, 1, 1, d});
      for (const Side side : sides) {
        const Tensor y = o.map(x, side);
        CHECK(std::isfinite(max(y).item()) == (stabilizer == Stabilizer::max));
        CHECK(max(y).item() > 0.3);
        const Tensor leaf = x.clone().set_requires_grad();
        if (stabilizer == Stabilizer::none) continue;
        sum(o.map(leaf, side)).backward();
        CHECK(std::isfinite(max(abs(leaf.grad())).item()));
      }
    }
}

TEST_CASE("Favor: gradients") {
  for (const FavorKind kind : kinds)
    for (const Stabilizer stabilizer : {Stabilizer::none, Stabilizer::max})
      for (const Side side : sides)
        for (const Implementation implementation :
             {Implementation::automatic, Implementation::composed}) {
          manual_seed(3);
          const Owner o({.features = 4,
                         .kind = kind,
                         .stabilizer = stabilizer,
                         .implementation = implementation},
                        3);
          testing::check_gradients([&](const Tensors& in) { return o.map(in[0], side); },
                                   {testing::fixed_leaf({1, 1, 2, 3}, 1)},
                                   implementation == Implementation::composed);
        }
}

TEST_CASE("Favor: bf16 is computed in f32") {
  manual_seed(3);
  Owner o({.features = 32});
  o.to(f32);
  const Tensor x = fixed_noise({1, 2, 5, 6}, 1, bf16);
  const Tensor y = o.map(x, Side::key);
  CHECK(y.dtype() == bf16);
  CHECK(worst_error(y, o.map(x.to(f32), Side::key)) <= 0x1p-8);
}

TEST_CASE("Favor: redraw follows its schedule, and only in training") {
  const Tensor x = fixed_noise({1, 1, 2, 6}, 1).set_requires_grad();
  for (const int64_t every : {0, 1, 3}) {
    manual_seed(7);
    Owner o({.features = 6, .redraw = every});
    std::vector<Tensor> seen;
    auto call = [&] {
      o.map.next_call();
      seen.push_back(o.map.projection.clone());
      return o.map(x, Side::query);
    };
    for (int i = 0; i < 7; ++i) call();
    for (size_t i = 1; i < seen.size(); ++i)
      CHECK(same_bits(seen[i], seen[i - 1]) == (every == 0 || int64_t(i) % every != 0));
    // No redraws in evaluation.
    o.eval();
    call();
    CHECK(same_bits(seen[7], seen[6]));
    CHECK(same_bits(call(), call()));
    // Redraws do not change the random state of the program.
    const RandomState before = random_state();
    o.train();
    for (int i = 0; i < 4; ++i) call();
    CHECK(random_state().next_stream == before.next_stream);
  }
}

TEST_CASE("Favor: gradients use the projection of their forward pass") {
  const Tensor x = fixed_noise({1, 1, 2, 6}, 1).set_requires_grad();
  auto gradient = [&](bool redrawn_in_between) {
    manual_seed(7);
    Owner o({.features = 6, .redraw = 1});
    o.map.next_call();
    const Tensor y = o.map(x, Side::key);
    if (redrawn_in_between) o.map.next_call();
    x.set_grad({});
    sum(y).backward();
    return x.grad();
  };
  CHECK(same_bits(gradient(true), gradient(false)));

  // recompute() recomputes a call after later calls have redrawn the projection.
  auto twice = [&](bool again) {
    manual_seed(7);
    Owner o({.features = 6, .redraw = 1});
    auto f = [&](const Tensors& in) {
      o.map.next_call();
      return o.map(in[0], Side::key);
    };
    auto call = [&] { return again ? recompute(f, {x}) : f({x}); };
    x.set_grad({});
    Tensors gradients;
    for (int step = 0; step < 3; ++step) {
      sum(call()).backward();
      gradients.push_back(x.grad().clone());
    }
    return gradients;
  };
  const Tensors plain = twice(false), again = twice(true);
  for (size_t i = 0; i < plain.size(); ++i) CHECK(same_bits(plain[i], again[i]));
}

TEST_CASE("Favor: redraws and gradients are the same under recompute()") {
  const Tensor x = fixed_noise({1, 1, 2, 6}, 1).set_requires_grad();
  for (const int64_t every : {1, 2, 3}) {
    const auto results = [&](bool again) {
      manual_seed(7);
      Owner o({.features = 6, .redraw = every});
      const nn::LinearKernel kernel(o, {.d_key = 6, .d_value = 6},
                                    nn::favor({.features = 6, .redraw = every}), {});
      auto f = [&](const Tensors& in) {
        return kernel(
            {.q = in[0], .k = in[0] * 0.5, .v = in[0], .options = {.mask = {.causal = true}}});
      };
      auto call = [&] { return again ? recompute(f, {x}) : f({x}); };
      Tensors all;
      // Several calls, then their backward passes, with another call in between.
      for (int step = 0; step < 3; ++step) {
        const Tensor a = call(), b = call();
        for (const Tensor& y : {a, call(), b}) {
          x.set_grad({});
          sum(y * y).backward();
          all.push_back(y.detach());
          all.push_back(x.grad());
        }
      }
      return all;
    };
    const Tensors plain = results(false), again = results(true);
    INFO("redraw " << every);
    for (size_t i = 0; i < plain.size(); ++i) {
      INFO(i);
      CHECK(same_bits(plain[i], again[i]));
    }
  }
}

TEST_CASE("Favor: a run resumed from a checkpoint continues with the same projections") {
  const testing::TempDir dir;
  const Tensor x = fixed_noise({1, 1, 2, 6}, 1);
  manual_seed(7);
  Owner first({.features = 6, .redraw = 2});
  for (int i = 0; i < 3; ++i) first.map.next_call();
  nn::save_checkpoint(dir.file("a.safetensors"), first, nullptr, {});
  manual_seed(8);
  Owner second({.features = 6, .redraw = 2});
  CHECK(!same_bits(second.map.projection, first.map.projection));
  nn::load_checkpoint(dir.file("a.safetensors"), second, nullptr);
  for (int i = 0; i < 5; ++i) {
    CHECK(same_bits(second.map.projection, first.map.projection));
    for (Owner* o : {&first, &second}) o->map.next_call();
  }
  // Without redraw only the projection is saved; it is not a parameter.
  const Owner still({.features = 6});
  CHECK(still.parameters().empty());
  CHECK(still.named_buffers().size() == 1);
  CHECK(still.named_buffers()[0].name == "feature_map.projection");
  CHECK(first.named_buffers().size() == 2);
}

TEST_CASE("Favor: errors") {
  auto make = [](FavorOptions o) { Owner owner(o); };
  CHECK_THROWS_WITH(make({.features = 5, .kind = FavorKind::hyperbolic}),
                    "[Favor] 5 features; must be an even number, two for each row of the "
                    "projection");
  CHECK_THROWS_WITH(make({.features = 0}), "[Favor] 0 features; must be at least 1");
  CHECK_THROWS_WITH(make({.orthogonal = false, .norms = RowNorms::sqrt_d}),
                    "[Favor] RowNorms::sqrt_d needs orthogonal rows; for independent rows use "
                    "RowNorms::chi");
  CHECK_THROWS_WITH(make({.redraw = -1}),
                    "[Favor] redraw -1; must be the number of calls between redraws, or 0 to never "
                    "redraw");
  CHECK_THROWS_WITH(make({.epsilon = -1}), "[Favor] epsilon -1; must be 0 or more");
  const Owner o({.features = 4}, 3);
  CHECK(o.map(fixed_noise({1, 1, 2, 3}, 1), Side::key).shape() == Shape{1, 1, 2, 4});
  CHECK_THROWS_WITH(o.map(fixed_noise({1, 1, 2, 6}, 1), Side::key),
                    "[Favor] x f64 [1, 1, 2, 6]; must have a floating-point dtype and shape "
                    "[B, H, L, 3]; the last size is that of the projection");
  CHECK(o.map.label() == "Favor(4 positive, orthogonal)");
  const nn::SkipInit skip;
  const DefaultDevice host(cpu);  // elements not filled are converted to f64
  const RandomState before = random_state();
  const Owner undrawn({.redraw = 1});
  CHECK(random_state().next_stream == before.next_stream);
}

TEST_CASE("elu_features: dtypes, layouts and empty tensors") {
  for (const DType dtype : {f64, f32, bf16})
    for (const Shape& shape :
         {Shape{2, 3, 5, 7}, Shape{2, 3, 5, 1}, Shape{2, 0, 5, 3}, Shape{6}, Shape{}}) {
      const Tensor x = (fixed_noise(shape, 1) * 4).to(dtype), g = fixed_noise(shape, 2, dtype);
      const auto results = [&](const Tensor& of, const Tensor& with) {
        const Tensor leaf = of.detach().set_requires_grad(), y = elu_features(leaf);
        return Tensors{y.detach(), grad({y}, {leaf}, {with})[0]};
      };
      const Tensors plain = results(x, g);
      CHECK(plain[0].dtype() == dtype);
      // One rounding of the value, one of the slope, one of the product; e^x has two.
      const double unit = dtype == f64 ? 0x1p-53 : dtype == f32 ? 0x1p-24 : 0x1p-8;
      CHECK(worst_error(plain[0], reference::elu_plus_one(x)) <= 3 * unit);
      const Tensor slope = exp(clamp(x.to(f64), -1e3, 0));
      CHECK(worst_error(plain[1], g.to(f64) * slope) <= 4 * unit);
      if (shape.dim() != 4) continue;
      const auto heads = [](const Tensor& t) {
        return t.transpose(1, 2).contiguous().transpose(1, 2);
      };
      for (const Tensors& other : {results(heads(x), g), results(heads(x), heads(g)),
                                   results(testing::strided_copy(x), testing::strided_copy(g)),
                                   results(x, testing::strided_copy(g))})
        for (size_t i = 0; i < 2; ++i) CHECK(testing::same_bits(other[i], plain[i]));
    }
  testing::check_gradients([](const Tensors& in) { return elu_features(in[0]); },
                           {testing::fixed_leaf({1, 2, 3, 4}, 1)}, true);
  CHECK_THROWS_WITH(elu_features(arange(3)),
                    "[elu_features] got i64 [3]; accepted: f32, f64, bf16");
}

TEST_CASE("Favor: the projection stays f32 in a bf16 module") {
  struct Plain : nn::Module {
    Favor map{*this, {.n_heads = 2, .d_key = 6, .d_value = 6, .d_model = 12}, {.redraw = 2}};
  } m;
  const Tensor before = m.map.projection.clone();
  m.to(bf16);
  CHECK(m.map.projection.dtype() == f32);
  CHECK(same_bits(m.map.projection, before));
  const Tensor x = fixed_noise({1, 2, 3, 6}, 1).to(bf16);
  CHECK(same_bits(m.map(x, Side::key), m.map(x.to(f32), Side::key).to(bf16)));
  for (int i = 0; i < 3; ++i) m.map.next_call();  // redraws the projection
  CHECK(m.map.projection.dtype() == f32);
  m.to(f32);
  CHECK(m.map.projection.dtype() == f32);
}
