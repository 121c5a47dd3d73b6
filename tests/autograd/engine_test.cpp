// The backward pass: which gradients arrive, in which order, and how often [autograd/engine.cpp].
#include <cmath>
#include <string>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/view.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

Tensor leaf(std::initializer_list<double> values) {
  return tensor<double>(values).set_requires_grad();
}

using List = std::vector<double>;
List list(const Tensor& x) { return x.to_vector<double>(); }

}  // namespace

TEST_CASE("gradients of all uses of a tensor add up", "[autograd]") {
  const Tensor x = leaf({1, 2, 3});
  sum(x * x).backward();
  CHECK(list(x.grad()) == List{2, 4, 6});

  const Tensor a = leaf({2});
  const Tensor b = a * 3.0, c = a * a, d = b * c;  // a diamond: 3a³
  (d + a).backward();
  CHECK(a.grad().item() == 37);

  const Tensor m = testing::fixed_leaf({3, 4}, 1);
  const Tensor w = testing::fixed_noise({3, 3}, 2);
  (sum(matmul(m, m.transpose(0, 1)) * w)).backward();
  const Tensor expected = matmul(w + w.transpose(0, 1), m.detach());
  for (size_t i = 0; i < 12; ++i)
    CHECK(list(m.grad())[i] == Approx(list(expected)[i]).epsilon(1e-12));
}

TEST_CASE("gradients in bf16 are added in f32 and rounded once", "[autograd]") {
  for (const bool of_leaf : {false, true})
    for (const size_t uses : {1, 2, 3, 4, 9}) {
      CAPTURE(of_leaf, uses);
      const Tensor x = testing::fixed_noise({2, 65}, 1, bf16).set_requires_grad();
      const Tensor z = of_leaf ? x : abs(x);
      Tensors terms, factors;
      Tensor sums = zeros({2, 65});
      for (size_t i = 0; i < uses; ++i) {
        factors.push_back(testing::fixed_noise({2, 65}, 10 + i, bf16));
        terms.push_back(z * factors.back());
      }
      for (size_t i = uses; i-- > 0;) sums = sums + factors[i].to(f32);  // the last use comes first
      const Tensors ones_of_terms(uses, ones({2, 65}, {.dtype = bf16}));
      backward(terms, ones_of_terms);
      const Tensor sum = sums.to(bf16);
      CHECK(testing::same_bits(x.grad(), of_leaf ? sum : sum * sign(x.detach())));
    }
}

TEST_CASE("unused branches get no gradient", "[autograd]") {
  const Tensor x = leaf({1}), z = leaf({5});
  const Tensor unused = exp(x * z);
  const Tensor y = x * 2.0;
  y.backward();
  CHECK(x.grad().item() == 2);
  CHECK(!z.grad().defined());
  unused.backward();
  CHECK(z.grad().item() == Approx(std::exp(5)));
}

TEST_CASE("backward() checks its initial gradients", "[autograd]") {
  const Tensor x = leaf({1, 2});
  CHECK_THROWS_WITH((x * 2.0).backward(),
                    "[backward] no gradient was given for an output f64 [2]; it may be omitted "
                    "only for an output with one element");
  CHECK_THROWS_WITH(ones({}).backward(),
                    "[backward] the output (f32 []) does not depend on anything that requires a "
                    "gradient, or was computed under NoGrad or EvalMode");
  CHECK_THROWS_WITH((x * 2.0).backward(ones({3}, {.dtype = f64})),
                    "[backward] gradient f64 [3] for an output f64 [2]; shape, dtype and device "
                    "must agree");
  CHECK_THROWS_WITH((x * 2.0).backward(ones({2})),
                    Containing("gradient f32 [2] for an output f64"));
  CHECK_THROWS_WITH(backward({sum(x), sum(x)}, {ones({})}),
                    "[backward] got 2 outputs, but 1 gradients; pass one gradient per output, or "
                    "none");
  CHECK_THROWS_WITH(grad({sum(x)}, {ones({2})}),
                    "[grad] an input (f32 [2]) does not require a gradient");
  CHECK(!x.grad().defined());
  x.backward(tensor<double>({3, 4}));  // x is a leaf
  CHECK(list(x.grad()) == List{3, 4});
}

TEST_CASE("backward twice needs retain_graph", "[autograd]") {
  const std::string text =
      "[backward] a backward pass has already run op \"mul\" and freed its saved tensors; to run "
      "it twice, set retain_graph in the first call";
  const Tensor x = leaf({3});
  {
    const Tensor y = x * x;
    y.backward();
    CHECK_THROWS_WITH(y.backward(), text);
    CHECK_THROWS_WITH(sum(y).backward(), text);
  }
  x.set_grad({});
  {
    const Tensor shared = x * x, a = shared + 1.0, b = shared + 2.0;
    a.backward();
    CHECK_THROWS_WITH(b.backward(), text);
  }
  x.set_grad({});
  const Tensor y = x * x;
  y.backward({}, {.retain_graph = true});
  y.backward({}, {.retain_graph = true});
  CHECK(x.grad().item() == 12);
  y.backward();
  CHECK(x.grad().item() == 18);
  CHECK_THROWS_WITH(y.backward(), text);
}

TEST_CASE("gradients accumulate over passes", "[autograd]") {
  const Tensor x = leaf({1, 2});
  sum(x * 3.0).backward();
  sum(x * x).backward();
  CHECK(list(x.grad()) == List{5, 7});
  x.set_grad({});
  CHECK(!x.grad().defined());
  sum(x).backward();
  CHECK(list(x.grad()) == List{1, 1});
}

TEST_CASE("gradients of leaves never share memory", "[autograd]") {
  for (bool create_graph : {false, true}) {
    INFO("create_graph " << create_graph);
    const Tensor a = leaf({1, 2}), b = leaf({3, 4}), g = tensor<double>({5, 6});
    (a + b).backward(g, {.create_graph = create_graph});
    CHECK(&a.grad().storage() != &b.grad().storage());
    CHECK(&a.grad().storage() != &g.storage());
    CHECK(&b.grad().storage() != &g.storage());
    {
      const NoGrad off;
      a.grad().mul_(10);
    }
    CHECK(list(a.grad()) == List{50, 60});
    CHECK(list(b.grad()) == List{5, 6});
    CHECK(list(g) == List{5, 6});

    const Tensor c = leaf({1, 2, 3});
    sum(c).backward({}, {.create_graph = create_graph});  // the gradient is one repeated element
    CHECK(c.grad().is_contiguous());
    const NoGrad off;
    c.grad().slice(0, 0, 1).fill_(7);
    CHECK(list(c.grad()) == List{7, 1, 1});
    const Tensor d = leaf({1});
    const Tensor same = d.detach();
    CHECK(&same.storage() == &d.storage());
  }
  const Tensor e = leaf({1, 2}), g = tensor<double>({5, 6});
  e.backward(g);
  CHECK(&e.grad().storage() != &g.storage());
}

TEST_CASE("grad returns what backward accumulates", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4}), other = leaf({9});
  const auto f = [&] { return sum(exp(x * w) * x); };
  const Tensors g = grad({f()}, {x, other, w});
  CHECK(!x.grad().defined());
  CHECK(!w.grad().defined());
  CHECK(!g[1].defined());
  f().backward();
  CHECK(list(x.grad()) == list(g[0]));
  CHECK(list(w.grad()) == list(g[2]));
  // The gradient of an intermediate result, of the output itself, and of several outputs.
  const Tensor h = x * w, y = sum(h * h);
  const Tensors inner = grad({y}, {h, y, x});
  CHECK(list(inner[0]) == List{6, 16});
  CHECK(inner[1].item() == 1);
  CHECK(list(inner[2]) == List{18, 64});
  const Tensor s = sum(x * 2.0), t = sum(x * x);
  CHECK(list(grad({s, t}, {x})[0]) == List{4, 6});
  const Tensor u = x * 2.0;
  CHECK(list(grad({u, u}, {x}, {ones({2}, {.dtype = f64}), ones({2}, {.dtype = f64})})[0]) ==
        List{4, 4});
}

TEST_CASE("hooks see a gradient once, complete, in the order of their registration", "[autograd]") {
  const Tensor x = leaf({1, 2});
  std::vector<std::string> calls;
  x.register_hook([&](const Tensor& g) {
    calls.push_back("a");
    CHECK(list(g) == List{5, 7});  // the sum over both uses
  });
  x.register_hook([&](const Tensor& g) {
    calls.push_back("b");
    return g * 10.0;
  });
  x.register_hook([&](const Tensor& g) {
    calls.push_back("c");
    CHECK(list(g) == List{50, 70});
  });
  const Tensor y = x * x, z = x * 3.0;
  y.register_hook([&](const Tensor& g) {
    calls.push_back("y");
    CHECK(list(g) == List{1, 1});
  });
  sum(y + z).backward();
  CHECK(calls == std::vector<std::string>{"y", "a", "b", "c"});
  CHECK(list(x.grad()) == List{50, 70});
}

TEST_CASE("hooks registered by a hook run from the next gradient on", "[autograd]") {
  const Tensor x = leaf({1, 2});
  std::vector<std::string> seen;
  x.register_hook([&](const Tensor&) {
    seen.push_back("first");
    for (int i = 0; i < 20; ++i)
      x.register_hook([&, i](const Tensor&) { seen.push_back(std::to_string(i)); });
    seen.push_back("done");
  });
  sum(x * 2.0).backward();
  CHECK(seen == std::vector<std::string>{"first", "done"});
  sum(x * 2.0).backward();
  CHECK(seen.size() == 2 + 2 + 20);
}

TEST_CASE("grad() visits only ops that lead to its inputs", "[autograd]") {
  std::vector<std::string> ran;
  const auto noted = [&ran](const char* name, const Tensor& x) {
    return record(name, {x}, x.detach().clone(), [&ran, name](Backward& b) {
      ran.push_back(name);
      return Tensors{b.grad()};
    });
  };
  const Tensor x = leaf({2}), z = leaf({3});
  const Tensor below = noted("below", x), beside = noted("beside", z);
  const Tensor middle = noted("middle", below), y = noted("above", middle * beside);
  const BackwardOptions again{.retain_graph = true};
  CHECK(grad({y}, {middle}, {}, again)[0].item() == 3);
  CHECK(ran == std::vector<std::string>{"above"});
  ran.clear();
  // One input depends on another: the gradient flows on to the earlier one.
  const Tensors both = grad({y}, {middle, x}, {}, again);
  CHECK(both[0].item() == 3);
  CHECK(both[1].item() == 3);
  CHECK(ran == std::vector<std::string>{"above", "middle", "below"});
  ran.clear();
  CHECK(grad({y}, {y}, {}, again)[0].item() == 1);
  CHECK(!grad({beside}, {x}, {}, again)[0].defined());
  CHECK(ran.empty());
  // Ops that were not visited can still be differentiated.
  grad({y}, {middle});
  ran.clear();
  below.backward();
  CHECK(ran == std::vector<std::string>{"below"});
}

TEST_CASE("grad() runs only the hooks of the tensors it is called for", "[autograd]") {
  const Tensor x = leaf({1, 2}), w = leaf({3, 4});
  int of_x = 0, of_w = 0;
  x.register_hook([&](const Tensor&) { ++of_x; });
  w.register_hook([&](const Tensor&) { ++of_w; });
  grad({sum(x * w)}, {x});
  CHECK(of_x == 1);
  CHECK(of_w == 0);
}

TEST_CASE("two passes at once over one graph are rejected", "[autograd]") {
  const Tensor x = leaf({1, 2});
  bool inside = false;
  Tensor y;
  y = sum(record("probe", {x}, x.detach() * 2.0, [&](Backward& b) {
    if (!inside) {
      inside = true;
      CHECK_THROWS_WITH(y.backward({}, {.retain_graph = true}),
                        "[backward] another backward pass is using op \"probe\" of the same "
                        "graph; each thread needs its own graph, only leaves may be shared");
    }
    return Tensors{b.grad() * 2.0};
  }));
  y.backward({}, {.retain_graph = true});
  CHECK(list(x.grad()) == List{2, 2});
  y.backward();  // the failed pass inside left nothing behind
  CHECK(list(x.grad()) == List{4, 4});
  CHECK_THROWS_WITH(y.backward(), Containing("a backward pass has already run op"));
  y = {};
}

TEST_CASE("later passes add to a gradient in place", "[autograd]") {
  const Tensor x = leaf({1, 2});
  sum(x * 2.0).backward();
  const Tensor held = x.grad();
  sum(x * x).backward();
  CHECK(list(held) == List{4, 6});
  CHECK(held.same(x.grad()));
  // But not to a gradient that is on the tape.
  x.set_grad({});
  sum(x * x * x).backward({}, {.create_graph = true});
  const Tensor recorded = x.grad();
  sum(x * 2.0).backward();
  CHECK(list(recorded) == List{3, 12});
  CHECK(list(x.grad()) == List{5, 14});
}

TEST_CASE("recorded gradients of leaves are freed with the leaves", "[autograd]") {
  const auto live = [] { return memory_stats().live; };
  const int64_t before = live();
  for (int round = 0; round < 3; ++round) {
    const Tensor x = leaf({1, 2}), w = leaf({3, 4});
    sum(exp(x * w) * x / w).backward({}, {.create_graph = true});
    if (round == 2) sum(square(x.grad()) + square(w.grad())).backward();
  }
  CHECK(live() == before);
  {
    // The gradient keeps only the tensors needed to differentiate it; the leaf is freed.
    Tensor g;
    {
      const Tensor x = leaf({1, 2});
      sum(x * x * x).backward({}, {.create_graph = true});
      g = x.grad();
    }
    sum(g).backward();
  }
  CHECK(live() == before);
}

TEST_CASE("a hook on a result replaces the gradient that flows on", "[autograd]") {
  const Tensor x = leaf({1, 2});
  const Tensor y = x * 2.0;
  int calls = 0;
  y.register_hook([&](const Tensor& g) {
    ++calls;
    return g * 0.0 + 1.0;
  });
  const Tensor z = sum(y * y) + sum(y * 5.0);
  CHECK(list(grad({z}, {x}, {}, {.retain_graph = true})[0]) == List{2, 2});
  CHECK(list(grad({z}, {y})[0]) == List{1, 1});
  CHECK(calls == 2);  // once per pass
  CHECK_THROWS_WITH(ones({1}).register_hook([](const Tensor&) {}),
                    "[register_hook] the tensor does not require a gradient");
  const Tensor w = leaf({1, 2});
  w.register_hook([](const Tensor&) { return ones({3}); });
  CHECK_THROWS_WITH(sum(w * w).backward(),
                    "[register_hook] a hook returned f32 [3] for a gradient f64 [2]");
}

TEST_CASE("a cube can be differentiated until its derivative is constant", "[autograd]") {
  const Tensor x = leaf({2, -1});
  const Tensor y = sum(x * x * x);
  const auto next = [&](const Tensor& f) { return grad({f}, {x}, {}, {.create_graph = true})[0]; };
  const Tensor first = next(y), second = next(sum(first)), third = next(sum(second));
  CHECK(list(first) == List{12, 3});
  CHECK(list(second) == List{12, -6});
  CHECK(list(third) == List{6, 6});
  if (third.requires_grad()) {
    const Tensor fourth = next(sum(third));
    CHECK((!fourth.defined() || list(fourth) == List{0, 0}));
  }
}

TEST_CASE("a gradient penalty reaches the leaves", "[autograd]") {
  const Tensor x = leaf({0.5, -0.3});
  const Tensor g = grad({sum(sin(x) * x)}, {x}, {}, {.create_graph = true})[0];
  sum(g * g).backward();
  testing::check_gradients(
      [](const Tensors& in) {
        const GradMode on(true);
        const Tensor v = in[0].requires_grad() ? in[0] : in[0].detach().set_requires_grad();
        const Tensor slope = grad({sum(sin(v) * v)}, {v}, {}, {.create_graph = true})[0];
        return sum(slope * slope);
      },
      {x}, false);
  for (size_t i = 0; i < 2; ++i) {
    const double v = list(x)[i], s = std::sin(v) + v * std::cos(v);
    CHECK(list(x.grad())[i] == Approx(2 * s * (2 * std::cos(v) - v * std::sin(v))));
  }
}

TEST_CASE("Hessian-vector products of a small network are correct", "[autograd]") {
  const Tensor input = testing::fixed_noise({6, 4}, 1), target = testing::fixed_noise({6, 2}, 2);
  Tensors w = {testing::fixed_leaf({5, 4}, 3), testing::fixed_leaf({5}, 4),
               testing::fixed_leaf({2, 5}, 5), testing::fixed_leaf({2}, 6)};
  const auto loss = [&] {
    const Tensor hidden = tanh(linear(input, w[0], w[1]));
    return mean(square(linear(hidden, w[2], w[3]) - target));
  };
  Tensors v;
  for (size_t i = 0; i < w.size(); ++i) v.push_back(testing::fixed_noise(w[i].shape(), 10 + i));

  const Tensors g = grad({loss()}, w, {}, {.create_graph = true});
  Tensor dot = scalar(0, {.dtype = f64});
  for (size_t i = 0; i < w.size(); ++i) dot = dot + sum(g[i] * v[i]);
  const Tensors hv = grad({dot}, w);

  constexpr double eps = 1e-5;
  const auto move = [&](double by) {
    const NoGrad off;
    for (size_t i = 0; i < w.size(); ++i) w[i].add_(v[i], by);
  };
  move(eps);
  const Tensors up = grad({loss()}, w);
  move(-2 * eps);
  const Tensors down = grad({loss()}, w);
  for (size_t i = 0; i < w.size(); ++i) {
    const List a = list(hv[i]), b = list((up[i] - down[i]) * (0.5 / eps));
    for (size_t k = 0; k < a.size(); ++k) CHECK(a[k] == Approx(b[k]).epsilon(1e-7).margin(1e-9));
  }
}

TEST_CASE("recorded and plain backward give the same gradients", "[autograd]") {
  const Tensor x = testing::fixed_leaf({4, 3}, 1), w = testing::fixed_leaf({3}, 2);
  const auto f = [&] { return sum(exp(x * w) / (x * x + 2.0)); };
  const Tensors plain = grad({f()}, {x, w}),
                recorded = grad({f()}, {x, w}, {}, {.create_graph = true});
  for (size_t i = 0; i < 2; ++i)
    for (size_t k = 0; k < list(plain[i]).size(); ++k)
      CHECK(list(plain[i])[k] == Approx(list(recorded[i])[k]).epsilon(1e-13));
  CHECK(!plain[0].requires_grad());
  CHECK(recorded[0].requires_grad());
}

TEST_CASE("A leaf's hook for its complete gradient runs during the pass") {
  const Tensor a = tensor({1.0, 2.0}).set_requires_grad(),
               b = tensor({3.0, 4.0}).set_requires_grad();
  const Tensor c = tensor({5.0, 6.0}).set_requires_grad();
  std::vector<std::string> order;
  a.register_post_accumulate_grad_hook([&] {
    order.emplace_back("a");
    CHECK(a.grad().to_vector<double>() == std::vector<double>{2 * 3 * 5 + 5, 2 * 4 * 6 + 6});
  });
  b.register_post_accumulate_grad_hook([&] {
    order.emplace_back("b");
    CHECK(b.grad().to_vector<double>() == std::vector<double>{2 * 5, 2 * 2 * 6});
  });
  c.register_post_accumulate_grad_hook([&] { order.emplace_back("c"); });
  const Tensor first = a * b;
  first.register_hook([&](const Tensor&) { order.emplace_back("first"); });
  const Tensor second = first + a + first;
  const Tensor third = second * c;
  sum(third).backward();
  CHECK(order == std::vector<std::string>{"c", "first", "a", "b"});
  order.clear();
  a.set_grad({}), b.set_grad({}), c.set_grad({});
  sum(third.detach() * c).backward();  // reaches only c
  CHECK(order == std::vector<std::string>{"c"});
  CHECK_THROWS_WITH(third.register_post_accumulate_grad_hook([] {}), Containing("must be a leaf"));
}

TEST_CASE("Hooks for complete gradients wait for uses inside recompute()") {
  const Tensor w = tensor({2.0}).set_requires_grad(), x = tensor({3.0}).set_requires_grad();
  int calls = 0;
  w.register_post_accumulate_grad_hook([&] {
    ++calls;
    CHECK(w.grad().item() == Approx(3 * 2 * 2 * 3));  // of w³·x
  });
  const Tensor y = recompute([&](const Tensors& in) { return in[0] * w; }, {x});
  const Tensor z = recompute([&](const Tensors& in) { return in[0] * w; }, {y});
  (z * w).backward();
  CHECK(calls == 1);
}

}  // namespace stretto
