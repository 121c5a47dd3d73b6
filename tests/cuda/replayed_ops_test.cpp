// Replays of single ops as CUDA graphs against the eager ops: random numbers, which differ from
// replay to replay, and cached tables, which a graph continues to read.
#include <functional>
#include <vector>

#include "autograd/tape.h"
#include "core/device_table.h"
#include "nn/training/captured_step.h"
#include "ops/attention/attention.h"
#include "ops/attention/rotary.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/feed_forward.h"
#include "ops/indexing.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/spe/spe.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

struct Op {
  const char* name;
  std::function<Tensors(const Tensor& x)> run;  // x [1, 2, 40, 16]
};

Tensors encoded(const Tensor& x, const std::function<SpeCode(const SpeNoise&)>& code_of) {
  const SpePair y = spe(x, x, code_of(SpeNoise(next_random_key(), 8)));
  return {y.q, y.k};
}

const std::vector<Op> ops_with_random_numbers{
    {"rand", [](const Tensor& x) { return Tensors{x * rand(x.shape(), options_of(x))}; }},
    {"randn", [](const Tensor& x) { return Tensors{x * randn(x.shape(), options_of(x))}; }},
    {"randint",
     [](const Tensor& x) {
       return Tensors{x * randint(0, 9, x.shape(), {.dtype = i64, .device = gpu}).to(x.dtype())};
     }},
    {"bernoulli", [](const Tensor& x) { return Tensors{x * bernoulli(full_like(x, 0.5))}; }},
    {"dropout", [](const Tensor& x) { return Tensors{dropout(x, 0.25)}; }},
    {"dropout_add", [](const Tensor& x) { return Tensors{dropout_add(x, sin(x), 0.25)}; }},
    {"add_layer_norm",
     [](const Tensor& x) {
       return add_layer_norm(x, sin(x), {0.25, next_random_key()});
     }},
    {"add_rms_norm",
     [](const Tensor& x) {
       return add_rms_norm(x, sin(x), {0.25, next_random_key()});
     }},
    {"gated_activation",
     [](const Tensor& x) { return Tensors{gated_activation(x, sin(x), Activation::silu, 0.25)}; }},
    {"attention",
     [](const Tensor& x) {
       AttentionOptions options{.mask = {.causal = true}, .dropout = 0.25};
       options.implementation = Implementation::fused;
       return Tensors{attention(x, x, x, options)};
     }},
    {"sineSPE",
     [](const Tensor& x) {
       const Tensor w = full({2, 16, 3}, 0.3, {.device = gpu});
       return encoded(x, [&](const SpeNoise& z) { return SpeCode::sine(w, w, w, z); });
     }},
    {"convSPE", [](const Tensor& x) {
       const Tensor w = full({2, 16, 5}, 0.3, {.device = gpu});
       return encoded(x, [&](const SpeNoise& z) { return SpeCode::conv(w, w, z); });
     }}};

}  // namespace

TEST_CASE("a replay of each op with random numbers is bit-identical to the eager op", "[cuda]") {
  NEEDS_GPU();
  for (const auto& [op, run] : ops_with_random_numbers)
    for (const DType type : {f32, bf16}) {
      CAPTURE(op, name(type));
      const Tensor x = noise({1, 2, 40, 16}, 1500, type).to(gpu).set_requires_grad();
      // The results of op and the gradient of x, four times.
      const auto results = [&, &run = run](bool captured) {
        manual_seed(7);
        const auto step = [&] {
          Tensors all = run(x), slopes;
          for (const Tensor& y : all) slopes.push_back(y.detach() + 1.0);
          all.push_back(grad(all, {x}, slopes)[0]);
          for (Tensor& y : all) y = y.detach().to(f32).reshape({-1});
          return cat(all, 0);
        };
        nn::CapturedStep replayed(gpu, step, 1);
        std::vector<std::vector<double>> all;
        for (int i = 0; i < 4; ++i)
          all.push_back((captured ? replayed() : step()).to_vector<double>());
        CHECK(replayed.captured() == captured);
        return all;
      };
      const auto eager = results(false), captured = results(true);
      for (size_t i = 0; i < eager.size(); ++i) CHECK(same_values(captured[i], eager[i]));
      CHECK_FALSE(same_values(eager[2], eager[3]));
    }
}

TEST_CASE("a graph continues to read a cached table that was dropped", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({1, 2, 40, 16}, 1503).to(gpu);
  const Tensor eager = rotate(x, 3);
  nn::CapturedStep step(
      gpu, [&] { return rotate(x, 3); }, 1);
  for (int i = 0; i < 4; ++i) {
    CHECK(same_values(step(), eager));
    if (i == 0) continue;
    drop_tables(gpu);
    Tensors others;  // would get the memory of the tables
    for (int j = 0; j < 8; ++j) others.push_back(full({40, 8}, 7, {.device = gpu}));
  }
  CHECK(step.captured());
}
