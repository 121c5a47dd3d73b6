// Activation checkpointing, and what it takes to run a function again.
#include "autograd/recompute.h"

#include <atomic>
#include <cstring>

#include "autograd/engine.h"

namespace stretto {
namespace {

std::atomic<uint64_t> last_scope{0};

}  // namespace

bool backward_follows() { return thread_state.recording || thread_state.recorded_later; }

bool is_recomputing() { return thread_state.recompute && thread_state.recompute->again(); }

void check_not_recomputed(const char* op, const char* what) {
  check(!thread_state.recompute, op, what, " under checkpoint(), which would run the call twice");
}

void RecomputeRecord::check_unchanged() const {
  for (const auto& [handle, r] : read)
    check(&r.tensor.storage() == r.storage && r.storage->version == r.version, "checkpoint",
          "a tensor (", r.tensor, ") that op \"", r.op,
          "\" read was changed after the forward pass; the function cannot be run again");
}

RecomputeScope::RecomputeScope(RecomputeRecord& record, bool again)
    : record_(record), again_(again), before_(thread_state) {
  thread_state.random = this;
  thread_state.recompute = this;
  thread_state.scope = ++last_scope;
  thread_state.first_run = thread_state.recorded_later = !again;
  if (!again) thread_state.recording = false;  // but not in recorded(), which runs as outside
}

RecomputeScope::~RecomputeScope() { thread_state = before_; }

void RecomputeScope::finish() const {
  if (!again_ || next_ == record_.taken.size()) return;
  fail("checkpoint", "the function took ", record_.taken[next_].what,
       " in its first run, but not when it was run again; both must do the same (is the module in "
       "another mode?)");
}

const std::any& RecomputeScope::noted(const char* what) {
  const bool more = next_ < record_.taken.size();
  check(more && std::strcmp(record_.taken[next_].what, what) == 0, "checkpoint",
        "the function, run again, takes ", what, " where its first run took ",
        more ? record_.taken[next_].what : "nothing more",
        "; both must do the same (is the module in another mode?)");
  return record_.taken[next_++].value;
}

RandomKey RecomputeScope::next_key() {
  return take("next_random_key", [] { return next_random_key(); });
}

void RecomputeScope::before_set() {
  fail("set_random_state", "under checkpoint(), which would run it twice");
}

void RecomputeScope::note_reads(const char* op, const Tensors& inputs) {
  if (again_) return;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !from_outside(x)) continue;
    if (record_.inputs.contains(&x.storage())) continue;
    check(!x.requires_grad() || x.is_leaf(), "checkpoint", "the function reads (", op,
          ") a tensor (", x,
          ") that is the result of recorded ops outside of it; pass it as an input");
    record_.read.try_emplace(x.id(),
                             RecomputeRecord::Read{x, &x.storage(), x.storage().version, op});
  }
}

void RecomputeScope::check_in_place(const char* op, const Tensor& x) const {
  check(!from_outside(x), op, "changes a tensor (", x,
        ") in place that was made outside of the function that checkpoint() runs, and would be "
        "changed twice; change it inside recorded()");
}

namespace {

// Inputs as a run of the function sees them: leaves.
Tensor as_leaf(const Tensor& x, bool wanted) {
  if (!x.defined()) return x;
  Tensor leaf = x.detach();
  if (wanted) leaf.set_requires_grad();
  return leaf;
}

}  // namespace

Tensor checkpoint(std::function<Tensor(const Tensors&)> f, const Tensors& inputs) {
  if (!grad_enabled()) return f(inputs);
  const auto record = std::make_shared<RecomputeRecord>();
  Tensors outputs(1);
  {
    RecomputeScope first(*record, false);
    Tensors own;
    for (const Tensor& x : inputs) {
      own.push_back(as_leaf(x, leads_back(x)));
      if (x.defined()) record->inputs.insert(&x.storage());
    }
    outputs[0] = f(own);
    first.note_reads("return", outputs);
  }
  check(outputs[0].defined(), "checkpoint", "the function returned an undefined tensor");
  const bool recorded = leads_back(outputs[0]);
  outputs[0] = outputs[0].detach();
  if (!recorded) return outputs[0];

  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  attach(
      "checkpoint", inputs, outputs,
      [f = std::move(f), saved, record](Backward& b) {
        record->check_unchanged();
        // Of a pass that is recorded itself, the second run is part.
        Tensors own = grad_enabled() ? aliases(values_of(saved)) : Tensors();
        const GradMode on(true);
        for (size_t i = own.size(); i < saved.size(); ++i)
          own.push_back(as_leaf(saved[i](), b.needs(i)));
        Tensor y;
        {
          const RecomputeScope again(*record, true);
          y = f(own);
          again.finish();
        }
        return Engine::inner(b, {y}, own);
      },
      Keep::nothing);
  return outputs[0];
}

}  // namespace stretto
