// Where tensors are made for which no device is named.
#include <thread>
#include <vector>

#include "core/parallel.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "tests/support/catch.h"

using namespace stretto;

TEST_CASE("the default device is the CPU, or what a scope says", "[device]") {
  const DefaultDevice tests_own(cpu);
  CHECK(default_device() == cpu);
  CHECK(ones({2}).device() == cpu);
  if (!cuda_available()) {
    CHECK_THROWS_WITH(DefaultDevice("cuda"), Containing("[DefaultDevice] device cuda:0 cannot be "
                                                        "used"));
    CHECK(default_device() == cpu);
    STRETTO_SKIP(cuda_description());
  }
  {
    const DefaultDevice outer("cuda");
    CHECK(default_device() == Device("cuda"));
    const Tensor x = ones({2});
    CHECK(x.device() == Device("cuda"));
    CHECK(str(x) == "f32 [2]");
    CHECK(str(x.to(cpu)) == "f32 [2] on cpu");
    CHECK(tensor<float>({1, 2}).device() == Device("cuda"));
    CHECK(randperm(3).device() == Device("cuda"));
    CHECK(nn::Linear({.in = 2, .out = 3}).weight.device() == Device("cuda"));
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
    CHECK(seen == std::vector<Device>(64, Device("cuda")));
    Device elsewhere("cuda");
    std::thread([&] { elsewhere = default_device(); }).join();
    CHECK(elsewhere == cpu);  // of the thread that says so alone
  }
  CHECK(ones({2}).device() == cpu);
  CHECK(str(ones({2}, {.device = "cuda"})) == "f32 [2] on cuda:0");
}
