#include "nn/models/transformer_xl_presets.h"

namespace stretto::nn {
namespace {

using Lengths = TransformerXL::Lengths;
constexpr auto original = TransformerXL::SameLength::original;

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

TransformerXLPreset characters_12l(int64_t vocabulary) {
  return {.model = {.vocabulary = vocabulary,
                    .n_layers = 12,
                    .layer = layer(512, 8, 64, 2048, 0.1),
                    .lengths = {.memory = 512}},
          .segment = 512,
          .batch = 22,
          .steps = 400'000,
          .evaluation_segment = 80,
          .evaluation = {.memory = 2100, .clamp = 820, .same_length = original}};
}

TransformerXLPreset characters_24l(int64_t vocabulary) {
  return {.model = {.vocabulary = vocabulary,
                    .n_layers = 24,
                    .layer = layer(1024, 8, 128, 3072, 0.15, 0.15),
                    .lengths = {.memory = 768}},
          .segment = 768,
          .batch = 64,
          .warmup = 4000,
          .steps = 400'000,
          .evaluation_segment = 128,
          .evaluation = {.memory = 3800, .clamp = 1000, .same_length = original}};
}

}  // namespace

TransformerXLPreset enwik8_12l() { return characters_12l(204); }
TransformerXLPreset text8_12l() { return characters_12l(27); }
TransformerXLPreset enwik8_24l() { return characters_24l(204); }
TransformerXLPreset text8_24l() { return characters_24l(27); }

TransformerXLPreset wt103_base() {
  return {.model = {.vocabulary = 267'735,
                    .n_layers = 16,
                    .layer = layer(410, 10, 41, 2100, 0.1),
                    .lengths = {.memory = 150},
                    .cutoffs = {20'000, 40'000, 200'000},
                    .tied_projections = {false, true, true, true}},
          .segment = 150,
          .batch = 60,
          .steps = 200'000,
          .evaluation_segment = 64,
          .evaluation = {.memory = 640, .clamp = 400, .same_length = original}};
}

TransformerXLPreset wt103_large() {
  return {.model = {.vocabulary = 267'735,
                    .n_layers = 18,
                    .layer = layer(1024, 16, 64, 4096, 0.2, 0.2),
                    .lengths = {.memory = 384},
                    .cutoffs = {20'000, 40'000, 200'000},
                    .div = 4,
                    .tied_projections = {false, true, true, true}},
          .segment = 384,
          .batch = 128,
          .warmup = 16'000,
          .steps = 4'000'000,
          .evaluation_segment = 128,
          .evaluation = {.memory = 1600, .clamp = 1000, .same_length = original}};
}

TransformerXLPreset lm1b_base() {
  return {.model = {.vocabulary = 793'471,
                    .n_layers = 18,
                    .layer = layer(1024, 8, 128, 4096, 0),
                    .lengths = {.memory = 32},
                    .cutoffs = {60'000, 100'000, 640'000},
                    .div = 4},
          .segment = 32,
          .batch = 224,
          .warmup = 20'000,
          .steps = 500'000,
          .evaluation_segment = 32,
          .evaluation = {.memory = 128, .same_length = original}};
}

TransformerXLPreset lm1b_large() {
  return {.model = {.vocabulary = 793'471,
                    .n_layers = 24,
                    .layer = layer(1280, 16, 80, 8192, 0.05, 0.05),
                    .lengths = {.memory = 32},
                    .cutoffs = {60'000, 100'000, 640'000},
                    .div = 4},
          .segment = 32,
          .batch = 512,
          .warmup = 30'000,
          .steps = 1'200'000,
          .evaluation_segment = 32,
          .evaluation = {.memory = 128, .same_length = original}};
}

}  // namespace stretto::nn
