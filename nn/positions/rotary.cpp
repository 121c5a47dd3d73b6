#include "nn/positions/rotary.h"

#include <utility>

namespace stretto::nn {

Rotary::Rotary(Module& parent, HeadShape shape, Options o)
    : PositionalEncoding(parent), options(std::move(o)) {
  rotary_dims("Rotary", options, shape.d_key);
}

void Rotary::apply(AttentionInputs& inputs) const {
  const int64_t m = inputs.n_queries(), n = inputs.n_keys();
  // Scores depend on position differences only, so positions may start at 0, except if rotated
  // keys are cached or come from other processes.
  const int64_t first = inputs.forward.sequence_group || (inputs.encoding_state && !options.xpos)
                            ? inputs.first_position
                            : 0;
  const int64_t middle = options.xpos ? inputs.n_keys_of_all() / 2 : 0;
  if (m == n && !options.xpos) {
    Tensors q_and_k;  // the only handles, so that they are rotated in place
    q_and_k.push_back(std::exchange(inputs.q, {}));
    q_and_k.push_back(std::exchange(inputs.k, {}));
    q_and_k = rotate(std::move(q_and_k), first, options);
    inputs.q = q_and_k[0];
    inputs.k = q_and_k[1];
    return;
  }
  inputs.k = rotate(inputs.k, first - middle, options, Side::key);
  inputs.q = rotate(inputs.q, first - middle + n - m, options, Side::query);
}

std::string Rotary::label() const {
  std::string text = options.xpos ? "xPos" : "RoPE";
  text += options.pairing == RotaryPairing::half ? ", half" : ", interleaved";
  if (options.dims > 0) text += str(", ", options.dims, " dims");
  if (!options.frequencies.empty()) text += ", own frequencies";
  return str("Rotary(", text, ")");
}

}  // namespace stretto::nn
