// Connectionist temporal classification (Graves et al. 2006): the loss of a sequence of labels
// without alignment to the frames, for speech and handwriting.
// Reference: tests/reference/ctc.cpp, ctc()
#pragma once

#include "loss.h"

namespace stretto {

/// Options of ctc_loss().
struct CtcOptions {
  int64_t blank = 0;  ///< The class that stands for "no label".
  /// Reduction::mean divides each loss by the length of its target (at least 1), then averages, as
  /// in PyTorch.
  Reduction reduction = Reduction::mean;
  /// Replaces infinite losses by 0. A loss is infinite if no path has the target's labels, because
  /// there are too few frames or all such paths have probability 0.
  bool zero_infinity = false;
};

/// Computes −log Σ_paths Π_t p[t, path_t] over all paths of one class per frame that give the
/// target after repeated classes are merged and blanks removed.
///
/// log_p [T, N, C] are log probabilities, for example from log_softmax; targets [N, S] (i64 or i32)
/// are classes other than the blank, of which target_lengths [N] count; input_lengths [N] are
/// numbers of frames, 1 to T. → 0-d, or [N] with Reduction::none.
///
/// Sums are in log space and f64 on the CPU. The gradient of log_p is −(probability of the class in
/// the frame, given the target), and 0 for an infinite loss and for frames after input_lengths. It
/// is that of log_p as independent values; PyTorch's gradient differs by the softmax, which the
/// gradient of log_softmax removes. Targets and lengths are read by the host.
Tensor ctc_loss(const Tensor& log_p, const Tensor& targets, const Tensor& input_lengths,
                const Tensor& target_lengths, CtcOptions options = {});

}  // namespace stretto
