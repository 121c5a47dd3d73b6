// The backward pass (autograd/tape.h). Nodes are visited in reverse creation order. Each
// node is therefore visited after all its consumers, and the order is always the same. There
// is no recursion.
#pragma once

#include <atomic>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "tape.h"

namespace stretto {

/// Puts outputs on the tape, unconditionally. Called by record() and recompute().
void attach(const char* op, const Tensors& inputs, Tensors& outputs, BackwardFn backward,
            Keep keep);

/// True if a gradient of x will be needed: x requires one, or x was computed in the recording run
/// of recompute() and will require one in the recomputing run.
bool leads_back(const Tensor& x);

/// True if no floating-point tensor contains NaN or infinity (anomaly detection).
bool all_finite(const Tensors& tensors);

/// Returns new tensors with the same data. A tensor that requires a gradient becomes the output of
/// a separate recorded op, "alias". Engine::inner() stops at these tensors: it does not visit the
/// nodes that computed `inputs`. Undefined tensors stay undefined.
Tensors aliases(const Tensors& inputs);

/// The sum of the gradients of one tensor in a backward pass. For bf16 it is computed in f32 and
/// rounded once.
class GradientSum {
 public:
  bool defined() const { return !terms_.empty(); }
  /// Adds g. The sum is recorded on the tape if create_graph, else computed in place if no other
  /// handle refers to it.
  void add(const Tensor& g, bool create_graph);
  /// Returns the sum in this dtype, and drops it.
  Tensor take(DType dtype);
  /// The same for Backward::take_pending(): returns an undefined tensor and does nothing if the sum
  /// is not a single tensor of this dtype.
  Tensor take_single(DType dtype, bool to_overwrite);

 private:
  // One tensor, f32 for a sum of bf16 gradients; or several bf16 gradients, which are not yet
  // added, so that one op adds them.
  Tensors terms_;
  int taken_ = 0;  // by take_single()
};

/// One backward pass.
struct Engine {
  const uint64_t pass = next_pass();
  BackwardOptions options;
  /// For grad(): fills `captured` with the gradients of its keys and adds nothing to leaves.
  bool capture = false;
  std::unordered_map<const TapeEntry*, Tensor> captured;
  /// For a backward pass inside a backward closure: the backward pass that runs the closure. It
  /// receives the gradients of leaves that are not captured here, and of `outside_`.
  Engine* outer = nullptr;

  /// True once a leaf has a post-accumulate hook. Only then do backward passes search
  /// for such leaves.
  static inline std::atomic<bool> any_leaf_hooks = false;

  /// Checks `gradients` and queues the nodes of `outputs`.
  void start(const char* op, const Tensors& outputs, Tensors gradients);
  /// Visits all queued nodes and all nodes from which they were computed.
  void run();

  /// Backward::take_pending() for an input with this entry, which may be null.
  Tensor take_pending(const TapeEntry* entry, bool to_overwrite);

  /// For recompute() and composed_gradient(), whose closure has just computed `outputs` from
  /// `inputs` (leaves or aliases()): returns the gradients of `inputs`, starting from the gradients
  /// in b. Its ops are recorded if the backward pass itself is recorded (create_graph). With
  /// `add_outside`, the gradients of inputs without hooks are added one by one to those of the
  /// inputs of b's node, in the order in which they are added without recompute(), and are
  /// undefined in the result.
  static Tensors inner(Backward& b, const Tensors& outputs, const Tensors& inputs,
                       bool add_outside);
  /// For grad(), and for recompute() inside of it: restricts the backward pass to nodes on a path
  /// from `outputs` to a captured tensor, here or in `outer`.
  void restrict_to_captured(const Tensors& outputs);

 private:
  struct ByNumber {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->number < b->number;
    }
  };
  static uint64_t next_pass();
  bool is_input(const TapeEntry& entry) const;  // of the function, if `outer`
  bool needs(const TapeEntry& entry) const;     // false: its gradient is dropped
  bool runs_closure_of(const Node& node) const;
  void send(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void arrive_at_leaf(const std::shared_ptr<TapeEntry>& entry, const Tensor& g);
  void finish_leaf(const std::shared_ptr<TapeEntry>& leaf, GradientSum& sum);
  void find_waiting_leaves();
  void finish_waiting_leaves(uint64_t next);

  // If `outer`: inputs of the function whose gradients `outer` adds up, with their entries there.
  std::unordered_map<const TapeEntry*, std::shared_ptr<TapeEntry>> outside_;
  bool restricted_ = false;
  std::unordered_set<const Node*> on_path_;  // if restricted_: nodes computed from captured tensors
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, ByNumber> queue_;
  // The gradients of the outputs of queued nodes, so far.
  std::unordered_map<Node*, std::vector<GradientSum>> pending_;
  // Gradients of leaves: the sums over this backward pass, to which the hooks are then applied.
  std::vector<std::shared_ptr<TapeEntry>> leaf_order_;
  std::unordered_map<TapeEntry*, GradientSum> leaves_;
  // Leaves with post-accumulate hooks, each with the lowest number of a node that adds to its
  // gradient, sorted by that number in ascending order. They are completed from the back of the
  // vector, because nodes are visited in descending order.
  struct Waiting {
    uint64_t number;
    std::shared_ptr<TapeEntry> leaf;
  };
  std::vector<Waiting> waiting_;
};

}  // namespace stretto
