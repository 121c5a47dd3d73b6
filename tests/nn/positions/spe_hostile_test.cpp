// NaN and extreme values in SPE, feature maps and linear attention: a NaN reaches only the queries
// that see it; extreme parameters give finite results.
#include <cmath>
#include <functional>
#include <limits>

#include "autograd/tape.h"
#include "nn/attention/feature_map.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"
#include "tests/nn/positions/spe.h"
#include "tests/support/implementations.h"

namespace {

constexpr int64_t length = 9;

struct Named {
  std::string name;
  nn::MakePositionalEncoding position;
};
std::vector<Named> positions(Implementation implementation) {
  std::vector<Named> all{{"none", {}}};
  for (const bool gated : {false, true}) {
    all.push_back(
        {gated ? "sine, gated" : "sine",
         nn::sine_spe(
             {.realizations = 6, .sines = 2, .gated = gated, .implementation = implementation})});
    all.push_back(
        {gated ? "conv, gated" : "conv",
         nn::conv_spe(
             {.realizations = 6, .taps = {4}, .gated = gated, .implementation = implementation})});
  }
  return all;
}

std::vector<nn::MakeFeatureMap> maps() {
  std::vector<nn::MakeFeatureMap> all{nn::elu_plus_one(), nn::relu_plus(), nn::relu_plus(0)};
  for (const auto kind : {nn::FavorKind::positive, nn::FavorKind::hyperbolic,
                          nn::FavorKind::trigonometric, nn::FavorKind::generalized})
    for (const auto stabilizer : {nn::Stabilizer::none, nn::Stabilizer::max})
      all.push_back(nn::favor({.features = 8, .kind = kind, .stabilizer = stabilizer}));
  return all;
}

// One positional encoding and one kernel, without projections.
struct Path : nn::Module {
  Path(const nn::MakePositionalEncoding& make, const nn::MakeFeatureMap& map,
       Implementation implementation) {
    manual_seed(3);
    nn::HeadShape shape{2, 4, 3, 8};
    if (make) position = make(*this, shape);
    if (position) shape.d_key = position->encoded_dim(shape);
    kernel = nn::linear_kernel(map, {.eps = 1e-6, .chunk = 4, .implementation = implementation})(
        *this, shape);
    to(f64);
    eval();
  }
  Tensor operator()(const Tensor& q, const Tensor& k) const {
    nn::AttentionInputs inputs{q, k, fixed_noise({2, 2, length, 3}, 3), {.mask = {.causal = true}}};
    if (position) position->apply(inputs);
    return (*kernel)(inputs);
  }
  std::string map_label() const {
    return dynamic_cast<const nn::LinearKernel&>(*kernel).feature_map().label();
  }
  std::unique_ptr<nn::PositionalEncoding> position;
  std::unique_ptr<nn::AttentionKernel> kernel;
};

Tensor queries() { return fixed_noise({2, 2, length, 4}, 1); }
Tensor keys() { return fixed_noise({2, 2, length, 4}, 2); }

// Checks that rows `first` to `last` of entry 0, head 1 are NaN, and all others those of `clean`.
void check_rows(const Tensor& y, const Tensor& clean, int64_t first, int64_t last) {
  for (int64_t b = 0; b < 2; ++b)
    for (int64_t h = 0; h < 2; ++h)
      for (int64_t i = 0; i < length; ++i) {
        INFO("entry " << b << ", head " << h << ", row " << i);
        const bool reached = b == 0 && h == 1 && first <= i && i <= last;
        if (reached)
          CHECK(std::isnan(sum(y[b][h][i]).item()));
        else
          CHECK(same_bits(y[b][h][i], clean[b][h][i]));
      }
}

void on_every_path(const std::function<void(const Path&)>& body) {
  for (const Implementation implementation : testing::implementations())
    for (const Named& at : positions(implementation))
      for (const nn::MakeFeatureMap& map : maps()) {
        const Path path(at.position, map, implementation);
        INFO(at.name << ", " << (implementation == Implementation::fused ? "fused" : "composed")
                     << ", " << path.map_label());
        body(path);
      }
}

}  // namespace

TEST_CASE("a NaN in a query reaches only its own row, through SPE, features and sums") {
  on_every_path([](const Path& path) {
    const Tensor q = queries(), clean = path(q, keys());
    q[0][1][3][2].fill_(NAN);
    check_rows(path(q, keys()), clean, 3, 3);
  });
}

TEST_CASE("a NaN in a key reaches the queries from there on, through SPE, features and sums") {
  on_every_path([](const Path& path) {
    const Tensor k = keys(), clean = path(queries(), k);
    k[0][1][5][0].fill_(NAN);
    check_rows(path(queries(), k), clean, 5, length - 1);
  });
}

TEST_CASE("Spe: extreme parameters give finite results and gradients") {
  constexpr double inf = std::numeric_limits<double>::infinity();
  for (const DType dtype : {f32, f64})
    for (const Implementation implementation : testing::implementations())
      for (const bool conv : {false, true}) {
        nn::Module parent;
        const nn::MakePositionalEncoding make =
            conv ? nn::conv_spe({.taps = {3}, .implementation = implementation})
                 : nn::sine_spe({.sines = 2, .implementation = implementation});
        const auto position = make(parent, {2, 4, 3, 8});
        parent.to(dtype);
        const auto try_value = [&](Tensor parameter, double value) {
          const Tensor before = parameter.detach().clone();
          {
            NoGrad guard;
            parameter.fill_(value);
          }
          parent.zero_grad();
          nn::AttentionInputs inputs{
              queries().to(dtype), keys().to(dtype), fixed_noise({2, 2, length, 3}, 3, dtype), {}};
          position->apply(inputs);
          const Tensor y = sum(square(inputs.q)) + sum(inputs.q * inputs.k);
          y.backward();
          CHECK(std::isfinite(y.item()));
          for (const nn::NamedTensor& each : parent.named_parameters()) {
            INFO("the gradient of " << each.name);
            CHECK(std::isfinite(sum(abs(each.tensor.grad())).item()));
          }
          NoGrad guard;
          parameter.copy_(before);
        };
        for (const nn::NamedTensor& p : parent.named_parameters())
          for (const double far : {-inf, -1e30, -1000., -110., -20., 20., 110., 1000., 1e30, inf}) {
            // Of the parameters without bounds only the gains, and only very negative ones.
            const bool bounded = p.name.ends_with("gate") || p.name.ends_with("freqs");
            if (!bounded && !(p.name.ends_with("gains") && far < 0)) continue;
            INFO(str(p.name, " = ", far, ", ", dtype, ", implementation ", int(implementation)));
            try_value(p.tensor, far);
          }
      }
}
