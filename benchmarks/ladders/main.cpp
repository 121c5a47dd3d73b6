// Times the steps of the ladders:  ladders [NAME-PART...]
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "benchmarks/ladders/ladder.h"
#include "core/parallel.h"

using namespace stretto;

namespace {

double seconds(const ladders::Step& step, const Tensors& inputs) {
  const auto start = std::chrono::steady_clock::now();
  step.run(inputs);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The median of as many runs as fit into half a second, 3 to 101, after one warm-up run.
double median_seconds(const ladders::Step& step, const Tensors& inputs) {
  const double first = seconds(step, inputs);
  std::vector<double> times(size_t(std::clamp(0.5 / first, 3.0, 101.0)));
  for (double& time : times) time = seconds(step, inputs);
  std::sort(times.begin(), times.end());
  return times[times.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("%d threads; medians\n", num_threads());
  for (const ladders::Ladder& ladder : ladders::all()) {
    const bool selected = argc == 1 || std::any_of(argv + 1, argv + argc, [&](const char* part) {
                            return ladder.name.find(part) != std::string::npos;
                          });
    if (!selected) continue;
    std::printf("\n%s, n = %ld\n%-26s %10s %10s %8s\n", ladder.name.c_str(), long(ladder.size), "",
                "ms", ladder.unit.c_str(), "speedup");
    const Tensors inputs = ladder.inputs(ladder.size);
    double first = 0;
    for (const ladders::Step& step : ladder.steps) {
      const double time = median_seconds(step, inputs);
      if (first == 0) first = time;
      std::printf("%-26s %10.3f %10.2f %8.1f\n", step.name.c_str(), 1e3 * time,
                  ladder.work(ladder.size) / time, first / time);
      std::fflush(stdout);
    }
  }
}
