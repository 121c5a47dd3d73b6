// The kernels that are bound by memory, each on tensors of a training step: what it does, how many
// bytes must move at the least, and how many times that its 32-byte sectors may come to.
//
// The least is what goes in and what comes out, once each, tables and scratch not counted. Where
// neighbors read neighbors, rows repeat or numbers do, 1.05 times that may move; where rows
// become columns, 1.2 times; what is allowed more says why.
#pragma once

#include <functional>
#include <string>

#include "core/tensor.h"

namespace stretto::testing {

struct KernelCase {
  std::string name;
  double bytes;   // the least
  double budget;  // bytes of the sectors that move / bytes
  std::function<void()> run;
  double coalesced = 1.05;  // bytes of the sectors that loads touch / bytes that they ask for
  double access = 240;      // bytes of a warp's access at the least, on average: 512 are 16 a lane
  double warps = 8;         // that a multiprocessor has at a time, at the least
  int64_t times = 0;        // a batch of 16 of 8 heads has this as often; 0: it grows with the rows

  KernelCase& loads(double touched) { return coalesced = touched, *this; }
  KernelCase& accesses(double least) { return access = least, *this; }
};

/// f of each, for [rows, 512] and the like of f32 or bf16 on the GPU.
void each_kernel_case(int64_t rows, DType dtype, const std::function<void(const KernelCase&)>& f);
/// f of fused attention's kernels on one causal head of 2048 queries and keys, 64 dimensions.
void each_long_attention(DType dtype, const std::function<void(const KernelCase&)>& f);

}  // namespace stretto::testing
