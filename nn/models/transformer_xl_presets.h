// The published Transformer-XL models, with the memory of their training. Numbers of parameters are
// those of the authors' scripts; the paper's table has others for the largest model of WikiText-103
// (257 M) and the base model of One Billion Word (0.46 B).
//
// Reference: none (settings)
#pragma once

#include "transformer_xl.h"

namespace stretto::nn {

TransformerXL::Options enwik8_12l();   // 41 M, 1.06 bits per character
TransformerXL::Options text8_12l();    // 41 M
TransformerXL::Options enwik8_24l();   // 277 M, 0.99
TransformerXL::Options text8_24l();    // 277 M, 1.08
TransformerXL::Options wt103_base();   // WikiText-103, 151 M, perplexity 24.0
TransformerXL::Options wt103_large();  // 285 M, 18.3
TransformerXL::Options lm1b_base();    // One Billion Word, 358 M
TransformerXL::Options lm1b_large();   // 841 M, 21.8

}  // namespace stretto::nn
