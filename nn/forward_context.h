// The data that the modules of a model share during one forward pass.
//
// A model starts a forward pass by begin_forward() and gives the context to its layers. A module
// called without a context shares nothing. Copies of a context belong to the same forward pass. A
// function for recompute() (autograd/tape.h) must capture the context by value, because the
// function runs again after the model's call has returned:
//
//     const nn::ForwardContext forward = nn::begin_forward();
//     for (const nn::TransformerLayer& layer : layers)
//       x = recompute([&layer, forward](const Tensors& in) {
//         return layer(in[0], {.causal = true}, nullptr, forward);
//       }, {x});
//
// Reference: none (an argument of modules)
#pragma once

#include <any>
#include <map>
#include <memory>
#include <vector>

#include "../core/tensor.h"

namespace stretto::nn {

class ProcessGroup;  // nn/distributed/process_group.h

/// Values that the layers share during one forward pass, stored by the object that owns them.
class PassStore {
 public:
  /// Returns the T of `owner` in this forward pass, initially T(). An owner must always use the
  /// same type.
  template <class T>
  T& of(const void* owner) {
    std::any& value = values_[owner];
    if (!value.has_value()) value = T();
    return std::any_cast<T&>(value);
  }

 private:
  std::map<const void*, std::any> values_;
};

/// The context of one forward pass.
struct ForwardContext {
  /// Sequence parallelism: the processes that each have a range of the positions
  /// (nn/distributed/sequence.h); null if each process has whole sequences. The group must outlive
  /// the backward pass.
  ProcessGroup* sequence_group = nullptr;
  int64_t first_position = 0;  ///< Position of the first row in the whole sequence.
  /// Left padding, for sequences of unequal length in one batch: the number of positions at the
  /// start of each sequence that are ignored; empty: none. first_position counts them, but token i
  /// after the padding has the position i of absolute encodings. Self-attention and
  /// AbsolutePosition support it.
  std::vector<int64_t> left_padding = {};
  /// Packed sequences: the segment of each position, i64 or i32 [B, L] (AttentionMask::segments).
  /// Self-attention sees only the positions of the same segment, and absolute positions restart at
  /// 0 in each run of equal ids, so that each document of a row has the result that it has by
  /// itself. Not supported with a cache, a memory, padding or sequence parallelism, by positional
  /// encodings that are not relative (PositionalEncoding::is_relative), by LinearKernel, and by
  /// blocks.
  Tensor segments = {};
  /// Prefix-LM: the number of positions at the start of each sequence that attend to each other in
  /// both directions, i64 or i32 [B] (AttentionMask::prefix_lengths). Causal self-attention uses
  /// it. Not supported with padding. With a cache, the first call must have the whole prefix, and
  /// only that call needs the lengths.
  Tensor prefix_lengths = {};
  /// A table of positions that the model computes once for all layers; its meaning depends on
  /// the encoding (RelativeSinusoid).
  Tensor shared_table = {};
  std::shared_ptr<PassStore> store = {};  ///< Null if nothing is shared.

  /// Adds a term, a scalar, to the loss of the training step, such as the balance of experts. Does
  /// nothing if nothing is shared. Throws within recompute(), which would lose its gradient.
  void add_loss(const Tensor& term) const;
  /// Returns `loss` plus the terms that the modules of this pass have added:
  ///
  ///     const nn::ForwardContext forward = nn::begin_forward();
  ///     const Tensor loss = forward.total_loss(mean(model.nll(tokens, targets, forward)));
  Tensor total_loss(const Tensor& loss) const;
};

/// Returns the context of a new forward pass. If `sequence_group` has several processes, n is the
/// number of positions of each: process r has positions r·n … (r + 1)·n − 1.
ForwardContext begin_forward(ProcessGroup* sequence_group = nullptr, int64_t n = 0);

}  // namespace stretto::nn
