#include "autograd/tape.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "autograd/engine.h"
#include "autograd/last_leaves.h"
#include "autograd/profile.h"
#include "autograd/recompute.h"

namespace stretto {
namespace {

std::atomic<bool> anomaly_on{false};
std::atomic<uint64_t> next_number{1};

// Deletes a node without recursion. Its closure and inputs may own the last reference to another
// node, and so on along a chain of any length, so nodes are queued here and deleted one by one.
void delete_node(Node* node) {
  // A pointer, not a container: static tensors are destroyed after the thread-local objects of the
  // main thread, when a container would already be gone.
  thread_local Node* waiting = nullptr;
  thread_local bool draining = false;
  node->next_to_delete = waiting;
  waiting = node;
  if (draining) return;
  draining = true;
  while (waiting) {
    Node* next = waiting;
    waiting = next->next_to_delete;
    delete next;
  }
  draining = false;
}

// True while all_finite() reads tensors: the ops that all_finite() runs are not checked.
thread_local bool checking_finite = false;

Gradient& gradient_of(const Tensor& x) {
  if (!x.gradient()) x.gradient() = std::make_shared<Gradient>();
  return *x.gradient();
}

// Recording replaces the tape entry of each output. Throws if an output is the same tensor as an
// input, a parameter or another output, whose entry must not be replaced.
void check_outputs(const char* op, const Tensors& inputs, const Tensors& outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    if (!y.defined() || !is_floating(y.dtype())) continue;
    const char* what =
        y.requires_grad() && y.is_leaf() ? "is a leaf that requires a gradient" : nullptr;
    for (const Tensor& x : inputs)
      if (y.same(x)) what = "is one of its inputs";
    for (size_t j = 0; j < i; ++j)
      if (y.same(outputs[j])) what = "is the same tensor as another output";
    if (what)
      fail(op, "output ", int64_t(i), " (", y, ") ", what,
           "; record() needs new tensors (detach() makes one)");
  }
}

// Called instead of attach() in the recording run of recompute().
void mark_outputs(const char* op, const Tensors& inputs, Tensors& outputs) {
  if (std::none_of(inputs.begin(), inputs.end(), leads_back)) return;
  check_outputs(op, inputs, outputs);
  for (Tensor& y : outputs) {
    if (!y.defined() || !is_floating(y.dtype())) continue;
    y.tape() = std::make_shared<TapeEntry>();
    y.tape()->recorded_later = true;
  }
}

std::shared_ptr<TapeEntry> output_entry(std::shared_ptr<Node> node, size_t index) {
  auto entry = std::make_shared<TapeEntry>();
  entry->requires_grad = true;
  entry->index = index;
  node->outputs[index].entry = entry;
  entry->node = std::move(node);
  return entry;
}

}  // namespace

bool leads_back(const Tensor& x) {
  return x.defined() && x.tape() && (x.tape()->requires_grad || x.tape()->recorded_later);
}

bool all_finite(const Tensors& tensors) {
  if (checking_finite) return true;
  struct Scope {
    Scope() { checking_finite = true; }
    ~Scope() { checking_finite = false; }
  } scope;
  for (const Tensor& x : tensors) {
    if (!x.defined() || !is_floating(x.dtype())) continue;
    for (double v : x.to_vector<double>())
      if (!std::isfinite(v)) return false;
  }
  return true;
}

void attach(const char* op, const Tensors& inputs, Tensors& outputs, BackwardFn backward,
            Keep keep) {
  std::shared_ptr<Node> node(new Node, delete_node);
  node->op = op;
  node->number = next_number++;
  for (const Tensor& x : inputs)
    node->inputs.push_back(x.defined() && x.requires_grad() ? x.tape() : nullptr);
  check_outputs(op, inputs, outputs);
  node->backward = std::move(backward);
  node->outputs.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    Tensor& y = outputs[i];
    if (!y.defined() || !is_floating(y.dtype())) continue;
    Node::Output& slot = node->outputs[i];
    slot.shape = y.shape();
    slot.options = options_of(y);
    if (keep == Keep::outputs) {
      slot.kept = y.detach();
      slot.version = y.storage().version;
    }
    y.tape() = output_entry(node, i);
  }
}

void set_anomaly_detection(bool on) { anomaly_on = on; }
bool anomaly_detection() { return anomaly_on; }

Backward::Backward(Engine& engine, Node& node, Tensors grads)
    : outer_(thread_state.backward_op), engine_(engine), node_(node), grads_(std::move(grads)) {
  thread_state.backward_op = node.op;
}

Saved::Saved(const Tensor& x) {
  if (!x.defined()) return;
  // Recompute x only if the version is 0: x is then unchanged since its op computed it.
  if (x.tape() && x.tape()->again && x.storage().version == 0) {
    again_ = x.tape()->again;
    return;
  }
  x_ = x;
  if (x.requires_grad() && x.is_leaf()) {
    // The leaf's own handle is not saved: it owns the leaf's gradient, and the graph of that
    // gradient may own this Saved (a reference cycle).
    x_ = x.detach();
    x_.tape() = x.tape();
  }
  version_ = x.storage().version;
}

Tensors values_of(const std::vector<Saved>& saved) {
  Tensors values;
  for (const Saved& x : saved) values.push_back(x());
  return values;
}

void rematerialize(const Tensor& x, std::function<Tensor()> again) {
  if (x.tape() && x.tape()->node)
    x.tape()->again = std::make_shared<const std::function<Tensor()>>(std::move(again));
}

const Tensor& Saved::operator()() const {
  // A value computed while recording was off has no gradients of its own.
  if (again_ && (!x_.defined() || (grad_enabled() && !x_.requires_grad()))) {
    x_ = (*again_)();
    version_ = x_.storage().version;
  }
  check(!x_.defined() || x_.storage().version == version_,
        Backward::running() ? thread_state.backward_op : "backward", "a tensor (", x_,
        ") that the backward pass needs was changed in place after it was used; clone() it first");
  return x_;
}

const Tensor& Backward::grad(size_t i) {
  Tensor& g = grads_[i];
  if (!g.defined()) {
    const Node::Output& out = node_.outputs[i];
    g = empty(out.shape, out.options).zero_();
  }
  return g;
}

Tensor Backward::take_grad(size_t i) {
  grad(i);
  return std::exchange(grads_[i], {});
}

Tensor Backward::output(size_t i) const {
  const Node::Output& out = node_.outputs[i];
  check(out.kept.defined(), node_.op, "output ", i,
        " was not saved for the backward pass; record() needs Keep::outputs");
  check(out.kept.storage().version == out.version, node_.op,
        "the output was changed in place, but the backward pass needs it; clone() it first");
  Tensor y = out.kept.detach();
  if (!grad_enabled()) return y;
  y.tape() = out.entry.lock();
  if (!y.tape()) y.tape() = output_entry(node_.shared_from_this(), i);  // all its handles are gone
  return y;
}

bool Backward::needs(size_t i) const { return node_.inputs[i] != nullptr; }

Tensor Backward::take_pending(size_t i, bool to_overwrite) {
  return engine_.take_pending(node_.inputs[i].get(), to_overwrite);
}

uint64_t Backward::pass() const { return engine_.pass; }

bool recording(std::initializer_list<Tensor> inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

bool recording(const Tensors& inputs) {
  if (!grad_enabled()) return false;
  for (const Tensor& x : inputs)
    if (x.defined() && x.requires_grad()) return true;
  return false;
}

Tensors record(const char* op, const Tensors& inputs, Tensors outputs, BackwardFn backward,
               Keep keep) {
  profile_op(op);
  if (thread_state.recompute) thread_state.recompute->note_reads(op, inputs);
  if (anomaly_on) {
    check(all_finite(outputs) || !all_finite(inputs), op,
          "this op produced NaN or infinity from finite inputs (anomaly detection)");
  }
  if (recording(inputs)) {
    attach(op, inputs, outputs, std::move(backward), keep);
  } else if (thread_state.recorded_later) {
    mark_outputs(op, inputs, outputs);
  }
  return outputs;
}

Tensor record(const char* op, const Tensors& inputs, Tensor output, BackwardFn backward,
              Keep keep) {
  if (!anomaly_on && !thread_state.recompute && !recording(inputs)) {
    profile_op(op);
    return output;
  }
  return record(op, inputs, Tensors{std::move(output)}, std::move(backward), keep)[0];
}

void check_in_place(const char* op, const Tensor& x) {
  check_defined(op, x);
  if (thread_state.recompute) thread_state.recompute->check_in_place(op, x);
  check(!(grad_enabled() && x.requires_grad()), op, "the tensor (", x,
        ") requires a gradient and cannot be changed in place while ops are recorded; use NoGrad, "
        "or an op that returns a new tensor");
  check(!overlaps_itself(x), op, "the tensor (", x, ") with strides ", x.strides(),
        " has several elements at one address and cannot be changed in place; change a clone()");
}

bool Tensor::requires_grad() const { return defined() && tape() && tape()->requires_grad; }

bool Tensor::is_leaf() const { return !tape() || !(tape()->node || tape()->recorded_later); }

uint64_t next_tape_number() { return next_number; }

Tensor Tensor::set_requires_grad(bool value) const {
  check(!value || is_floating(dtype()), "set_requires_grad",
        "only floating-point tensors have gradients; got ", *this);
  check(is_leaf(), "set_requires_grad",
        "the tensor is the result of a recorded op; detach() it first");
  if (!tape()) {
    tape() = std::make_shared<TapeEntry>();
    tape()->number = next_number++;
    tape()->shape = shape();
    tape()->dtype = dtype();
    gradient_of(*this);
    tape()->grad = gradient();
  }
  tape()->requires_grad = value;
  return *this;
}

void Tensor::register_post_accumulate_grad_hook(std::function<void()> hook) const {
  check(requires_grad() && is_leaf(), "register_post_accumulate_grad_hook",
        "the tensor must be a leaf that requires a gradient");
  tape()->accumulated.push_back(std::make_shared<const std::function<void()>>(std::move(hook)));
  Engine::any_leaf_hooks = true;
}

Tensor Tensor::grad() const { return gradient() ? gradient()->value : Tensor(); }

void Tensor::set_grad(const Tensor& gradient) const {
  check(!gradient.defined() || gradient.shape() == shape(), "set_grad", "the gradient (", gradient,
        ") must have the shape of the tensor (", *this, ")");
  gradient_of(*this) = {.value = gradient, .sum = {}};
}

void Tensor::set_data(const Tensor& other) const {
  check(is_leaf(), "set_data", "the tensor (", *this, ") is the result of a recorded op");
  check(!requires_grad() || is_floating(other.dtype()), "set_data", other, " cannot replace ",
        *this, ", which requires a gradient");
  if (thread_state.recompute) thread_state.recompute->check_in_place("set_data", *this);
  const auto entry = tape();
  const auto slot = gradient();
  // Both storages, old and new, get a new version, so that a Saved of either detects the change.
  const uint32_t version = ++storage().version;
  *impl_ = other.get();
  gradient() = slot;
  if (slot) *slot = {};
  storage().version = std::max(storage().version, version) + 1;
  tape() = entry;
  if (!entry) return;
  entry->shape = shape();
  entry->dtype = dtype();
}

Tensor Tensor::detach() const { return make_view(*this, offset(), shape(), strides()); }

void Tensor::backward(const Tensor& gradient, BackwardOptions options) const {
  stretto::backward({*this}, gradient.defined() ? Tensors{gradient} : Tensors{}, options);
}

}  // namespace stretto
