// Gradients of bf16 leaves over repeated backward passes are summed in f32 [autograd/engine.cpp].
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "autograd/tape.h"
#include "core/environment.h"
#include "core/storage.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/op_check.h"

namespace stretto::testing {
namespace {

Tensor bf16_leaf(std::initializer_list<double> values) {
  return tensor<double>(values).to(bf16).set_requires_grad();
}

using List = std::vector<double>;
List list(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace

TEST_CASE("bf16 gradients keep growing over many passes", "[autograd]") {
  const Tensor x = bf16_leaf({1, 2});
  for (int i = 0; i < 1000; ++i) sum(x).backward();
  CHECK(x.grad().dtype() == bf16);
  CHECK(list(x.grad()) == List{1000, 1000});

  // The sum is f32. Only the result is rounded: to a multiple of 2 at 257, and of 4 at 1,003.
  x.set_grad({});
  for (int i = 0; i < 257; ++i) sum(x).backward();
  CHECK(list(x.grad()) == List{256, 256});
  for (int i = 257; i < 1003; ++i) sum(x).backward();
  CHECK(list(x.grad()) == List{1004, 1004});
}

TEST_CASE("recorded bf16 gradients keep growing, in one pass and over several", "[autograd]") {
  const Tensor x = bf16_leaf({3});
  Tensors uses(1000);
  for (Tensor& use : uses) use = x * x;  // 1,000 gradients of 2x = 6, each sent as 3 + 3
  backward(uses, Tensors(1000, ones({1}, {.dtype = bf16})), {.create_graph = true});
  CHECK(list(x.grad()) == List{6016});  // the rounding of 6,000: a tie, to even
  CHECK(x.grad().requires_grad());
  // The gradient is 2,000·x, and its f32 sums are on the tape.
  CHECK(list(grad({x.grad()}, {x})[0]) == List{2000});

  const Tensor z = bf16_leaf({3});
  for (int i = 0; i < 1000; ++i) (z * z).backward({}, {.create_graph = true});
  CHECK(list(z.grad()) == List{6016});
  CHECK(list(grad({z.grad()}, {z})[0]) == List{2000});
  z.set_grad({});  // breaks the cycle: the recorded gradient refers to z
}

TEST_CASE("handles of a bf16 gradient stay valid, and changes of it count", "[autograd]") {
  const Tensor x = bf16_leaf({1});
  const auto passes = [&](int n) {
    for (int i = 0; i < n; ++i) sum(x).backward();
  };
  passes(1);
  const Tensor held = x.grad();
  passes(600);
  CHECK(x.grad().same(held));
  CHECK(held.item() == 600);  // 601 rounded: ties to even

  // Changed in place, as gradient clipping does: the sum continues from the new value.
  held.mul_(0.5);
  passes(1);
  CHECK(x.grad().item() == 300);  // 301 rounded
  passes(1);
  CHECK(x.grad().item() == 302);

  held.zero_();
  passes(300);
  CHECK(x.grad().item() == 300);

  x.set_grad(tensor<double>({100}).to(bf16));
  CHECK(!x.grad().same(held));
  passes(201);
  CHECK(x.grad().item() == 301 - 1);
  CHECK(held.item() == 300);

  x.set_grad({});
  passes(257);
  CHECK(x.grad().item() == 256);

  // New storage: the sum of the old values' gradients is dropped.
  x.set_data(tensor<double>({2}).to(bf16));
  CHECK(!x.grad().defined());
  passes(3);
  CHECK(x.grad().item() == 3);
}

TEST_CASE("hooks see the gradient of each pass, then the sum after it was added", "[autograd]") {
  const Tensor x = bf16_leaf({1});
  List seen, whole;
  x.register_hook([&](const Tensor& g) {
    CHECK(g.dtype() == bf16);
    seen.push_back(g.item());
    return g * 2.0;
  });
  x.register_post_accumulate_grad_hook([&] { whole.push_back(x.grad().item()); });
  for (int i = 0; i < 300; ++i) (x * 1.0).backward();
  CHECK(seen == List(300, 1));
  CHECK(whole[0] == 2);
  CHECK(whole[299] == 600);
}

TEST_CASE("repeated passes over a retained graph are summed in f32", "[autograd]") {
  const Tensor x = bf16_leaf({1, -1});
  const Tensor y = sum(x * x);
  for (int i = 0; i < 500; ++i) y.backward({}, {.retain_graph = true});
  CHECK(list(x.grad()) == List{1000, -1000});
}

TEST_CASE("the f32 sum needs memory only from the second pass until zero_grad", "[autograd]") {
  const int64_t n = 1 << 16;
  const Tensor x = zeros({n}, {.dtype = bf16}).set_requires_grad();
  const auto live = [] { return memory_stats(cpu).live; };
  const int64_t before = live();
  sum(x).backward();
  CHECK(live() - before == 2 * n);
  for (int i = 0; i < 3; ++i) {
    sum(x).backward();
    CHECK(live() - before == 2 * n + 4 * n);
  }
  x.set_grad({});
  CHECK(live() == before);

  // Leaves of other dtypes need no separate sum.
  const Tensor w = zeros({n}).set_requires_grad();
  const int64_t bare = live();
  for (int i = 0; i < 3; ++i) sum(w).backward();
  CHECK(live() - bare == 4 * n);
}

namespace {

// A random history of a few bf16 leaves: graphs with several uses, retained or recorded or not,
// hooks, and gradients that are dropped, set or scaled in between. Checked against sums computed in
// f32 in the same order, and in f64.
class History {
 public:
  explicit History(uint64_t seed) : random_(seed) {
    const int leaves = below(3) + 1;
    for (int i = 0; i < leaves; ++i) {
      const Shape shape{below(4) + 1, below(4) + 1};
      leaves_.push_back(noise(shape).set_requires_grad());
      sums_.emplace_back();
    }
    if (below(4) == 0) leaves_[0].register_hook([](const Tensor& g) { return g * 0.75; });
  }

  void run() {
    const int events = below(2) == 0 ? 4 + below(8) : 20 + below(60);
    for (int e = 0; e < events; ++e) {
      const int kind = below(12);
      if (kind == 0) change();
      if (kind > 0) pass();
    }
    for (const Tensor& x : leaves_) x.set_grad({});  // breaks cycles of recorded gradients
  }

 private:
  int below(int n) { return int(random_() % uint64_t(n)); }
  double uniform() { return double(random_() >> 11) * 0x1p-53; }
  Tensor noise(const Shape& shape) {
    const double scale = std::exp2(below(9) - 4);
    std::vector<double> x(size_t(shape.numel()));
    for (double& v : x) v = (2 * uniform() - 1) * scale;
    return tensor(x, shape).to(bf16);
  }

  // Uses some leaves several times, in bf16 throughout.
  Tensor graph() {
    Tensor y;
    for (int use = below(4) + 1; use > 0; --use) {
      const Tensor& x = leaves_[size_t(below(int(leaves_.size())))];
      Tensor z;
      switch (below(5)) {
        case 0:
          z = x * (uniform() * 4);
          break;
        case 1:
          z = x * x;
          break;
        case 2:
          z = matmul(x, noise({x.size(1), 2}));
          break;
        case 3:
          z = x.transpose(0, 1) * noise({x.size(1), x.size(0)});
          break;
        default:
          z = tanh(x);
          break;
      }
      z = sum(z);
      y = y.defined() ? y + z : z;
    }
    return y;
  }

  struct Sum {
    std::vector<float> narrow;
    List wide;
    double sizes = 0;  // sum over the passes of the largest summand, in magnitude
    int passes = 0;
  };

  void pass() {
    const Tensor y = graph();
    // The gradients of this pass; recorded ones come from composed ops, with other roundings.
    const bool recorded = below(6) == 0;
    const Tensors arrived =
        grad({y}, leaves_, {}, {.retain_graph = true, .create_graph = recorded});
    y.backward({}, {.retain_graph = below(2) == 0, .create_graph = recorded});
    for (size_t i = 0; i < leaves_.size(); ++i) {
      if (!arrived[i].defined()) continue;
      const List g = list(arrived[i]);
      Sum& s = sums_[i];
      s.narrow.resize(g.size());
      s.wide.resize(g.size());
      double most = 0;
      for (size_t j = 0; j < g.size(); ++j) {
        s.narrow[j] += float(g[j]);
        s.wide[j] += g[j];
        most = std::max(most, std::fabs(g[j]));
      }
      s.sizes += most;
      ++s.passes;
    }
    check();
  }

  // Changes gradients between passes as programs do.
  void change() {
    const size_t i = size_t(below(int(leaves_.size())));
    const Tensor& x = leaves_[i];
    if (!x.grad().defined()) return;
    const NoGrad guard;
    switch (below(4)) {
      case 0:
        x.set_grad({});
        break;
      case 1:
        x.grad().mul_(0.5);
        break;
      case 2:
        x.set_grad(noise(x.shape()));
        break;
      default:
        x.grad().zero_();
        break;
    }
    Sum& s = sums_[i];
    s = {};
    if (!x.grad().defined()) return;
    s.wide = list(x.grad());
    for (const double v : s.wide) {
      s.narrow.push_back(float(v));
      s.sizes = std::max(s.sizes, std::fabs(v));
    }
  }

  void check() const {
    for (size_t i = 0; i < leaves_.size(); ++i) {
      const Tensor g = leaves_[i].grad();
      const Sum& s = sums_[i];
      if (!g.defined()) {
        CHECK(s.narrow.empty());
        continue;
      }
      REQUIRE(g.dtype() == bf16);
      const List values = list(g);
      size_t other = 0, far = 0;
      for (size_t j = 0; j < values.size(); ++j) {
        other += values[j] != double(float(BFloat16(s.narrow[j])));
        // One rounding to bf16, and one to f32 of each partial sum.
        const double bound = std::fabs(s.wide[j]) * 0x1p-8 + s.sizes * (s.passes + 1) * 0x1p-24;
        far += !(std::fabs(values[j] - s.wide[j]) <= bound);
      }
      CHECK(other == 0);
      CHECK(far == 0);
    }
  }

  std::mt19937_64 random_;
  Tensors leaves_;
  std::vector<Sum> sums_;
};

}  // namespace

// For a long run: STRETTO_FUZZ_ROUNDS=20000.
TEST_CASE("bf16 gradients of random histories equal their f32 sums", "[autograd][fuzz]") {
  const int64_t rounds = environment_number("STRETTO_FUZZ_ROUNDS", 1, INT64_MAX, 100);
  for (int64_t seed = 1; seed <= rounds; ++seed) {
    INFO("seed " << seed);
    History(uint64_t(seed)).run();
  }
}

}  // namespace stretto::testing
