// Optimizer state sharded over processes: ZeRO stages 1 and 2 (Rajbhandari et al., "ZeRO: memory
// optimizations toward training trillion parameter models", SC 2020).
#pragma once

#include <vector>

#include "../optim/optim.h"
#include "gradient_reducer.h"

namespace stretto::nn {

/// Each rank holds the optimizer state of its ranges (GradientReducer::ranges) and updates the
/// parameters there; then the parameters are all-gathered. The result is bit-identical to updates
/// without sharding. All processes must make the same calls.
class OptimizerShards {
 public:
  /// `reducer` must have the optimizer's parameters, in its order. Both must outlive this object.
  OptimizerShards(Optimizer& optimizer, GradientReducer& reducer, ProcessGroup& group);

  /// Does the same as clip_grad_norm() for reduce-scattered gradients: each rank scales its ranges.
  /// Returns the norm.
  double clip(double max_norm);
  /// Calls Optimizer::step(), then all-gathers the parameters.
  void step();
  /// Gathers the state of all parameters on rank 0, for a checkpoint.
  void gather();
  /// Drops the state outside of this rank's ranges.
  void keep_own();

 private:
  void to_root(int from, void* bytes, size_t n);

  Optimizer& optimizer_;
  GradientReducer& reducer_;
  ProcessGroup& group_;
};

}  // namespace stretto::nn
