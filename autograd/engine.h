// The backward pass [autograd/tape.h]: visits nodes by falling creation number, so every node is
// reached after all its consumers, without recursion and in one fixed order.
#pragma once

#include <atomic>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tape.h"

namespace stretto {

/// Puts outputs on the tape, unconditionally (record, checkpoint).
void attach(const char* op, const Tensors& inputs, Tensors& outputs, BackwardFn backward,
            Keep keep);

/// Whether a gradient of x will be wanted: it requires one, or does so when the function whose
/// first run by checkpoint() made it is run again.
bool leads_back(const Tensor& x);

/// Whether no floating tensor has NaN or infinity (anomaly detection).
bool all_finite(const Tensors& tensors);

/// The same tensors, each a node of its own: where a pass inside a closure ends.
Tensors aliases(const Tensors& inputs);

struct Engine {
  const uint64_t pass = next_pass();
  BackwardOptions options;
  /// For grad(): the gradients of the tensors asked for; nothing arrives in leaves.
  bool capture = false;
  std::unordered_map<TapeEntry*, Tensor> captured;
  /// For a pass inside a closure of another: that takes what arrives in leaves that are not
  /// captured here, as if they were its own.
  Engine* outer = nullptr;

  /// Whether some leaf has hooks that wait for its whole gradient: passes look for them then.
  static inline std::atomic<bool> any_leaf_hooks = false;

  void start(const char* op, const Tensors& outputs, const Tensors& gradients);
  void run();

  /// The gradients of `inputs`, leaves or aliases(), from those that have arrived at `outputs`:
  /// what a closure has just computed from them again, for checkpoint() and composed_gradient().
  /// Recorded where the closure is.
  static Tensors inner(Backward& b, const Tensors& outputs, const Tensors& inputs);
  /// For grad(): of the nodes below `outputs`, the pass goes through those alone that lead to what
  /// is captured.
  void keep_to_captured(const Tensors& outputs);

 private:
  struct ByNumber {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->number < b->number;
    }
  };
  static uint64_t next_pass();
  bool goes_through(const Node& node) const;
  void send(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void arrive_at_leaf(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void finish_leaf(TapeEntry& entry, Tensor g);
  void find_waiting_leaves();
  void finish_waiting_leaves(uint64_t next);

  bool keeps_to_ways_ = false;
  std::unordered_set<const Node*> ways_;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, ByNumber> queue_;
  std::unordered_map<Node*, Tensors> pending_;
  // A leaf's hooks see the sum of a pass; all of it arrives before the pass ends.
  std::vector<std::shared_ptr<TapeEntry>> leaf_order_;
  std::unordered_map<TapeEntry*, Tensor> leaves_;
  // Leaves with hooks for a whole gradient, which is there when no node from `number` on is left:
  // the last of them to be visited first.
  struct Waiting {
    uint64_t number;
    std::shared_ptr<TapeEntry> leaf;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace stretto
