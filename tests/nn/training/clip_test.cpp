#include <cmath>

#include "core/parallel.h"
#include "nn/optim/optim.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/gradcheck.h"
#include "tests/support/memory_failures.h"

using namespace stretto;
using std::vector;
using stretto::testing::fixed_noise;

TEST_CASE("clip_grad_norm scales all gradients by their common norm") {
  const Tensor a = tensor({0.0, 0.0}).set_requires_grad(), b = tensor({0.0f}).set_requires_grad();
  const Tensor none = tensor({1.0}).set_requires_grad();
  const auto set = [&](double x, double y, float z) {
    a.set_grad(tensor({x, y}));
    b.set_grad(tensor({z}));
  };
  set(2, 3, 6);
  CHECK(nn::clip_grad_norm({a, b, none, a}, 10).item() == 7);
  CHECK(a.grad().to_vector<double>() == vector<double>{2, 3});
  CHECK(nn::clip_grad_norm({a, b, none, a}, 3.5).item() == 7);
  CHECK(a.grad().to_vector<double>() == vector<double>{1, 1.5});
  CHECK(b.grad().to_vector<double>() == vector<double>{3});
  CHECK(nn::clip_grad_norm({a, b}, 3.5).item() == 3.5);
  CHECK_FALSE(none.grad().defined());
  CHECK(nn::clip_grad_norm({none}, 1).item() == 0);
  CHECK(nn::clip_grad_norm({}, 1).item() == 0);

  set(2, NAN, 6);
  CHECK(std::isnan(nn::clip_grad_norm({a, b}, 1).item()));
  CHECK(b.grad().item() == 6);
  set(2, INFINITY, 6);
  CHECK(nn::clip_grad_norm({a, b}, 1).item() == INFINITY);
  CHECK(b.grad().item() == 6);
  set(2, 3, 6);
  CHECK(nn::clip_grad_norm({a, b}, INFINITY).item() == 7);
  CHECK(nn::clip_grad_norm({a, b}, 0).item() == 7);
  CHECK(a.grad().to_vector<double>() == vector<double>{0, 0});
  CHECK_THROWS_WITH(nn::clip_grad_norm({a}, -1), Containing("[clip_grad_norm] max_norm"));
  CHECK_THROWS_WITH(nn::clip_grad_norm({a}, NAN), Containing("[clip_grad_norm] max_norm"));
}

TEST_CASE("clip_grad_norm sums f32 squares in f64, for any number of threads") {
  // 2²⁵ ones and one more: f32 sums would stop at 2²⁴.
  const int threads = num_threads();
  Tensor big = zeros({(1 << 25) + 1});
  big.fill_(1);
  const Tensor p = zeros({(1 << 25) + 1}).set_requires_grad();
  p.set_grad(big);
  for (const int count : {1, 2}) {
    set_num_threads(count);
    CHECK(nn::clip_grad_norm({p}, 1e9).item() == std::sqrt(33554433.0));
  }
  set_num_threads(threads);
}

TEST_CASE("clip_grad_norm scales all gradients or none") {
  const auto gradients = [](DType dtype) {
    Tensors all;
    for (const uint64_t i : {1, 2, 3}) {
      all.push_back(zeros({40, 3}, {.dtype = dtype, .requires_grad = true}));
      const Tensor g = fixed_noise({3, 40}, i, dtype);
      all.back().set_grad(i == 2 ? g.transpose(0, 1) : g.reshape({40, 3}).clone());
    }
    return all;
  };
  for (const DType dtype : {f64, f32, bf16}) {
    const Tensors undisturbed = gradients(dtype), disturbed = gradients(dtype);
    const double norm = nn::clip_grad_norm(undisturbed, 0.5).item();
    double again = 0;
    testing::fail_until_it_fits([&] { again = nn::clip_grad_norm(disturbed, 0.5).item(); }, 64);
    CHECK(again == norm);
    for (size_t i = 0; i < undisturbed.size(); ++i) {
      CHECK(undisturbed[i].grad().to_vector<double>() == disturbed[i].grad().to_vector<double>());
      const Tensor want = gradients(dtype)[i].grad() * (0.5 / norm);
      CHECK(undisturbed[i].grad().to_vector<double>() == want.to_vector<double>());
    }
  }
}
