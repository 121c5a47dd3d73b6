// Recording: which ops are on the tape, errors, and custom ops [autograd/tape.h].
#include "autograd/tape.h"

#include <atomic>
#include <chrono>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "autograd/profile.h"
#include "core/parallel.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"

namespace stretto {
namespace {

Tensor leaf(std::initializer_list<float> values) {
  return tensor<float>(values).set_requires_grad();
}

std::vector<float> list(const Tensor& x) { return x.to_vector<float>(); }

}  // namespace

TEST_CASE("results of ops over leaves are on the tape", "[autograd]") {
  const Tensor x = leaf({1, 2}), c = tensor<float>({3, 4});
  CHECK(x.requires_grad());
  CHECK(x.is_leaf());
  CHECK(!c.requires_grad());
  CHECK(c.is_leaf());
  const Tensor y = x * c;
  CHECK(y.requires_grad());
  CHECK(!y.is_leaf());
  CHECK((c * c).is_leaf());
  CHECK(!(c * c).requires_grad());
  CHECK(recording({x, c}));
  CHECK(!recording({c, Tensor()}));
  CHECK(ones({2}, {.requires_grad = true}).requires_grad());
  Tensor z = leaf({1});
  CHECK(!(z.set_requires_grad(false) * 2.0).requires_grad());
}

TEST_CASE("NoGrad stops recording, in its scope and thread", "[autograd]") {
  const Tensor x = leaf({1, 2});
  CHECK(grad_enabled());
  {
    const NoGrad off;
    CHECK(!grad_enabled());
    CHECK(!(x * 2.0).requires_grad());
    CHECK(!recording({x}));
    {
      const GradMode on(true);
      CHECK((x * 2.0).requires_grad());
    }
    CHECK(!grad_enabled());
    bool in_other_thread = false;
    std::thread([&] { in_other_thread = grad_enabled(); }).join();
    CHECK(in_other_thread);
  }
  CHECK(grad_enabled());
  try {
    const NoGrad off;
    fail("test", "out of the scope");
  } catch (const Error&) {
  }
  CHECK(grad_enabled());
}

TEST_CASE("detach() returns the same data off the tape", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 3.0, d = y.detach();
  CHECK(!d.requires_grad());
  CHECK(d.is_leaf());
  CHECK(&d.storage() == &y.storage());
  sum(y.detach() * x).backward();
  CHECK(list(x.grad()) == std::vector<float>{3, 6});
}

TEST_CASE("tensors that cannot require a gradient are rejected", "[autograd]") {
  for (DType dtype : {i64, i32, u8, boolean})
    CHECK_THROWS_WITH(
        zeros({2}, {.dtype = dtype}).set_requires_grad(),
        str("[set_requires_grad] only floating-point tensors have gradients; got ", dtype, " [2]"));
  CHECK_NOTHROW(zeros({2}, {.dtype = i64}).set_requires_grad(false));
  Tensor y = leaf({1}) * 2.0;
  CHECK_THROWS_WITH(
      y.set_requires_grad(),
      "[set_requires_grad] the tensor is the result of a recorded op; detach() it first");
  CHECK_THROWS_WITH(y.set_data(ones({1})), Containing("is the result of a recorded op"));
  CHECK_THROWS_WITH(
      leaf({1}).set_grad(ones({2})),
      "[set_grad] the gradient (f32 [2]) must have the shape of the tensor (f32 [1])");
}

TEST_CASE("a leaf that requires a gradient cannot be changed in place", "[autograd]") {
  Tensor x = leaf({1, 2});
  Tensor view = x.slice(0, 0, 1), y = x * 2.0;
  const auto refused = [](const char* op, const char* what) {
    return str("[", op, "] the tensor (", what,
               ") requires a gradient and cannot be changed in place while ops are recorded; use "
               "NoGrad, or an op that returns a new tensor");
  };
  CHECK_THROWS_WITH(x.fill_(0), refused("fill_", "f32 [2]"));
  CHECK_THROWS_WITH(x.zero_(), refused("fill_", "f32 [2]"));
  CHECK_THROWS_WITH(x.copy_(ones({2})), refused("copy_", "f32 [2]"));
  CHECK_THROWS_WITH(x.add_(ones({2})), refused("add_", "f32 [2]"));
  CHECK_THROWS_WITH(x.mul_(2), Containing("requires a gradient and cannot be changed in place"));
  CHECK_THROWS_WITH(view.fill_(0), refused("fill_", "f32 [1]"));
  CHECK_THROWS_WITH(y.fill_(0), refused("fill_", "f32 [2]"));
  CHECK(list(x) == std::vector<float>{1, 2});
  const NoGrad off;
  x.mul_(3);
  view.fill_(7);
  CHECK(list(x) == std::vector<float>{7, 6});
}

TEST_CASE("an in-place change of a saved tensor is detected", "[autograd]") {
  const std::string text =
      "[mul] a tensor (f32 [2]) that the backward pass needs was changed in place after it was "
      "used; clone() it first";
  const Tensor x = leaf({1, 2});
  Tensor c = tensor<float>({3, 4});
  {
    const Tensor y = sum(x * c);
    c.fill_(9);
    CHECK_THROWS_WITH(y.backward(), text);
  }
  {
    const Tensor y = sum(x * c);
    c.slice(0, 1).detach().mul_(2);  // through a view of a view
    CHECK_THROWS_WITH(y.backward(), text);
  }
  {
    const Tensor y = sum(x * c);
    const NoGrad off;
    Tensor(x).add_(c);  // as an optimizer would, too early
    CHECK_THROWS_WITH(y.backward(), text);
  }
  {
    const Tensor e = exp(x);
    e.detach().fill_(0);
    CHECK_THROWS_WITH(sum(e).backward(),
                      "[exp] the output was changed in place, but the backward pass needs it; "
                      "clone() it first");
  }
  {
    const Tensor w = leaf({1, 2});
    const Tensor y = sum(w * c);
    w.set_data(ones({2}));
    CHECK_THROWS_WITH(y.backward(), text);
  }
  {
    const Tensor w = ones({2, 2}, {.requires_grad = true});
    Tensor a = ones({3, 2});
    const Tensor y = sum(matmul(a, w));
    a.fill_(2);
    CHECK_THROWS_WITH(y.backward(), Containing("[matmul] a tensor (f32 [3, 2]) that the backward"));
  }
  // Addition saves nothing, and a clone can be changed safely.
  const Tensor z = leaf({1, 2});
  const Tensor y = sum((z + c) * c.clone());
  c.fill_(0);
  CHECK_NOTHROW(y.backward());
}

TEST_CASE("set_data() replaces a leaf's data in every handle", "[autograd]") {
  const Tensor x = leaf({1, 2}), handle = x;
  sum(x * x).backward();
  x.set_data(ones({3}, {.dtype = f64}));
  CHECK(handle.shape() == Shape{3});
  CHECK(handle.dtype() == f64);
  CHECK(handle.requires_grad());
  CHECK(!handle.grad().defined());
  sum(handle * 2.0).backward();
  CHECK(x.grad().dtype() == f64);
  CHECK(x.grad().shape() == Shape{3});
  CHECK_THROWS_WITH(x.set_data(arange(3)),
                    "[set_data] i64 [3] cannot replace f64 [3], which requires a gradient");
}

// ---------------------------------------------------------------------------- custom ops

namespace {

// x³ with a custom backward, so that each of its errors can be tested.
Tensor cube(const Tensor& x, std::function<Tensors(Backward&, const Tensor&)> backward,
            Keep keep = Keep::nothing) {
  const Tensor y = (x.detach() * x.detach() * x.detach()).clone();
  return record(
      "cube", {x}, y, [saved = Saved(x), backward](Backward& b) { return backward(b, saved()); },
      keep);
}

}  // namespace

TEST_CASE("a custom op with a saved tensor has the right gradients", "[autograd]") {
  const Tensor x = leaf({1, 2, -3});
  const Tensor y = cube(x, [](Backward& b, const Tensor& v) {
    CHECK(b.needs(0));
    return Tensors{b.grad() * v * v * 3.0};
  });
  CHECK(list(y) == std::vector<float>{1, 8, -27});
  const Tensor g = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
  CHECK(list(g) == std::vector<float>{3, 12, 27});
  CHECK(list(grad({sum(g)}, {x})[0]) == std::vector<float>{6, 12, -18});
}

TEST_CASE("a tensor that its op can recompute is not saved", "[autograd]") {
  const Tensor x = leaf({1, 2, -3});
  int made = 0;
  auto twice = [&made](const Tensor& of) {
    const Tensor y = record("twice", {of}, of.detach() * 2.0,
                            [](Backward& b) { return Tensors{b.grad() * 2.0}; });
    rematerialize(y, [&made, of = Saved(of)] {
      ++made;
      return of().detach() * 2.0;
    });
    return y;
  };
  const Tensor y =
      cube(twice(x), [](Backward& b, const Tensor& v) { return Tensors{b.grad() * v * v * 3.0}; });
  CHECK(made == 0);
  const Tensors once = grad({sum(y)}, {x}, {}, {.retain_graph = true});
  CHECK(list(once[0]) == std::vector<float>{24, 96, 216});
  CHECK(list(grad({sum(y)}, {x})[0]) == list(once[0]));
  CHECK(made == 1);

  // A tensor that was changed before its use is saved as it is then.
  const Tensor changed = twice(x);
  {
    const NoGrad off;
    Tensor(changed).fill_(1);
  }
  const Tensor w =
      cube(changed, [](Backward& b, const Tensor& v) { return Tensors{b.grad() * v * v * 3.0}; });
  CHECK(list(grad({sum(w)}, {x})[0]) == std::vector<float>{6, 6, 6});
  CHECK(made == 1);

  // Changes of the tensors it is recomputed from are detected; off the tape nothing is recomputed.
  const Tensor source = leaf({1, 2}) * 1.0f;
  const Tensor z = cube(
      twice(source), [](Backward& b, const Tensor& v) { return Tensors{b.grad() * v * v * 3.0}; });
  {
    const NoGrad off;
    Tensor(source).fill_(1);
    CHECK(!twice(x).requires_grad());
  }
  CHECK_THROWS_WITH(sum(z).backward(), Containing("was changed in place after it was used"));
}

TEST_CASE("a tensor that was recomputed once has second derivatives", "[autograd]") {
  const Tensor x = leaf({1, 2, -3});
  const Tensor doubled = x * 2.0;
  rematerialize(doubled, [x = Saved(x)] { return x() * 2.0; });
  const Tensor y =
      cube(doubled, [](Backward& b, const Tensor& v) { return Tensors{b.grad() * v * v * 3.0}; });
  grad({sum(y)}, {x}, {}, {.retain_graph = true});
  const Tensor g = grad({sum(y)}, {x}, {}, {.create_graph = true})[0];
  CHECK(list(grad({sum(g)}, {x})[0]) == std::vector<float>{48, 96, -144});
}

TEST_CASE("a custom op without saved tensors has the right gradients", "[autograd]") {
  const Tensor a = leaf({1, 2}), b = tensor<float>({5, 6}), c = leaf({7, 8});
  const Tensor y = record("first", {a, b, c}, a.detach().clone(), [](Backward& g) {
    CHECK(g.needs(0));
    CHECK(!g.needs(1));
    CHECK(g.needs(2));
    return Tensors{g.grad(), Tensor(), Tensor()};  // undefined means zero
  });
  sum(y * y).backward();
  CHECK(list(a.grad()) == std::vector<float>{2, 4});
  CHECK(!b.grad().defined());
  CHECK(!c.grad().defined());
  const NoGrad off;
  CHECK(!record("first", {a}, a.detach().clone(), nullptr).requires_grad());
}

TEST_CASE("wrong gradients of a custom op are rejected", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const auto run = [&](std::function<Tensors(Backward&, const Tensor&)> f) {
    sum(cube(x, std::move(f))).backward();
  };
  CHECK_THROWS_WITH(run([](Backward&, const Tensor&) { return Tensors{ones({1})}; }),
                    "[cube] the backward closure returned f32 [1] for input 0; expected f32 [2]");
  CHECK_THROWS_WITH(
      run([](Backward&, const Tensor&) { return Tensors{ones({2}, {.dtype = f64})}; }),
      "[cube] the backward closure returned f64 [2] for input 0; expected f32 [2]");
  CHECK_THROWS_WITH(run([](Backward&, const Tensor&) {
                      return Tensors{ones({2}), ones({2})};
                    }),
                    "[cube] the backward closure returned 2 gradients for 1 inputs");
  CHECK_THROWS_WITH(run([](Backward&, const Tensor&) { return Tensors{}; }),
                    "[cube] the backward closure returned 0 gradients for 1 inputs");
  CHECK_THROWS_WITH(run([](Backward& b, const Tensor&) { return Tensors{b.output()}; }),
                    "[cube] output 0 was not saved for the backward pass; record() needs "
                    "Keep::outputs");
  CHECK(!x.grad().defined());
}

TEST_CASE("an op can save its own outputs", "[autograd]") {
  const Tensor x = leaf({2});
  const Tensor y = cube(
      x,
      [](Backward& b, const Tensor& v) {
        CHECK(b.output().item() == 8);
        return Tensors{b.output() * 3.0 / v * b.grad()};
      },
      Keep::outputs);
  y.backward();
  CHECK(x.grad().item() == 12);
}

TEST_CASE("an op with several outputs is differentiated if only some are used", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  const auto both = [&] {
    const Tensor d = x.detach();
    return record("two", {x}, Tensors{d * 2.0, sum(d), arange(2)}, [](Backward& b) {
      CHECK(b.grad(0).shape() == Shape{3});
      CHECK(b.grad(1).shape() == Shape{});
      return Tensors{b.grad(0) * 2.0 + b.grad(1).expand({3})};
    });
  };
  {
    const Tensors y = both();
    CHECK(!y[2].requires_grad());  // integers have no gradient
    CHECK(list(grad({sum(y[0] * y[0])}, {x})[0]) == std::vector<float>{8, 16, 24});
  }
  CHECK(list(grad({both()[1]}, {x})[0]) == std::vector<float>{1, 1, 1});
  const Tensors y = both();
  CHECK(list(grad({sum(y[0]) + y[1]}, {x})[0]) == std::vector<float>{3, 3, 3});
}

TEST_CASE("an op with several outputs can be differentiated twice if some were dropped",
          "[autograd]") {
  // (eˣ, e²ˣ): the caller drops the first; the backward pass needs both.
  const auto powers = [](const Tensor& x) {
    const Tensor a = exp(x.detach()), b = exp(x.detach() * 2.0);
    return record(
        "powers", {x}, Tensors{a, b},
        [](Backward& g) {
          const Tensor first = g.output(0);
          return Tensors{g.grad(0) * first + g.grad(1) * first * first * 2.0};
        },
        Keep::outputs);
  };
  for (const bool keeps_first : {true, false}) {
    const Tensor x = tensor<double>({0.3}).set_requires_grad();
    Tensors both = powers(x);
    const Tensor y = both[1];
    if (!keeps_first) both = {};
    const Tensor slope = grad({y}, {x}, {}, {.create_graph = true})[0];
    CHECK(slope.item() == Approx(2 * std::exp(0.6)));
    REQUIRE(slope.requires_grad());
    CHECK(grad({slope}, {x})[0].item() == Approx(4 * std::exp(0.6)));
  }
}

TEST_CASE("a profile has one row per op, backward closure and mark", "[autograd]") {
  const Tensor x = leaf({1, 2}), g = leaf({3, 4}).detach();
  Profile profile;
  record("copy", {x}, x.detach(), [](Backward& b) {
    return Tensors{b.grad() * 2.0};  // an op of the closure
  }).backward(g);
  profile.mark("rest");
  std::map<std::string, int64_t> calls;
  for (const ProfileRow& row : profile.rows()) calls[row.name] = row.calls;
  CHECK(calls == std::map<std::string, int64_t>{{"copy", 1}, {"copy (backward)", 1}, {"rest", 1}});
}

TEST_CASE("all closures of a backward pass see one pass number, those of other passes another",
          "[autograd]") {
  std::vector<uint64_t> passes;
  const auto noted = [&](const Tensor& x) {
    return record("noted", {x}, x.clone(), [&passes](Backward& b) {
      passes.push_back(b.pass());
      return Tensors{b.grad()};
    });
  };
  const Tensor x = leaf({1, 2}), y = sum(noted(noted(x)));
  grad({y}, {x}, {}, {.retain_graph = true});
  y.backward();
  // recompute() differentiates its recomputed ops in a pass within the pass.
  sum(noted(recompute([&](const Tensors& in) { return noted(in[0]); }, {x}))).backward();
  REQUIRE(passes.size() == 6);
  CHECK(passes[0] == passes[1]);
  CHECK(passes[2] == passes[3]);
  CHECK(std::set<uint64_t>(passes.begin(), passes.end()).size() == 4);
}

TEST_CASE("bodies of parallel_for record if and only if their caller does", "[autograd]") {
  const int before = num_threads();
  set_num_threads(2);
  for (const bool recording : {false, true}) {
    const GradMode mode(recording);
    std::atomic<int> entered{0}, wrong{0};
    parallel_for(2, 1, [&](int64_t, int64_t) {
      wrong += grad_enabled() != recording;
      // Waits for the other thread, so that both bodies run at once if the system has two threads.
      ++entered;
      const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (entered < 2 && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    });
    CHECK(entered == 2);
    CHECK(wrong == 0);
  }
  set_num_threads(before);
}

TEST_CASE("record() accepts only new tensors as outputs", "[autograd]") {
  const auto pass = [](Backward& b) { return Tensors{b.grad()}; };
  const Tensor x = tensor<double>({1, 2}).set_requires_grad();
  const Tensor y = x * 2.0;
  CHECK_THROWS_WITH(record("op", {x}, x, pass),
                    "[op] output 0 (f64 [2]) is one of its inputs; record() needs new tensors "
                    "(detach() makes one)");
  CHECK_THROWS_WITH(record("op", {y}, y, pass), Containing("is one of its inputs"));
  const Tensor w = tensor<double>({1, 2}).set_requires_grad();
  CHECK_THROWS_WITH(record("op", {x}, w, pass), Containing("is a leaf that requires a gradient"));
  const Tensor twice = x.detach().clone();
  CHECK_THROWS_WITH(record("op", {x}, Tensors{twice, twice}, pass),
                    Containing("output 1 (f64 [2]) is the same tensor as another output"));
  // Nothing has been rewritten.
  CHECK(x.is_leaf());
  CHECK(!y.is_leaf());
  sum(y).backward();
  CHECK(x.grad().to_vector<double>() == std::vector<double>{2, 2});
  // Views are new tensors. So is the result of another op, whose record is replaced.
  CHECK(record("op", {x}, x.detach(), pass).requires_grad());
  CHECK(record("op", {x}, x.clone(), pass).requires_grad());
  recompute(
      [&](const Tensors& in) {
        CHECK_THROWS_WITH(record("op", {in[0]}, in[0], pass), Containing("is one of its inputs"));
        return in[0] * 1.0;
      },
      {x});
}

}  // namespace stretto
