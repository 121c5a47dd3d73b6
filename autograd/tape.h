// The tape: how ops record their backward closures, and how gradients are computed.
//
// Every op, built in or user-defined, ends with record(): forward and backward are one function.
//
//     Tensor exp(const Tensor& x) {
//       Tensor y = ...;  // any computation on raw data
//       return record("exp", {x}, y, [](Backward& b) { return Tensors{b.grad() * b.output()}; });
//     }
//
// The closure gets the gradient of the output and returns one gradient per input, in order; an
// undefined gradient means zero. A closure that uses only differentiable ops can be differentiated
// again; the closure of a fused op calls composed_gradient() for that. A closure captures the
// inputs it needs as Saved objects, which detect changes made in place after the forward pass.
//
// Nodes form a graph from outputs to inputs. The backward pass visits nodes in reverse creation
// order, so gradients are always summed in the same order and repeated backward passes are
// bit-identical. Neither the traversal nor the destruction of long chains uses recursion.
#pragma once

#include <atomic>
#include <functional>
#include <initializer_list>
#include <memory>
#include <utility>
#include <vector>

#include "../core/tensor.h"
#include "../core/thread_state.h"

namespace stretto {

/// True if ops are recorded on this thread (the default). Bodies of parallel_for inherit it.
inline bool grad_enabled() { return thread_state.recording; }

/// Turns recording on or off for a scope: `GradMode guard(true);`.
class GradMode {
 public:
  /// Starts the scope.
  explicit GradMode(bool enabled)
      : before_(thread_state.recording), before_later_(thread_state.recorded_later) {
    thread_state.recording = enabled;
    thread_state.recorded_later = enabled && thread_state.first_run;
  }
  ~GradMode() {
    thread_state.recording = before_;
    thread_state.recorded_later = before_later_;
  }
  GradMode(const GradMode&) = delete;
  GradMode& operator=(const GradMode&) = delete;

 private:
  bool before_, before_later_;
};
/// Turns recording off for a scope: `NoGrad guard;`.
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

/// Turns anomaly detection on or off (the default). While it is on, the results of every op and of
/// every backward closure are checked: an Error that names the op is thrown if NaN or infinity
/// results from finite inputs. Slow; for debugging.
void set_anomaly_detection(bool on);
/// True if anomaly detection is on.
bool anomaly_detection();

/// A tensor saved for the backward pass. If the op that computed the tensor can recompute it
/// (rematerialize), and the tensor was not changed in place since, it is not stored, but recomputed
/// when it is first read. Saving a leaf keeps the leaf's data alive, but not its handles or its
/// gradient.
class Saved {
 public:
  Saved() = default;
  /// Saves x.
  Saved(const Tensor& x);
  /// Returns the tensor. Throws if its storage was changed in place after it was saved; the error
  /// names the op whose backward closure is running.
  const Tensor& operator()() const;
  /// True unless an undefined tensor was saved.
  bool defined() const { return x_.defined() || again_; }

 private:
  mutable Tensor x_;  // with the tape entry of the saved tensor
  mutable uint32_t version_ = 0;
  std::shared_ptr<const std::function<Tensor()>> again_;
};

/// Returns the saved tensors, in order.
Tensors values_of(const std::vector<Saved>& saved);

/// Lets later ops recompute x in the backward pass instead of saving it. x is an output that an op
/// has just recorded. `again` runs in the backward pass and recomputes x from tensors that the op
/// saves for its own backward closure anyway. For ops whose outputs are large and cheap to compute.
/// Has no effect if x is not on the tape.
void rematerialize(const Tensor& x, std::function<Tensor()> again);

struct Engine;  // autograd/engine.h
struct Node;

/// The argument of a backward closure: the gradients of the op's outputs.
class Backward {
 public:
  /// Returns the gradient of output i; zeros of its shape if no gradient reached the output.
  const Tensor& grad(size_t i = 0);
  /// True if a gradient reached output i.
  bool reached(size_t i) const { return grads_[i].defined(); }
  /// Returns the same gradient and drops this object's own reference. If the returned tensor is
  /// then unique(), the closure may overwrite it. May be called once for each i.
  Tensor take_grad(size_t i = 0);
  /// Returns the gradient that input i has received from other ops so far, and takes it: the closure
  /// must add it to the gradient that it returns for input i, which saves a pass over the tensor.
  /// Undefined if there is none, for leaves, with create_graph and under anomaly detection; if it is
  /// not in the dtype of the input (a sum in f32), or has been taken three times (a sum in bf16 is
  /// then continued in f32). The closure may overwrite the tensor only with `to_overwrite`, which
  /// returns it only if it is contiguous and unique().
  Tensor take_pending(size_t i, bool to_overwrite = false);
  /// Returns output i of the forward pass. Only for ops recorded with Keep::outputs.
  Tensor output(size_t i = 0) const;
  /// True if the gradient of input i is needed. If not, the closure may return an undefined tensor.
  bool needs(size_t i) const;
  /// Returns a number that identifies the running backward pass.
  uint64_t pass() const;
  /// True if a backward closure is running on this thread.
  static bool running() { return thread_state.backward_op != nullptr; }

 private:
  friend struct Engine;
  friend class Saved;
  Backward(Engine& engine, Node& node, Tensors grads);
  ~Backward() { thread_state.backward_op = outer_; }
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;
  const char* outer_;
  Engine& engine_;
  Node& node_;
  Tensors grads_;
};

/// A backward closure: returns one gradient per input of the op, in order.
using BackwardFn = std::function<Tensors(Backward&)>;

/// What record() saves for Backward::output().
enum class Keep {
  nothing,  ///< The default.
  outputs   ///< The op's outputs; they stay in memory until the backward pass.
};

/// True if an op with these inputs must be recorded: recording is on and an input
/// requires a gradient.
bool recording(std::initializer_list<Tensor> inputs);
/// True if an op with these inputs must be recorded.
bool recording(const Tensors& inputs);

/// Ends an op with one output: puts the output on the tape if one of `inputs` requires a gradient
/// and recording is on. Returns `output`, which must be a new tensor (a view of an input is fine).
/// User-defined ops get their gradients in the same way (docs/add-an-op.md).
Tensor record(const char* op, const Tensors& inputs, Tensor output, BackwardFn backward,
              Keep keep = Keep::nothing);
/// Ends an op with several outputs.
Tensors record(const char* op, const Tensors& inputs, Tensors outputs, BackwardFn backward,
               Keep keep = Keep::nothing);

/// Checks that an op may change x in place. Throws if x requires a gradient while recording is on,
/// if several elements of x are at the same address, as in expanded views, or if x was made outside
/// of the function that recompute() runs.
void check_in_place(const char* op, const Tensor& x);

/// Returns the gradients of `inputs`. For backward closures of fused ops, while the backward pass
/// itself is recorded (grad_enabled() is true in the closure). Runs f, the composed implementation
/// of the op, and differentiates the ops that f records, starting from the gradients of the op's
/// outputs. Second derivatives of fused ops are computed in this way.
///
///     if (grad_enabled()) return composed_gradient(b, composed_form, {x(), w()});
Tensors composed_gradient(Backward& b, const std::function<Tensor(const Tensors&)>& f,
                          const Tensors& inputs);
/// Returns the same for an op with several outputs.
Tensors composed_gradient(Backward& b, const std::function<Tensors(const Tensors&)>& f,
                          const Tensors& inputs);

/// Adds the gradients of Σ outputs·gradients to grad() of every leaf that requires a gradient. A
/// gradient of an output may be omitted if the output has a single element; it is then 1. If a leaf
/// already has a gradient, the new one is added to it in place, provided that the old one is
/// contiguous and does not itself require a gradient. Otherwise, and with create_graph, the sum is
/// a new tensor; create_graph records the addition. Backward passes on several threads may share
/// leaves if each pass has its own graph: the gradients of a leaf are then added in the order in
/// which they are computed. Two backward passes over one graph at the same time are an error.
void backward(const Tensors& outputs, const Tensors& gradients = {}, BackwardOptions options = {});

/// Returns the same gradients for `inputs`, and does not change the gradients of leaves. Throws if
/// an input does not require a gradient. The result for an input that the outputs do not depend on
/// is an undefined tensor (PyTorch's allow_unused = True). Visits only ops on a path to one of the
/// inputs.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& gradients = {},
             BackwardOptions options = {});

/// Returns f(inputs) without saving the intermediate results of f: the backward pass runs f again
/// (Chen et al., "Training deep nets with sublinear memory cost", 2016). The second run gets the
/// same random numbers and recorded values as the first run; autograd/recompute.h lists the calls
/// in f that raise an error. Parameters used inside f get their gradients too, also from grad().
/// Results and gradients are bit-identical to those without recompute() (docs/determinism.md).
Tensor recompute(std::function<Tensor(const Tensors&)> f, const Tensors& inputs);

/// One recorded op.
struct Node : std::enable_shared_from_this<Node> {
  const char* op = "";  ///< Name of the op.
  uint64_t number = 0;  ///< Position in the order of creation.
  /// Null for inputs that need no gradient. For recompute(), the leaves that its function reads
  /// follow the inputs.
  std::vector<std::shared_ptr<TapeEntry>> inputs;
  BackwardFn backward;  ///< The closure; null after it was freed.
  /// Whether the closure can run, is running, or has run and was freed.
  enum class State { ready, running, spent };
  std::atomic<State> state{State::ready};  ///< The current state.
  Node* next_to_delete = nullptr;          ///< Links nodes that are being destroyed.
  /// One output of the op.
  struct Output {
    Shape shape;            ///< Shape of the output and of its gradient.
    TensorOptions options;  ///< Dtype and device of the output.
    /// The output itself, only with Keep::outputs. Detached from the tape, because its tape entry
    /// owns this node (a reference cycle).
    Tensor kept;
    uint32_t version = 0;            ///< Version of the storage of `kept` when it was saved.
    std::weak_ptr<TapeEntry> entry;  ///< The tape entry of the output's handles.
  };
  std::vector<Output> outputs;  ///< The outputs, in the order of record().
};

/// The accumulated gradient of a leaf.
struct Gradient {
  Tensor value;  ///< The gradient in the leaf's dtype: grad().
  /// For a bf16 leaf, from the second backward pass on: the sum in f32; `value` is this sum rounded
  /// to bf16. Valid only while the storage version of `value` equals `version`.
  Tensor sum;
  uint32_t version = 0;  ///< Storage version of `value` when `sum` was computed.
};

/// A tensor's entry on the tape: a leaf, which collects a gradient, or output `index` of `node`.
struct TapeEntry {
  bool requires_grad = false;  ///< True if backward() computes a gradient for the tensor.
  std::shared_ptr<Node> node;  ///< The op that computed the tensor; null for a leaf.
  size_t index = 0;            ///< Which output of `node` the tensor is.
  uint64_t number = 0;         ///< Position of a leaf in the order of creation of nodes and leaves.
  /// The gradient of a leaf, owned by the leaf's handles. A weak reference, because with
  /// create_graph the gradient's own graph may own this entry (a reference cycle).
  std::weak_ptr<Gradient> grad;
  Shape shape;        ///< Shape of a leaf.
  DType dtype = f32;  ///< Dtype of a leaf.
  /// A gradient hook; an undefined result leaves the gradient unchanged.
  using Hook = std::function<Tensor(const Tensor&)>;
  std::vector<std::shared_ptr<Hook>> hooks;  ///< Tensor::register_hook.
  /// Tensor::register_post_accumulate_grad_hook.
  std::vector<std::shared_ptr<const std::function<void()>>> accumulated;
  std::shared_ptr<const std::function<Tensor()>> again;  ///< Recomputes the value: rematerialize().
  /// True for the result of an op in the recording run of recompute() that the recomputing run
  /// will put on the tape.
  bool recorded_later = false;
};

template <class F>
void Tensor::register_hook(F hook) const {
  check(requires_grad(), "register_hook", "the tensor does not require a gradient");
  auto called = [hook = std::move(hook)](const Tensor& g) mutable -> Tensor {
    if constexpr (std::is_void_v<decltype(hook(g))>) {
      hook(g);
      return {};
    } else {
      return hook(g);
    }
  };
  tape()->hooks.push_back(std::make_shared<TapeEntry::Hook>(std::move(called)));
}

}  // namespace stretto
