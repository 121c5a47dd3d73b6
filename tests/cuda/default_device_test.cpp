// The device of tensors that are created without naming one.
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "tests/support/gpu.h"

using namespace stretto;

TEST_CASE("the default device is the CPU, and an unusable device is rejected") {
  const DefaultDevice own(cpu);  // independent of STRETTO_TEST_DEVICE
  CHECK(default_device() == cpu);
  CHECK(ones({2}).device() == cpu);
  CHECK_THROWS_WITH(DefaultDevice("cuda:99"),
                    Containing("[DefaultDevice] device cuda:99 cannot be used"));
  CHECK(default_device() == cpu);
}

TEST_CASE("a DefaultDevice applies to its scope and thread, and to modules", "[cuda]") {
  NEEDS_GPU();
  const DefaultDevice own(cpu);
  {
    const DefaultDevice outer("cuda");
    const Device gpu = testing::gpu;
    CHECK(default_device() == gpu);
    const Tensor x = ones({2});
    CHECK(x.device() == gpu);
    CHECK(str(x) == "f32 [2]");
    CHECK(str(x.to(cpu)) == "f32 [2] on cpu");
    CHECK(tensor<float>({1, 2}).device() == gpu);
    CHECK(randperm(3).device() == gpu);
    CHECK(nn::Linear({.in = 2, .out = 3}).weight.device() == gpu);
    CHECK(ones({2}, {.device = cpu}).device() == cpu);
    CHECK(empty_like(ones({2}, {.device = cpu})).device() == cpu);
    {
      const DefaultDevice inner(cpu);
      CHECK(ones({2}).device() == cpu);
    }
    std::vector<Device> seen(64, cpu);
    parallel_for(64, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) seen[size_t(i)] = default_device();
    });
    CHECK(seen == std::vector<Device>(64, gpu));
    Device elsewhere = gpu;
    std::thread([&] { elsewhere = default_device(); }).join();
    CHECK(elsewhere == cpu);  // only for the thread that set it
  }
  CHECK(ones({2}).device() == cpu);
  CHECK(str(ones({2}, {.device = "cuda"})) == "f32 [2] on cuda:0");
}
