// One training step of the Music Transformer that train_chorales trains: forward, loss, backward,
// clipping, AdamW. Prints the median time, the memory, and the time per op.
//
// benchmarks/train_step.py is the same model in PyTorch; benchmarks/train_step.sh runs both
// alternately and prints the ratio.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "autograd/profile.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/positions/relative_table.h"
#include "nn/training/captured_step.h"
#include "ops/create.h"
#include "ops/loss.h"

using namespace stretto;

namespace {

struct Settings {
  int64_t layers = 4, d_model = 128, heads = 4, d_hidden = 512, length = 512, batch = 8;
  int64_t vocabulary = 131;
  double dropout = 0.1;
  std::string attention = "relative", device = "cpu", dtype = "f32";
  bool graph = false;
  int threads = 2;
  double seconds = 8;
  bool brief = false;
};

int run(const Settings& o) {
  set_num_threads(o.threads);
  manual_seed(1);
  nn::LanguageModel::Options options{
      .vocabulary = o.vocabulary,
      .n_layers = o.layers,
      .layer = {.d_model = o.d_model,
                .attention = {.n_heads = o.heads,
                              .bias = false,
                              .position = nn::music_relative({.max_length = o.length})},
                .feed_forward = {.d_hidden = o.d_hidden},
                .dropout = o.dropout}};
  if (o.attention != "relative") {
    options.layer.attention.position = {};
    options.input.sinusoid = nn::Sinusoid::interleaved;
  }
  nn::LanguageModel model(options);
  const Device device(o.device);
  model.to(o.dtype == "bf16" ? bf16 : f32);
  model.to(device);
  nn::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  const Tensor inputs = randint(0, o.vocabulary, {o.batch, o.length}).to(device);
  const Tensor targets = randint(0, o.vocabulary, {o.batch, o.length}).to(device);
  auto step = [&](Profile* profile) {
    optimizer.zero_grad();
    if (profile) profile->mark("zero_grad");
    const Tensor loss = cross_entropy(model(inputs), targets);
    loss.backward();
    nn::clip_grad_norm(model.parameters(), 1.0);
    if (profile) profile->mark("clip_grad_norm");
    optimizer.step();
    if (profile) profile->mark("AdamW");
    return loss.detach();
  };
  nn::CapturedStep captured(device, [&] { return step(nullptr); });
  const auto timed = [&] {
    o.graph ? captured() : step(nullptr);
    synchronize(device);
  };
  for (int i = 0; i < 4; ++i) timed();
  reset_peak_memory(device);
  std::vector<double> times;
  const double end = steady_seconds() + o.seconds;
  while (times.size() < 5 || steady_seconds() < end) {
    const double begin = steady_seconds();
    timed();
    times.push_back((steady_seconds() - begin) * 1e3);
  }
  std::sort(times.begin(), times.end());
  const double median = times[times.size() / 2];
  std::printf(
      "stretto %s, %s %s%s, %d threads: %.2f ms/step (median of %zu; least %.1f), %.0f tokens/s\n",
      o.attention.c_str(), o.device.c_str(), o.dtype.c_str(), o.graph ? " graph" : "",
      num_threads(), median, times.size(), times.front(),
      double(o.batch * o.length) / median * 1e3);
  if (o.brief) return 0;
  std::printf("%lld parameters, peak memory %.1f MB, %s\n\n",
              static_cast<long long>(model.parameter_count()),
              double(memory_stats(device).peak) / 1e6, cpu_description().c_str());
  constexpr int rounds = 10;
  std::vector<ProfileRow> rows;
  {
    Profile profile;
    for (int i = 0; i < rounds; ++i) step(&profile);
    rows = profile.rows();
  }
  double total = 0;
  for (const ProfileRow& row : rows) total += row.seconds;
  std::printf("%-28s %8s %9s %7s\n", "op", "calls", "ms/step", "share");
  for (const ProfileRow& row : rows)
    std::printf("%-28s %8.1f %9.2f %6.1f%%\n", row.name.c_str(), double(row.calls) / rounds,
                row.seconds * 1e3 / rounds, 100 * row.seconds / total);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  return examples::run_program(
      argc, argv, "train_step", "Times one training step of a Music Transformer.",
      [&](CLI::App& app) {
        app.add_option("--layers", o.layers);
        app.add_option("--d-model", o.d_model);
        app.add_option("--heads", o.heads);
        app.add_option("--d-hidden", o.d_hidden);
        app.add_option("--length", o.length);
        app.add_option("--batch", o.batch);
        app.add_option("--vocabulary", o.vocabulary);
        app.add_option("--dropout", o.dropout);
        app.add_option("--attention", o.attention, "relative or absolute");
        app.add_option("--device", o.device, "cpu, cuda or cuda:N");
        app.add_option("--dtype", o.dtype, "f32 or bf16");
        app.add_flag("--cuda-graph", o.graph, "Run each step as one CUDA graph");
        app.add_option("--threads", o.threads);
        app.add_option("--seconds", o.seconds);
        app.add_flag("--brief", o.brief, "Print only the first line");
      },
      [&] { return run(o); });
}
