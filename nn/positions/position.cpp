#include "nn/positions/position.h"

#include <algorithm>
#include <utility>

#include "nn/distributed/process_group.h"
#include "ops/create.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

// Stands in the place of a position that another attention owns.
class SharedPosition : public Position {
 public:
  SharedPosition(Module& parent, const Position& of) : Position(parent), of_(of) {}
  void apply(AttentionCall& call) const override { of_.apply(call); }
  int64_t key_width(HeadShape shape) const override { return of_.key_width(shape); }
  bool encodes_keys() const override { return of_.encodes_keys(); }
  bool needs_all_keys() const override { return of_.needs_all_keys(); }
  std::string label() const override { return "shared " + of_.label(); }

 private:
  const Position& of_;
};

}  // namespace

int64_t AttentionCall::n_keys_of_all() const {
  return n_keys() * (forward.sequence_group ? forward.sequence_group->size() : 1);
}

void add_bias(AttentionCall& call, const Tensor& bias) {
  Tensor& sum = call.options.bias;
  sum = sum.defined() ? sum + bias : bias;
}

RelativeRange relative_range(const AttentionCall& call) {
  const bool causal = call.options.mask.is_causal();
  return {std::max<int64_t>(call.n_keys_of_all() - 1, 0),
          causal ? 0 : std::max<int64_t>(call.n_queries() - 1, 0)};
}

Tensor relative_positions(const AttentionCall& call) {
  const RelativeRange range = relative_range(call);
  return arange(-double(range.past), double(range.future + 1), 1,
                {.dtype = compute_type(call.q.dtype()), .device = call.q.device()});
}

MakePosition shared_by_layers(MakePosition make) {
  if (!make) return {};
  const auto owners = std::make_shared<PerModel<const Position*>>();
  return [owners, make = std::move(make)](Module& parent,
                                          HeadShape shape) -> std::unique_ptr<Position> {
    const Position*& owner = (*owners)(parent);
    if (owner) return std::make_unique<SharedPosition>(parent, *owner);
    std::unique_ptr<Position> made = make(parent, shape);
    owner = made.get();
    return made;
  };
}

}  // namespace stretto::nn
