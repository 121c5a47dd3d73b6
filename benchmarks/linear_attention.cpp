// Time and memory of one training step of one Performer layer as a function of its length (forward,
// mean square, backward, AdamW), with linear fits.
//
// benchmarks/linear_attention_torch.py is the same layer in PyTorch;
// `PROGRAM=linear_attention benchmarks/train_step.sh --lengths 4096` runs both alternately.
#include "benchmarks/linear_attention.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <ctime>

#include "autograd/profile.h"
#include "core/cpu.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"
#include "nn/init.h"

using namespace stretto;

namespace {

struct Settings : benchmarks::PerformerSettings {
  std::vector<int64_t> lengths{1024, 2048, 4096, 8192, 16384, 32768};
  int threads = 2;
  double seconds = 4;
  bool brief = false;
};

// CPU time of all threads of the process: hardly disturbed by other programs.
double cpu_seconds() { return double(std::clock()) / CLOCKS_PER_SEC; }

void print_fit(const char* what, const char* unit, const std::vector<double>& lengths,
               const std::vector<double>& values) {
  const benchmarks::LineFit fit = benchmarks::fit_line(lengths, values);
  std::printf("%s: %.2f + %.3f L/1024 %s, R² %.5f, largest deviation %.1f %%\n", what,
              fit.intercept, fit.slope * 1024, unit, fit.r_squared, 100 * fit.largest_deviation);
}

int run(const Settings& o) {
  set_num_threads(o.threads);
  manual_seed(1);
  benchmarks::PerformerStep step(o);
  std::vector<double> lengths, times, cpu_times, peaks;
  for (const int64_t length : o.lengths) {
    const Tensor x = randn({o.batch, length, o.d_model});
    step(x);
    reset_peak_memory();
    std::vector<double> wall, cpu_time;
    const double end = steady_seconds() + o.seconds;
    while (wall.size() < 3 || steady_seconds() < end) {
      const double begin = steady_seconds(), cpu_begin = cpu_seconds();
      step(x);
      cpu_time.push_back((cpu_seconds() - cpu_begin) * 1e3);
      wall.push_back((steady_seconds() - begin) * 1e3);
    }
    std::sort(wall.begin(), wall.end());
    lengths.push_back(double(length));
    times.push_back(wall.front());
    cpu_times.push_back(*std::min_element(cpu_time.begin(), cpu_time.end()));
    peaks.push_back(double(memory_stats().peak) / 1e6);
    const double median = wall[wall.size() / 2];
    std::printf(
        "stretto L %6lld, %d threads: %.1f ms/step (median of %zu; least %.1f, CPU time %.1f), "
        "%.0f tokens/s, peak memory %.1f MB\n",
        static_cast<long long>(length), num_threads(), median, wall.size(), wall.front(),
        cpu_times.back(), double(o.batch * length) / median * 1e3, peaks.back());
    std::fflush(stdout);
    release_cached_memory();
  }
  if (o.brief || lengths.size() < 2) return 0;
  std::printf("%s; least-squares fits:\n", cpu_description().c_str());
  print_fit("least time", "ms", lengths, times);
  print_fit("least CPU time", "ms", lengths, cpu_times);
  print_fit("peak memory", "MB", lengths, peaks);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Settings o;
  return examples::run_program(
      argc, argv, "linear_attention",
      "Times a training step of a Performer layer at several lengths.",
      [&](CLI::App& app) {
        app.add_option("--lengths", o.lengths)->delimiter(',');
        app.add_option("--d-model", o.d_model);
        app.add_option("--heads", o.heads);
        app.add_option("--d-hidden", o.d_hidden);
        app.add_option("--features", o.features);
        app.add_option("--batch", o.batch);
        app.add_option("--threads", o.threads);
        app.add_option("--seconds", o.seconds, "Time per length");
        app.add_flag("--brief", o.brief, "No linear fits");
      },
      [&] { return run(o); });
}
