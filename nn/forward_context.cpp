#include "nn/forward_context.h"

#include "nn/distributed/process_group.h"

namespace stretto::nn {

ForwardContext begin_forward(ProcessGroup* sequence_group, int64_t n) {
  ForwardContext forward{.store = std::make_shared<PassStore>()};
  if (!sequence_group || sequence_group->size() == 1) return forward;
  forward.sequence_group = sequence_group;
  forward.first_position = sequence_group->rank() * n;
  return forward;
}

}  // namespace stretto::nn
