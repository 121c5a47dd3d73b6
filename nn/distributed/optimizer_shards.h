// What an optimiser keeps, shared out to processes (ZeRO stages 1 and 2: Rajbhandari et al., "ZeRO:
// memory optimizations toward training trillion parameter models", SC 2020).
#pragma once

#include <vector>

#include "../optim/optim.h"
#include "gradient_reducer.h"

namespace stretto::nn {

/// Each process keeps the state, and makes the update, of its stretches
/// (GradientReducer::stretches), and tells the others the new values. The bits are those of every
/// process making all updates. All processes make the same calls.
class OptimizerShards {
 public:
  /// `sums` are those of the optimiser's parameters; both must outlive this.
  OptimizerShards(Optimizer& optimizer, GradientReducer& sums, ProcessGroup& group);

  /// clip_grad_norm of gradients of which each process has its stretches, which alone it scales.
  double clip(double max_norm);
  /// Optimizer::step, of all parameters.
  void step();
  /// Makes the first process's state that of all parameters, for a checkpoint.
  void gather();
  /// Forgets what is others'.
  void keep_own();

 private:
  void to_first(int from, void* bytes, size_t n);

  Optimizer& optimizer_;
  GradientReducer& sums_;
  ProcessGroup& group_;
};

}  // namespace stretto::nn
