#include "nn/models/transformer_xl_presets.h"

namespace stretto::nn {
namespace {

using Lengths = TransformerXL::Lengths;
constexpr auto original = TransformerXL::SameLength::original;

TransformerXLPreset characters_12l(int64_t vocabulary) {
  return {.model = {.vocabulary = vocabulary,
                    .d_model = 512,
                    .n_layers = 12,
                    .n_heads = 8,
                    .d_head = 64,
                    .d_hidden = 2048,
                    .dropout = 0.1,
                    .lengths = {.memory = 512}},
          .segment = 512,
          .batch = 22,
          .steps = 400'000,
          .evaluation_segment = 80,
          .evaluation = {.memory = 2100, .clamp = 820, .same_length = original}};
}

TransformerXLPreset characters_24l(int64_t vocabulary) {
  return {.model = {.vocabulary = vocabulary,
                    .d_model = 1024,
                    .n_layers = 24,
                    .n_heads = 8,
                    .d_head = 128,
                    .d_hidden = 3072,
                    .dropout = 0.15,
                    .attention_dropout = 0.15,
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
                    .d_model = 410,
                    .n_layers = 16,
                    .n_heads = 10,
                    .d_head = 41,
                    .d_hidden = 2100,
                    .dropout = 0.1,
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
                    .d_model = 1024,
                    .n_layers = 18,
                    .n_heads = 16,
                    .d_head = 64,
                    .d_hidden = 4096,
                    .dropout = 0.2,
                    .attention_dropout = 0.2,
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
                    .d_model = 1024,
                    .n_layers = 18,
                    .n_heads = 8,
                    .d_head = 128,
                    .d_hidden = 4096,
                    .dropout = 0,
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
                    .d_model = 1280,
                    .n_layers = 24,
                    .n_heads = 16,
                    .d_head = 80,
                    .d_hidden = 8192,
                    .dropout = 0.05,
                    .attention_dropout = 0.05,
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
