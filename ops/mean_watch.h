// Over how many targets losses are means.
#pragma once

#include "../core/tensor.h"

namespace stretto {

/// Collects, during its life, the number of targets of each loss that the calling thread computes
/// with Reduction::mean (ops/loss.h), ignored ones left out: f64 [], on the device of the loss. Of
/// several watches, the newest collects. nn::Trainer weighs micro-batches by them.
class MeanWatch {
 public:
  MeanWatch();
  ~MeanWatch();
  MeanWatch(const MeanWatch&) = delete;
  MeanWatch& operator=(const MeanWatch&) = delete;

  const Tensors& counts() const { return counts_; }
  /// The newest of the thread, which losses add to; null where there is none.
  static MeanWatch* newest();
  void add(const Tensor& count) { counts_.push_back(count); }

 private:
  Tensors counts_;
  MeanWatch* const outer_;
};

}  // namespace stretto
