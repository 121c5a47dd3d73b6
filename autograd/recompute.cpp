// Recomputation: the recording run and the recomputing run of recompute().
#include "autograd/recompute.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "autograd/engine.h"

namespace stretto {
namespace {

std::atomic<uint64_t> last_scope{0};

}  // namespace

bool backward_follows() { return thread_state.recording || thread_state.recorded_later; }

bool is_recomputing() { return thread_state.recompute && thread_state.recompute->recomputing(); }

void check_not_recomputed(const char* op, const char* what) {
  check(!thread_state.recompute, op, what,
        " cannot be used under recompute(), because recompute() runs the call twice");
}

void RecomputeRecord::check_unchanged() const {
  for (const auto& [storage, r] : read)
    check(storage->version == r.version, "recompute", "a tensor (", r.tensor, ") that op \"", r.op,
          "\" read was changed after the forward pass; the function cannot be recomputed");
}

RecomputeScope::RecomputeScope(RecomputeRecord& record, bool recomputing)
    : record_(record), recomputing_(recomputing), before_(thread_state) {
  thread_state.random = this;
  thread_state.recompute = this;
  thread_state.scope = ++last_scope;
  thread_state.first_run = thread_state.recorded_later = !recomputing;
  if (!recomputing) thread_state.recording = false;  // recorded() restores it for next()
}

RecomputeScope::~RecomputeScope() { thread_state = before_; }

void RecomputeScope::finish() const {
  if (!recomputing_ || next_ == record_.values.size()) return;
  fail("recompute", "the recording run (forward) used ", record_.values[next_].what,
       ", but the recomputing run (backward) did not; both must do the same, so a module must not "
       "switch between training and evaluation before the backward pass");
}

const std::any& RecomputeScope::next_recorded(const char* what) {
  const bool more = next_ < record_.values.size();
  check(more && std::strcmp(record_.values[next_].what, what) == 0, "recompute",
        "the recomputing run (backward) uses ", what, ", but the recording run (forward) used ",
        more ? record_.values[next_].what : "nothing more",
        "; both must do the same, so a module must not switch between training and evaluation "
        "before the backward pass");
  return record_.values[next_++].value;
}

RandomKey RecomputeScope::next_key() {
  return value_of("next_random_key", [] { return next_random_key(); });
}

void RecomputeScope::before_set() {
  fail("set_random_state",
       "the random state cannot be set under recompute(), because recompute() runs the function "
       "twice");
}

void RecomputeScope::note_reads(const char* op, const Tensors& inputs) {
  if (recomputing_) return;
  for (const Tensor& x : inputs) {
    if (!x.defined() || !from_outside(x)) continue;
    check(!x.requires_grad() || x.is_leaf(), "recompute", "op \"", op,
          "\" in the function reads a tensor (", x,
          "), which was computed by recorded ops outside of the function; pass the tensor as an "
          "input");
    if (x.requires_grad() && leaf_entries_.insert(x.tape().get()).second) leaves_.push_back(x);
    if (record_.inputs.contains(&x.storage()) || record_.read.contains(&x.storage())) continue;
    record_.read.emplace(&x.storage(), RecomputeRecord::Read{x.detach(), x.storage().version, op});
  }
}

void RecomputeScope::check_in_place(const char* op, const Tensor& x) const {
  check(!from_outside(x), op, "the tensor (", x,
        ") was made outside of the function that recompute() runs, and would be changed in place "
        "twice; change it inside recorded()");
}

namespace {

// Returns a leaf with the data of x: an input of a run.
Tensor as_leaf(const Tensor& x, bool requires_grad) {
  if (!x.defined()) return x;
  Tensor leaf = x.detach();
  if (requires_grad) leaf.set_requires_grad();
  return leaf;
}

}  // namespace

Tensor recompute(std::function<Tensor(const Tensors&)> f, const Tensors& inputs) {
  if (!grad_enabled()) return f(inputs);
  const auto record = std::make_shared<RecomputeRecord>();
  Tensors outputs(1), sources = inputs;
  {
    RecomputeScope recording(*record, false);
    Tensors own;
    for (const Tensor& x : inputs) {
      own.push_back(as_leaf(x, leads_back(x)));
      if (x.defined()) record->inputs.insert(&x.storage());
    }
    outputs[0] = f(own);
    recording.note_reads("return", outputs);
    for (const Tensor& leaf : recording.leaves())
      if (std::none_of(own.begin(), own.end(), [&](const Tensor& x) { return x.same(leaf); }))
        sources.push_back(leaf);
  }
  check(outputs[0].defined(), "recompute", "the function returned an undefined tensor");
  const bool recorded = leads_back(outputs[0]);
  outputs[0] = outputs[0].detach();
  if (!recorded) return outputs[0];

  const std::vector<Saved> saved(inputs.begin(), inputs.end());
  attach(
      "recompute", sources, outputs,
      [f = std::move(f), saved, record, count = sources.size()](Backward& b) {
        record->check_unchanged();
        // If the backward pass itself is recorded (create_graph), the inputs of the recomputing run
        // are aliases, connected to the saved inputs on the tape. Otherwise they are new leaves.
        Tensors own = grad_enabled() ? aliases(values_of(saved)) : Tensors();
        const GradMode on(true);
        for (size_t i = own.size(); i < saved.size(); ++i)
          own.push_back(as_leaf(saved[i](), b.needs(i)));
        Tensor y;
        {
          const RecomputeScope recomputing(*record, true);
          y = f(own);
          recomputing.finish();
        }
        Tensors gradients = Engine::inner(b, {y}, own, true);
        gradients.resize(count);  // Engine::inner() has added those of the leaves
        return gradients;
      },
      Keep::nothing);
  return outputs[0];
}

}  // namespace stretto
