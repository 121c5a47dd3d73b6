// The names that published weights have: maps for load_weights (nn/files/weights.h).
//
//     nn::TransformerXL model(options);
//     nn::load_weights("transfo-xl.safetensors", model,
//                      nn::transformer_xl_names(model.options, nn::TransformerXLSource::pytorch));
//
// A file that does not fit, in names or shapes, is refused whole; the error tells the file's name
// of each tensor beside the model's. describe() prints a map, and prefer() puts rules of one's own
// before it.
#pragma once

#include "../models/language_model.h"
#include "../models/sequence_to_sequence.h"
#include "../models/transformer_xl.h"
#include "name_map.h"

namespace stretto::nn {

/// Whose names and order: the authors' PyTorch code, whose clusters have their columns in reverse
/// order, or Hugging Face's port. Both keep q, k and v in one matrix.
enum class TransformerXLSource { pytorch, hugging_face };

/// Transformer-XL with its own position. What tied weights share may be in the file once or twice.
NameMap transformer_xl_names(const TransformerXL::Options& options, TransformerXLSource source);

/// T5 of Hugging Face, 1.0 and 1.1: for a model with t5_options and T5Bias in both stacks.
NameMap t5_names(const SequenceToSequence::Options& options);

/// Decoder-only models as Hugging Face's transformers publishes them, with or without the prefix of
/// the model that has a head. They are for a LanguageModel of the same form, or a module of one's
/// own whose parts have its names; `options` tells what is tied, and the heads.
/// LLaMA, Mistral, Qwen2 and Qwen3.
NameMap llama_names(const LanguageModel::Options& options);
/// Matrices [in, out], q, k and v in one; buffers of masks.
NameMap gpt2_names(const LanguageModel::Options& options);
/// q, k and v of a head side by side, [H, 3, D] rows.
NameMap gpt_neox_names(const LanguageModel::Options& options);
NameMap gptj_names(const LanguageModel::Options& options);
/// As GPT-NeoX; the norm of the token vectors is that of InputOptions::norm.
NameMap bloom_names(const LanguageModel::Options& options);

/// The Music Transformer of gwinndr (PyTorch), for a model with gwinndr_options.
NameMap gwinndr_names();

/// The settings of that program's model: post-norm, yet a norm after the last layer; sinusoids
/// besides relative attention; tables shared by heads, an error beyond them; embeddings not scaled.
/// `max_length` is its er_len, the rows of a table.
LanguageModel::Options gwinndr_options(int64_t vocabulary = 390, int64_t max_length = 2048);

}  // namespace stretto::nn
