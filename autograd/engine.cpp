#include "autograd/engine.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>

#include "autograd/accumulate.h"
#include "autograd/last_leaves.h"
#include "autograd/profile.h"

namespace stretto {
namespace {

thread_local std::vector<std::weak_ptr<const TapeEntry>> reached_leaves;

// Returns a + b. The sum is recorded on the tape if create_graph, else computed in place if no
// other handle refers to a. Sums of bf16 gradients stay in f32; the consumer rounds them once.
Tensor accumulate(Tensor a, const Tensor& b, bool create_graph) {
  if (!a.defined()) return b;
  if (create_graph) {
    Tensor sum = is_narrow(a.dtype()) ? a.detach().to(f32) : a.detach().clone();
    sum.add_(b.detach());
    return record("accumulate", {a, b}, sum, [a = a.dtype(), b = b.dtype()](Backward& g) {
      return Tensors{g.grad().to(a), g.grad().to(b)};
    });
  }
  if (is_narrow(a.dtype())) {
    if (is_narrow(b.dtype())) return add_bf16({a, b}, f32);
    a = a.to(f32);
  }
  if (a.unique() && a.is_contiguous()) {
    a.add_(b);
    return a;
  }
  Tensor sum = a.clone();
  sum.add_(b);
  return sum;
}

// Loops by index because a hook may register further hooks. These first run for the next gradient.
Tensor run_hooks(const TapeEntry& entry, Tensor g) {
  const size_t count = entry.hooks.size();
  for (size_t i = 0; i < count; ++i) {
    const auto hook = entry.hooks[i];
    Tensor replaced = (*hook)(g);
    if (!replaced.defined()) continue;
    check(replaced.shape() == g.shape() && replaced.dtype() == g.dtype(), "register_hook",
          "a hook returned ", replaced, " for a gradient ", g);
    g = std::move(replaced);
  }
  return g;
}

// Adds the gradient g of one backward pass to the sum of earlier ones. For bf16 the sum is also
// stored in f32: bf16 has 8 significant bits, so a bf16 sum of equal gradients would stop growing
// at 256 times one of them.
void add_pass(Gradient& gradient, Tensor g, bool create_graph) {
  Tensor& value = gradient.value;
  if (!value.defined()) {
    // If other handles refer to g, it is copied: the leaf's gradient must not share memory.
    value = g.unique() && g.is_contiguous() ? std::move(g) : g.clone();
    return;
  }
  // The sum is computed in place, so that handles to the gradient stay valid.
  const bool in_place = !create_graph && !value.requires_grad() && value.is_contiguous();
  if (!is_narrow(value.dtype())) {
    if (in_place) {
      value.add_(g);
    } else {
      value = accumulate(std::move(value), g, create_graph);
    }
    return;
  }
  const bool changed = !gradient.sum.defined() || value.storage().version != gradient.version;
  Tensor sum = changed ? value : std::exchange(gradient.sum, {});
  sum = accumulate(std::move(sum), g, create_graph);
  if (in_place) {
    value.copy_(sum);
  } else {
    value = sum.to(bf16);
  }
  gradient.sum = std::move(sum);
  gradient.version = value.storage().version;
}

// Backward passes on several threads may add to the same leaf; a mutex serializes their additions.
std::mutex& mutex_of(const TapeEntry& leaf) {
  static std::array<std::mutex, 64> mutexes;
  return mutexes[reinterpret_cast<uintptr_t>(&leaf) / sizeof(TapeEntry) % mutexes.size()];
}

// A scope that marks a node as running. Throws if another backward pass is using the node, or if
// the node's closure was freed.
struct Running {
  explicit Running(Node& n) : node(n) {
    Node::State found = Node::State::ready;
    if (node.state.compare_exchange_strong(found, Node::State::running)) return;
    check(found != Node::State::spent, "backward", "a backward pass has already run op \"", node.op,
          "\" and freed its saved tensors; to run it twice, set retain_graph in the first call");
    fail("backward", "another backward pass is using op \"", node.op,
         "\" of the same graph; each thread needs its own graph, only leaves may be shared");
  }
  ~Running() { node.state = after; }
  Node& node;
  Node::State after = Node::State::ready;
};

}  // namespace

void GradientSum::add(const Tensor& g, bool create_graph) {
  if (terms_.size() == most_bf16_terms) terms_ = {add_bf16(terms_, f32)};
  const bool later =
      !create_graph && !terms_.empty() && is_narrow(terms_[0].dtype()) && is_narrow(g.dtype());
  if (terms_.empty() || later) {
    terms_.push_back(g);
    return;
  }
  if (terms_.size() > 1) terms_ = {add_bf16(terms_, f32)};
  terms_[0] = accumulate(std::move(terms_[0]), g, create_graph);
}

Tensor GradientSum::take(DType dtype) {
  const Tensors terms = std::exchange(terms_, {});
  return terms.size() > 1 ? add_bf16(terms, dtype) : terms[0].to(dtype);
}

Tensor GradientSum::take_single(DType dtype, bool to_overwrite) {
  if (terms_.size() != 1 || terms_[0].dtype() != dtype) return {};
  if (is_narrow(dtype) && taken_ == int(most_bf16_terms) - 1) return {};
  if (to_overwrite && !(terms_[0].unique() && terms_[0].is_contiguous())) return {};
  ++taken_;
  return std::exchange(terms_, {})[0];
}

uint64_t Engine::next_pass() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

Tensors aliases(const Tensors& inputs) {
  Tensors own;
  for (const Tensor& x : inputs)
    own.push_back(!x.defined() ? x : record("alias", {x}, x.detach(), [](Backward& b) {
      return Tensors{b.grad()};
    }));
  return own;
}

void Engine::restrict_to_captured(const Tensors& outputs) {
  restricted_ = true;
  // A node created before all captured tensors cannot have been computed from any of them.
  uint64_t oldest = outer ? 0 : UINT64_MAX;
  for (const auto& [entry, g] : captured)
    oldest = std::min(oldest, entry->node ? entry->node->number : 0);
  std::vector<const Node*> below;
  std::unordered_set<const Node*> seen;
  const auto add = [&](const std::shared_ptr<TapeEntry>& entry) {
    const Node* node = entry && !is_input(*entry) ? entry->node.get() : nullptr;
    if (node && node->number > oldest && seen.insert(node).second) below.push_back(node);
  };
  for (const Tensor& y : outputs) add(y.tape());
  for (size_t i = 0; i < below.size(); ++i)
    for (const auto& entry : below[i]->inputs) add(entry);
  std::sort(below.begin(), below.end(),
            [](const Node* a, const Node* b) { return a->number < b->number; });
  for (const Node* node : below)
    for (const auto& entry : node->inputs)
      if (entry && needs(*entry)) on_path_.insert(node);
}

bool Engine::is_input(const TapeEntry& entry) const {
  return outer && (outside_.contains(&entry) || captured.contains(&entry));
}

bool Engine::needs(const TapeEntry& entry) const {
  if (!restricted_ || captured.contains(&entry)) return true;
  if (const auto it = outside_.find(&entry); it != outside_.end()) return outer->needs(*it->second);
  return entry.node ? on_path_.contains(entry.node.get()) : outer && outer->needs(entry);
}

bool Engine::runs_closure_of(const Node& node) const {
  if (restricted_ && !on_path_.contains(&node)) return false;
  return !outer || std::none_of(node.outputs.begin(), node.outputs.end(), [&](const auto& out) {
    return captured.contains(out.entry.lock().get());
  });
}

void Engine::send(const std::shared_ptr<TapeEntry>& entry, const Tensor& g) {
  if (const auto it = outside_.find(entry.get()); it != outside_.end())
    return outer->send(it->second, g);
  if (!needs(*entry)) return;
  if (!entry->node) return arrive_at_leaf(entry, g);
  auto [it, is_new] = pending_.try_emplace(entry->node.get());
  if (is_new) {
    it->second.resize(entry->node->outputs.size());
    queue_.push(entry->node);
  }
  it->second[entry->index].add(g, options.create_graph);
}

Tensor Engine::take_pending(const TapeEntry* entry, bool to_overwrite) {
  // Anomaly detection must tell an op's own gradient from that of others.
  if (!entry || options.create_graph || anomaly_detection()) return {};
  if (const auto it = outside_.find(entry); it != outside_.end())
    return outer->take_pending(it->second.get(), to_overwrite);
  if (!entry->node) return {};
  const auto found = pending_.find(entry->node.get());
  if (found == pending_.end()) return {};
  const DType dtype = entry->node->outputs[entry->index].options.dtype;
  return found->second[entry->index].take_single(dtype, to_overwrite);
}

void Engine::arrive_at_leaf(const std::shared_ptr<TapeEntry>& entry, const Tensor& g) {
  if (outer && !captured.contains(entry.get())) return outer->send(entry, g);
  auto [it, is_new] = leaves_.try_emplace(entry.get());
  if (is_new) leaf_order_.push_back(entry);
  it->second.add(g, options.create_graph);
}

std::vector<std::shared_ptr<const TapeEntry>> last_leaves() {
  std::vector<std::shared_ptr<const TapeEntry>> leaves;
  for (const auto& entry : reached_leaves)
    if (auto leaf = entry.lock()) leaves.push_back(std::move(leaf));
  return leaves;
}

void Engine::finish_leaf(const std::shared_ptr<TapeEntry>& leaf, GradientSum& sum) {
  TapeEntry& entry = *leaf;
  Tensor g = sum.take(entry.dtype);
  if (capture) {
    if (auto it = captured.find(&entry); it != captured.end())
      it->second = run_hooks(entry, std::move(g));
    return;
  }
  g = run_hooks(entry, std::move(g));
  reached_leaves.push_back(leaf);
  {
    const std::lock_guard lock(mutex_of(entry));
    const std::shared_ptr<Gradient> gradient = entry.grad.lock();
    if (!gradient) return;  // all handles to the leaf are gone
    add_pass(*gradient, std::move(g), options.create_graph);
  }
  for (size_t i = 0; i < entry.accumulated.size(); ++i) {
    const auto hook = entry.accumulated[i];
    (*hook)();
  }
}

// Nodes are visited in descending order of number, so a leaf's gradient is complete after the
// lowest-numbered node that has the leaf as an input.
void Engine::find_waiting_leaves() {
  std::vector<const Node*> below;
  std::unordered_set<const Node*> seen;
  for (const auto& [node, grads] : pending_)
    if (seen.insert(node).second) below.push_back(node);
  std::sort(below.begin(), below.end(),
            [](const Node* a, const Node* b) { return a->number > b->number; });
  std::unordered_map<TapeEntry*, size_t> index_of;
  for (size_t i = 0; i < below.size(); ++i) {
    for (const auto& entry : below[i]->inputs) {
      if (!entry) continue;
      if (entry->node) {
        if (seen.insert(entry->node.get()).second) below.push_back(entry->node.get());
      } else if (!entry->accumulated.empty()) {
        const auto [at, is_new] = index_of.try_emplace(entry.get(), waiting_.size());
        if (is_new) waiting_.push_back({UINT64_MAX, entry});
        uint64_t& number = waiting_[at->second].number;
        number = std::min(number, below[i]->number);
      }
    }
  }
  std::stable_sort(waiting_.begin(), waiting_.end(),
                   [](const Waiting& a, const Waiting& b) { return a.number < b.number; });
}

// Completes the leaves whose gradients come only from nodes with numbers above `next`, which have
// all been visited. Called before node `next` is visited.
void Engine::finish_waiting_leaves(uint64_t next) {
  for (; !waiting_.empty() && waiting_.back().number > next; waiting_.pop_back())
    if (auto it = leaves_.find(waiting_.back().leaf.get()); it != leaves_.end())
      finish_leaf(waiting_.back().leaf, it->second);
}

void Engine::run() {
  const GradMode mode(options.create_graph);
  if (any_leaf_hooks && !outer && !capture) find_waiting_leaves();
  while (!queue_.empty()) {
    const std::shared_ptr<Node> node = queue_.top();
    finish_waiting_leaves(node->number);
    queue_.pop();
    std::vector<GradientSum> sums = std::move(pending_[node.get()]);
    pending_.erase(node.get());
    Tensors grads(sums.size());
    for (size_t i = 0; i < grads.size(); ++i) {
      const auto entry = node->outputs[i].entry.lock();
      if (!sums[i].defined()) continue;
      grads[i] = sums[i].take(node->outputs[i].options.dtype);
      if (!entry) continue;
      grads[i] = run_hooks(*entry, std::move(grads[i]));
      if (auto it = captured.find(entry.get()); it != captured.end()) it->second = grads[i];
    }
    if (!runs_closure_of(*node)) continue;
    Running running(*node);
    const bool check_finite = anomaly_detection() && all_finite(grads);
    Backward context(*this, *node, std::move(grads));
    profile_backward_begins();
    Tensors sent = node->backward(context);
    profile_backward_ends(node->op);
    context.grads_.clear();
    check(sent.size() == node->inputs.size(), node->op, "the backward closure returned ",
          sent.size(), " gradients for ", node->inputs.size(), " inputs");
    if (check_finite)
      check(all_finite(sent), node->op,
            "the backward pass of this op produced NaN or infinity from finite gradients (anomaly "
            "detection)");
    for (size_t i = 0; i < sent.size(); ++i) {
      const auto& entry = node->inputs[i];
      if (!entry || !sent[i].defined()) continue;
      const Shape& shape = entry->node ? entry->node->outputs[entry->index].shape : entry->shape;
      const DType dtype =
          entry->node ? entry->node->outputs[entry->index].options.dtype : entry->dtype;
      check(sent[i].shape() == shape && sent[i].dtype() == dtype, node->op,
            "the backward closure returned ", sent[i], " for input ", int64_t(i), "; expected ",
            dtype, " ", shape);
      send(entry, std::exchange(sent[i], {}));
    }
    if (!options.retain_graph && !options.create_graph) {
      node->backward = nullptr;
      for (auto& out : node->outputs) out.kept = {};
      running.after = Node::State::spent;
    }
  }
  for (const auto& entry : leaf_order_)
    if (GradientSum& sum = leaves_[entry.get()]; sum.defined()) finish_leaf(entry, sum);
}

void Engine::start(const char* op, const Tensors& outputs, Tensors gradients) {
  check(gradients.empty() || gradients.size() == outputs.size(), op, "got ", outputs.size(),
        " outputs, but ", gradients.size(), " gradients; pass one gradient per output, or none");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Tensor& y = outputs[i];
    check(y.requires_grad(), op, "the output (", y,
          ") does not depend on anything that requires a gradient, or was computed under NoGrad or "
          "EvalMode");
    Tensor g = gradients.empty() ? Tensor() : std::move(gradients[i]);
    if (g.defined()) {
      check(g.shape() == y.shape() && g.dtype() == y.dtype() && g.device() == y.device(), op,
            "gradient ", g, " for an output ", y, "; shape, dtype and device must agree");
    } else {
      check(y.numel() == 1, op, "no gradient was given for an output ", y,
            "; it may be omitted only for an output with one element");
      g = empty_like(y).fill_(1);
    }
    send(y.tape(), g);
  }
}

Tensors Engine::inner(Backward& b, const Tensors& outputs, const Tensors& inputs,
                      bool add_outside) {
  Engine engine;
  engine.options.create_graph = b.engine_.options.create_graph;
  engine.capture = true;
  engine.outer = &b.engine_;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!inputs[i].requires_grad()) continue;
    TapeEntry* const entry = inputs[i].tape().get();
    // The hooks of an input need its whole gradient from this backward pass.
    if (add_outside && b.needs(i) && entry->hooks.empty())
      engine.outside_[entry] = b.node_.inputs[i];
    else
      engine.captured[entry];
  }
  Tensors ends, arrived;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].requires_grad()) continue;
    ends.push_back(outputs[i]);
    arrived.push_back(add_outside ? b.take_grad(i) : b.grad(i));
  }
  if (add_outside && b.engine_.restricted_) engine.restrict_to_captured(ends);
  engine.start(b.node_.op, ends, std::move(arrived));
  engine.run();
  Tensors gradients;
  for (const Tensor& x : inputs)
    gradients.push_back(x.requires_grad() ? engine.captured[x.tape().get()] : Tensor());
  return gradients;
}

Tensors composed_gradient(Backward& b, const std::function<Tensors(const Tensors&)>& f,
                          const Tensors& inputs) {
  const Tensors own = aliases(inputs);
  return Engine::inner(b, f(own), own, false);
}

Tensors composed_gradient(Backward& b, const std::function<Tensor(const Tensors&)>& f,
                          const Tensors& inputs) {
  const auto one = [&f](const Tensors& x) { return Tensors{f(x)}; };
  return composed_gradient(b, std::function<Tensors(const Tensors&)>(one), inputs);
}

void backward(const Tensors& outputs, const Tensors& gradients, BackwardOptions options) {
  Engine engine;
  engine.options = options;
  reached_leaves.clear();
  engine.start("backward", outputs, gradients);
  engine.run();
}

Tensors grad(const Tensors& outputs, const Tensors& inputs, const Tensors& gradients,
             BackwardOptions options) {
  Engine engine;
  engine.options = options;
  engine.capture = true;
  for (const Tensor& x : inputs) {
    check(x.requires_grad(), "grad", "an input (", x, ") does not require a gradient");
    engine.captured[x.tape().get()];
  }
  engine.restrict_to_captured(outputs);
  engine.start("grad", outputs, gradients);
  engine.run();
  Tensors result;
  for (const Tensor& x : inputs) result.push_back(engine.captured[x.tape().get()]);
  return result;
}

}  // namespace stretto
