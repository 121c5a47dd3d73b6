// Gradients of the parts of a batch, summed over all processes while backward still runs.
#pragma once

#include <memory>

#include "../../core/tensor.h"
#include "../../ops/optim.h"
#include "process_group.h"

namespace stretto::nn {

/// The rows [n, …] of all processes, in their order, on the CPU where there are several.
Tensor all_gather_rows(const Tensor& mine, ProcessGroup& group = process_group());
/// A tensor of every process takes the values that the first process has.
void broadcast(const Tensor& x, ProcessGroup& group);

/// What has been sent, and what of it was hidden behind computation.
struct Communication {
  int64_t steps = 0;
  int64_t bytes = 0;          // sent by this process
  double seconds = 0;         // that sums were on their way
  double waited_seconds = 0;  // of them, in which this process had nothing else to do
};

/// The parts of a step, a power of two, are held by the processes in order, equally many by each.
/// A parameter's gradients of two neighbouring parts are added first, then those of pairs, and so
/// on, in f32 (f64 for f64): the sum has the same bits for any number of processes. A part without
/// a gradient counts as zeros. What a process has summed goes out in buckets of parameters, in one
/// order on all, as soon as a bucket is full. A parameter that does not require a gradient when a
/// step begins gets none, on all processes alike.
class GradientReducer {
 public:
  /// `parts` is a multiple of the group's size; the group must outlive this, and its other messages
  /// wait for finish(). With `pieces` each part is cut among so many neighbouring processes, whose
  /// gradients add up to the part's, and which send each other messages while they compute: then
  /// nothing is sent before finish(). parts · pieces is a multiple of the group's size. With
  /// `scatter` each process gets the sums of its own stretches alone, for half of what is sent.
  GradientReducer(Tensors parameters, int64_t micro_batches, ProcessGroup& group,
                  int64_t sequence_size = 1, bool scatter = false);
  ~GradientReducer();

  int64_t first() const;
  int64_t count() const;  // this process has parts first() … first() + count() − 1

  /// Gradients that arrive belong to this process's next part; those that are there are dropped.
  void begin_micro_batch();
  void end_micro_batch();
  /// After the last part: every parameter's grad() is the sum over all parts. With `scatter` it is
  /// zero outside of this process's stretch, and where that is empty there is none.
  void finish();
  /// Which parameters got a gradient in one of this process's parts of the last step. One that no
  /// process reached has a gradient of zeros, by which an optimizer would decay it:
  /// DataParallelStep drops it.
  std::vector<bool> reached() const;

  bool scatters() const;
  /// Which elements of each parameter are a process's: about as many as another's, and cut where
  /// l2_norm cuts its sums (norm_block).
  std::vector<ElementRange> ranges(int rank) const;
  /// The parameters take the values that each process has of its stretches.
  void share_parameters();

  Communication communication() const;

 private:
  struct State;
  std::shared_ptr<State> state_;  // which the parameters' hooks watch
};

}  // namespace stretto::nn
