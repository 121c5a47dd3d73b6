// Shared by the tests of Transformer-XL: a small model, its tokens, and the same model by loops.
#pragma once

#include <memory>

#include "nn/models/transformer_xl.h"
#include "ops/create.h"
#include "ops/elementwise.h"
#include "ops/indexing.h"
#include "tests/reference/transformer_xl.h"
#include "tests/support/compare.h"
#include "tests/support/gradcheck.h"

namespace stretto::testing {

inline nn::LanguageModel::Options tiny_xl(nn::MemoryOptions memory = {}) {
  nn::LanguageModel::Options o = nn::transformer_xl(11);
  o.n_layers = 3;
  o.layer = {.d_model = 8,
             .attention = {.n_heads = 2, .d_key = 3, .d_value = 3, .bias = false},
             .feed_forward = {.d_hidden = 12},
             .norm = nn::NormPlace::post};
  o.memory = memory;
  return o;
}

/// In f64 and evaluation mode, with parameters large enough to have an effect.
inline std::unique_ptr<nn::LanguageModel> make_xl(const nn::LanguageModel::Options& options) {
  manual_seed(31);
  auto model = std::make_unique<nn::LanguageModel>(options);
  model->to(f64);
  model->eval();
  uint64_t stream = 100;
  for (const auto& [name, p] : model->named_parameters())
    p.detach().copy_(fixed_noise(p.shape(), stream++) * 0.5 + (name.ends_with("norm1.weight")));
  return model;
}

inline Tensor some_tokens(int64_t batch, int64_t length, uint64_t stream = 0) {
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < batch * length; ++i)
    ids.push_back(random_bits({.seed = 9, .stream = stream}, uint64_t(i)) % 11);
  return tensor(ids, {batch, length});
}

/// The layer's weights for the reference.
inline reference::XLLayer reference_layer(const nn::TransformerLayer& layer) {
  using reference::matrix;
  auto row = [](const Tensor& x) { return matrix(x.unsqueeze(0)); };
  reference::XLLayer l;
  l.heads = layer.options.attention.n_heads;
  l.pre_norm = layer.options.norm == nn::NormPlace::pre;
  for (const auto& [name, p] : layer.named_parameters()) {
    if (name.ends_with("position.r.weight")) l.r = matrix(p);
    if (name.ends_with("position.u")) l.u = matrix(p);
    if (name.ends_with("position.v")) l.v_bias = matrix(p);
  }
  l.q = matrix(layer.self_attention().q.weight);
  l.k = matrix(layer.self_attention().k.weight);
  l.v = matrix(layer.self_attention().v.weight);
  l.out = matrix(layer.self_attention().out.weight);
  l.norm1_weight = row(layer.norm1.weight);
  l.norm1_bias = row(layer.norm1.bias);
  l.norm2_weight = row(layer.norm2->weight);
  l.norm2_bias = row(layer.norm2->bias);
  l.linear1 = matrix(layer.feed_forward().linear1.weight);
  l.bias1 = row(layer.feed_forward().linear1.bias);
  l.linear2 = matrix(layer.feed_forward().linear2.weight);
  l.bias2 = row(layer.feed_forward().linear2.bias);
  return l;
}

/// Computes hidden(tokens) of one stream after `memory` (one matrix per layer) by loops, and stores
/// the inputs of the layers in `inputs`.
inline Tensor hidden_by_loops(const nn::LanguageModel& model, const Tensor& tokens,
                              const std::vector<reference::Matrix>& memory,
                              const std::function<bool(int64_t, int64_t, int64_t)>& hidden_key = {},
                              std::vector<reference::Matrix>* inputs = nullptr) {
  reference::Matrix x = reference::matrix(model.embedding.lookup(tokens)[0].detach());
  for (int64_t i = 0; i < model.options.n_layers; ++i) {
    reference::XLLayer layer = reference_layer(model.layers[i]);
    layer.clamp = model.options.memory.clamp;
    layer.hidden = hidden_key;
    if (inputs) inputs->push_back(x);
    x = reference::xl_layer(layer, x,
                            memory.empty() ? reference::Matrix{0, x.columns} : memory[size_t(i)]);
  }
  return reference::tensor(x).unsqueeze(0);
}

/// Returns hidden() of all tokens in segments of this length, joined; the last may be shorter.
inline Tensor in_segments(const nn::LanguageModel& model, const Tensor& tokens, int64_t length,
                          nn::LanguageModel::Cache* memory = nullptr) {
  nn::LanguageModel::Cache own{.memory = model.options.memory};
  Tensors all;
  for (const Tensor& segment : split(tokens, length, 1))
    all.push_back(model.hidden(segment, memory ? memory : &own));
  return cat(all, 1);
}

}  // namespace stretto::testing
