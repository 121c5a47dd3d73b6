// The tape: how ops record their backward, and how gradients are asked for.
//
// Every op, ours or a user's, ends the same way. Its forward and its backward stand together:
//
//     Tensor exp(const Tensor& x) {
//       Tensor y = ...;  // any computation on raw data
//       return record("exp", {x}, y, [](Backward& b) { return Tensors{b.grad() * b.output()}; });
//     }
//
// The closure gets the gradient of the output and returns one gradient per input, in order; an
// undefined one means zero. It is written in differentiable ops, so gradients of gradients follow.
// Inputs that it needs are captured as Saved, which notices when they are overwritten in between.
//
// Nodes form a graph from outputs to inputs. Backward visits them by falling creation number, so
// every sum of gradients has one order and repeated passes have the same bits; both the walk and
// the destruction of long chains are iterative.
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

/// True while ops are recorded on this thread (the default), and in parallel_for bodies of a thread
/// where they are.
inline bool grad_enabled() { return thread_state.recording; }

/// Sets recording for a scope: `NoGrad guard;`.
class GradMode {
 public:
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
struct NoGrad : GradMode {
  NoGrad() : GradMode(false) {}
};

/// While on, every op checks its result, and every backward its gradients: the first op that turns
/// finite input into NaN or infinity throws an Error that names it. Slow; for finding faults.
void set_anomaly_detection(bool on);
bool anomaly_detection();

/// A tensor kept for the backward pass. Reading it throws when its storage has been changed in
/// place since, naming the op. One that its op can make again (rematerialize) is not kept, but made
/// when it is first read. A leaf does not stay alive by being saved, only its data.
class Saved {
 public:
  Saved() = default;
  Saved(const Tensor& x);
  const Tensor& operator()() const;
  bool defined() const { return x_.defined() || again_; }

 private:
  mutable Tensor x_;  // with the place on the tape of what was saved
  mutable uint32_t version_ = 0;
  std::shared_ptr<const std::function<Tensor()>> again_;
};

/// What was saved, in order.
Tensors values_of(const std::vector<Saved>& saved);

/// Says how to make x, an output that an op has just put on the tape, once more: from tensors that
/// the op keeps for its own backward, as Saved. Ops that need x for theirs then keep this instead
/// of x. `again` runs in the backward pass, as closures do. For ops that are cheap for the size of
/// what they give. Without effect where x is not on the tape.
void rematerialize(const Tensor& x, std::function<Tensor()> again);

struct Engine;  // autograd/engine.h
struct Node;

/// What a backward closure sees.
class Backward {
 public:
  /// Gradient of output i; zeros of its shape when nothing arrived.
  const Tensor& grad(size_t i = 0);
  /// The same, given away: what nothing else holds (unique()) may be written over. Once for each i.
  Tensor take_grad(size_t i = 0);
  /// Output i of the forward pass. Only for ops recorded with Keep::outputs.
  Tensor output(size_t i = 0) const;
  /// Whether the gradient of input i is wanted; others may be left undefined.
  bool needs(size_t i) const;
  /// A number that only the closures of this backward pass see.
  uint64_t pass() const;
  /// True inside a closure.
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

using BackwardFn = std::function<Tensors(Backward&)>;

/// Whether the closure will ask for the op's outputs; they then stay in memory until backward.
enum class Keep { nothing, outputs };

/// True when an op over these inputs has to be recorded.
bool recording(std::initializer_list<Tensor> inputs);
bool recording(const Tensors& inputs);

/// Ends an op: puts its outputs on the tape when one of `inputs` needs a gradient, else does
/// nothing. `outputs` must be new tensors (views of inputs are fine). Returns the outputs.
/// This is also the public way to give an op of your own a gradient (docs/add-an-op.md).
Tensor record(const char* op, const Tensors& inputs, Tensor output, BackwardFn backward,
              Keep keep = Keep::nothing);
Tensors record(const char* op, const Tensors& inputs, Tensors outputs, BackwardFn backward,
               Keep keep = Keep::nothing);

/// For ops that change x in place: throws when the tape would miss it, or when x shows an element
/// more than once, as expanded views do.
void check_in_place(const char* op, const Tensor& x);

/// For the backward of a fused op that is itself recorded (grad_enabled() in the closure): the
/// gradients of `inputs` from those that have arrived, by way of f, the op's composed form. It runs
/// now, and only what it records is gone through. This is how fused ops are differentiated again.
///
///     if (grad_enabled()) return composed_gradient(b, composed_form, {x(), w()});
Tensors composed_gradient(Backward& b, const std::function<Tensor(const Tensors&)>& f,
                          const Tensors& inputs);
Tensors composed_gradient(Backward& b, const std::function<Tensors(const Tensors&)>& f,
                          const Tensors& inputs);

/// Gradients of Σ outputs·gradients into every leaf that requires one. Passes of several threads
/// may end in the same leaves, each over a graph of its own: their gradients are added in the order
/// of arrival. Two passes at once over one graph are an error. A gradient that is there already is
/// added to in place, unless create_graph puts it on the tape.
void backward(const Tensors& outputs, const Tensors& gradients = {}, BackwardOptions options = {});

/// The same gradients, but returned for `inputs` and accumulated nowhere. An input that the
/// outputs do not depend on gives an undefined tensor. The pass goes through no op that leads to
/// none of the inputs.
Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& gradients = {},
             BackwardOptions options = {});

/// f(inputs) without keeping its intermediate results: backward runs f again (Chen et al.,
/// "Training deep nets with sublinear memory cost", 2016), with what the first run drew and took
/// from state that calls change (autograd/recompute.h, which also says what is refused). Gradients
/// also reach parameters used inside f.
Tensor checkpoint(std::function<Tensor(const Tensors&)> f, const Tensors& inputs);

/// One recorded op.
struct Node : std::enable_shared_from_this<Node> {
  const char* op = "";
  uint64_t number = 0;                             // creation order
  std::vector<std::shared_ptr<TapeEntry>> inputs;  // null where no gradient is wanted
  BackwardFn backward;
  enum class State { ready, running, spent };  // spent: backward has run, the closure is gone
  std::atomic<State> state{State::ready};
  Node* next_to_delete = nullptr;
  struct Output {
    Shape shape;
    TensorOptions options;
    Tensor kept;  // off the tape, else the node would own itself
    uint32_t version = 0;
    std::weak_ptr<TapeEntry> entry;
  };
  std::vector<Output> outputs;
};

/// What a leaf has collected.
struct Gradient {
  Tensor value;  // in the leaf's dtype: grad()
  /// Of a bf16 leaf from the second pass on: the f32 sum of which `value` is the rounding, as long
  /// as nobody has changed `value` since (its storage's version).
  Tensor sum;
  uint32_t version = 0;
};

/// A tensor's place on the tape: a leaf (no node) that collects its gradient, or output `index`
/// of a node.
struct TapeEntry {
  bool requires_grad = false;
  std::shared_ptr<Node> node;
  size_t index = 0;
  // Of a leaf: its handles own it, as the graph behind it may own this.
  std::weak_ptr<Gradient> grad;
  Shape shape;
  DType dtype = f32;
  using Hook = std::function<Tensor(const Tensor&)>;
  std::vector<std::shared_ptr<Hook>> hooks;
  std::vector<std::shared_ptr<const std::function<void()>>> accumulated;  // hooks of a leaf
  std::shared_ptr<const std::function<Tensor()>> again;                   // rematerialize
  /// The result of an op in the first run of checkpoint() that the second run will record.
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
