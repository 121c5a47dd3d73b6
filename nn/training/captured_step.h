// CUDA graph capture and replay of a training step: nn::CapturedStep.
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

/// Runs a training step eagerly `warmup` times, then captures it as a CUDA graph and replays it.
/// A replay is one launch without host work. Losses, weights and random numbers are bit-identical
/// to those of eager calls. On the CPU every call is eager.
///
/// The key of a call selects the graph, e.g. one per sequence length. The first 16 keys get a graph
/// each, with warm-up calls of their own; calls with a later or a negative key are eager.
///
/// A replay does the same work on the same memory. The step must therefore read its batch either
/// from tensors of fixed shape that the caller fills by copy_(), or from stage() (nn/data/stage.h).
/// The step must not read results on the host or branch on them. The next call overwrites the
/// tensor that a call has returned. The learning rate may change between calls; parameters, dropout
/// rates and shapes may not. Gradients and optimizer state allocated during capture keep their
/// memory. A step without zero_grad() adds bf16 gradients to sums in f32, which a change of the
/// gradients between two calls does not reach. A step that copies to or from the host, or
/// synchronizes, throws Error during capture; nothing is computed.
class CapturedStep {
 public:
  /// The step: computes and returns a tensor, e.g. the loss.
  using Step = std::function<Tensor()>;
  /// `warmup` is the number of eager calls per key before the capture, at least 1.
  CapturedStep(Device device, Step step, int warmup = 2);
  ~CapturedStep();
  CapturedStep(const CapturedStep&) = delete;
  CapturedStep& operator=(const CapturedStep&) = delete;

  /// Runs the step, or replays its graph, and returns its tensor.
  Tensor operator()(int64_t key = 0);
  /// True if the graph of this key has been captured, so that further calls are replays.
  bool captured(int64_t key = 0) const;

 private:
  struct Captured;
  struct Graph {
    int warmup;  // eager calls left before the capture
    std::unique_ptr<Captured> graph;
  };
  static constexpr size_t max_graphs = 16;
  const Device device_;
  const Step step_;
  const int warmup_;
  std::map<int64_t, Graph> graphs_;
};

}  // namespace stretto::nn
