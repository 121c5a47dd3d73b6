// Times ops on a GPU with CUDA events, together with a copy and matrix products for comparison.
// 32,768 tokens of random data. Between runs 256 MiB of other memory are read and written, so that
// the cache holds none of the operands.
//   gpu_speed [--once] [--small]
// --once runs each op once, for a profiler; --small uses tiny sizes, for any GPU. GB/s counts each
// operand as read or written once.
#include <algorithm>
#include <cstdio>
#include <functional>
#include <string>
#include <string_view>

#include "autograd/tape.h"
#include "cuda/runtime/runtime.h"
#include "ops/attention/attention.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/attention/linear_attention.h"
#include "ops/create.h"
#include "ops/dropout.h"
#include "ops/elementwise.h"
#include "ops/fft/fft_conv.h"
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

  /// Times f. `bytes` is the least memory traffic; `operations` the floating-point operations, 0
  /// for memory-bound ops.
  void row(const char* name, const char* size, double bytes, double operations,
           const std::function<void()>& f) {
    NoGrad guard;
    time(name, size, bytes, operations, f);
  }
  /// Times f, recorded, with its backward from the gradient g; clears the gradients of the leaves.
  void trained(const char* name, const char* size, double bytes, double operations,
               const std::function<Tensor()>& f, const Tensor& g, const Tensors& leaves) {
    time(name, size, bytes, operations, [&] {
      f().backward(g);
      for (const Tensor& x : leaves) x.set_grad({});
    });
  }

 private:
  void time(const char* name, const char* size, double bytes, double operations,
            const std::function<void()>& f) {
    std::vector<float> times;
    for (int i = 0; i < (once_ ? 1 : 23); ++i) {
      {
        NoGrad guard;
        flush_.copy_(flush_ + 1.0);
      }
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

  bool once_;
  Tensor flush_;
  cudaEvent_t begin_, end_;
};

// Causal attention of 16 sequences of length 2048 with 8 heads of dimension 64: without positions,
// with those of the Music Transformer and of Transformer-XL; and linear attention. Operations: two
// products over half the keys for forward, seven with backward. Those of the table (one more, and
// two more in backward) are not counted.
void attentions(Table& table, const Settings& settings) {
  const int64_t B = settings.small ? 1 : 16, H = 8, L = settings.small ? 64 : 2048, D = 64;
  for (const DType t : {bf16, f32}) {
    const std::string size = std::string(name(t)) + " [16, 8, 2048, 64]";
    const TensorOptions o{.dtype = t, .device = gpu};
    const auto leaf = [&](const Shape& shape) { return randn(shape, o).set_requires_grad(); };
    const Tensor q = leaf({B, H, L, D}), k = leaf(q.shape()), v = leaf(q.shape());
    const Tensor p = leaf(q.shape()), rows = leaf({H, L, D}), g = randn(q.shape(), o);
    const double bytes = double(q.numel() * item_size(t)),
                 product = double(q.numel()) * double(L);  // 2 · half the keys
    for (const std::string kind : {"plain", "table", "table, position queries"}) {
      AttentionOptions options{.mask = {.causal = true}};
      if (kind != "plain") options.relative_keys = {.rows = rows, .zero_row = L - 1};
      if (kind == "table, position queries") options.relative_query = p;
      const auto forward = [&] { return attention(q, k, v, options); };
      table.row(("attention, " + kind).c_str(), size.c_str(), 4 * bytes, 2 * product, forward);
      table.trained(("attention, " + kind + ", forward and backward").c_str(), size.c_str(),
                    8 * bytes, 7 * product, forward, g, {q, k, v, p, rows});
    }
    const Tensor a = abs(q).detach().set_requires_grad(), b = abs(k).detach().set_requires_grad();
    const auto linear = [&] { return linear_attention(a, b, v, {.mask = {.causal = true}}); };
    table.row("linear attention", size.c_str(), 4 * bytes, 0, linear);
    table.trained("linear attention, forward and backward", size.c_str(), 8 * bytes, 0, linear, g,
                  {a, b, v});
  }
  const int64_t sequences = settings.small ? 2 : 64, channels = settings.small ? 4 : 768;
  const Tensor x = randn({sequences, channels, L}, {.device = gpu}),
               filters = randn({channels, L}, {.device = gpu});
  table.row("convolution", "f32 [64, 768, 2048]", 8.0 * double(x.numel()), 0,
            [&] { fft_conv(x, filters); });
}

// Linear attention with decay of 8 sequences of length 2048 with 8 heads of dimension 64.
void gated_attentions(Table& table, const Settings& settings) {
  const int64_t B = settings.small ? 1 : 8, H = 8, L = settings.small ? 64 : 2048, D = 64;
  for (const DType t : {bf16, f32}) {
    const std::string size = std::string(name(t)) + " [8, 8, 2048, 64]";
    const auto leaf = [&](const Shape& shape, double by) {
      return (randn(shape, {.device = gpu}) * by).to(t).detach().set_requires_grad();
    };
    const Tensor q = leaf({B, H, L, D}, 1), k = leaf(q.shape(), 0.1), v = leaf(q.shape(), 1),
                 g = randn(q.shape(), options_of(q));
    const auto decay = [&](const Shape& shape) {
      return (abs(randn(shape, {.device = gpu})) * -0.1).detach().set_requires_grad();
    };
    const auto time = [&](const std::string& kind, const GatedLinearAttentionOptions& o) {
      const auto forward = [&] { return gated_linear_attention(q, k, v, o); };
      const double bytes = double(q.numel() * item_size(t));
      Tensors leaves{q, k, v};
      for (const Tensor& x : {o.log_decay, o.beta})
        if (x.defined()) leaves.push_back(x);
      table.row(kind.c_str(), size.c_str(), 4 * bytes, 0, forward);
      table.trained((kind + ", forward and backward").c_str(), size.c_str(), 8 * bytes, 0, forward,
                    g, leaves);
    };
    time("retention", {.log_decay = decay({H})});
    time("gated linear attention", {.log_decay = decay(q.shape())});
    time("gated delta rule",
         {.log_decay = decay({B, H, L}), .beta = full({B, H, L}, 0.5, {.device = gpu})});
  }
}

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
  attentions(table, settings);
  gated_attentions(table, settings);
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
