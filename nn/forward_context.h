// What the modules of a model share during one forward pass.
//
// A model begins a pass by begin_forward() and passes the context to its layers. A module that is
// called without one shares nothing. Copies are of one pass. A function for checkpoint()
// (autograd/tape.h) captures the context by value, because it runs again when the model's call has
// returned:
//
//     const nn::ForwardContext forward = nn::begin_forward();
//     for (const nn::TransformerLayer& layer : layers)
//       x = checkpoint([&layer, forward](const Tensors& in) {
//         return layer(in[0], {.causal = true}, nullptr, forward);
//       }, {x});
//
// Reference: none (an argument of modules)
#pragma once

#include <any>
#include <map>
#include <memory>

#include "../core/tensor.h"

namespace stretto::nn {

class ProcessGroup;  // nn/distributed/process_group.h

/// Values that the layers of one pass share, by the object that they belong to.
class PassStore {
 public:
  /// Returns the T of `owner` in this pass, T() at first. An owner has values of one type.
  template <class T>
  T& of(const void* owner) {
    std::any& value = values_[owner];
    if (!value.has_value()) value = T();
    return std::any_cast<T&>(value);
  }

 private:
  std::map<const void*, std::any> values_;
};

struct ForwardContext {
  /// The processes that share the sequences, of which each has a range of positions
  /// (nn/distributed/sequence.h); null if each process has whole sequences. The group outlives what
  /// is differentiated.
  ProcessGroup* sequence_group = nullptr;
  int64_t first_position = 0;  ///< Position of the first row in the whole sequence.
  /// A table of positions that a model computes once for all layers; each Position says which.
  Tensor shared_table = {};
  std::shared_ptr<PassStore> store = {};  ///< Null if nothing is shared.
};

/// Returns the context of a new pass. If `sequence_group` has several processes, n is the number of
/// positions that each of them has: r n … (r + 1) n − 1 on process r.
ForwardContext begin_forward(ProcessGroup* sequence_group = nullptr, int64_t n = 0);

}  // namespace stretto::nn
