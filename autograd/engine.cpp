// The backward pass: visits nodes by falling creation number, so every node is reached after all
// its consumers, without recursion and in one fixed order.
#include <algorithm>
#include <cmath>
#include <queue>
#include <unordered_map>

#include "autograd/profile.h"
#include "autograd/tape.h"

namespace stretto {
namespace {

// a + b on the tape. In place when nothing else can see a. Sums of bf16 are kept in f32; whoever
// takes one away rounds it, once.
Tensor accumulate(Tensor a, const Tensor& b, bool create_graph) {
  if (!a.defined()) return b;
  if (create_graph) {
    Tensor sum = a.detach().clone();
    sum.add_(b.detach());
    return record("accumulate", {a, b}, sum, [](Backward& g) {
      return Tensors{g.grad(), g.grad()};
    });
  }
  if (a.dtype() == bf16) a = a.to(f32);
  if (a.unique() && a.is_contiguous()) {
    a.add_(b);
    return a;
  }
  Tensor sum = a.clone();
  sum.add_(b);
  return sum;
}

struct ByNumber {
  bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
    return a->number < b->number;
  }
};

}  // namespace

struct Engine {
  BackwardOptions options;
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, ByNumber> queue;
  std::unordered_map<Node*, Tensors> pending;
  // For grad(): where to put the gradients of the tensors asked for, and nothing into leaves.
  bool capture = false;
  std::unordered_map<TapeEntry*, Tensor> captured;

  void send(const std::shared_ptr<TapeEntry>& entry, Tensor g) {
    if (!entry->node) return arrive_at_leaf(*entry, std::move(g));
    auto [it, fresh] = pending.try_emplace(entry->node.get());
    if (fresh) {
      it->second.resize(entry->node->outputs.size());
      queue.push(entry->node);
    }
    Tensor& sum = it->second[entry->index];
    sum = accumulate(std::move(sum), g, options.create_graph);
  }

  static Tensor run_hooks(const TapeEntry& entry, Tensor g) {
    for (const auto& hook : entry.hooks)
      if (Tensor replaced = hook(g); replaced.defined()) {
        check(replaced.shape() == g.shape() && replaced.dtype() == g.dtype(), "register_hook",
              "a hook returned ", replaced, " for a gradient ", g);
        g = std::move(replaced);
      }
    return g;
  }

  // A leaf's hooks see each arriving gradient; all of one pass arrive before the pass ends.
  std::vector<TapeEntry*> leaf_order;
  std::unordered_map<TapeEntry*, std::pair<std::shared_ptr<TapeEntry>, Tensor>> leaves;

  void arrive_at_leaf(TapeEntry& entry, Tensor g) {
    auto it = leaves.find(&entry);
    it->second.second = accumulate(std::move(it->second.second), g, options.create_graph);
  }

  void finish_leaves() {
    for (TapeEntry* entry : leaf_order) {
      Tensor g = std::move(leaves[entry].second);
      if (!g.defined()) continue;
      g = run_hooks(*entry, g.to(entry->dtype));
      if (capture) {
        if (auto it = captured.find(entry); it != captured.end()) it->second = g;
        continue;
      }
      if (entry->grad.defined()) {
        entry->grad = accumulate(std::move(entry->grad), g, options.create_graph).to(entry->dtype);
      } else if (g.unique() && g.is_contiguous()) {
        entry->grad = std::move(g);
      } else {
        entry->grad = g.clone();  // others hold it too; a gradient must be its owner's alone
      }
    }
  }

  void remember_leaf(const std::shared_ptr<TapeEntry>& entry) {
    if (entry->node) return;
    auto [it, fresh] = leaves.try_emplace(entry.get());
    if (fresh) {
      it->second.first = entry;
      leaf_order.push_back(entry.get());
    }
  }

  void run() {
    GradMode mode(options.create_graph);
    while (!queue.empty()) {
      std::shared_ptr<Node> node = queue.top();
      queue.pop();
      Tensors grads = std::move(pending[node.get()]);
      pending.erase(node.get());
      for (size_t i = 0; i < grads.size(); ++i) {
        const auto entry = node->outputs[i].entry.lock();
        if (!grads[i].defined()) continue;
        grads[i] = grads[i].to(node->outputs[i].options.dtype);
        if (!entry) continue;
        grads[i] = run_hooks(*entry, std::move(grads[i]));
        if (auto it = captured.find(entry.get()); it != captured.end()) it->second = grads[i];
      }
      check(!node->spent, "backward", "the graph through op \"", node->op,
            "\" was already differentiated and its saved tensors are gone; use retain_graph on the "
            "first pass to differentiate twice");
      const bool check_finite = anomaly_detection() && finite(grads);
      Backward context(*node, std::move(grads));
      profile_backward_begins();
      Tensors sent = node->backward(context);
      profile_backward_ends(node->op);
      context.grads_.clear();
      check(sent.size() == node->inputs.size(), node->op, "its backward returned ", sent.size(),
            " gradients for ", node->inputs.size(), " inputs");
      if (check_finite)
        check(finite(sent), node->op,
              "the backward of this op is the first with NaN or infinity (anomaly detection)");
      for (size_t i = 0; i < sent.size(); ++i) {
        const auto& entry = node->inputs[i];
        if (!entry || !sent[i].defined()) continue;
        const Shape& wanted = entry->node ? entry->node->outputs[entry->index].shape : entry->shape;
        const DType dtype =
            entry->node ? entry->node->outputs[entry->index].options.dtype : entry->dtype;
        check(sent[i].shape() == wanted && sent[i].dtype() == dtype, node->op,
              "its backward returned ", sent[i], " for input ", int64_t(i), ", expected ", dtype,
              " ", wanted);
        remember_leaf(entry);
        send(entry, std::move(sent[i]));
      }
      if (!options.retain_graph && !options.create_graph) {
        node->backward = nullptr;
        for (auto& out : node->outputs) out.kept = {};
        node->spent = true;
      }
    }
    finish_leaves();
  }

  static bool finite(const Tensors& tensors) {
    for (const Tensor& x : tensors) {
      if (!x.defined() || !is_floating(x.dtype())) continue;
      for (double v : x.to_vector<double>())
        if (!std::isfinite(v)) return false;
    }
    return true;
  }

  void start(const char* op, const Tensors& outputs, const Tensors& gradients) {
    check(gradients.empty() || gradients.size() == outputs.size(), op, outputs.size(),
          " outputs, but ", gradients.size(), " gradients");
    for (size_t i = 0; i < outputs.size(); ++i) {
      const Tensor& y = outputs[i];
      check(y.requires_grad(), op, "the output (", y,
            ") does not depend on anything that requires a gradient");
      Tensor g = gradients.empty() ? Tensor() : gradients[i];
      if (g.defined()) {
        check(g.shape() == y.shape() && g.dtype() == y.dtype() && g.device() == y.device(), op,
              "gradient ", g, " for an output ", y, "; shape, dtype and device must agree");
      } else {
        check(y.numel() == 1, op, "an output ", y,
              " needs a gradient of its shape; without one it must have a single element");
        g = empty_like(y).fill_(1);
      }
      remember_leaf(y.tape());
      send(y.tape(), std::move(g));
    }
  }
};

void backward(const Tensors& outputs, const Tensors& gradients, BackwardOptions options) {
  Engine engine;
  engine.options = options;
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
  engine.start("grad", outputs, gradients);
  engine.run();
  Tensors result;
  for (const Tensor& x : inputs) result.push_back(engine.captured[x.tape().get()]);
  return result;
}

}  // namespace stretto
