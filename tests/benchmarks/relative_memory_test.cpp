// The memory of relative logits: measured bytes agree with the formulas and with the first row of
// the paper's table.
#include "benchmarks/relative_memory.h"

#include "core/parallel.h"
#include "tests/support/catch.h"

using namespace stretto;
using benchmarks::RelativeMemory;

namespace {

constexpr int64_t l = 650, d = 64;

bool near_paper(int64_t bytes, double megabytes) {
  return std::fabs(double(bytes) / 1e6 / megabytes - 1) < 0.05;
}

}  // namespace

TEST_CASE(
    "relative memory: measurements agree with the first row of the Music Transformer's Table 1") {
  const benchmarks::PaperRow& paper = benchmarks::paper_table[0];
  REQUIRE(paper.length == l);
  const RelativeMemory gather = benchmarks::gather_memory(l);
  CHECK(gather.positions == 4 * l * l * d);
  CHECK(gather.logits == 4 * l * l);
  CHECK(gather.peak == gather.positions + gather.logits);
  CHECK(benchmarks::gather_bytes(l) == double(gather.peak + 8 * l * l));
  CHECK(near_paper(gather.positions, paper.gather_positions));
  CHECK(near_paper(gather.logits, paper.logits));

  const RelativeMemory skew = benchmarks::skew_memory(l);
  CHECK(skew.positions == 4 * l * d);
  CHECK(skew.logits == 4 * l * l);
  CHECK(skew.peak == skew.positions + 2 * skew.logits);  // Q Eᵀ and its skew
  CHECK(near_paper(skew.positions, paper.skew_positions));
  CHECK(near_paper(skew.logits, paper.logits));
}

TEST_CASE("relative memory: fused attention has no term in L²") {
  const int threads = num_threads();
  set_num_threads(1);  // each thread allocates strips
  // Equidistant lengths whose strips have the same height.
  const int64_t a = benchmarks::fused_memory(1100).peak, b = benchmarks::fused_memory(1900).peak;
  const int64_t c = benchmarks::fused_memory(2700).peak;
  set_num_threads(threads);
  CHECK(b > a);
  CHECK(c - b == b - a);
  CHECK(c < benchmarks::skew_memory(2700).peak / 8);
}

TEST_CASE("relative memory: longest_length is the longest sequence that fits") {
  using benchmarks::longest_length;
  CHECK(longest_length(4, 0, 400) == 10);
  CHECK(longest_length(4, 0, 399) == 9);
  CHECK(longest_length(0, 8, 80) == 10);
  CHECK(longest_length(4, 2, 420) == 10);
  CHECK(longest_length(4, 2, 419) == 9);
}
