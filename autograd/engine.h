// The backward pass [autograd/tape.h]. Visits nodes in reverse creation order, so every node comes
// after all its consumers, without recursion and always in the same order.
#pragma once

#include <atomic>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tape.h"

namespace stretto {

/// Puts outputs on the tape, unconditionally (for record and checkpoint).
void attach(const char* op, const Tensors& inputs, Tensors& outputs, BackwardFn backward,
            Keep keep);

/// True if a gradient of x will be needed: x requires one, or x was computed in the recording run
/// of checkpoint() and will require one in the recomputing run.
bool leads_back(const Tensor& x);

/// True if no floating tensor contains NaN or infinity (anomaly detection).
bool all_finite(const Tensors& tensors);

/// Returns the same tensors, each behind a node of its own, at which an inner pass ends.
Tensors aliases(const Tensors& inputs);

/// One backward pass.
struct Engine {
  const uint64_t pass = next_pass();
  BackwardOptions options;
  /// For grad(): fills `captured` with the gradients of its keys and adds nothing to leaves.
  bool capture = false;
  std::unordered_map<TapeEntry*, Tensor> captured;
  /// For a pass inside a backward closure: the pass that runs the closure. It receives the
  /// gradients of leaves that are not captured here.
  Engine* outer = nullptr;

  /// True once a leaf has a post-accumulate hook; only then do passes search for such leaves.
  static inline std::atomic<bool> any_leaf_hooks = false;

  /// Checks `gradients` and queues the nodes of `outputs`.
  void start(const char* op, const Tensors& outputs, const Tensors& gradients);
  /// Visits all queued nodes and those below them.
  void run();

  /// For checkpoint() and composed_gradient(), whose closure has just computed `outputs` from
  /// `inputs` (leaves or aliases()): returns the gradients of `inputs`, starting from the gradients
  /// in b. Recorded if the closure is.
  static Tensors inner(Backward& b, const Tensors& outputs, const Tensors& inputs);
  /// For grad(): visit only nodes on a path from `outputs` to a captured tensor.
  void restrict_to_captured(const Tensors& outputs);

 private:
  struct ByNumber {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->number < b->number;
    }
  };
  static uint64_t next_pass();
  bool runs_closure_of(const Node& node) const;
  void send(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void arrive_at_leaf(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void finish_leaf(TapeEntry& entry, Tensor g);
  void find_waiting_leaves();
  void finish_waiting_leaves(uint64_t next);

  bool restricted_ = false;
  std::unordered_set<const Node*> on_path_;  // if restricted_: nodes that lead to a captured tensor
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, ByNumber> queue_;
  std::unordered_map<Node*, Tensors> pending_;  // gradients of outputs of queued nodes, so far
  // Gradients of leaves, summed over the pass before their hooks run.
  std::vector<std::shared_ptr<TapeEntry>> leaf_order_;
  std::unordered_map<TapeEntry*, Tensor> leaves_;
  // Leaves with post-accumulate hooks and the lowest number of a node that still adds to their
  // gradient, in ascending order: the next one to complete is the last.
  struct Waiting {
    uint64_t number;
    std::shared_ptr<TapeEntry> leaf;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace stretto
