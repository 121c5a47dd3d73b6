// Ops on a GPU by CUDA events, beside what memory and matrix products reach: 32,768 tokens, random
// data, another 256 MiB read and written between two runs so that nothing is left in the cache.
//   gpu_speed [--once] [--small]     once: a single run of each, for a profiler; small: any machine
// GB/s are those of the bytes that must move: each operand read or written once.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string_view>

#include "autograd/tape.h"
#include "cuda/runtime.h"
#include "ops/attention/attention.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "ops/loss.h"
#include "ops/matmul.h"
#include "ops/norm.h"
#include "ops/reduce.h"
#include "ops/softmax.h"
#include "ops/view.h"

using namespace stretto;

namespace {

const Device gpu(DeviceType::cuda, 0);

struct Settings {
  bool once = false, small = false;
};

class Table {
 public:
  explicit Table(const Settings& settings)
      : once_(settings.once),
        flush_(zeros({settings.small ? 1024 : int64_t(64) << 20}, {.device = gpu})) {
    STRETTO_CUDA(cudaEventCreate(&begin_));
    STRETTO_CUDA(cudaEventCreate(&end_));
    std::printf("| op | size | µs | GB/s | TFLOP/s |\n| --- | --- | ---: | ---: | ---: |\n");
  }

  /// bytes: that must move; operations: of a product, 0 for what memory binds.
  void row(const char* name, const char* size, double bytes, double operations,
           const std::function<void()>& f) {
    NoGrad guard;
    std::vector<float> times;
    for (int i = 0; i < (once_ ? 1 : 23); ++i) {
      flush_.copy_(flush_ + 1.0);
      STRETTO_CUDA(cudaEventRecord(begin_, cuda::stream(0)));
      f();
      STRETTO_CUDA(cudaEventRecord(end_, cuda::stream(0)));
      STRETTO_CUDA(cudaEventSynchronize(end_));
      float ms = 0;
      STRETTO_CUDA(cudaEventElapsedTime(&ms, begin_, end_));
      if (once_ || i >= 3) times.push_back(ms);
    }
    std::nth_element(times.begin(), times.begin() + long(times.size() / 2), times.end());
    const double seconds = std::max(1e-9, double(times[times.size() / 2]) * 1e-3);
    std::printf("| %s | %s | %.1f | %.0f | %.1f |\n", name, size, seconds * 1e6,
                bytes / seconds * 1e-9, operations / seconds * 1e-12);
    std::fflush(stdout);
  }

 private:
  bool once_;
  Tensor flush_;
  cudaEvent_t begin_, end_;
};

int run(const Settings& settings) {
  const int64_t T = settings.small ? 64 : 32768, d = settings.small ? 32 : 512, V = 400;
  const int64_t n = settings.small ? 64 : 8192, heads = 8, L = settings.small ? 16 : 1024;
  Table table(settings);
  const Tensor big = randn({settings.small ? 4096 : int64_t(128) << 20}, {.device = gpu});
  table.row("copy", "f32, 512 MiB", 8.0 * double(big.numel()), 0, [&] { big.clone(); });
  for (const DType t : {bf16, f32}) {
    const Tensor a = randn({n, n}, {.dtype = t, .device = gpu}), b = randn({n, n}, options_of(a));
    table.row("matmul", t == bf16 ? "bf16, 8192" : "f32, 8192",
              3.0 * double(a.numel() * item_size(t)), 2.0 * double(n) * double(n) * double(n),
              [&] { matmul(a, b); });
  }

  const TensorOptions half{.dtype = bf16, .device = gpu};
  const Tensor wide = randn({T, 4 * d}, half), x = randn({T, d}, half), g = randn({T, d}, half);
  const Tensor weight = ones({d}, half), bias = randn({4 * d}, half);
  const double wide_bytes = 2.0 * double(wide.numel()), bytes = 2.0 * double(x.numel());
  table.row("gelu", "bf16 [32768, 2048]", 2 * wide_bytes, 0, [&] { gelu(wide); });
  table.row("add of a bias", "bf16 [32768, 2048]", 2 * wide_bytes, 0, [&] { add(wide, bias); });
  table.row("add", "bf16 [32768, 512]", 3 * bytes, 0, [&] { add(x, g); });
  table.row("transposed copy", "bf16 [32768, 512]", 2 * bytes, 0,
            [&] { x.transpose(0, 1).contiguous(); });
  table.row("dropout", "bf16 [32768, 512]", 2 * bytes, 0, [&] { dropout(x, 0.1); });
  table.row("randn", "f32 [32768, 512]", 2 * bytes, 0, [&] { randn({T, d}, {.device = gpu}); });
  table.row("sum of columns", "bf16 [32768, 512]", bytes, 0, [&] { sum(x, {0}); });
  table.row("sum of rows", "bf16 [32768, 512]", bytes, 0, [&] { sum(x, {1}); });
  table.row("layer_norm", "bf16 [32768, 512]", 2 * bytes, 0,
            [&] { layer_norm(x, weight, weight); });
  table.row("softmax", "bf16 [32768, 512]", 2 * bytes, 0, [&] { softmax(x); });

  const Tensor logits = randn({T, V}, half), ids = randint(0, V, {T}).to(gpu);
  table.row("cross_entropy", "bf16 [32768, 400]", 2.0 * double(logits.numel()), 0,
            [&] { cross_entropy(logits, ids); });
  const Tensor rows = randn({V, d}, half);
  table.row("embedding", "bf16 [400, 512] at 32768", bytes, 0, [&] { embedding(rows, ids); });
  const Tensor keys = rand({settings.small ? 2000 : int64_t(1) << 20}, {.device = gpu});
  table.row("sort", "f32 [1048576]", 8.0 * double(keys.numel()), 0, [&] { sort(keys); });

  const Tensor q = randn({T / L, heads, L, d / heads}, half), k = randn(q.shape(), half),
               v = randn(q.shape(), half);
  table.row("attention, causal", "bf16 [32, 8, 1024, 64]", 4 * bytes,
            4.0 * double(q.numel()) * double(L) / 2,
            [&] { attention(q, k, v, {.mask = {.causal = true}}); });
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings settings;
  for (int i = 1; i < argc; ++i) {
    settings.once |= std::string_view(argv[i]) == "--once";
    settings.small |= std::string_view(argv[i]) == "--small";
  }
  try {
    return run(settings);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "what(): %s\n", e.what());
    return 1;
  }
}
