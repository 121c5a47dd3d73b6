// What recompute() recomputes, and what it rejects [autograd/recompute.h].
#include "autograd/recompute.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include "core/parallel.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {
namespace {

using Function = std::function<Tensor(const Tensors&)>;

struct Seeded {
  RandomState before = random_state();
  explicit Seeded(uint64_t seed) { manual_seed(seed); }
  ~Seeded() { set_random_state(before); }
};

Tensor leaf(std::initializer_list<double> values) {
  return tensor<double>(values).set_requires_grad();
}

std::vector<double> list(const Tensor& x) { return x.to_vector<double>(); }

// A running mean of its inputs, as in a module with its own state.
struct RunningMean {
  Tensor mean = zeros({2}, {.dtype = f64});
  int calls = 0;
  Tensor operator()(const Tensor& x) {
    const Tensor now = recorded("the mean", [&] {
      ++calls;
      mean.mul_(0.5).add_(x.detach(), 0.5);
      return mean.clone();
    });
    return x - now;
  }
};

}  // namespace

TEST_CASE("recomputation uses the random numbers of the first run, whatever other threads do",
          "[autograd]") {
  const Seeded seeded(3);
  std::vector<uint64_t> others;
  int runs = 0;
  const Function f = [&](const Tensors& in) {
    std::thread([&] {
      for (int k = runs == 0 ? 3 : 1; k > 0; --k) others.push_back(next_random_key().stream);
    }).join();
    ++runs;
    return dropout(in[0], 0.5);
  };
  const Tensor x = ones({64}, {.requires_grad = true});
  const Tensor y = recompute(f, {x});
  next_random_key();
  sum(y).backward();
  CHECK(runs == 2);
  CHECK(list(x.grad()) == list(y));  // both are the mask, scaled by two
  CHECK(others == std::vector<uint64_t>{0, 1, 2, 5});
  CHECK(random_state().next_stream == 6);
}

TEST_CASE("no random number is used twice while many threads recompute checkpoints", "[autograd]") {
  const Seeded seeded(3);
  std::atomic<bool> done{false}, started{false};
  std::vector<uint64_t> others;
  std::thread other([&] {
    while (!done || others.empty()) {
      if (others.size() < 200'000) others.push_back(next_random_key().stream);
      started = true;
    }
  });
  while (!started) std::this_thread::yield();
  const Tensor x = ones({64}, {.requires_grad = true});
  int wrong = 0;
  for (int i = 0; i < 200; ++i) {
    const Tensor y = recompute([](const Tensors& in) { return dropout(in[0], 0.5); }, {x});
    x.set_grad({});
    sum(y).backward();
    wrong += list(x.grad()) != list(y);
  }
  done = true;
  other.join();
  CHECK(wrong == 0);
  CHECK(std::is_sorted(others.begin(), others.end(), std::less_equal<>()));
  CHECK(random_state().next_stream == others.size() + 200);
}

TEST_CASE("recomputation may run on another thread", "[autograd]") {
  const Seeded seeded(3);
  const Tensor x = ones({64}, {.requires_grad = true});
  const Tensor y = recompute([](const Tensors& in) { return dropout(in[0], 0.5); }, {x});
  std::thread([&] { sum(y).backward(); }).join();
  CHECK(list(x.grad()) == list(y));
  CHECK(random_state().next_stream == 1);
}

TEST_CASE("recorded() makes a change of state happen once", "[autograd]") {
  const Tensor x = leaf({1, 2}), z = leaf({5, 3});
  std::vector<std::vector<double>> plain;
  for (const bool again : {false, true}) {
    RunningMean layer;
    const Function f = [&](const Tensors& in) { return square(layer(in[0])); };
    const auto call = [&](const Tensor& in) { return again ? recompute(f, {in}) : f({in}); };
    x.set_grad({});
    z.set_grad({});
    const Tensor a = call(x), b = call(z);
    sum(a).backward();
    sum(b).backward();
    CHECK(layer.calls == 2);
    const std::vector<std::vector<double>> results = {list(a), list(b), list(x.grad()),
                                                      list(z.grad()), list(layer.mean)};
    if (!again) plain = results;
    CHECK(results == plain);
  }
  // In nested checkpoints the outer record is used by the inner function.
  RunningMean layer;
  const Function inner = [&](const Tensors& in) { return square(layer(dropout(in[0], 0.5))); };
  const Function outer = [&](const Tensors& in) { return recompute(inner, {in[0] * 2.0}); };
  const Seeded seeded(1);
  x.set_grad({});
  const Tensor y = recompute(outer, {x});
  sum(y).backward();
  CHECK(layer.calls == 1);
  CHECK(random_state().next_stream == 1);
  const Tensor from_checkpoint = x.grad().clone();
  manual_seed(1);
  layer.mean = zeros({2}, {.dtype = f64});
  x.set_grad({});
  sum(inner({x * 2.0})).backward();
  CHECK(list(x.grad()) == list(from_checkpoint));
}

TEST_CASE("the error names an operation that cannot be recomputed", "[autograd]") {
  const Tensor x = leaf({1, 2});
  Tensor outside = tensor<double>({3, 4});
  const Tensor result = leaf({3, 4}) * 2.0;
  const struct {
    const char* error;
    Function f;
  } cases[] = {
      {"[set_random_state] the random state cannot be set under recompute(), because recompute() "
       "runs the function twice",
       [](const Tensors& in) {
         manual_seed(1);
         return in[0] * 1.0;
       }},
      {"[next_random_key] cannot be called inside parallel_for under recompute(): its result "
       "would depend on the order of the threads; make this call before parallel_for",
       [](const Tensors& in) {
         parallel_for(10, 1, [](int64_t, int64_t) { next_random_key(); });
         return in[0] * 1.0;
       }},
      {"[add_] the tensor (f64 [2]) was made outside of the function that recompute() runs, and "
       "would be changed in place twice; change it inside recorded()",
       [&](const Tensors& in) {
         outside.add_(in[0]);
         return in[0] * outside;
       }},
      {"[fill_] the tensor (f64 [2]) was made outside of the function that recompute() runs, and "
       "would be changed in place twice; change it inside recorded()",
       [&](const Tensors& in) {
         return in[0] * recorded("kept", [] { return ones({2}, {.dtype = f64}); }).fill_(2);
       }},
      {"[recompute] op \"mul\" in the function reads a tensor (f64 [2]), which was computed by "
       "recorded ops outside of the function; pass the tensor as an input",
       [&](const Tensors& in) { return in[0] * result; }},
      {"[recompute] the function returned an undefined tensor",
       [](const Tensors&) { return Tensor(); }},
  };
  for (const auto& c : cases) CHECK_THROWS_WITH(recompute(c.f, {x}), c.error);
  CHECK(list(outside) == std::vector<double>{3, 4});
  // Its own tensors may be changed, and outside recompute() all of these operations are allowed.
  const Function own = [](const Tensors& in) {
    Tensor two = ones({2}, {.dtype = f64});
    two.mul_(2);
    return in[0] * two;
  };
  sum(recompute(own, {x})).backward();
  CHECK(list(x.grad()) == std::vector<double>{2, 2});
  outside.add_(x.detach());
}

TEST_CASE("a recomputation that differs from the first run is rejected", "[autograd]") {
  const Seeded seeded(1);
  const Tensor x = leaf({1, 2});
  const Tensor w = leaf({3, 4});
  bool training = true;
  const Function f = [&](const Tensors& in) {
    return training ? dropout(in[0] * w, 0.5) : in[0] * w;
  };
  {
    const Tensor y = sum(recompute(f, {x}));
    training = false;
    CHECK_THROWS_WITH(y.backward(),
                      "[recompute] the recording run (forward) used next_random_key, but the "
                      "recomputing run (backward) did not; both must do the same, so a module must "
                      "not switch between training and evaluation before the backward pass");
  }
  {
    const Tensor y = sum(recompute(f, {x}));
    training = true;
    CHECK_THROWS_WITH(y.backward(),
                      "[recompute] the recomputing run (backward) uses next_random_key, but the "
                      "recording run (forward) used nothing more; both must do the same, so a "
                      "module must not switch between training and evaluation before the backward "
                      "pass");
  }
  const auto changed =
      "[recompute] a tensor (f64 [2]) that op \"mul\" read was changed after the forward pass; "
      "the "
      "function cannot be recomputed";
  {
    const Tensor y = sum(recompute(f, {x}));
    NoGrad guard;
    Tensor(w).add_(x);
    CHECK_THROWS_WITH(y.backward(), changed);
  }
  {
    const Tensor y = sum(recompute(f, {x}));
    w.set_data(tensor<double>({1, 1}));
    CHECK_THROWS_WITH(y.backward(), changed);
  }
}

TEST_CASE("grad() goes through recompute(), also to tensors used inside", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), v = leaf({5, 6});
  const Function f = [&](const Tensors& in) { return in[0] * w * w; };
  const Tensor y = sum(recompute(f, {recompute(f, {x * v})}));
  const Tensors g = grad({y}, {x, w}, {}, {.retain_graph = true});
  CHECK(list(g[0]) == std::vector<double>{5 * 81, 6 * 256});
  CHECK(list(g[1]) == std::vector<double>{4 * 27 * 5, 4 * 64 * 12});
  for (const Tensor& leaf : {x, w, v}) CHECK(!leaf.grad().defined());
  // A hook of a parameter sees the sum over a pass, once.
  int seen = 0;
  w.register_hook([&](const Tensor& total) {
    ++seen;
    CHECK(list(total) == list(g[1]));
  });
  y.backward();
  CHECK(seen == 1);
  CHECK(list(w.grad()) == list(g[1]));
  CHECK(list(x.grad()) == list(g[0]));
}

TEST_CASE("grad() of tensors that only functions under recompute() read", "[autograd]") {
  const Tensor x = tensor<double>({1, 2}), w = leaf({3, 4}), v = leaf({5, 6}), u = leaf({7, 8});
  const auto inner = [&](const Tensors& in) { return in[0] * w * w; };
  const Function outer = [&](const Tensors& in) { return recompute(inner, {in[0] * v}); };
  for (const bool nested : {false, true})
    for (const bool create : {false, true}) {
      const Tensor y = sum(nested ? recompute(outer, {x}) : recompute(inner, {x * v}));
      const Tensor z = y + sum(w * w) + sum(u);
      const Tensors g = grad({z}, {w}, {}, {.retain_graph = true, .create_graph = create});
      CHECK(list(g[0]) ==
            std::vector<double>{2 * 3 * 5 + 6, 2 * 4 * 12 + 8});  // inside, then outside
      const Tensors only = grad({y}, {w, u, v}, {}, {.retain_graph = true});
      CHECK(list(only[0]) == std::vector<double>{2 * 3 * 5, 2 * 4 * 12});
      CHECK(!only[1].defined());  // y does not depend on it
      CHECK(list(only[2]) == std::vector<double>{9, 32});
      if (create) {
        const Tensors second = grad({sum(g[0])}, {w, v});
        CHECK(list(second[0]) == std::vector<double>{2 * 5 + 2, 2 * 12 + 2});
        CHECK(list(second[1]) == std::vector<double>{2 * 3, 2 * 4 * 2});
      }
      for (const Tensor& leaf : {w, v, u}) CHECK(!leaf.grad().defined());
    }
  // The function reads a leaf with the memory of its input.
  const Tensor shared = recompute([&](const Tensors& in) { return in[0] * w; }, {w.detach()});
  CHECK(list(grad({sum(shared)}, {w})[0]) == std::vector<double>{3, 4});
  // The inner function reads the input of the outer one.
  const Tensor both = recompute(
      [&](const Tensors& in) {
        return recompute([&](const Tensors& i) { return i[0] * in[0] * w; }, {in[0] * 2.0});
      },
      {v});
  CHECK(list(grad({sum(both)}, {v})[0]) == std::vector<double>{4 * 5 * 3, 4 * 6 * 4});
}

TEST_CASE("hooks of an input of recompute() see the gradient from the function", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  std::vector<double> seen, outside;
  const Tensor h = x * 1.0;
  h.register_hook([&](const Tensor& g) { outside = list(g); });
  const Tensor y = recompute(
      [&](const Tensors& in) {
        in[0].register_hook([&](const Tensor& g) {
          seen = list(g);
          return g * 10.0;
        });
        return in[0] * w + in[0];
      },
      {h});
  sum(y + h).backward();
  CHECK(seen == std::vector<double>{4, 5});
  CHECK(outside == std::vector<double>{41, 51});
  CHECK(list(x.grad()) == outside);
  CHECK(list(w.grad()) == std::vector<double>{1, 2});
}

TEST_CASE("a recorded gradient under recompute() does not own its leaf", "[autograd]") {
  const int64_t live = memory_stats(cpu).live;
  {
    const Tensor w = ones({1000}, {.dtype = f64, .requires_grad = true});
    const Tensor y = recompute([&](const Tensors& in) { return in[0] * w; }, {w * 2.0});
    sum(y * y).backward({}, {.create_graph = true});
    CHECK(w.grad().requires_grad());
  }
  CHECK(memory_stats(cpu).live == live);
}

TEST_CASE("recompute() of constants is a constant", "[autograd]") {
  const Tensor c = tensor<double>({1, 2});
  const Tensor y = recompute([&](const Tensors& in) { return in[0] * c; }, {c});
  CHECK(!y.requires_grad());
  CHECK(list(y) == std::vector<double>{1, 4});
}

TEST_CASE("backward_follows() is the same with and without recompute()", "[autograd]") {
  const Tensor x = leaf({1});
  for (const bool recording : {true, false}) {
    const GradMode mode(recording);
    std::vector<bool> seen;
    const Function f = [&](const Tensors& in) {
      seen.push_back(backward_follows());
      return in[0] * 1.0;
    };
    f({x});
    recompute(f, {x});
    CHECK(seen == std::vector<bool>{recording, recording});
    CHECK(!is_recomputing());
  }
}

TEST_CASE("recompute() requires a gradient if and only if the plain call does", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  const Tensor c = tensor<double>({5, 6});
  const auto silent = [](const Tensor& t) {
    const NoGrad guard;
    return t * 2.0;
  };
  const std::vector<Function> functions = {
      [&](const Tensors& in) { return silent(in[0]); },
      [&](const Tensors& in) { return silent(in[0] * w); },
      [&](const Tensors& in) { return silent(in[0]) * w; },
      [&](const Tensors& in) { return silent(in[0]) * c; },
      [&](const Tensors& in) { return (in[0] * w).detach(); },
      [&](const Tensors& in) { return in[0].detach() * 2.0; },
      [&](const Tensors& in) { return in[0] * 2.0; },
      [&](const Tensors& in) { return in[0]; },
      [&](const Tensors&) { return w; },
      [&](const Tensors&) { return c; },
      [&](const Tensors&) { return c * c; },
      [&](const Tensors& in) { return gt(in[0] * w, 3.0); },
      [&](const Tensors& in) { return gt(in[0] * w, 3.0).to(f64) * 2.0; },
      [&](const Tensors& in) {
        const NoGrad guard;
        const GradMode on(true);
        return in[0] * w;
      },
      [&](const Tensors& in) {
        const Tensor h = in[0] * w;
        const NoGrad guard;
        const GradMode on(true);
        return h * c;
      },
      [&](const Tensors& in) {
        return recompute([&](const Tensors& i) { return silent(i[0]); }, {in[0] * w});
      },
      [&](const Tensors& in) {
        return recompute([&](const Tensors& i) { return i[0] * c; }, {in[0] * w});
      },
  };
  for (size_t i = 0; i < functions.size(); ++i)
    for (const Tensor& in : {x, c}) {
      INFO("function " << i << (in.same(x) ? "" : " of a constant"));
      const Tensor plain = functions[i]({in}), again = recompute(functions[i], {in});
      CHECK(again.requires_grad() == plain.requires_grad());
      CHECK(list(again.to(f64)) == list(plain.to(f64)));
      if (!plain.requires_grad() || !again.requires_grad()) continue;
      Tensors gradients;
      for (const Tensor& y : {plain, again}) {
        x.set_grad({}), w.set_grad({});
        sum(y).backward();
        for (const Tensor& l : {x, w})
          gradients.push_back(l.grad().defined() ? l.grad() : zeros_like(l));
      }
      CHECK(list(gradients[0]) == list(gradients[2]));
      CHECK(list(gradients[1]) == list(gradients[3]));
    }
  // A tensor that the function only returns must be a leaf or an input, too.
  const Tensor y = w * 2.0;
  CHECK_THROWS_WITH(recompute([&](const Tensors&) { return y; }, {x}),
                    Containing("which was computed by recorded ops outside of the function"));
}

TEST_CASE("backward_follows() sees NoGrad under recompute()", "[autograd]") {
  const Tensor x = leaf({1});
  std::vector<bool> seen;
  const Function f = [&](const Tensors& in) {
    {
      const NoGrad guard;
      seen.push_back(backward_follows());
      const GradMode on(true);
      seen.push_back(backward_follows());
    }
    seen.push_back(backward_follows());
    return in[0] * 1.0;
  };
  f({x});
  recompute(f, {x});
  CHECK(seen == std::vector<bool>{false, true, true, false, true, true});
}

}  // namespace stretto::testing
