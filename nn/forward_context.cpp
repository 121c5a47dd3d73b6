#include "nn/forward_context.h"

#include "autograd/recompute.h"
#include "nn/distributed/process_group.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

constexpr char losses = 0;  // the key of the further losses in the store

}  // namespace

void ForwardContext::add_loss(const Tensor& term) const {
  check(term.dim() == 0, "ForwardContext", "a further loss of ", term, "; must be a scalar");
  if (!store) return;
  check_not_recomputed("ForwardContext", "a further loss");
  store->of<Tensors>(&losses).push_back(term);
}

Tensor ForwardContext::total_loss(const Tensor& loss) const {
  Tensor sum = loss;
  if (store)
    for (const Tensor& term : store->of<Tensors>(&losses)) sum = sum + term;
  return sum;
}

ForwardContext begin_forward(ProcessGroup* sequence_group, int64_t n) {
  ForwardContext forward{.store = std::make_shared<PassStore>()};
  if (!sequence_group || sequence_group->size() == 1) return forward;
  forward.sequence_group = sequence_group;
  forward.first_position = sequence_group->rank() * n;
  return forward;
}

}  // namespace stretto::nn
