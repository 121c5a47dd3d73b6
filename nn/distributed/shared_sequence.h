// Models whose sequences are cut into pieces, one for each of several processes.
//
//     const nn::ShareSequence shared(nn::process_group());
//     Tensor loss = mean(cross_entropy(model(piece), targets_of_piece));
//
// nn::Trainer does this with TrainerOptions::sequence_parallel. What models compute then is said in
// nn/distributed/sequence.h.
#pragma once

#include <memory>

#include "process_group.h"

namespace stretto::nn {

/// For its life, on the calling thread, sequences of L positions are those of all processes of
/// `group` together: the call of a model brings positions r·L/n … (r+1)·L/n − 1 on process r of n,
/// and attention sees those before them too. LanguageModel, TransformerXL without memory, and
/// MultiHeadAttention know of it, causal and without a cache; dropout draws other numbers on each
/// process. The group must outlive what is differentiated.
class ShareSequence {
 public:
  explicit ShareSequence(ProcessGroup& group);
  ~ShareSequence();
  ShareSequence(const ShareSequence&) = delete;
  ShareSequence& operator=(const ShareSequence&) = delete;

  /// Of the calling thread; null where sequences are whole, or the group has one process.
  static ProcessGroup* group();
  /// The position of the first of n tokens that this process has.
  static int64_t first_position(int64_t n);

 private:
  ProcessGroup* const before_;
};

/// Of processes n·i … n·(i + 1) − 1 of `whole`, those that this process is among: their ranks are
/// 0 … n − 1. n divides the whole's size, and `whole` outlives them.
std::unique_ptr<ProcessGroup> neighbours(ProcessGroup& whole, int n);

}  // namespace stretto::nn
