// Table 1 of the Music Transformer paper (Huang et al. 2018): the memory of relative logits with
// Shaw's gather and with the skew, measured in this library and compared with the paper; and the
// memory of fused attention.
#include "benchmarks/relative_memory.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>

#include "core/available_memory.h"
#include "core/parallel.h"
#include "examples/common/command_line.h"

using namespace stretto;
using benchmarks::PaperRow;
using benchmarks::RelativeMemory;

namespace {

constexpr double mega = 1e6, mebi = 1048576, budget = 16e9, allowed = 0.05;

double largest_deviation = 0;

// "108.160    108  +0.1 %"
void print_cell(int64_t bytes, double paper) {
  const double measured = double(bytes) / mega, deviation = measured / paper - 1;
  largest_deviation = std::max(largest_deviation, std::fabs(deviation));
  std::printf("  %10.3f %7g %+6.1f %%", measured, paper, 100 * deviation);
}

void print_row(int64_t length, const RelativeMemory& m, double positions, double logits) {
  std::printf("%6lld", static_cast<long long>(length));
  print_cell(m.positions, positions);
  print_cell(m.logits, logits);
  std::printf("  %10.3f%s\n", double(m.peak) / mega, logits == 16 ? "  (a)" : "");
}

void print_longest(const char* name, double square, double linear, const char* paper) {
  const int64_t one = benchmarks::longest_length(square, linear, budget);
  const int64_t layer = benchmarks::longest_length(8 * square, 8 * linear, budget);
  std::printf("%-8s %12.2f %12.1f %14lld %14lld %8s\n", name, square, linear,
              static_cast<long long>(one), static_cast<long long>(layer), paper);
}

int run() {
  const char* heading =
      "\n%s\n     L   positions   paper           logits   paper                 peak\n";
  std::printf("Relative logits of one head, D = %lld, f32, in MB of 10^6 bytes\n",
              static_cast<long long>(benchmarks::paper_d));

  std::printf(heading, "gather (Shaw et al. 2018): R [L, L, D]");
  double gather_square = 0;
  bool complete = true;
  for (const PaperRow& paper : benchmarks::paper_table) {
    // 5 % more for other memory of the program.
    const double needed = 1.05 * benchmarks::gather_bytes(paper.length);
    if (const double have = double(available_memory()); have < needed) {
      std::printf("%6lld  skipped: needs %.1f GB of memory, %.1f GB are available\n",
                  static_cast<long long>(paper.length), needed / 1e9, have / 1e9);
      complete = false;
      continue;
    }
    const RelativeMemory m = benchmarks::gather_memory(paper.length);
    release_cached_memory();
    print_row(paper.length, m, paper.gather_positions, paper.logits);
    gather_square = double(m.peak) / double(paper.length * paper.length);
  }

  std::printf(heading, "skew (Huang et al. 2018): E [L, D]");
  double skew_square = 0, skew_linear = 0;
  for (const PaperRow& paper : benchmarks::paper_table) {
    const RelativeMemory m = benchmarks::skew_memory(paper.length);
    print_row(paper.length, m, paper.skew_positions, paper.logits);
    skew_linear = double(m.positions) / double(paper.length);
    skew_square = double(m.peak - m.positions) / double(paper.length * paper.length);
  }

  const char* plural = num_threads() == 1 ? "" : "s";
  std::printf(
      "\nfused attention (not in the paper): E [L, D], strips of scores; %d thread%s\n"
      "     L   positions       strips     peak (b)\n",
      num_threads(), plural);
  double fused_linear = 0;
  for (const int64_t length : {650, 2048, 3500, 16384}) {
    const RelativeMemory m = benchmarks::fused_memory(length);
    std::printf("%6lld  %10.3f   %10.3f   %10.3f\n", static_cast<long long>(length),
                double(m.positions) / mega, double(m.logits) / mega, double(m.peak) / mega);
    fused_linear = double(m.peak) / double(length);
  }

  std::printf(
      "\nLongest L in 16 GB, by the peak at the longest L above\n"
      "         bytes per L²  bytes per L       one head        8 heads   paper (c)\n");
  if (gather_square > 0) print_longest("gather", gather_square, 0, "650");
  print_longest("skew", skew_square, skew_linear, "3500");
  print_longest("fused", 0, fused_linear, "-");
  std::printf("Formulas: gather 4 (D + 1) = %lld, skew 8 and 4 D = %lld.\n",
              static_cast<long long>(4 * (benchmarks::paper_d + 1)),
              static_cast<long long>(4 * benchmarks::paper_d));

  std::printf(
      "\n(a) The paper's 16 is in MiB: 4 L² bytes are %.2f MB or %.2f MiB. Its other cells are in "
      "MB.\n"
      "(b) Includes the output [L, D], and the content scores, softmax and values, which the "
      "tables\n"
      "    above omit.\n"
      "(c) For the paper's whole model, whose layers save tensors for their gradients.\n"
      "    The peak of the skew includes Q Eᵀ and the logits; fused attention has no term in L².\n",
      4 * 2048.0 * 2048.0 / mega, 4 * 2048.0 * 2048.0 / mebi);
  std::printf("Largest deviation from the paper: %.1f %%%s\n", 100 * largest_deviation,
              complete ? "" : " (of the cells that were measured)");
  return largest_deviation <= allowed ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  int threads = 1;
  return examples::run_program(
      argc, argv, "relative_memory", "Measures Table 1 of the Music Transformer paper.",
      [&](CLI::App& app) { app.add_option("--threads", threads, "Threads of fused attention"); },
      [&] {
        set_num_threads(threads);
        return run();
      });
}
