// What an optimiser keeps, shared out to processes (ZeRO stage 1: Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020).
#pragma once

#include <vector>

#include "nn/distributed/process_group.h"
#include "nn/training/optim.h"

namespace stretto::nn {

/// Each process keeps the state, and makes the update, of the parameters of one stretch, about as
/// many numbers as the others, and tells the others the new values. The bits are those of every
/// process making all updates. All processes make the same calls.
class OptimizerShards {
 public:
  OptimizerShards(Optimizer& optimizer, ProcessGroup& group);

  /// Optimizer::step, of all parameters.
  void step();
  /// Makes the first process's state that of all parameters, for a checkpoint.
  void gather();
  /// Forgets what is others'.
  void keep_own();

 private:
  int owner(size_t i) const;
  void tell_values();

  Optimizer& optimizer_;
  ProcessGroup& group_;
  std::vector<size_t> ends_;  // of each process's stretch of parameters
};

}  // namespace stretto::nn
