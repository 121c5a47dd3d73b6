#include "nn/models/transformer_xl_presets.h"

namespace stretto::nn {
namespace {

LayerOptions layer(int64_t d_model, int64_t n_heads, int64_t d_head, int64_t d_hidden,
                   double dropout, double attention_dropout = 0) {
  return {.d_model = d_model,
          .attention = {.n_heads = n_heads,
                        .d_key = d_head,
                        .d_value = d_head,
                        .bias = false,
                        .dropout = attention_dropout},
          .feed_forward = {.d_hidden = d_hidden},
          .norm = NormPlace::post,
          .dropout = dropout};
}

TransformerXL::Options characters_12l(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 12,
          .layer = layer(512, 8, 64, 2048, 0.1),
          .lengths = {.memory = 512}};
}

TransformerXL::Options characters_24l(int64_t vocabulary) {
  return {.vocabulary = vocabulary,
          .n_layers = 24,
          .layer = layer(1024, 8, 128, 3072, 0.15, 0.15),
          .lengths = {.memory = 768}};
}

}  // namespace

TransformerXL::Options enwik8_12l() { return characters_12l(204); }
TransformerXL::Options text8_12l() { return characters_12l(27); }
TransformerXL::Options enwik8_24l() { return characters_24l(204); }
TransformerXL::Options text8_24l() { return characters_24l(27); }

TransformerXL::Options wt103_base() {
  return {.vocabulary = 267'735,
          .n_layers = 16,
          .layer = layer(410, 10, 41, 2100, 0.1),
          .lengths = {.memory = 150},
          .cutoffs = {20'000, 40'000, 200'000},
          .tied_projections = {false, true, true, true}};
}

TransformerXL::Options wt103_large() {
  return {.vocabulary = 267'735,
          .n_layers = 18,
          .layer = layer(1024, 16, 64, 4096, 0.2, 0.2),
          .lengths = {.memory = 384},
          .cutoffs = {20'000, 40'000, 200'000},
          .div = 4,
          .tied_projections = {false, true, true, true}};
}

TransformerXL::Options lm1b_base() {
  return {.vocabulary = 793'471,
          .n_layers = 18,
          .layer = layer(1024, 8, 128, 4096, 0),
          .lengths = {.memory = 32},
          .cutoffs = {60'000, 100'000, 640'000},
          .div = 4};
}

TransformerXL::Options lm1b_large() {
  return {.vocabulary = 793'471,
          .n_layers = 24,
          .layer = layer(1280, 16, 80, 8192, 0.05, 0.05),
          .lengths = {.memory = 32},
          .cutoffs = {60'000, 100'000, 640'000},
          .div = 4};
}

}  // namespace stretto::nn
