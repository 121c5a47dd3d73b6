#include "nn/positions/positional_encoding.h"

#include <algorithm>
#include <utility>

#include "nn/distributed/process_group.h"
#include "ops/create.h"
#include "ops/elementwise.h"

namespace stretto::nn {
namespace {

// Refers to the encoding that another attention owns.
class SharedPosition : public PositionalEncoding {
 public:
  SharedPosition(Module& parent, const PositionalEncoding& of)
      : PositionalEncoding(parent), of_(of) {}
  void apply(AttentionInputs& inputs) const override { of_.apply(inputs); }
  int64_t encoded_dim(HeadShape shape) const override { return of_.encoded_dim(shape); }
  std::string label() const override { return "shared " + of_.label(); }

 private:
  const PositionalEncoding& of_;
};

// Returns the innermost list that contains `part`, or else the root of its model.
const Module& layers_of(const Module& part) {
  for (const Module* m = &part; m; m = m->parent())
    if (dynamic_cast<const AnyList*>(m)) return *m;
  return part.root();
}

}  // namespace

int64_t AttentionInputs::n_keys_of_all() const {
  return n_keys() * (forward.sequence_group ? forward.sequence_group->size() : 1);
}

void add_bias(AttentionInputs& inputs, const Tensor& bias) {
  const Shape scores{inputs.q.size(0), inputs.q.size(1), inputs.n_queries(), inputs.n_keys()};
  bool fits = bias.dim() <= scores.dim();
  for (int d = 1; fits && d <= bias.dim(); ++d)
    fits = bias.size(-d) == 1 || bias.size(-d) == scores[scores.dim() - d];
  check(fits, "add_bias", "the bias ", bias, " does not broadcast to [B, H, M, N] = ", scores,
        "; a bias [H, R] per relative position belongs into AttentionOptions::relative_bias");
  Tensor& sum = inputs.options.bias;
  sum = sum.defined() ? sum + bias : bias;
}

RelativeRange relative_range(const AttentionInputs& inputs) {
  const bool causal = inputs.options.mask.is_causal();
  return {std::max<int64_t>(inputs.n_keys_of_all() - 1, 0),
          causal ? 0 : std::max<int64_t>(inputs.n_queries() - 1, 0)};
}

Tensor relative_positions(const AttentionInputs& inputs) {
  const RelativeRange range = relative_range(inputs);
  return arange(-double(range.past), double(range.future + 1), 1,
                {.dtype = compute_type(inputs.q.dtype()), .device = inputs.q.device()});
}

MakePositionalEncoding shared_by_layers(const MakePositionalEncoding& make) {
  if (!make) return {};
  const auto owners = std::make_shared<std::map<uint64_t, const PositionalEncoding*>>();
  MakePositionalEncoding shared =
      [owners, make](Module& parent, HeadShape shape) -> std::unique_ptr<PositionalEncoding> {
    const PositionalEncoding*& owner = (*owners)[layers_of(parent).serial()];
    if (owner) return std::make_unique<SharedPosition>(parent, *owner);
    std::unique_ptr<PositionalEncoding> made = make(parent, shape);
    owner = made.get();
    return made;
  };
  shared.traits = make.traits;
  return shared;
}

}  // namespace stretto::nn
