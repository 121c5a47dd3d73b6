// Time of multi-scale retention and of a RetNet layer, forward and backward, at several lengths.
//
// benchmarks/retention_torch.py is the same in PyTorch, in the chunked form of the paper.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>

#include "autograd/tape.h"
#include "core/parallel.h"
#include "core/random.h"
#include "examples/common/command_line.h"
#include "nn/attention/gated_linear_attention.h"
#include "nn/models/gated_layers.h"
#include "ops/attention/gated_linear_attention.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/reduce.h"

using namespace stretto;

namespace {

struct Settings {
  std::vector<int64_t> lengths{2048, 16384};
  int64_t d_model = 512, heads = 8, batch = 1;
  int threads = 2;
  double seconds = 4;
};

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void measure(const char* what, const Settings& o, int64_t length, const std::function<void()>& f) {
  f();
  std::vector<double> times;
  const double end = now() + o.seconds;
  while (times.size() < 3 || now() < end) {
    const double begin = now();
    f();
    times.push_back((now() - begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  std::printf("stretto %s, L %6lld, %d threads: %.1f ms (median of %zu; least %.1f)\n", what,
              static_cast<long long>(length), num_threads(), times[times.size() / 2], times.size(),
              times.front());
  std::fflush(stdout);
}

int run(const Settings& o) {
  set_num_threads(o.threads);
  manual_seed(1);
  nn::TransformerLayer layer(nn::retnet_layer(o.d_model, o.heads));
  const auto* kernel =
      dynamic_cast<const nn::GatedLinearKernel*>(layer.self_attention.children().back().second);
  for (const int64_t length : o.lengths) {
    const auto heads = [&](int64_t d) {
      return randn({o.batch, length, o.heads, d}).transpose(1, 2).set_requires_grad();
    };
    const Tensor q = heads(o.d_model / o.heads), k = heads(o.d_model / o.heads),
                 v = heads(2 * o.d_model / o.heads);
    const Tensor g = randn({o.batch, length, o.heads, v.size(3)}).transpose(1, 2);
    measure("retention", o, length, [&] {
      grad({gated_linear_attention(q, k, v, {.log_decay = kernel->log_decay})}, {q, k, v}, {g});
    });
    const Tensor x = randn({o.batch, length, o.d_model});
    for (const bool whole : {false, true})
      measure(whole ? "RetNet layer" : "multi-scale retention with projections", o, length, [&] {
        layer.zero_grad();
        const Tensor below = x.detach().set_requires_grad();
        const Tensor y =
            whole ? layer(below, {.causal = true}) : layer.self_attention(below, {.causal = true});
        mean(square(y)).backward();
      });
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  return examples::run_program(
      argc, argv, "retention", "Times multi-scale retention and a RetNet layer.",
      [&](CLI::App& app) {
        app.add_option("--lengths", o.lengths)->delimiter(',');
        app.add_option("--d-model", o.d_model);
        app.add_option("--heads", o.heads);
        app.add_option("--batch", o.batch);
        app.add_option("--threads", o.threads);
        app.add_option("--seconds", o.seconds, "Time per measurement");
      },
      [&] { return run(o); });
}
