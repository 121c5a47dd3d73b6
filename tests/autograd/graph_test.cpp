// Deep graphs, and the memory of graphs [autograd/tape.cpp].
#include <pthread.h>

#include <exception>
#include <functional>

#include "autograd/tape.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "tests/support/gradcheck.h"

namespace stretto {
namespace {

constexpr int depth = 100'000;

// Runs f in a thread with a stack of 256 KiB, where recursion over a deep graph would overflow.
void on_small_stack(std::function<void()> f) {
  struct Call {
    std::function<void()> f;
    std::exception_ptr error;
  } call{std::move(f), nullptr};
  pthread_attr_t attributes;
  REQUIRE(pthread_attr_init(&attributes) == 0);
  REQUIRE(pthread_attr_setstacksize(&attributes, 256 * 1024) == 0);
  pthread_t thread;
  REQUIRE(pthread_create(
              &thread, &attributes,
              [](void* context) -> void* {
                Call& c = *static_cast<Call*>(context);
                try {
                  c.f();
                } catch (...) {
                  c.error = std::current_exception();
                }
                return nullptr;
              },
              &call) == 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
  if (call.error) std::rethrow_exception(call.error);
}

Tensor chain(Tensor x, const std::function<Tensor(const Tensor&)>& step, int length = depth) {
  for (int i = 0; i < length; ++i) x = step(x);
  return x;
}

Tensor one() { return ones({1}, {.dtype = f64, .requires_grad = true}); }

}  // namespace

TEST_CASE("a chain of 100,000 ops runs, differentiates and is destroyed", "[autograd]") {
  const int64_t live = memory_stats().live;
  double slope = 0, with_saved = 0, diamonds = 0;
  on_small_stack([&] {
    {
      const Tensor x = one();
      Tensor y = chain(x, [](const Tensor& t) { return t + 1.0; });
      y.backward();
      slope = x.grad().item();
    }
    {
      // Each node's closure owns the next tensor, not only its inputs.
      const Tensor x = one(), c = full({1}, 1, {.dtype = f64});
      chain(x, [&](const Tensor& t) { return t * c; }).backward();
      with_saved = x.grad().item();
    }
    {
      const Tensor x = one();
      chain(
          x, [](const Tensor& t) { return t * 0.5 + t * 0.5; }, depth / 4)
          .backward();
      diamonds = x.grad().item();
    }
  });
  CHECK(slope == 1);
  CHECK(with_saved == 1);
  CHECK(diamonds == 1);
  CHECK(memory_stats().live == live);
}

TEST_CASE("a deep graph is destroyed without backward", "[autograd]") {
  const int64_t live = memory_stats().live;
  on_small_stack([] { chain(one(), [](const Tensor& t) { return t + 1.0; }); });
  on_small_stack([] {
    chain(
        one(), [](const Tensor& t) { return exp(t) * 0.0; }, depth / 2);
  });
  on_small_stack([] {
    const Tensor y = chain(
        one(), [](const Tensor& t) { return sin(t) + t; }, depth / 3);
    grad({y}, {y}, {}, {.retain_graph = true});
  });
  CHECK(memory_stats().live == live);
}

namespace {
Tensor outlives_main;
}

// The sanitizers check it when the program ends.
TEST_CASE("a graph may outlive main", "[autograd]") {
  outlives_main = chain(
      one(), [](const Tensor& t) { return exp(t) * 0.0 + t; }, 10);
  CHECK(outlives_main.requires_grad());
}

TEST_CASE("a deep graph of gradients is destroyed", "[autograd]") {
  const int64_t live = memory_stats().live;
  double second = 0;
  on_small_stack([&] {
    const Tensor x = full({1}, 0.5, {.dtype = f64}).set_requires_grad();
    const Tensor y = chain(
        x, [&](const Tensor& t) { return t * x; }, 1000);  // x^1001
    const Tensor g = grad({y}, {x}, {}, {.create_graph = true})[0];
    second = grad({g}, {x})[0].item();
  });
  CHECK(second == Approx(1001.0 * 1000.0 * std::pow(0.5, 999)).margin(1e-280));
  CHECK(memory_stats().live == live);
}

TEST_CASE("a long sum of many leaves is differentiated", "[autograd]") {
  Tensors leaves;
  Tensor y = scalar(0, {.dtype = f64});
  for (int i = 0; i < 5000; ++i) {
    leaves.push_back(one());
    y = y + sum(leaves.back()) * double(i);
  }
  y.backward();
  int wrong = 0;
  for (int i = 0; i < 5000; ++i) wrong += leaves[size_t(i)].grad().item() != i;
  CHECK(wrong == 0);
}

TEST_CASE("training steps leak no memory", "[autograd]") {
  const int64_t before = memory_stats().live;
  {
    Tensors w = {testing::fixed_noise({16, 8}, 1, f32).set_requires_grad(),
                 testing::fixed_noise({16}, 2, f32).set_requires_grad(),
                 testing::fixed_noise({4, 16}, 3, f32).set_requires_grad()};
    const Tensor x = testing::fixed_noise({32, 8}, 4, f32),
                 t = testing::fixed_noise({32, 4}, 5, f32);
    double loss_value = 0, first_loss = 0;
    const auto step = [&] {
      const Tensor hidden = relu(linear(x, w[0], w[1]));
      const Tensor loss = mean(square(linear(hidden, w[2]) - t));
      loss.backward();
      loss_value = loss.item();
      const NoGrad off;
      for (Tensor& p : w) {
        p.add_(p.grad(), -0.05);
        p.set_grad({});
      }
    };
    step();
    first_loss = loss_value;
    const int64_t live = memory_stats().live;
    for (int i = 0; i < 100; ++i) {
      step();
      REQUIRE(memory_stats().live == live);
    }
    CHECK(loss_value < 0.7 * first_loss);
  }
  CHECK(memory_stats().live == before);
}

TEST_CASE("backward() frees saved tensors, retain_graph keeps them", "[autograd]") {
  const Tensor x = ones({1000}, {.requires_grad = true});
  const int64_t live = memory_stats().live;
  Tensor y = sum(sin(exp(exp(x))));  // both exp save their outputs, sin the second one too
  const int64_t graph = memory_stats().live - live;
  CHECK(graph >= 2 * 4000);
  grad({y}, {x}, {}, {.retain_graph = true});
  CHECK(memory_stats().live - live == graph);
  grad({y}, {x});
  CHECK(memory_stats().live - live < 200);
  y = {};
  CHECK(memory_stats().live == live);
}

TEST_CASE("a loop that stores losses as numbers keeps no graphs", "[autograd]") {
  const Tensor x = ones({100}, {.requires_grad = true});
  const int64_t live = memory_stats().live;
  double total = 0;
  for (int i = 0; i < 50; ++i) total += sum(x * double(i)).item();
  CHECK(total == 122500);
  CHECK(memory_stats().live == live);
}

TEST_CASE("a graph whose backward pass failed is freed", "[autograd]") {
  const int64_t live = memory_stats().live;
  {
    const Tensor x = ones({100}, {.requires_grad = true});
    Tensor c = ones({100});
    const Tensor y = sum(exp(x) * c);
    c.fill_(2);
    CHECK_THROWS_AS(y.backward(), Error);
  }
  CHECK(memory_stats().live == live);
}

}  // namespace stretto
