// Optimizers on the GPU: the same steps as on the CPU, with the state on the device
// of the parameter.
#include <cmath>

#include "autograd/tape.h"
#include "nn/optim/muon.h"
#include "ops/optim.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

constexpr int steps = 5;

// Compares steps with the same gradients on both devices. An f32 step has about twenty roundings of
// values no larger than the weight or the step, some of them fused on a GPU; a bf16 weight may then
// round to the other neighbor.
template <class O>
void compare(const typename O::Options& options, DType dtype) {
  const Tensor start = noise({33, 17}, 1000, dtype);
  const Tensor a = start.clone().set_requires_grad(), b = start.to(gpu).set_requires_grad();
  O on_cpu({a}, options), on_gpu({b}, options);
  for (int t = 0; t < steps; ++t) {
    const Tensor g = noise({33, 17}, 1001 + uint64_t(t), dtype);
    a.set_grad(g);
    b.set_grad(g.to(gpu));
    on_cpu.step();
    on_gpu.step();
  }
  const double rounding = 40 * unit(dtype == f64 ? f64 : f32) + (dtype == bf16 ? unit(bf16) : 0);
  const auto size = a.to_vector<double>();
  check_close(a, b, [&](size_t i) { return steps * rounding * (std::abs(size[i]) + 1); });
  for (const nn::NamedTensor& n : on_gpu.state()[0].tensors) CHECK(n.tensor.device() == gpu);

  // The state can be loaded on the other device.
  O again({b.detach().to(cpu).set_requires_grad()}, options);
  again.load_state(on_gpu.state());
  for (const nn::NamedTensor& n : again.state()[0].tensors) CHECK(n.tensor.device() == cpu);
  on_gpu.load_state(again.state());
  for (const nn::NamedTensor& n : on_gpu.state()[0].tensors) CHECK(n.tensor.device() == gpu);
}

}  // namespace

TEST_CASE("optimizers take the same steps on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    CAPTURE(name(t));
    compare<nn::SGD>({.lr = 0.1, .weight_decay = 0.01}, t);
    compare<nn::SGD>({.lr = 0.1, .momentum = 0.9, .dampening = 0.1}, t);
    compare<nn::SGD>({.lr = 0.1, .momentum = 0.9, .nesterov = true}, t);
    compare<nn::Adam>({.lr = 0.01, .weight_decay = 0.01}, t);
    compare<nn::AdamW>({.lr = 0.01, .amsgrad = true}, t);
  }
}

// Rounding errors of the iteration grow by at most 3.4445 per step, 485 in all, from sums of up to 33
// products; a step multiplies them by lr · 0.2 · √33.
TEST_CASE("Muon takes the same steps on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : {f64, f32}) {
    CAPTURE(name(t));
    for (const Shape& shape : {Shape{33, 17}, Shape{17, 33}}) {
      const Tensor start = noise(shape, 1000, t);
      const Tensor a = start.clone().set_requires_grad(), b = start.to(gpu).set_requires_grad();
      nn::Muon on_cpu({a}, {.lr = 0.01}), on_gpu({b}, {.lr = 0.01});
      for (int step = 0; step < steps; ++step) {
        const Tensor g = noise(shape, 1001 + uint64_t(step), t);
        a.set_grad(g);
        b.set_grad(g.to(gpu));
        on_cpu.step();
        on_gpu.step();
      }
      check_close(a, b, [&](size_t) { return steps * 0.012 * 485 * 33 * unit(t); });
      CHECK(on_gpu.state()[0].tensors[0].tensor.device() == gpu);
    }
  }
  // bf16 products: the step has the size of the step on the CPU.
  const Tensor w = zeros({33, 17}, {.dtype = bf16, .device = gpu}).set_requires_grad();
  nn::Muon optimizer({w}, {.lr = 1, .scale = nn::MuonScale::original});
  w.set_grad(noise({33, 17}, 1002, bf16).to(gpu));
  optimizer.step();
  double squares = 0;
  for (const double v : w.to_vector<double>()) squares += v * v;
  const double rms = std::sqrt(squares / 17 / (33.0 / 17));  // of 17 singular values
  CHECK(rms > 0.65);
  CHECK(rms < 1.25);
}

TEST_CASE("changing a bf16 weight replaces its f32 master copy", "[cuda]") {
  NEEDS_GPU();
  const Tensor w = ones({4}, {.dtype = bf16, .device = gpu}).set_requires_grad();
  nn::SGD optimizer({w}, {.lr = 0.001});
  w.set_grad(ones_like(w));
  optimizer.step();  // too small for bf16, but not for the master copy
  CHECK(same_values(w.to_vector<double>(), std::vector<double>(4, 1)));
  const Tensor master = optimizer.state()[0].tensors[0].tensor;
  CHECK(same_values(master.to_vector<float>(), std::vector<float>(4, 1 - 0.001f)));
  {
    NoGrad guard;
    w.fill_(8);
  }
  optimizer.step();
  CHECK(same_values(master.to_vector<float>(), std::vector<float>(4, 8 - 0.001f)));
}

TEST_CASE("optimizer state moves with its parameter to another device", "[cuda]") {
  NEEDS_GPU();
  const Tensor w = noise({9}, 1010).set_requires_grad(),
               stays = w.detach().clone().set_requires_grad();
  nn::SGD moving({w}, {.lr = 0.1, .momentum = 0.9}), staying({stays}, {.lr = 0.1, .momentum = 0.9});
  for (const Device where : {cpu, gpu, cpu}) {
    w.set_grad({});
    w.set_data(w.detach().to(where));
    w.set_grad(noise({9}, 1011).to(where));
    stays.set_grad(noise({9}, 1011));
    moving.step();
    staying.step();
    CHECK(moving.state()[0].tensors[0].tensor.device() == where);
  }
  const auto at = stays.to_vector<double>(), now = w.to_vector<double>();
  for (size_t i = 0; i < at.size(); ++i) CHECK(std::abs(now[i] - at[i]) <= 20 * unit(f32));
}

TEST_CASE("clip_grad_norm agrees with the CPU", "[cuda]") {
  NEEDS_GPU();
  for (const DType t : floating) {
    const Tensor g = noise({300, 129}, 1020, t);
    const Tensor a = zeros_like(g).set_requires_grad(),
                 b = zeros_like(g).to(gpu).set_requires_grad();
    a.set_grad(g.clone());
    b.set_grad(g.to(gpu));
    const double norm = nn::clip_grad_norm({a}, 0.5).item();
    // Sums of squares in f64 in another order.
    const double gpu_norm = nn::clip_grad_norm({b}, 0.5).item();
    const double order = double(g.numel()) * unit(f64);
    CHECK(std::abs(gpu_norm - norm) <= norm * order);
    const auto size = a.grad().to_vector<double>();
    check_close(a.grad(), b.grad(),
                [&](size_t i) { return std::abs(size[i]) * (2 * unit(t) + order); });
    // A norm below the limit, or an infinite one, changes nothing.
    const Tensor small = a.grad().clone();
    for (const double last : {0.0, inf}) {
      small[299].slice(0, 128).fill_(last);
      b.set_grad(small.to(gpu));
      nn::clip_grad_norm({b}, 0.75);
      check_equal(small, b.grad());
    }
  }
}
