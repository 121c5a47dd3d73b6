// Budgets of the memory-bound kernels, by the counters of the PTX interpreter.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "tests/cuda/kernel_cases.h"
#include "tests/cuda/kernel_counts.h"
#include "tests/support/gpu.h"

using namespace stretto;
using namespace stretto::testing;

namespace {

/// The number of warps of this kernel that are resident on a multiprocessor of an H100, at most 64.
double resident_warps(const KernelCounts& k) {
  const double warps = std::ceil(k["threads"] / 32), each = std::ceil(k["registers"] / 8) * 8 * 32;
  const double blocks = std::min({32.0, std::floor(64 / warps), std::floor(65536 / (warps * each)),
                                  std::floor(233472 / (k["shared_bytes"] + 1024))});
  return blocks * warps;
}

}  // namespace

TEST_CASE("kernels stay within their budgets of memory traffic", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
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
        CHECK(resident_warps(k) >= c.warps);
      }
      CHECK(moved > 0);
      CHECK(moved / c.bytes <= c.budget);
      CHECK(asked / accesses >= c.access);
    });
  }
}

TEST_CASE("kernels stay within their budgets of registers", "[cuda]") {
  NEEDS_GPU();
  if (!has_counters() || !std::getenv("PTX_DECODE"))
    STRETTO_SKIP("needs the counters of the PTX interpreter, with PTX_DECODE=1");
  size_t with_registers = 0;
  for (const KernelCounts& k : all_counts()) {
    CAPTURE(k.kernel);
    with_registers += k["registers"] > 0;
    // 128 registers allow 16 warps per multiprocessor. erf and its derivative in f64 need more.
    // Kernels on tensor cores keep operands and sums in registers and may use all; so may
    // norm_backward_rows for long rows, as it keeps sums, a row and the next one (for shorter rows
    // the cases above require 16 warps).
    const auto is = [&](const char* begin) { return k.kernel.starts_with(begin); };
    const bool most = is("linear::linear_attention_") || is("gated::gated_") ||
                      is("feature_rows") || is("attention_") || is("norm_backward_rows");
    const bool more = is("activate_slopes<elementwise::Gelu, double>");
    CHECK(k["registers"] <= (most ? 255 : more ? 192 : 128));
  }
  CHECK(with_registers > 500);
}

TEST_CASE("the counters of these kernels are written for benchmarks/gpu/predict.py",
          "[.counters]") {
  NEEDS_GPU();
  if (!has_counters()) STRETTO_SKIP("needs the counters of the PTX interpreter");
  const char *file = std::getenv("KERNEL_COUNTS"), *rows = std::getenv("KERNEL_ROWS"),
             *only = std::getenv("KERNEL_CASE");  // a substring of e.g. "gelu backward f32"
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
