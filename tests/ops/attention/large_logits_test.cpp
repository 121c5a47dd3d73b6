// Scores and logits far from 0: a softmax depends only on their differences, so the maximum must
// not be added to small values and subtracted again. f32 against f64 with the same values.
#include <cmath>

#include "autograd/tape.h"
#include "nn/models/adaptive.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/loss.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

constexpr double magnitudes[] = {0, 1e4, -1e4, 1e6, 1e8, -1e8};

// Rows around `middle`, rounded to f32, so that f32 and f64 have the same values.
Tensor rows_about(double middle, const Shape& shape) {
  return (fixed_noise(shape, 21) * 3.0 + middle).to(f32);
}

struct Result {
  Tensor y, g;
};

Result value_and_gradient(const std::function<Tensor(const Tensor&)>& f, const Tensor& x) {
  const Tensor leaf = x.detach().set_requires_grad();
  const Tensor y = f(leaf);
  return {y.detach(), grad({y}, {leaf}, {fixed_noise(y.shape(), 22, f32).to(y.dtype())})[0]};
}

double largest_row_sum(const Tensor& g) { return max(abs(sum(g.to(f64), {-1}))).item(); }

}  // namespace

TEST_CASE("losses of large logits depend only on the differences of the logits", "[ops]") {
  const Tensor targets = tensor<int64_t>({0, 3, 36, -100, 5, 20});
  for (const double middle : magnitudes)
    for (const double smoothing : {0.0, 0.1})
      for (const Reduction reduction : {Reduction::none, Reduction::mean}) {
        INFO("about " << middle << ", smoothing " << smoothing);
        const auto loss = [&](const Tensor& x) {
          return cross_entropy(x, targets, {.label_smoothing = smoothing, .reduction = reduction});
        };
        const Tensor x = rows_about(middle, {6, 37});
        const Result narrow = value_and_gradient(loss, x),
                     wide = value_and_gradient(loss, x.to(f64));
        CHECK(worst_error(narrow.y, wide.y) < 1e-6);
        CHECK(worst_error(narrow.g, wide.g) < 1e-6);
        CHECK(largest_row_sum(narrow.g) < 1e-6);
      }
}

TEST_CASE("two equal logits cost log 2, whatever their size", "[ops]") {
  for (const double m : magnitudes) {
    INFO(m);
    const Tensor x = full({1, 2}, m).set_requires_grad();
    const Tensor loss = cross_entropy(x, tensor<int64_t>({0}));
    loss.backward();
    CHECK(loss.item() == Approx(std::log(2.0)).epsilon(1e-6));
    CHECK(x.grad().to_vector<double>() == std::vector<double>{-0.5, 0.5});
    for (const double y : log_softmax(x.detach()).to_vector<double>())
      CHECK(y == Approx(-std::log(2.0)).epsilon(1e-6));
  }
}

TEST_CASE("log_softmax of large values depends only on their differences", "[ops]") {
  for (const double middle : magnitudes)
    for (const int64_t d : {-1, 0}) {
      INFO("about " << middle << " along " << d);
      const auto f = [d](const Tensor& x) { return log_softmax(x, d); };
      const Tensor x = rows_about(middle, {5, 37});
      const Result narrow = value_and_gradient(f, x), wide = value_and_gradient(f, x.to(f64));
      CHECK(worst_error(narrow.y, wide.y) < 1e-6);
      CHECK(worst_error(narrow.g, wide.g) < 1e-6);
      CHECK(worst_error(sum(exp(narrow.y), {d}), ones_like(sum(wide.y, {d}))) < 2e-6);
    }
}

TEST_CASE("logsumexp errs only by the rounding of its result", "[ops]") {
  for (const double middle : magnitudes) {
    INFO(middle);
    const auto f = [](const Tensor& x) { return logsumexp(x, -1); };
    const Tensor x = rows_about(middle, {5, 37});
    const Result narrow = value_and_gradient(f, x), wide = value_and_gradient(f, x.to(f64));
    CHECK(max(abs(narrow.y.to(f64) - wide.y)).item() <= std::fabs(middle) * 0x1p-24 + 1e-6);
    CHECK(worst_error(narrow.g, wide.g) < 1e-6);
  }
}

TEST_CASE("the adaptive softmax with large logits depends only on their differences", "[ops]") {
  const Tensor targets = tensor<int64_t>({0, 2, 4, 9, 7, 5});
  for (const double middle : magnitudes) {
    INFO(middle);
    // The logits are the biases, exactly.
    const auto clusters = [&](const Tensor& bias) {
      const auto cluster = [&](int64_t from, int64_t to) {
        return nn::AdaptiveCluster{.weight = zeros({to - from, 3}, options_of(bias)),
                                   .bias = bias.slice(0, from, to)};
      };
      return std::vector{cluster(0, 6), cluster(6, 8), cluster(8, 12)};
    };
    const Tensor bias = rows_about(middle, {12});
    for (const bool all : {false, true}) {
      const auto nll = [&](const Tensor& b) {
        const Tensor hidden = ones({6, 3}, options_of(b));
        return all ? nn::adaptive_log_probabilities(hidden, clusters(b))
                   : nn::adaptive_nll(hidden, targets, clusters(b));
      };
      const Result narrow = value_and_gradient(nll, bias);
      const Result wide = value_and_gradient(nll, bias.to(f64));
      CHECK(worst_error(narrow.y, wide.y) < 1e-6);
      CHECK(worst_error(narrow.g, wide.g) < 2e-6);
    }
  }
}

TEST_CASE("attention with large scores weighs keys by the differences of the scores", "[ops]") {
  const int64_t b = 2, h = 2, m = 9, n = 70;
  for (const double middle : {0.0, 1e4, 1e6, 1e8})
    for (const bool causal : {false, true}) {
      INFO("about " << middle << (causal ? ", causal" : ""));
      // One feature of 1 and D − 1 of 0: the scores are the first feature of the keys, exactly.
      Tensor q = zeros({b, h, m, 8});
      q.slice(3, 0, 1).fill_(1);
      Tensor k = fixed_noise({b, h, n, 8}, 23, f32);
      k.slice(3, 0, 1).copy_(rows_about(middle, {b, h, n, 1}));
      const Tensor v = fixed_noise({b, h, n, 16}, 24, f32);
      const auto run = [&](DType dtype, Implementation implementation) {
        Tensors x;
        for (const Tensor& t : Tensors{q, k, v})
          x.push_back(t.to(dtype).clone().set_requires_grad());
        const Tensor y =
            attention(x[0], x[1], x[2],
                      {.mask = {.causal = causal}, .scale = 1.0, .implementation = implementation});
        Tensors all = grad({y}, x, {fixed_noise(y.shape(), 25, f32).to(dtype)});
        all.push_back(y.detach());
        return all;
      };
      const Tensors want = run(f64, Implementation::composed);
      for (const Implementation implementation :
           {Implementation::composed, Implementation::fused}) {
        const Tensors got = run(f32, implementation);
        for (size_t i = 0; i < got.size(); ++i) {
          INFO("tensor " << i
                         << (implementation == Implementation::fused ? ", fused" : ", composed"));
          // dq is Σ ds k with Σ ds = 0: terms of size `middle` that cancel, each rounded.
          if (i == 0 && middle > 0) continue;
          // On a GPU, backward recomputes the weights from the lse, which is also
          // about `middle` and rounded.
          const bool again =
              default_device().is_cuda() && implementation == Implementation::fused && i < 3;
          const double off = again ? middle * 0x1p-22 : 0;
          if (off < 1) CHECK(worst_error(got[i], want[i]) < 2e-6 + off);
        }
      }
    }
}

TEST_CASE("a sink far above all scores leaves them little weight", "[ops]") {
  const int64_t n = 5;
  for (const Implementation implementation : {Implementation::composed, Implementation::fused})
    for (const double above : {20.0, 60.0, -60.0}) {
      // The kernels of a GPU need more features of the values.
      if (default_device().is_cuda() && implementation == Implementation::fused) continue;
      INFO(above << (implementation == Implementation::fused ? ", fused" : ", composed"));
      const Tensor q = zeros({1, 1, 1, 8}), k = ones({1, 1, n, 8}), v = ones({1, 1, n, 1}),
                   sink = full({1}, above).set_requires_grad();
      const double weight = double(n) / (double(n) + std::exp(above));
      for (const Shape& shape : {Shape{1}, Shape{1, 1, 1}}) {
        const Tensor y =
            attention(q, k, v, {.sinks = sink.reshape(shape), .implementation = implementation});
        CHECK(y.item() / weight == Approx(1).epsilon(1e-4));
        if (above < 0) continue;
        CHECK(grad({y}, {sink})[0].item() / -weight == Approx(1).epsilon(1e-4));
      }
    }
}

}  // namespace stretto::testing
