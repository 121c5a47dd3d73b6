// A step whose batch is cut into parts, which processes share out: the same bits for any number of
// processes (PartSums says which sums).
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "../../core/random.h"
#include "../module.h"
#include "part_sums.h"

namespace stretto::nn {

/// A part's rows stand one after the other in the batch; its loss is a mean, which counts by the
/// share that it has of what is scored, and not where nothing is. A parameter that no part of any
/// process reaches has no gradient. Each part draws its own random numbers, and begins with the
/// buffers that the step began with; the first part's are kept.
class PartedStep {
 public:
  /// With `pieces`, so many neighbouring processes have the same parts and share their sequences:
  /// the second dimension of what is cut, of which each has its piece. `scatter`: each process gets
  /// the gradients of its stretches (PartSums).
  PartedStep(const Module& model, Tensors parameters, int64_t parts, ProcessGroup& group,
             int64_t pieces = 1, bool scatter = false);

  /// Leaves the gradient, of the mean over the whole batch, in the parameters, and returns that
  /// mean. `loss` takes its batch from cut().
  double operator()(const std::function<Tensor()>& loss);

  /// While a loss is computed: the rows of its part of make(batch). `scored`: which of the tensors
  /// says by not_scored what does not count (-1: all rows count the same).
  Tensors cut(int64_t batch, const std::function<Tensors(int64_t)>& make, int scored);
  bool running() const { return part_ >= 0; }
  /// While a loss is computed, which passes it to its model (nn/forward_context.h): the processes
  /// that share the sequences, or null.
  ProcessGroup* sequence_group();

  /// The part whose loss is computed.
  int64_t part() const { return part_; }
  int64_t parts() const { return parts_; }
  int64_t pieces() const { return sequence_->size(); }
  int64_t first() const { return sums_.first(); }
  int64_t count() const { return sums_.count(); }
  PartSums& sums() { return sums_; }

 private:
  Tensor piece(const Tensor& rows) const;

  double finish(const std::vector<double>& losses);

  const Module& model_;
  const Tensors parameters_;
  const int64_t parts_;
  ProcessGroup& group_;
  const std::unique_ptr<ProcessGroup> sequence_;  // those that share this process's sequences
  PartSums sums_;
  RandomState begin_;  // of the step
  int64_t part_ = -1;
  double weight_ = -1;            // of the part; below 0: nothing has been cut
  bool group_passed_ = false;     // to the model
  std::optional<int64_t> batch_;  // that is made
  Tensors whole_;
};

}  // namespace stretto::nn
