// Transformer-XL (Dai et al. 2019), a language model whose segments attend to earlier segments:
// options of LanguageModel, also for the published models, with the memory length of their training.
// Parameter counts are those of the authors' scripts; the paper's table has other counts for the
// largest model of WikiText-103 (257 M) and the base model of One Billion Word (0.46 B).
//
// Reference: none (settings)
#pragma once

#include "language_model.h"

namespace stretto::nn {

/// Returns the options of the paper's model with 12 layers for characters: post-norm layers of width
/// 512 without biases in the attention, shared sinusoids, and adaptive input and softmax with one
/// cluster. Set `memory.length` for make_memory(), `layer` and `n_layers` for other sizes, and
/// `adaptive->cutoffs` for large vocabularies. There is no norm after the last layer, not even with
/// NormPlace::pre. Attention in blocks needs a memory of two blocks less one position.
LanguageModel::Options transformer_xl(int64_t vocabulary);

LanguageModel::Options enwik8_12l();   ///< enwik8, 12 layers: 41 M, 1.06 bits per character.
LanguageModel::Options text8_12l();    ///< text8, 12 layers: 41 M.
LanguageModel::Options enwik8_24l();   ///< enwik8, 24 layers: 277 M, 0.99 bits per character.
LanguageModel::Options text8_24l();    ///< text8, 24 layers: 277 M, 1.08 bits per character.
LanguageModel::Options wt103_base();   ///< WikiText-103, base: 151 M, perplexity 24.0.
LanguageModel::Options wt103_large();  ///< WikiText-103, large: 285 M, perplexity 18.3.
LanguageModel::Options lm1b_base();    ///< One Billion Word, base: 358 M.
LanguageModel::Options lm1b_large();   ///< One Billion Word, large: 841 M, perplexity 21.8.

}  // namespace stretto::nn
