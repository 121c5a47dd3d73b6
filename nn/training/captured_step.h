// A training step that a GPU gets as one launch: nn::CapturedStep.
//
//     nn::CapturedStep step(device, [&] {
//       optimizer.zero_grad();
//       Tensor loss = cross_entropy(model(inputs), targets);
//       loss.backward();
//       nn::clip_grad_norm(model.parameters(), 1);
//       optimizer.step();
//       return loss.detach();
//     });
//     for (…) {
//       inputs.copy_(batch.inputs), targets.copy_(batch.targets);
//       const Tensor loss = step();
//     }
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "../../core/storage.h"
#include "../../core/tensor.h"

namespace stretto::nn {

/// Calls a step: the first `warmup` times as it is, then once more while the device's work is kept,
/// and from then on what was kept is done again as one launch, without the host. Losses, weights
/// and random numbers are those of plain calls, to the bit. On the CPU all calls are plain.
///
/// Calls of one `key` are one step; of each key there is a graph of its own, of the first 16 that
/// come. Calls of a negative key, and of the kinds after those, are plain.
///
/// A replay does the same work on the same memory. The step must therefore read its batch from
/// tensors that the caller fills by copy_(), of one shape, or from stage() (nn/data/stage.h); must
/// not read results on the host, nor branch on them; and what it returns is overwritten by the next
/// call. The learning rate may change between calls, parameters, dropout rates and shapes may not.
/// Gradients and states that were made in the captured call keep their memory. A step that copies
/// to or from the host, or waits, throws in the captured call; nothing is computed then.
class CapturedStep {
 public:
  using Step = std::function<Tensor()>;
  CapturedStep(Device device, Step step, int warmup = 2);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  Tensor operator()(int64_t key = 0);
  /// Whether calls of this key are replays by now.
  bool captured(int64_t key = 0) const;

 private:
  struct Captured;
  struct Graph {
    int warmup;  // calls that are still to come
    std::unique_ptr<Captured> graph;
  };
  static constexpr size_t max_graphs = 16;
  const Device device_;
  const Step step_;
  const int warmup_;
  std::map<int64_t, Graph> graphs_;
};

}  // namespace stretto::nn
