// Losses where their plain formulas fail: at the ends of their domain, and where exp overflows. The
// op table tests them everywhere else.
#include "ops/loss.h"

#include <cmath>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/gpu.h"
#include "tests/support/gradcheck.h"

using namespace stretto;
using testing::fixed_leaf;
using testing::fixed_noise;
using testing::same_bits;
using testing::worst_error;

namespace {

constexpr Reduction none = Reduction::none;

double slope_at(const std::function<Tensor(const Tensor&)>& loss, double at, DType dtype = f64) {
  const Tensor x = scalar(at, {.dtype = dtype}).set_requires_grad();
  loss(x).backward();
  return x.grad().item();
}

}  // namespace

TEST_CASE("nll_loss of log_softmax is cross_entropy") {
  const Tensor x = fixed_noise({2, 5, 7}, 1) * 4.0;
  const Tensor ids = tensor<int64_t>({0, 6, 3, -100, 2, 2, 5, 1, -100, 0}, {2, 5});
  for (const Reduction r : {Reduction::mean, Reduction::sum, none})
    CHECK(worst_error(nll_loss(log_softmax(x, -1), ids, {.reduction = r}),
                      cross_entropy(x, ids, {.reduction = r})) < 1e-14);
}

TEST_CASE("nll_loss: ignored rows may be impossible, and the mean of no rows is 0") {
  const Tensor x = full({2, 3}, -double(INFINITY), {.dtype = f64}).set_requires_grad();
  const Tensor loss = nll_loss(x, tensor<int64_t>({-100, -100}));
  CHECK(loss.item() == 0);
  loss.backward();
  CHECK(equal(x.grad(), zeros({2, 3}, {.dtype = f64})));
  CHECK(nll_loss(x.detach(), tensor<int64_t>({-100, 1})).item() == INFINITY);
  CHECK(nll_loss(empty({0, 4}), empty({0}, {.dtype = i64})).item() == 0);
}

TEST_CASE("losses of classes name the dtype and the shape that targets must have") {
  const Tensor x = zeros({2, 1, 5});
  CHECK_THROWS_WITH(cross_entropy(x, zeros({2, 1})),
                    "[cross_entropy] targets f32 [2, 1]; must be i64 or i32");
  CHECK_THROWS_WITH(cross_entropy(x, zeros({2}, {.dtype = i64})),
                    "[cross_entropy] targets i64 [2] for logits f32 [2, 1, 5]; must be i64 [2, 1]");
  CHECK_THROWS_WITH(nll_loss(x, zeros({1, 2}, {.dtype = i32})),
                    "[nll_loss] targets i32 [1, 2] for log probabilities f32 [2, 1, 5]; must be "
                    "i32 [2, 1]");
}

TEST_CASE("losses of floating targets: the mean of no elements is 0") {
  const Tensor x = empty({0, 3}).set_requires_grad();
  for (const auto loss : {mse_loss, binary_cross_entropy, binary_cross_entropy_with_logits}) {
    CHECK(loss(x, empty({0, 3}), Reduction::mean).item() == 0);
    CHECK(loss(x, empty({0, 3}), none).shape() == Shape{0, 3});
  }
}

TEST_CASE("binary_cross_entropy at 0 and 1 is finite, with its gradients") {
  for (const DType dtype : {f64, f32, bf16})
    for (const double target : {0.0, 1.0}) {
      const Tensor t = scalar(target, {.dtype = dtype});
      const auto loss = [&](const Tensor& p) { return binary_cross_entropy(p, t); };
      CHECK(loss(scalar(target, {.dtype = dtype})).item() == 0);
      CHECK(loss(scalar(1 - target, {.dtype = dtype})).item() == 100);
      const double sign = target == 1 ? -1 : 1;
      CHECK(slope_at(loss, target, dtype) == 0);
      CHECK(slope_at(loss, 1 - target, dtype) == Approx(sign * 1e12).epsilon(0.01));
    }
  for (const double p : {-0.1, 1.1})
    CHECK_THROWS_WITH(
        binary_cross_entropy(full({1}, p), ones({1})),
        Containing("must lie in [0, 1]; for logits use binary_cross_entropy_with_logits"));
  CHECK(std::isnan(binary_cross_entropy(full({1}, NAN), ones({1})).item()));
}

TEST_CASE("binary_cross_entropy_with_logits does not cancel or overflow") {
  for (const DType dtype : {f64, f32}) {
    const double u = dtype == f64 ? 0x1p-53 : 0x1p-24;
    for (const double x : {-80.0, -20.0, -3.0, 0.0, 3.0, 20.0, 80.0}) {
      const Tensor t = ones({}, {.dtype = dtype});
      const auto loss = [&](const Tensor& v) { return binary_cross_entropy_with_logits(v, t); };
      // −log σ(x) = log(1 + e^−x), also where it is far below the rounding of x.
      CHECK(std::fabs(loss(scalar(x, {.dtype = dtype})).item() - std::log1p(std::exp(-x))) <=
            8 * u * std::log1p(std::exp(-x)));
      CHECK(std::fabs(slope_at(loss, x, dtype) + 1 / (1 + std::exp(x))) <=
            8 * u / (1 + std::exp(x)));
    }
    for (const double x : {-1e4, 1e4}) {
      const auto loss = [&](double target) {
        return binary_cross_entropy_with_logits(scalar(x, {.dtype = dtype}),
                                                scalar(target, {.dtype = dtype}))
            .item();
      };
      CHECK(loss(x > 0 ? 1 : 0) == 0);
      CHECK(loss(x > 0 ? 0 : 1) == 1e4);
    }
  }
  const Tensor x = fixed_noise({3, 4}, 1) * 3.0, t = abs(fixed_noise({3, 4}, 2));
  CHECK(worst_error(binary_cross_entropy_with_logits(x, t, none),
                    binary_cross_entropy(sigmoid(x), t, none)) < 1e-13);
}

TEST_CASE("losses have gradients in both arguments, for operands of any layout") {
  for (const auto loss : {mse_loss, binary_cross_entropy, binary_cross_entropy_with_logits})
    for (const Reduction r : {Reduction::mean, none}) {
      const auto transposed = [&](const Tensors& in) {
        return loss(sigmoid(in[0].transpose(0, 1)), sigmoid(in[1].transpose(0, 1)), r);
      };
      testing::check_gradients(transposed, {fixed_leaf({3, 4}, 1), fixed_leaf({3, 4}, 2)});
    }
}

TEST_CASE("ignored rows may hold anything, in recorded gradients too") {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f64, f32, bf16})
    for (const double bad : {std::nan(""), infinity, -infinity})
      for (const double smoothing : {0.0, 0.1})
        for (const Reduction reduction : {Reduction::mean, Reduction::sum, Reduction::none}) {
          INFO(str(dtype, " ", bad, " ", smoothing, " ", int(reduction)));
          const Tensor x = testing::fixed_noise({3, 4}, 5).to(dtype);
          x[1].fill_(bad);
          const Tensor logits = x.set_requires_grad();
          const auto loss = [&] {
            return cross_entropy(logits, tensor<int64_t>({2, -100, 0}),
                                 {.label_smoothing = smoothing, .reduction = reduction});
          };
          const Tensor g = ones(loss().shape(), {.dtype = dtype});
          const Tensor plain = grad({loss()}, {logits}, {g})[0];
          const Tensor recorded = grad({loss()}, {logits}, {g}, {.create_graph = true})[0];
          const Tensor twice = grad({sum(square(recorded))}, {logits})[0];
          for (const Tensor& t : {plain, recorded, twice}) {
            for (const double v : t.to_vector<double>()) CHECK(std::isfinite(v));
            CHECK(t[1].to_vector<double>() == std::vector<double>(4, 0));
          }
          const double least = dtype == bf16 ? 0x1p-7 : 1e-6;
          CHECK(max(abs(recorded.detach() - plain)).item() <= least);
        }
}

TEST_CASE("binary_cross_entropy has gradient 0 where the probability equals the target") {
  const Tensor p = tensor<double>({0, 1, 0, 1, 0.25, 0.5}).set_requires_grad();
  const Tensor t = tensor<double>({0, 1, 1, 0, 0.25, 1}).set_requires_grad();
  const Tensor loss = binary_cross_entropy(p, t, Reduction::none);
  CHECK(loss.to_vector<double>()[0] == 0);
  CHECK(loss.to_vector<double>()[2] == 100);
  for (const bool recorded : {false, true}) {
    const Tensors g =
        grad({sum(loss)}, {p, t}, {}, {.retain_graph = true, .create_graph = recorded});
    CHECK(g[0].to_vector<double>() == std::vector<double>{0, 0, -1e12, 1e12, 0, -2});
    // log(1 − p) − log p, within ±100
    CHECK(g[1].to_vector<double>()[0] == 100);
    CHECK(g[1].to_vector<double>()[1] == -100);
    CHECK(g[1].to_vector<double>()[4] == Approx(std::log(3)));
  }
}

TEST_CASE("ignored rows with NaN have no gradient in a weighted cross entropy", "[ops]") {
  const Tensor x = tensor(std::vector<double>{1, 2, 0, NAN, 3, 1}, {2, 3}).set_requires_grad();
  const Tensor w = tensor({0.5, 2.0, 1.0});
  const Tensor y = cross_entropy(x, tensor<int64_t>({1, -100}), {.weight = w});
  // The weighted mean of one loss is the loss.
  CHECK(y.item() == Approx(std::log(std::exp(-1) + 1 + std::exp(-2))).epsilon(1e-14));
  const std::vector<double> slope = grad({y}, {x})[0].to_vector<double>();
  for (size_t i = 3; i < 6; ++i) CHECK(slope[i] == 0);
  CHECK(cross_entropy(x, tensor<int64_t>({-100, -100}), {.weight = w}).item() == 0);
}

TEST_CASE("a soft target of 0 for a masked class adds nothing", "[ops]") {
  const Tensor x = tensor(std::vector<double>{1, 2, -double(INFINITY)}, {1, 3}).set_requires_grad();
  const Tensor t = tensor(std::vector<double>{0.5, 0.5, 0}, {1, 3});
  const Tensor y = cross_entropy(x, t);
  CHECK(y.item() == Approx(std::log(1 + std::exp(1)) - 0.5).epsilon(1e-14));
  CHECK(grad({y}, {x})[0].to_vector<double>()[2] == 0);
}

TEST_CASE("soft targets of one class are class indices", "[ops]") {
  const Tensor x = fixed_noise({4, 3}, 1), ids = tensor<int64_t>({2, 0, 1, 1});
  Tensor t = zeros({4, 3}, {.dtype = f64});
  for (int64_t i = 0; i < 4; ++i) t[i][ids[i].item<int64_t>()].fill_(1);
  for (const double epsilon : {0.0, 0.2}) {
    const CrossEntropyOptions o{.label_smoothing = epsilon};
    CHECK(cross_entropy(x, t, o).item() == Approx(cross_entropy(x, ids, o).item()).epsilon(1e-14));
  }
}

TEST_CASE("probabilities of 0 in the target of kl_div add nothing", "[ops]") {
  const Tensor q = tensor({-1.0, -double(INFINITY), -2.0}).set_requires_grad();
  const Tensor t = tensor({0.25, 0.0, 0.75}).set_requires_grad();
  for (const bool log_target : {false, true}) {
    const Tensor y =
        kl_div(q, log_target ? log(t) : t, {.log_target = log_target, .reduction = Reduction::sum});
    CHECK(y.item() == Approx(0.25 * std::log(0.25) + 0.25 + 0.75 * std::log(0.75) + 1.5));
    CHECK(grad({y}, {q})[0].to_vector<double>() == std::vector<double>{-0.25, 0, -0.75});
  }
}

TEST_CASE("huber_loss needs a positive delta", "[ops]") {
  for (const double delta : {0.0, -1.0, double(NAN), double(INFINITY)})
    CHECK_THROWS_WITH(huber_loss(ones({2}), ones({2}), {.delta = delta}),
                      Containing("[huber_loss] delta"));
}

TEST_CASE("linear_cross_entropy of one chunk is linear and cross_entropy, bit by bit", "[ops]") {
  for (const DType dtype : {f32, bf16}) {
    const Tensor x = fixed_noise({70, 9}, 1).to(dtype).set_requires_grad();
    const Tensor w = fixed_noise({33, 9}, 2).to(dtype).set_requires_grad();
    Tensor ids = randint(0, 33, {70});
    ids[3].fill_(-100);
    const auto chunked = [&](int64_t rows) {
      const Tensor y = linear_cross_entropy(x, w, {}, ids, {.chunk_rows = rows});
      Tensors all = grad({y}, {x, w});
      all.push_back(y.detach());
      return all;
    };
    const Tensor y = cross_entropy(linear(x, w), ids);
    const Tensors expected = grad({y}, {x, w});
    const Tensors one = chunked(0), some = chunked(17);
    CHECK(same_bits(one[0], expected[0]));
    CHECK(same_bits(one[1], expected[1]));
    CHECK(same_bits(one[2], y.detach()));
    CHECK(same_bits(some[2], y.detach()));
    const int threads = num_threads();
    set_num_threads(1);
    const Tensors alone = chunked(17);
    set_num_threads(threads);
    for (size_t i = 0; i < 3; ++i) CHECK(same_bits(alone[i], some[i]));
  }
}

TEST_CASE("linear_cross_entropy holds the logits of a chunk, not of all rows", "[ops]") {
  const int64_t d = 2, classes = 1 << 14, rows = 10240;  // by default three chunks of 3,456 rows
  const Tensor x = randn({rows, d}).set_requires_grad(), ids = randint(0, classes, {rows});
  const Tensor w = randn({classes, d}).set_requires_grad();
  const auto peak = [&](Reduction reduction, int64_t chunk_rows) {
    const int64_t before = testing::live_bytes();
    reset_peak_memory();
    sum(linear_cross_entropy(x, w, {}, ids, {.reduction = reduction, .chunk_rows = chunk_rows}))
        .backward();
    return memory_stats().peak - before;
  };
  // Logits and their gradients; the rest is below a tenth of them.
  const int64_t per_row = 2 * 4 * classes;
  for (const Reduction reduction : {Reduction::mean, none}) {
    CHECK(double(peak(reduction, 0)) <= 1.1 * double(3456 * per_row));
    CHECK(peak(reduction, rows) >= rows * per_row);
  }
}
