// The memory-bound kernels on tensors of a training step. Each case has the minimum number
// of bytes that must move, and a budget: the bytes of all 32-byte sectors that move,
// relative to the minimum.
//
// The minimum counts inputs and outputs once, without tables and scratch memory. The budget is 1.05
// for elementwise, broadcast and row-wise access and 1.2 for transposing access; larger budgets
// have a comment.
#pragma once

#include <functional>
#include <string>

#include "core/tensor.h"

namespace stretto::testing {

struct KernelCase {
  std::string name;
  double bytes;   // the minimum
  double budget;  // bytes of all sectors that move / bytes
  std::function<void()> run;
  double coalesced = 1.05;  // bytes of the sectors that loads touch / bytes requested
  double access = 240;      // minimum average bytes per warp access; 512 are 16 per lane
  double warps = 8;         // minimum number of resident warps per multiprocessor
  int64_t times = 0;        // how often batch 16 with 8 heads needs it; 0: scales with rows

  KernelCase& loads(double touched) { return coalesced = touched, *this; }
  KernelCase& accesses(double least) { return access = least, *this; }
};

/// Calls f for each case on tensors of about [rows, 512] in f32 or bf16 on the GPU.
void each_kernel_case(int64_t rows, DType dtype, const std::function<void(const KernelCase&)>& f);
/// Calls f for the fused attention kernels on one causal head: 2048 queries and keys, dimension 64.
void each_long_attention(DType dtype, const std::function<void(const KernelCase&)>& f);

}  // namespace stretto::testing
