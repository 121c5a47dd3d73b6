// The published Transformer-XL models, with the lengths and optimiser settings of the authors'
// scripts. Numbers of parameters are the scripts'; the paper's table has others for the largest
// model of WikiText-103 (257 M) and the base model of One Billion Word (0.46 B).
//
// Reference: none (settings)
#pragma once

#include "transformer_xl.h"

namespace stretto::nn {

/// One training script of the authors. `model.lengths` are for training.
struct TransformerXLPreset {
  TransformerXL::Options model;
  int64_t segment = 0;  // tokens per segment in training
  int64_t batch = 0;    // streams
  double learning_rate = 2.5e-4;
  int64_t warmup = 0;  // steps of linear rise; after them a cosine down to 0
  int64_t steps = 0;
  double clip_norm = 0.25;  // of all gradients together
  int64_t evaluation_segment = 0;
  TransformerXL::Lengths evaluation = {};
};

TransformerXLPreset enwik8_12l();   // 41 M, 1.06 bits per character
TransformerXLPreset text8_12l();    // 41 M
TransformerXLPreset enwik8_24l();   // 277 M, 0.99
TransformerXLPreset text8_24l();    // 277 M, 1.08
TransformerXLPreset wt103_base();   // WikiText-103, 151 M, perplexity 24.0
TransformerXLPreset wt103_large();  // 285 M, 18.3
TransformerXLPreset lm1b_base();    // One Billion Word, 358 M
TransformerXLPreset lm1b_large();   // 841 M, 21.8

}  // namespace stretto::nn
