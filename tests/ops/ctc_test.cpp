// ctc_loss() at its limits: impossible targets, many frames, any layout. Values and derivatives of
// short sequences are in the op table (tests/reference/op_table_ctc.cpp).
#include "ops/ctc.h"

#include <cmath>
#include <limits>
#include <vector>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

Tensor row(const std::vector<int64_t>& v) { return tensor(v, {int64_t(v.size())}); }
Tensor one_row(const std::vector<int64_t>& v) { return tensor(v, {1, int64_t(v.size())}); }

}  // namespace

TEST_CASE("A target with too few frames has an infinite loss and no gradient", "[ops]") {
  // Two equal labels need a blank between them: three frames.
  const Tensor targets = tensor<int64_t>({1, 1, 1, 2}, {2, 2}), lengths = row({2, 2});
  for (const bool zero_infinity : {false, true}) {
    const Tensor x = fixed_leaf({2, 2, 3}, 1), log_p = log_softmax(x, -1);
    const Tensor y = ctc_loss(log_p, targets, lengths, lengths,
                              {.reduction = Reduction::none, .zero_infinity = zero_infinity});
    const std::vector<double> losses = y.to_vector<double>();
    CHECK(losses[0] == (zero_infinity ? 0 : infinity));
    const auto p = log_p.to_vector<double>();  // the only path of the second target is 1, 2
    CHECK(losses[1] == Approx(-(p[3 + 1] + p[9 + 2])).epsilon(1e-14));
    const Tensor slope = grad({y}, {log_p}, {ones_like(y)}, {.retain_graph = true})[0];
    CHECK(equal(slope.select(1, 0), zeros({2, 3}, {.dtype = f64})));
    CHECK(sum(slope).item() == Approx(-2).epsilon(1e-14));  // one class in each of two frames
    const Tensor recorded = grad({y}, {log_p}, {ones_like(y)}, {.create_graph = true})[0];
    CHECK(worst_error(recorded, slope) < 1e-14);
  }
}

TEST_CASE("Probabilities of 0 and NaN in a loss of connectionist temporal classification",
          "[ops]") {
  Tensor log_p = full({3, 1, 3}, std::log(1.0 / 3), {.dtype = f64});
  log_p.select(0, 1).select(1, 1).fill_(-infinity);  // label 1 not in frame 1
  const auto loss = [&] {
    return ctc_loss(log_p, one_row({1}), row({3}), row({1}), {.reduction = Reduction::sum}).item();
  };
  // Of the paths 1−−, −1−, −−1, 11−, −11 and 111, the first and the third are possible.
  CHECK(loss() == Approx(-std::log(2.0 / 27)).epsilon(1e-14));
  log_p.select(0, 0).select(1, 1).fill_(-infinity);
  log_p.select(0, 2).select(1, 1).fill_(-infinity);
  CHECK(loss() == infinity);
  log_p.select(0, 0).select(1, 0).fill_(std::nan(""));
  CHECK(std::isnan(loss()));
}

TEST_CASE("ctc_loss of 2,000 frames in f32 agrees with its composed gradient in f64", "[ops]") {
  const int64_t frames = 2000, classes = 5;
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 60; ++i) labels.push_back(1 + i * i % 4);
  const Tensor x = fixed_noise({frames, 1, classes}, 1, f32) * 20.0;
  const auto run = [&](DType dtype, bool recorded) {
    const Tensor log_p = log_softmax(x.to(f64), -1).to(dtype).set_requires_grad();
    const Tensor y =
        ctc_loss(log_p, one_row(labels), row({frames}), row({60}), {.reduction = Reduction::sum});
    return Tensors{y.detach(), grad({y}, {log_p}, {}, {.create_graph = recorded})[0].detach()};
  };
  const Tensors exact = run(f64, true), fused = run(f64, false), narrow = run(f32, false);
  // The loss is a sum of about 2,000 terms of magnitude 20 with log probabilities rounded to u.
  CHECK(fused[0].item() == Approx(exact[0].item()).epsilon(1e-13));
  CHECK(narrow[0].item() == Approx(exact[0].item()).epsilon(0x1p-23));
  // A posterior is at most 1 and e^(a sum of 2,000 terms of at most 40 in magnitude). In f32 each
  // term has an error of 40 u; in f64 each partial sum, of at most 80,000, is rounded as well.
  CHECK(worst_error(fused[1], exact[1]) < 2000 * 80'000 * 0x1p-52);
  CHECK(worst_error(narrow[1], exact[1]) < 2000 * 40 * 0x1p-24);
}

TEST_CASE("ctc_loss is bit-identical with 1 to 4 threads", "[ops]") {
  const int before = num_threads();
  const Tensor x = fixed_noise({9, 7, 4}, 1, f32), ids = ones({7, 3}, {.dtype = i64});
  Tensor first;
  for (const int threads : {1, 2, 3, 4}) {
    set_num_threads(threads);
    const Tensor leaf = x.detach().set_requires_grad();
    ctc_loss(leaf, ids, full({7}, 9, {.dtype = i64}), full({7}, 3, {.dtype = i64})).backward();
    if (threads == 1) first = leaf.grad();
    CHECK(equal(leaf.grad(), first));
  }
  set_num_threads(before);
}

}  // namespace stretto::testing
