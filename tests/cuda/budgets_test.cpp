// Budgets of the kernels that are bound by memory, by the interpreter's counters.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

/// Warps of this kernel that a multiprocessor of an H100 has at a time, of 64.
double warps_together(const KernelCounts& k) {
  const double warps = std::ceil(k["threads"] / 32), each = std::ceil(k["registers"] / 8) * 8 * 32;
  const double blocks = std::min({32.0, std::floor(64 / warps), std::floor(65536 / (warps * each)),
                                  std::floor(233472 / (k["shared_bytes"] + 1024))});
  return blocks * warps;
}

}  // namespace

TEST_CASE("kernels move what they must, and no more", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("the counters are those of tests/cuda/ptx");
  for (const DType t : {f32, bf16}) {
    each_kernel_case(2048, t, [&](const KernelCase& c) {
      CAPTURE(c.name, name(t));
      double moved = 0, asked = 0, accesses = 0;
      for (const KernelCounts& k : counts_of(c.run)) {
        CAPTURE(k.kernel);
        moved += 32 * (k["load_missed"] + k["store_sectors"]);
        asked += k["load_bytes"] + k["store_bytes"];
        accesses += k["load_requests"] + k["store_requests"];
        CHECK(32 * k["load_sectors"] <= c.coalesced * k["load_bytes"]);
        CHECK(k["wavefronts"] == k["wavefronts_ideal"]);
        CHECK(k["local"] == 0);
        CHECK(k["atomics"] == 0);
        CHECK(warps_together(k) >= c.warps);
      }
      CHECK(moved > 0);
      CHECK(moved / c.bytes <= c.budget);
      CHECK(asked / accesses >= c.access);
    });
  }
}

TEST_CASE("kernels leave registers for other warps", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters() || !std::getenv("PTX_DECODE"))
    STRETTO_SKIP("the registers are those of tests/cuda/ptx, with PTX_DECODE=1");
  size_t with_registers = 0;
  for (const KernelCounts& k : all_counts()) {
    CAPTURE(k.kernel);
    with_registers += k["registers"] > 0;
    // 128: 16 warps of a multiprocessor. The sums of a weight's and a bias's gradient take more,
    // and kernels on tensor cores, whose operands and sums are in registers, all there are.
    const auto is = [&](const char* begin) { return k.kernel.starts_with(begin); };
    const bool products = is("linear::linear_attention_") || is("feature_rows") || is("attention_");
    CHECK(k["registers"] <= (products ? 255 : is("norm_backward_rows") ? 192 : 128));
  }
  CHECK(with_registers > 500);
}

TEST_CASE("counters of these kernels, for benchmarks/gpu/predict.py", "[.counters]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("the counters are those of tests/cuda/ptx");
  const char *file = std::getenv("KERNEL_COUNTS"), *rows = std::getenv("KERNEL_ROWS"),
             *only = std::getenv("KERNEL_CASE");  // part of "gelu backward f32"
  if (!file || !rows) STRETTO_SKIP("KERNEL_COUNTS=FILE KERNEL_ROWS=8192 are not set");
  std::ofstream out(file);
  out << "case\tdtype\tbytes\tbudget\ttimes\tkernel";
  bool first = true;
  for (const DType t : {f32, bf16}) {
    const auto count = [&](const KernelCase& c) {
      if (only && (c.name + ' ' + name(t)).find(only) == std::string::npos) return;
      for (const KernelCounts& k : counts_of(c.run)) {
        for (const auto& [column, value] : k.columns)
          if (first) out << '\t' << column;
        if (first) out << '\n';
        first = false;
        out << c.name << '\t' << name(t) << '\t' << int64_t(c.bytes) << '\t' << c.budget << '\t'
            << c.times << '\t' << k.kernel;
        for (const auto& [column, value] : k.columns) out << '\t' << int64_t(value);
        out << '\n';
      }
    };
    if (std::atoll(rows) > 0) each_kernel_case(std::atoll(rows), t, count);
    each_long_attention(t, count);
  }
  CHECK(out.good());
}
