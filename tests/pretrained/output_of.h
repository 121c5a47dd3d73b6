// Outputs of published models for the inputs that tests/pretrained/expected.py has written.
#pragma once

#include "stretto_pretrained.h"

namespace stretto::testing {

/// Returns the output of a loaded model for the inputs in `expected`.
inline Tensor output_of(const nn::Pretrained& p, const nn::Safetensors& expected) {
  const Device device = p.model->device();
  const Tensor tokens = expected["tokens"].to(device);
  if (p.model_type == "t5") return p.sequence_to_sequence()(tokens, expected["target"].to(device));
  if (dynamic_cast<const nn::Bert*>(p.model.get()))
    return p.bert()(nn::TokenBatch(tokens, expected["padding"].to(device)));
  if (p.model_type == "transfo-xl") {
    const nn::LanguageModel& model = p.language_model();
    nn::LanguageModel::Cache memory = model.make_memory();
    const Tensor first = model(tokens.slice(1, 0, 8), &memory);
    return cat({first, model(tokens.slice(1, 8), &memory)}, 1);
  }
  return p.language_model()(tokens);
}

}  // namespace stretto::testing
