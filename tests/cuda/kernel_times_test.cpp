// Times of the kernels on a GPU, measured with CUDA events; benchmarks/gpu/predict.py compares
// them with the predictions. Only in builds with CUDA.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

#include "autograd/tape.h"
#include "cuda/runtime/runtime.h"
#include "ops/elementwise.h"
#include "tests/cuda/kernel_cases.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

TEST_CASE("the times of these kernels are written for benchmarks/gpu/predict.py", "[.times]") {
  NEEDS_GPU();
  const char *file = std::getenv("KERNEL_TIMES"), *rows = std::getenv("KERNEL_ROWS");
  if (!file || !rows) STRETTO_SKIP("KERNEL_TIMES=FILE KERNEL_ROWS=32768 are not set");
  std::ofstream out(file);
  out << "case\tdtype\ttimes\tmicroseconds\tleast\tbytes\n";
  cudaEvent_t begin, end;
  STRETTO_CUDA(cudaEventCreate(&begin));
  STRETTO_CUDA(cudaEventCreate(&end));
  const NoGrad guard;
  for (const DType t : {f32, bf16}) {
    const Tensor flushed = zeros({int64_t(64) << 20}, {.device = gpu});  // larger than L2
    const auto time = [&](const KernelCase& c) {
      std::vector<float> times;
      for (int i = 0; i < 13; ++i) {
        flushed.copy_(add(flushed, 1.0));
        STRETTO_CUDA(cudaEventRecord(begin, cuda::stream(0)));
        c.run();
        STRETTO_CUDA(cudaEventRecord(end, cuda::stream(0)));
        STRETTO_CUDA(cudaEventSynchronize(end));
        float ms = 0;
        STRETTO_CUDA(cudaEventElapsedTime(&ms, begin, end));
        if (i >= 3) times.push_back(ms * 1000);
      }
      std::sort(times.begin(), times.end());
      out << c.name << '\t' << name(t) << '\t' << c.times << '\t' << times[times.size() / 2] << '\t'
          << times.front() << '\t' << int64_t(c.bytes) << std::endl;
    };
    if (std::atoll(rows) > 0) each_kernel_case(std::atoll(rows), t, time);
    each_long_attention(t, time);
  }
  CHECK(out.good());
}
