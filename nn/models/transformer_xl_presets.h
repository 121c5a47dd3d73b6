// The published Transformer-XL models, with the memory length of their training. Parameter counts
// are those of the authors' scripts; the paper's table has other counts for the largest model of
// WikiText-103 (257 M) and the base model of One Billion Word (0.46 B).
//
// Reference: none (settings)
#pragma once

#include "transformer_xl.h"

namespace stretto::nn {

TransformerXL::Options enwik8_12l();   ///< enwik8, 12 layers: 41 M, 1.06 bits per character.
TransformerXL::Options text8_12l();    ///< text8, 12 layers: 41 M.
TransformerXL::Options enwik8_24l();   ///< enwik8, 24 layers: 277 M, 0.99 bits per character.
TransformerXL::Options text8_24l();    ///< text8, 24 layers: 277 M, 1.08 bits per character.
TransformerXL::Options wt103_base();   ///< WikiText-103, base: 151 M, perplexity 24.0.
TransformerXL::Options wt103_large();  ///< WikiText-103, large: 285 M, perplexity 18.3.
TransformerXL::Options lm1b_base();    ///< One Billion Word, base: 358 M.
TransformerXL::Options lm1b_large();   ///< One Billion Word, large: 841 M, perplexity 21.8.

}  // namespace stretto::nn
