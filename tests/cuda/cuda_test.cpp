// The GPU as a device: errors without one, random numbers, gradients compared with the CPU,
// memory and errors.
#include <dlfcn.h>

#include <vector>

#include "autograd/tape.h"
#include "core/gpu_runtime.h"
#include "core/random.h"
#include "cuda/random.h"
#include "ops/attention/skew.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/matmul.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"
#include "tests/cuda/philox.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

// ---- without a GPU ----

TEST_CASE("without a usable GPU every use of one reports the reason", "[cuda]") {
  if (cuda_available()) STRETTO_SKIP("this machine has a GPU: " + cuda_description());
  const std::string why = cuda_description();
  INFO(why);
  const bool documented =
      why ==
          "this build of Stretto has no CUDA: no CUDA Toolkit was found when it was configured" ||
      why == "this build of Stretto has no CUDA: it was configured with STRETTO_CUDA=OFF" ||
      why.find("but no NVIDIA driver is installed here") != std::string::npos ||
      why.find("but the NVIDIA driver is too old: it supports CUDA ") != std::string::npos ||
      why.find("but the NVIDIA driver finds no GPU: see nvidia-smi") != std::string::npos ||
      why.find("but querying the GPUs failed: ") != std::string::npos ||
      why.find("too old for this build") != std::string::npos;
  CHECK(documented);
  CHECK(cuda::device_count() == 0);

  const auto text = Containing("device cuda:0 cannot be used: " + why);
  REQUIRE_THROWS_WITH(empty({2, 3}, {.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(zeros({2, 3}, {.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(randn({2, 3}, TensorOptions{.device = "cuda"}), text);
  REQUIRE_THROWS_WITH(ones({2, 3}).to(Device("cuda")), text);
  REQUIRE_THROWS_AS(empty({2}, {.device = "cuda"}), Error);
  REQUIRE_THROWS_WITH(empty({2}, {.device = "cuda:1"}), Containing("[empty] device cuda:1 cannot"));
  CHECK(memory_stats("cuda").live == 0);
}

TEST_CASE("without a usable GPU the CUDA entry points throw errors", "[cuda]") {
  if (cuda_available()) STRETTO_SKIP("this machine has a GPU: " + cuda_description());
  const Tensor x = ones({2, 2});
  float host[4];
  REQUIRE_THROWS_AS(cuda::allocate(64, 0), Error);
  REQUIRE_THROWS_AS(cuda::free(host, 0), Error);
  REQUIRE_THROWS_AS(cuda::copy(host, cpu, host, gpu, 16), Error);
  REQUIRE_THROWS_AS(cuda::synchronize(0), Error);
  REQUIRE_THROWS_WITH(cuda::allocate(64, 0), Containing("[cuda] "));
  CHECK(x.to_vector<float>() == std::vector<float>{1, 1, 1, 1});  // the CPU still works
}

// ---- random numbers ----

#ifdef STRETTO_WITH_CURAND
TEST_CASE("Philox is bit-identical to cuRAND's", "[cuda]") {
  // On the host with cuRAND's header, which needs only the toolkit.
  const RandomKey keys[] = {
      {0, 0}, {1, 2}, {0x123456789abcdef0u, 0xfedcba9876543210u}, {~0ull, ~0ull}};
  for (const RandomKey key : keys) {
    for (const int64_t n : {1, 7, 1001}) {
      std::vector<uint32_t> theirs(static_cast<size_t>(n));
      curand_philox(key, n, theirs.data(), cpu);
      bool same = true;
      for (int64_t i = 0; i < n; ++i) same &= theirs[size_t(i)] == random_bits(key, uint64_t(i));
      CHECK(same);
    }
  }
}

TEST_CASE("Philox and cuRAND on the GPU are bit-identical to Philox on the host", "[cuda]") {
  NEEDS_GPU();
  for (const RandomKey key : {RandomKey{0, 0}, RandomKey{42, 7}, RandomKey{~0ull, 1ull << 40}}) {
    for (const int64_t n : {0, 1, 3, 4, 4097, 300001}) {
      std::vector<uint32_t> ours(static_cast<size_t>(n)), theirs(static_cast<size_t>(n));
      device_philox(key, n, ours.data(), gpu);
      curand_philox(key, n, theirs.data(), gpu);
      bool same = true;
      for (int64_t i = 0; i < n; ++i) same &= ours[size_t(i)] == random_bits(key, uint64_t(i));
      CHECK(same);
      CHECK(same_values(ours, theirs));
    }
  }
}
#endif

TEST_CASE("rand and randn are bit-identical on GPU and CPU", "[cuda]") {
  NEEDS_GPU();
  const RandomKey key{3, 4};
  for (const Shape& shape :
       {Shape{}, Shape{0}, Shape{1}, Shape{5}, Shape{7, 1001}, Shape{70001, 3}}) {
    for (const DType t : floating) {
      CAPTURE(str(shape), name(t));
      check_equal(rand(shape, key, {.dtype = t}), rand(shape, key, {.dtype = t, .device = gpu}));
      check_equal(randn(shape, key, {.dtype = t}), randn(shape, key, {.dtype = t, .device = gpu}));
    }
  }
}

// ---- gradients ----

TEST_CASE("gradients on the GPU agree with the CPU", "[cuda]") {
  NEEDS_GPU();
  // In f64, a few hundred rounding errors stay below 1e-12 for values of order 1 to 100.
  using Function = Tensor (*)(const Tensors&);
  struct Case {
    const char* name;
    std::vector<Shape> inputs;
    Function f;
  };
  const Case cases[] = {
      {"add", {{3, 1, 5}, {4, 1}}, [](const Tensors& x) { return x[0] + x[1]; }},
      {"sub", {{3, 5}, {5}}, [](const Tensors& x) { return x[0] - x[1]; }},
      {"mul", {{3, 5}, {3, 1}}, [](const Tensors& x) { return x[0] * x[1] * 1.5 + 2.0; }},
      {"div", {{3, 5}, {3, 5}}, [](const Tensors& x) { return x[0] / (x[1] * x[1] + 1.0); }},
      {"sum", {{3, 5, 4}}, [](const Tensors& x) { return sum(x[0] * x[0], {1}); }},
      {"mean",
       {{3, 5, 4}},
       [](const Tensors& x) {
         return mean(x[0] * x[0], {0, 2});
       }},
      {"matmul", {{2, 3, 5}, {2, 5, 4}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
      {"matmul, shared", {{2, 3, 5}, {5, 4}}, [](const Tensors& x) { return matmul(x[0], x[1]); }},
      {"matmul, transposed",
       {{2, 5, 3}, {2, 4, 5}},
       [](const Tensors& x) { return matmul(x[0].transpose(1, 2), x[1].transpose(1, 2)); }},
      {"softmax", {{3, 5, 7}}, [](const Tensors& x) { return softmax(x[0]); }},
      {"softmax, dim 1", {{3, 5, 7}}, [](const Tensors& x) { return softmax(x[0], 1); }},
      {"skew", {{2, 5, 9}}, [](const Tensors& x) { return skew(x[0], 5); }},
      {"unskew", {{2, 5, 5}}, [](const Tensors& x) { return unskew(x[0], 9); }},
      {"relative attention",
       {{2, 6, 4}, {2, 6, 4}, {2, 6, 4}, {11, 4}},
       [](const Tensors& x) {
         const Tensor content = matmul(x[0], x[1].transpose(1, 2));
         const Tensor position = skew(matmul(x[0], x[3].transpose(0, 1)), 6);
         return matmul(softmax((content + position) * 0.5), x[2]);
       }},
  };
  for (const Case& c : cases) {
    CAPTURE(c.name);
    Tensors host, device;
    for (size_t i = 0; i < c.inputs.size(); ++i) {
      host.push_back(noise(c.inputs[i], 700 + i, f64).set_requires_grad());
      device.push_back(host.back().detach().to(gpu).set_requires_grad());
    }
    const Tensor y = c.f(host), z = c.f(device);
    const Tensor weights = noise(y.shape(), 800, f64);
    check_close(y, z, [](size_t) { return 1e-12; });
    y.backward(weights, {.retain_graph = true});
    z.backward(weights.to(gpu), {.retain_graph = true});
    for (size_t i = 0; i < host.size(); ++i)
      check_close(host[i].grad(), device[i].grad(), [](size_t) { return 1e-12; });
    // A second pass is bit-identical.
    const Tensors once = grad({z}, device, {weights.to(gpu)}, {.retain_graph = true});
    const Tensors twice = grad({z}, device, {weights.to(gpu)});
    for (size_t i = 0; i < device.size(); ++i) CHECK(same_values(once[i], twice[i]));
  }
}

// ---- memory and errors ----

TEST_CASE("a training loop frees all its GPU memory", "[cuda]") {
  NEEDS_GPU();
  const int64_t before = gpu_bytes();
  {
    Tensor w = noise({64, 64}, 900).to(gpu).set_requires_grad();
    for (int step = 0; step < 3; ++step) {
      const Tensor y = sum(softmax(matmul(noise({32, 64}, 901).to(gpu), w)));
      y.backward();
      NoGrad guard;
      w.add_(w.grad(), -0.1);
      w.set_grad({});
    }
    CHECK(memory_stats(gpu).live > before);
  }
  CHECK(gpu_bytes() == before);
  release_cached_memory(gpu);
  CHECK(memory_stats(gpu).cached == 0);
}

TEST_CASE("errors on the GPU name the request and leave the GPU usable", "[cuda]") {
  NEEDS_GPU();
  const Tensor x = noise({3, 4}, 910), y = x.to(gpu);
  REQUIRE_THROWS_WITH(empty({1}, {.device = "cuda:15"}),
                      Containing("[empty] device cuda:15 cannot be used: " + cuda_description()));
  REQUIRE_THROWS_AS(empty({int64_t(1) << 48}, {.device = gpu}), OutOfMemory);
  REQUIRE_THROWS_WITH(empty({int64_t(1) << 48}, {.device = gpu}),
                      Containing("out of memory on cuda:0"));
  // No error is left for later calls. (cudart may be linked statically.)
  using LastError = int();
  if (void* const last = ::dlsym(RTLD_DEFAULT, "cudaGetLastError"))
    CHECK(reinterpret_cast<LastError*>(last)() == 0);
  REQUIRE_THROWS_AS(cuda::synchronize(63), Error);
  REQUIRE_THROWS_WITH(cuda::synchronize(63), Containing("[cuda] cudaSetDevice"));
  REQUIRE_THROWS_AS(cuda::fill_uniform(empty({2}, {.dtype = i64, .device = gpu}), {}), Error);
  REQUIRE_THROWS_WITH(add(x, y), Containing("different devices"));
  // Messages are the same on both devices.
  auto message = [](auto f) {
    try {
      f();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::string host = message([&] { matmul(x, x); }), device = message([&] { matmul(y, y); });
  for (size_t at; (at = device.find(" on cuda:0")) != std::string::npos;) device.erase(at, 10);
  CHECK(host == device);
  CHECK(host.find("[matmul] ") == 0);
  check_equal(x + x, y + y);
}
