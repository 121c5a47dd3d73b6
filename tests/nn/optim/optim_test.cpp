#include "nn/optim/optim.h"

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "nn/files/safetensors.h"
#include "nn/linear.h"
#include "nn/optim/muon.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/gradcheck.h"
#include "tests/support/memory_failures.h"

using namespace stretto;
using std::vector;
using stretto::testing::fixed_noise;

namespace {

// The update rules as in their papers and in PyTorch's documentation, one weight at a time.
struct Reference {
  double momentum = 0, dampening = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, weight_decay = 0;
  bool nesterov = false, amsgrad = false, decoupled = false;
  double b = 0, m = 0, v = 0, v_max = 0;

  double sgd(double w, double g, double lr, int t) {
    g += weight_decay * w;
    if (momentum != 0) {
      b = t == 1 ? g : momentum * b + (1 - dampening) * g;
      g = nesterov ? g + momentum * b : b;
    }
    return w - lr * g;
  }
  double adam(double w, double g, double lr, int t) {
    if (decoupled) {
      w -= lr * weight_decay * w;
    } else {
      g += weight_decay * w;
    }
    m = beta1 * m + (1 - beta1) * g;
    v = beta2 * v + (1 - beta2) * g * g;
    v_max = std::max(v_max, v);
    const double m_hat = m / (1 - std::pow(beta1, t));
    const double v_hat = (amsgrad ? v_max : v) / (1 - std::pow(beta2, t));
    return w - lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

using Rule = double (Reference::*)(double, double, double, int);

constexpr int64_t size = 37;

// The gradient of ½·0.3·w² plus noise of several sizes; 0 for every 7th element after step 10.
double gradient_at(double w, int64_t i, int t, double noise) {
  if (i % 7 == 3 && t > 10) return 0;
  return 0.3 * w + noise * std::pow(10.0, double(i % 5) - 3);
}

// Runs `steps` steps of an optimizer on one f64 parameter and of the reference, with varying rates.
void check_against_reference(nn::Optimizer& optimizer, const Tensor& w, Reference reference,
                             Rule rule, int steps = 1001) {
  vector<double> expected = w.to_vector<double>();
  vector<Reference> references(expected.size(), reference);
  const double lr = optimizer.learning_rate();
  for (int t = 1; t <= steps; ++t) {
    const vector<double> noise = fixed_noise(w.shape(), 100 + uint64_t(t)).to_vector<double>();
    vector<double> gradient = w.to_vector<double>();
    for (size_t i = 0; i < gradient.size(); ++i)
      gradient[i] = gradient_at(gradient[i], int64_t(i), t, noise[i]);
    w.set_grad(tensor(gradient, w.shape()));
    const double rate = lr / (1 + 0.01 * t);
    optimizer.set_learning_rate(rate);
    optimizer.step();
    for (size_t i = 0; i < expected.size(); ++i)
      expected[i] = (references[i].*rule)(
          expected[i], gradient_at(expected[i], int64_t(i), t, noise[i]), rate, t);
  }
  const vector<double> got = w.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) {
    INFO("element " << i);
    CHECK(got[i] == Approx(expected[i]).epsilon(1e-9).margin(1e-15));
  }
}

Tensor weight(DType dtype = f64) {
  return fixed_noise({size}, 50, dtype).clone().set_requires_grad();
}

}  // namespace

TEST_CASE("SGD equals its formula over 1001 steps") {
  struct Case {
    nn::SGD::Options options;
    Reference reference;
  };
  const vector<Case> cases = {
      {{.lr = 0.05}, {}},
      {{.lr = 0.05, .weight_decay = 0.1}, {.weight_decay = 0.1}},
      {{.lr = 0.05, .momentum = 0.9}, {.momentum = 0.9}},
      {{.lr = 0.05, .momentum = 0.9, .weight_decay = 0.1, .dampening = 0.2},
       {.momentum = 0.9, .dampening = 0.2, .weight_decay = 0.1}},
      {{.lr = 0.05, .momentum = 0.8, .weight_decay = 0.1, .nesterov = true},
       {.momentum = 0.8, .weight_decay = 0.1, .nesterov = true}},
  };
  for (const Case& c : cases) {
    const Tensor w = weight();
    nn::SGD optimizer({w}, c.options);
    check_against_reference(optimizer, w, c.reference, &Reference::sgd);
  }
}

TEST_CASE("SGD's first step has no dampening, with a rate of 0 too") {
  const Tensor w = zeros({1}, {.dtype = f64}).set_requires_grad();
  nn::SGD optimizer({w}, {.lr = 0, .momentum = 0.9, .dampening = 0.5});
  for (const double lr : {0.0, 1.0}) {
    optimizer.set_learning_rate(lr);
    w.set_grad(ones_like(w));
    optimizer.step();
  }
  CHECK(w.item() == Approx(-(0.9 + 0.5)));
}

TEST_CASE("Adam and AdamW equal their formulas over 1001 steps") {
  for (const bool amsgrad : {false, true}) {
    for (const double decay : {0.0, 0.1}) {
      Reference reference{
          .beta1 = 0.85, .beta2 = 0.98, .eps = 1e-6, .weight_decay = decay, .amsgrad = amsgrad};
      const Tensor w = weight();
      nn::Adam adam({w}, {.lr = 0.01,
                          .beta1 = 0.85,
                          .beta2 = 0.98,
                          .eps = 1e-6,
                          .weight_decay = decay,
                          .amsgrad = amsgrad});
      check_against_reference(adam, w, reference, &Reference::adam);

      reference.decoupled = true;
      const Tensor u = weight();
      nn::AdamW adamw({u}, {.lr = 0.01,
                            .beta1 = 0.85,
                            .beta2 = 0.98,
                            .eps = 1e-6,
                            .weight_decay = decay,
                            .amsgrad = amsgrad});
      check_against_reference(adamw, u, reference, &Reference::adam);
    }
  }
  CHECK(nn::Adam({weight()}, {}).options.weight_decay == 0);
  CHECK(nn::AdamW({weight()}, {}).options.weight_decay == 0.01);
}

TEST_CASE("Adam and AdamW agree with the conformance cases") {
  namespace fs = std::filesystem;
  const char* variable = std::getenv("STRETTO_CONFORMANCE");
  const fs::path folder =
      variable ? fs::path(variable) : testing::find_upwards("tests/conformance/cases");
  if (!fs::exists(folder / "adam.safetensors"))
    STRETTO_SKIP("no adam.safetensors in " + folder.string() + "; set STRETTO_CONFORMANCE");
  for (const char* file : {"adam.safetensors", "adamw.safetensors"}) {
    INFO(file);
    const nn::Safetensors c = nn::load_safetensors((folder / file).string());
    const auto config = nlohmann::json::parse(c.metadata.at("config"));
    const Tensor w = c["in.w"].clone().set_requires_grad();
    const nn::AdamW::Options o{.lr = config["lr"],
                               .beta1 = config["beta1"],
                               .beta2 = config["beta2"],
                               .eps = config["eps"],
                               .weight_decay = config["weight_decay"]};
    std::unique_ptr<nn::Optimizer> optimizer;
    if (config["decoupled"]) {
      optimizer = std::make_unique<nn::AdamW>(Tensors{w}, o);
    } else {
      optimizer = std::make_unique<nn::Adam>(
          Tensors{w}, nn::Adam::Options{o.lr, o.beta1, o.beta2, o.eps, o.weight_decay});
    }
    for (int step = 1; step <= int(config["steps"]); ++step) {
      w.set_grad(c["in.grad." + std::to_string(step)]);
      optimizer->step();
    }
    const vector<double> got = w.to_vector<double>(), want = c["out.w"].to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i) CHECK(std::abs(got[i] - want[i]) <= 1e-9);
  }
}

TEST_CASE("f32 steps stay within their rounding errors") {
  // Each step rounds the weight once (2⁻²⁴ of it) and its change a few times (8 roundings, 2⁻²⁴ of
  // it each). The gradients do not depend on the weights, so errors only add up.
  const Tensor exact = weight(), rounded = weight(f32);
  const vector<double> start = rounded.to_vector<double>();
  NoGrad guard;
  Tensor(exact).copy_(rounded);
  nn::AdamW a({exact}, {.lr = 0.01}), b({rounded}, {.lr = 0.01});
  constexpr int steps = 200;
  for (int t = 1; t <= steps; ++t) {
    const Tensor g = fixed_noise({size}, 100 + uint64_t(t), f32);
    exact.set_grad(g.to(f64));
    rounded.set_grad(g);
    a.step();
    b.step();
  }
  const vector<double> want = exact.to_vector<double>(), got = rounded.to_vector<double>();
  for (size_t i = 0; i < got.size(); ++i) {
    const double largest = std::abs(start[i]) + steps * 0.01;
    CHECK(std::abs(got[i] - want[i]) <= steps * 0x1p-24 * (largest + 8 * 0.01));
  }
}

TEST_CASE("bf16 parameters follow an f32 master copy") {
  const Tensor half = weight(bf16);
  const Tensor full = half.detach().to(f32).clone().set_requires_grad();
  nn::AdamW a({half}, {.lr = 1e-4}), b({full}, {.lr = 1e-4});
  for (int t = 1; t <= 50; ++t) {
    const Tensor g = fixed_noise({size}, 100 + uint64_t(t), bf16);
    half.set_grad(g);
    full.set_grad(g.to(f32));
    a.step();
    b.step();
  }
  // Steps of 1e-4 would mostly be lost on bf16 weights near 1.
  CHECK(half.to_vector<float>() == full.detach().to(bf16).to_vector<float>());
  REQUIRE(a.state()[0].tensors.size() == 3);
  CHECK(a.state()[0].tensors[2].name == "master");
  CHECK(a.state()[0].tensors[2].tensor.to_vector<float>() == full.to_vector<float>());
  CHECK(a.state()[0].tensors[0].tensor.dtype() == f32);

  // If a weight was changed from outside, it replaces its master copy.
  NoGrad guard;
  Tensor(half).fill_(2);
  half.set_grad(zeros({size}, {.dtype = bf16}));
  nn::SGD sgd({half}, {.lr = 1});
  sgd.step();
  Tensor(half).fill_(3);
  sgd.step();
  CHECK(half.to_vector<float>() == vector<float>(size_t(size), 3));
  CHECK(sgd.state()[0].tensors[0].tensor.to_vector<float>() == vector<float>(size_t(size), 3));
}

TEST_CASE("a step does not depend on threads, layout or size") {
  const int threads = num_threads();
  for (const int64_t n : {0, 1, 7, 100003}) {
    vector<vector<float>> results;
    for (const int count : {1, 2, 3}) {
      set_num_threads(count);
      const Tensor w = fixed_noise({n}, 60, f32).clone().set_requires_grad();
      nn::AdamW optimizer({w}, {.lr = 0.1});
      for (int t = 0; t < 3; ++t) {
        w.set_grad(fixed_noise({n}, 70 + uint64_t(t), f32));
        optimizer.step();
      }
      results.push_back(w.to_vector<float>());
    }
    CHECK(results[0] == results[1]);
    CHECK(results[0] == results[2]);
  }
  set_num_threads(threads);

  Tensor a = fixed_noise({5, 6}, 61).clone().set_requires_grad();
  Tensor b = stretto::testing::strided_copy(a).set_requires_grad();
  const Tensor g = fixed_noise({5, 6}, 62);
  a.set_grad(stretto::testing::strided_copy(g));
  b.set_grad(g);
  nn::SGD optimizer({a, b}, {.lr = 0.1, .momentum = 0.9});
  optimizer.step();
  optimizer.step();
  CHECK(a.to_vector<double>() == b.to_vector<double>());
}

TEST_CASE("parameters without a gradient are skipped") {
  const Tensor a = weight(), b = weight();
  nn::Adam optimizer({a, b}, {.lr = 0.1, .weight_decay = 0.5});
  const vector<double> before = b.to_vector<double>();
  a.set_grad(ones_like(a));
  optimizer.step();
  optimizer.step();
  CHECK(b.to_vector<double>() == before);
  CHECK(a.to_vector<double>() != before);
  CHECK(optimizer.state()[0].steps == 2);
  CHECK(optimizer.state()[1].steps == 0);
  CHECK(optimizer.state()[1].tensors.empty());
  optimizer.zero_grad();
  CHECK_FALSE(a.grad().defined());
  optimizer.step();
  CHECK(optimizer.state()[0].steps == 2);
}

TEST_CASE("backward after a step detects that saved parameters have changed") {
  Tensor w = weight();
  const Tensor y = sum(mul(w, w));
  w.set_grad(ones_like(w));
  nn::SGD({w}, {.lr = 0.1}).step();
  CHECK_THROWS_WITH(y.backward(), Containing("changed in place"));
}

TEST_CASE("groups have their own rates and decays") {
  const auto one = [] { return tensor({1.0}).set_requires_grad(); };
  const Tensor a = one(), b = one(), c = one();
  nn::SGD optimizer({{.parameters = {a}},
                     {.parameters = {b}, .lr_scale = 0.5},
                     {.parameters = {c}, .weight_decay = 0.0}},
                    {.lr = 0.1, .weight_decay = 1});
  for (const Tensor& p : optimizer.parameters()) p.set_grad(ones_like(p));
  optimizer.step();
  CHECK(a.item() == Approx(1 - 0.1 * 2).epsilon(1e-15));
  CHECK(b.item() == Approx(1 - 0.05 * 2).epsilon(1e-15));
  CHECK(c.item() == Approx(1 - 0.1).epsilon(1e-15));
}

TEST_CASE("a group's lr_factor is its schedule, also after load_state()") {
  const auto factor = [](int64_t t) { return t < 3 ? 0.0 : 0.5; };  // a later start
  const Tensor a = tensor({1.0}).set_requires_grad(), b = tensor({1.0}).set_requires_grad();
  const auto groups = [&]() -> std::vector<nn::ParameterGroup> {
    return {{.parameters = {a}}, {.parameters = {b}, .lr_scale = 2, .lr_factor = factor}};
  };
  nn::SGD first(groups(), {.lr = 0.1});
  const auto steps = [&](nn::SGD& optimizer, int n) {
    for (int i = 0; i < n; ++i) {
      for (const Tensor& p : {a, b}) p.set_grad(ones_like(p));
      optimizer.step();
    }
  };
  steps(first, 2);
  CHECK(b.item() == 1);
  nn::SGD second(groups(), {.lr = 0.1});
  second.load_state(first.state());
  steps(second, 2);
  CHECK(b.item() == Approx(1 - 2 * 0.1).epsilon(1e-15));
  CHECK(a.item() == Approx(1 - 4 * 0.1).epsilon(1e-15));

  for (const double wrong : {-1.0, HUGE_VAL}) {
    nn::SGD optimizer({{.parameters = {a}, .lr_factor = [=](int64_t) { return wrong; }}}, {});
    a.set_grad(ones_like(a));
    const double before = a.item();
    CHECK_THROWS_WITH(optimizer.step(), Containing(str("[Optimizer] lr_factor(1) of a group is ",
                                                       wrong, "; accepted: a finite number ≥ 0")));
    CHECK(a.item() == before);
  }
}

TEST_CASE("invalid options of optimizers are errors") {
  const Tensor w = weight();
  CHECK_THROWS_WITH(nn::SGD({w, w}, {}), Containing("[Optimizer] a parameter (f64 [37]) is given"));
  CHECK_THROWS_WITH(nn::AdamW(Tensors{}, {}), Containing("[Optimizer] there are no parameters"));
  CHECK_THROWS_WITH(nn::SGD({mul(w, 2.0)}, {}), Containing("must be a leaf"));
  CHECK_THROWS_WITH(nn::SGD({zeros({2}, {.dtype = i64})}, {}), Containing("floating dtype"));
  CHECK_THROWS_WITH(nn::SGD({w}, {.lr = -1}), Containing("learning rate must be ≥ 0, got -1"));
  CHECK_THROWS_WITH(nn::SGD({w}, {.lr = 1, .nesterov = true}), Containing("[SGD] nesterov needs"));
  CHECK_THROWS_WITH(nn::SGD({w}, {.momentum = -1}), Containing("[SGD] momentum"));
  CHECK_THROWS_WITH(nn::AdamW({w}, {.beta1 = 1}), Containing("[AdamW] beta1 and beta2"));
  CHECK_THROWS_WITH(nn::Adam({w}, {.eps = -1}), Containing("[Adam] eps"));
  CHECK_THROWS_WITH(nn::Adam({w}, {.weight_decay = -1}), Containing("[Adam] weight_decay"));

  nn::Linear layer({.in = 2, .out = 2});
  nn::AdamW optimizer(layer.parameters(), {.lr = 0.1});
  for (const Tensor& p : layer.parameters()) p.set_grad(ones_like(p));
  optimizer.step();
  layer.to(f64);
  for (const Tensor& p : layer.parameters()) p.set_grad(ones_like(p));
  CHECK_THROWS_WITH(optimizer.step(), Containing("[AdamW] a parameter has become f64 [2, 2]"));
  layer.weight.set_grad(ones({2, 2}));
  CHECK_THROWS_WITH(optimizer.step(), Containing("[AdamW] gradient f32 [2, 2] of a parameter f64"));
}

TEST_CASE("load_state() continues bit for bit, and checks the state first") {
  const Tensor w = weight(f32);
  nn::AdamW optimizer({w}, {.lr = 0.01, .amsgrad = true});
  const auto step = [](nn::Optimizer& o, const Tensor& p, int t) {
    p.set_grad(fixed_noise({size}, 200 + uint64_t(t), f32));
    o.step();
  };
  for (int t = 0; t < 5; ++t) step(optimizer, w, t);
  const Tensor u = w.detach().clone().set_requires_grad();
  nn::AdamW other({u}, {.lr = 0.01, .amsgrad = true});
  other.load_state(optimizer.state());
  for (int t = 5; t < 10; ++t) {
    step(optimizer, w, t);
    step(other, u, t);
  }
  CHECK(w.to_vector<float>() == u.to_vector<float>());
  CHECK(other.state()[0].steps == 10);

  auto state = optimizer.state();
  nn::AdamW plain({weight(f32)}, {}), two({weight(f32), weight(f32)}, {});
  nn::AdamW doubles({weight()}, {.amsgrad = true});
  CHECK_THROWS_WITH(
      plain.load_state(state),
      Containing("[load_state] parameter 0: the state has m v v_max, AdamW needs m v"));
  CHECK_THROWS_WITH(two.load_state(state), Containing("the state has 1 parameters, AdamW has 2"));
  CHECK_THROWS_WITH(doubles.load_state(state), Containing("m is f32 [37], expected f64 [37]"));
  state[0].steps = -1;
  CHECK_THROWS_WITH(other.load_state(state), Containing("-1 steps"));
  state[0].steps = INT64_MAX;  // the next step could not be counted
  CHECK_THROWS_WITH(other.load_state(state),
                    Containing("parameter 0 has had 9223372036854775807 steps; accepted: 0 to "
                               "9007199254740992"));
  CHECK(other.state()[0].steps == 10);
}

TEST_CASE("a step that runs out of memory for its state changes no parameter") {
  const Tensor a = weight(f32), b = zeros({1'000'000}).set_requires_grad();
  const std::vector<float> before = a.to_vector<float>();
  nn::AdamW optimizer({a, b}, {.lr = 0.01});
  a.set_grad(ones({size}));
  b.set_grad(ones({1'000'000}));
  release_cached_memory();
  const int64_t live = memory_stats().live;
  set_memory_limit(live + 1'000'000);
  CHECK_THROWS_AS(optimizer.step(), OutOfMemory);
  set_memory_limit(INT64_MAX);
  CHECK(memory_stats().live == live);
  CHECK(a.to_vector<float>() == before);
  CHECK(optimizer.state()[0].steps == 0);
  CHECK(optimizer.state()[0].tensors.empty());
  optimizer.step();
  CHECK(a.to_vector<float>() != before);
  CHECK(optimizer.state()[0].steps == 1);
}

TEST_CASE("an optimizer's step changes all parameters or none") {
  struct Taken {
    vector<vector<float>> values;
    vector<int64_t> steps;
    bool operator==(const Taken&) const = default;
  };
  const auto taken = [](const nn::Optimizer& o) {
    Taken t;
    for (const Tensor& p : o.parameters()) t.values.push_back(p.to_vector<float>());
    for (const nn::ParameterState& s : o.state()) {
      t.steps.push_back(s.steps);
      for (const nn::NamedTensor& n : s.tensors) t.values.push_back(n.tensor.to_vector<float>());
    }
    return t;
  };
  for (const std::string kind : {"SGD", "AdamW", "Muon"})
    for (const DType dtype : {f32, bf16}) {
      const auto make = [&](const Tensors& p) -> std::unique_ptr<nn::Optimizer> {
        if (kind == "AdamW") return std::make_unique<nn::AdamW>(p, nn::AdamW::Options{.lr = 0.1});
        if (kind == "Muon") return std::make_unique<nn::Muon>(p, nn::Muon::Options{.lr = 0.1});
        return std::make_unique<nn::SGD>(p, nn::SGD::Options{.lr = 0.1, .momentum = 0.9});
      };
      // The last one is a transposed view, whose step needs memory every time.
      const auto weights = [&] {
        Tensors all;
        for (const uint64_t i : {1, 2, 3})
          all.push_back(fixed_noise({40, 3}, i, dtype).clone().set_requires_grad());
        all.push_back(fixed_noise({3, 40}, 4, dtype).clone().transpose(0, 1).set_requires_grad());
        return all;
      };
      const Tensors a = weights(), b = weights();
      const auto undisturbed = make(a), disturbed = make(b);
      for (uint64_t step = 0; step < 3; ++step) {
        for (size_t i = 0; i < a.size(); ++i) {
          a[i].set_grad(fixed_noise({40, 3}, 10 * step + i, dtype));
          b[i].set_grad(a[i].grad().clone());
        }
        undisturbed->step();
        const Taken before = taken(*disturbed);
        int64_t changed = 0;
        CHECK(testing::fail_until_it_fits([&] { disturbed->step(); }, 256,
                                          [&] { changed += !(taken(*disturbed) == before); }) > 0);
        CHECK(changed == 0);
        CHECK(taken(*disturbed) == taken(*undisturbed));
      }
      // Also after other errors.
      b[2].set_grad(fixed_noise({40, 3}, 1, f64));
      const Taken before = taken(*disturbed);
      CHECK_THROWS_AS(disturbed->step(), Error);
      CHECK(taken(*disturbed) == before);
    }
}
