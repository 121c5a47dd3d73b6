// Gradient accumulation over micro-batches and bucketed all-reduce over processes, overlapped with
// the backward pass.
#pragma once

#include <memory>

#include "../../core/tensor.h"
#include "../../ops/optim.h"
#include "process_group.h"

namespace stretto::nn {

/// All-gather: returns the rows [n, …] of all processes, concatenated in the order of the ranks; on
/// the CPU if there are several processes.
Tensor all_gather_rows(const Tensor& mine, ProcessGroup& group = process_group());
/// Overwrites x on every process with the values of rank 0.
void broadcast(const Tensor& x, ProcessGroup& group);

/// Statistics of gradient communication, and how much of it overlapped with computation.
struct Communication {
  int64_t steps = 0;          ///< Number of steps.
  int64_t bytes = 0;          ///< Bytes sent by this process.
  double seconds = 0;         ///< Seconds during which communication was in progress.
  double waited_seconds = 0;  ///< Seconds that this process waited for communication.
};

/// Sums the gradients of all micro-batches of a step over all processes. The number of
/// micro-batches is a power of two, and every rank has the same number of consecutive
/// micro-batches. Their gradients are added along one binary tree (pairs, then pairs of pairs, …)
/// in f32 (f64 for f64 parameters), so that the sums are bit-identical for any number of processes.
/// A micro-batch without a gradient counts as zeros.
///
/// Parameters are grouped into buckets. A bucket is all-reduced as soon as the gradients of all its
/// parameters are complete, in one order on all processes, while the backward pass still runs. A
/// parameter that does not require a gradient when a step begins gets none on any process.
class GradientReducer {
 public:
  /// `group` must outlive the reducer and may not be used for other messages before finish().
  ///
  /// With `sequence_size` > 1, that many consecutive ranks share each micro-batch (sequence
  /// parallelism): the sum of their gradients is the gradient of the micro-batch. Communication
  /// then starts in finish(), because attention communicates during the backward pass.
  /// `micro_batches` · `sequence_size` must be a multiple of the group's size.
  ///
  /// With `scatter`, gradients are reduce-scattered instead of all-reduced (ZeRO stage 2): each
  /// rank gets only the sums in its own ranges(), and sends half as many bytes.
  GradientReducer(Tensors parameters, int64_t micro_batches, ProcessGroup& group,
                  int64_t sequence_size = 1, bool scatter = false);
  ~GradientReducer();

  /// Returns the first micro-batch of this rank.
  int64_t first() const;
  /// Returns the number of micro-batches of this rank: first() … first() + count() − 1.
  int64_t count() const;

  /// Begins the next micro-batch of this rank and drops the gradients that parameters have.
  void begin_micro_batch();
  /// Ends the micro-batch, after its backward pass.
  void end_micro_batch();
  /// Waits for all sums, after the last micro-batch. Then every parameter's grad() is the sum over
  /// all micro-batches. With `scatter` it is zero outside of this rank's range, and undefined if
  /// that range is empty.
  void finish();
  /// Returns, for each parameter, whether it got a gradient in a micro-batch of this rank in the
  /// last step. A parameter that no rank reached has a gradient of zeros. With such a gradient an
  /// optimizer would still apply weight decay, so DataParallelStep drops it.
  std::vector<bool> reached() const;

  /// True if gradients are reduce-scattered: `scatter` with more than one process.
  bool scatters() const;
  /// Returns the range of elements of each parameter that belongs to a rank. Ranks have about
  /// equally many elements; boundaries are those of the blocks of l2_norm (norm_block).
  std::vector<ElementRange> ranges(int rank) const;
  /// All-gathers the parameters: every rank contributes the values in its ranges.
  void share_parameters();

  /// Returns the statistics so far.
  Communication communication() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // the hooks of the parameters hold weak pointers
};

}  // namespace stretto::nn
