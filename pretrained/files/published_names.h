// Name maps for published weights, for load_weights (nn/files/weights.h).
//
//     nn::LanguageModel model(options);
//     nn::load_weights("transfo-xl.safetensors", model,
//                      nn::transformer_xl_names(model.options, nn::TransformerXLSource::pytorch));
//
// If names or shapes of a file do not agree with the model, nothing is loaded, and the error has
// both the model's name and the file's name of each tensor. NameMap::describe() prints a map, and
// NameMap::prefer() puts your own rules before it.
#pragma once

#include "../../nn/files/name_map.h"
#include "../../nn/models/bert.h"
#include "../../nn/models/language_model.h"
#include "../../nn/models/moe.h"
#include "../../nn/models/sequence_to_sequence.h"
#include "../../nn/models/vision_transformer.h"

namespace stretto::nn {

/// The program that wrote Transformer-XL weights. Both have q, k and v in one matrix.
enum class TransformerXLSource {
  pytorch,      ///< The PyTorch code of the authors; its cluster_weight and
                ///< cluster_bias have the rows of the clusters in reverse order.
  hugging_face  ///< The port of Hugging Face.
};

/// Returns the names of Transformer-XL with its own positional encoding. Tied weights may be in the
/// file once or twice.
NameMap transformer_xl_names(const LanguageModel::Options& options, TransformerXLSource source);

/// Returns the names of Hugging Face's T5 1.0 and 1.1. The model must have t5_options() and T5Bias
/// in both stacks.
NameMap t5_names(const SequenceToSequence::Options& options);

/// Returns the names of LLaMA, Mistral, Qwen2 and Qwen3, and of the experts of the latter two.
///
/// These functions, up to bloom_names(), map decoder-only models of Hugging Face's transformers,
/// with or without the name prefix of the variant with a head, to a LanguageModel of the same
/// architecture, or to a module whose children have the same names. `options` determines tied
/// weights and the number of heads.
NameMap llama_names(const LanguageModel::Options& options);
/// Returns the names of Mixtral.
NameMap mixtral_names(const LanguageModel::Options& options);
/// Returns the names of Phi-3.
NameMap phi3_names(const LanguageModel::Options& options);
/// Returns the names of DeepSeek-V2 and V3. The name of the query projection depends on
/// `query_latents`: whether it projects latents ("q_lora_rank"). Drops the layers for multi-token
/// prediction, which follow the last layer.
NameMap deepseek_names(const LanguageModel::Options& options, bool query_latents = true);
/// Returns the names of Gemma 2. Its files have the weights of norms minus 1.
NameMap gemma_names(const LanguageModel::Options& options);
/// Returns the names of OLMo 2 and 3, whose norms follow the branches.
NameMap olmo2_names(const LanguageModel::Options& options);
/// Returns the names of gpt-oss in f32 or bf16. All experts are one tensor [E, in, out], with the
/// columns of gate and up in turn.
NameMap gpt_oss_names(const LanguageModel::Options& options, int64_t n_experts);
/// Returns the names of Qwen3-Next, whose files have the weights of norms minus 1, and of its experts.
/// `linear` are the options of the layers with Gated DeltaNet, of which some projections are in one
/// matrix, with the rows of a key head together.
NameMap qwen3_next_names(const LanguageModel::Options& options,
                         const MultiHeadAttention::Options& linear);
/// Returns the names of Qwen3.5, without images, likewise.
NameMap qwen3_5_names(const LanguageModel::Options& options,
                      const MultiHeadAttention::Options& linear);
/// Returns the names of OLMo Hybrid, whose convolution of q, k and v is three tensors. `linear` are the
/// options of the layers i with is_linear[i]; the norms of the other layers follow the branches.
NameMap olmo_hybrid_names(const LanguageModel::Options& options, const std::vector<bool>& is_linear,
                          const MultiHeadAttention::Options& linear);
/// Returns the names of Inkling without images and sound. has_experts[i] is true if layer i has
/// `experts`. Drops the layers for multi-token prediction.
NameMap inkling_names(const LanguageModel::Options& options, const std::vector<bool>& has_experts,
                      const MoEOptions& experts);
/// Returns the names of Inkling 2 without images, as in its files: "model.llm.layers.0.attn.wq_du.weight".
/// has_window[i] is true if layer i has a window. modules() has the names in transformers.
NameMap inkling2_names(const std::vector<bool>& has_window, int64_t n_experts);
/// Returns the conversion of weights that a file has minus 1, as those of the norms of Gemma.
Conversion plus_one();
/// Returns the names of GPT-2. Matrices are [in, out], with q, k and v in one. Drops mask buffers.
NameMap gpt2_names(const LanguageModel::Options& options);
/// Returns the names of GPT-NeoX, whose matrix of q, k and v has rows in the order [H, 3, D].
NameMap gpt_neox_names(const LanguageModel::Options& options);
/// Returns the names of GPT-J.
NameMap gptj_names(const LanguageModel::Options& options);
/// Returns the names of BLOOM. q, k and v are as in GPT-NeoX; the embedding norm is
/// InputOptions::norm.
NameMap bloom_names(const LanguageModel::Options& options);

/// Returns the names of BERT or, for the model "roberta", RoBERTa, with or without the prefix
/// "bert." or "roberta."; the weights of heads (cls, lm_head, classifier, qa_outputs) are dropped.
NameMap bert_names(const std::string& model = "bert");
/// Returns the names of MPNet, with or without the prefix "mpnet."; the weights of heads are
/// dropped.
NameMap mpnet_names();
/// Returns the names of ModernBERT, with or without the prefix "model."; the weights of heads are
/// dropped.
NameMap modernbert_names();
/// Returns the names of DeBERTa v2 and v3, with or without the prefix "deberta."; the weights of
/// heads are dropped, and a table of positions that `options` do not use.
NameMap deberta_names(const Bert::Options& options);

/// Returns the names of ViT in Hugging Face's transformers, with or without the prefix "vit." and
/// the head, for a VisionTransformer with learned positions. Drops the pooler.
NameMap vit_names();

/// Returns the names of PyTorch's torch.nn.TransformerEncoder, TransformerDecoder and Transformer,
/// for an Encoder, a Decoder, or a module whose children `encoder` and `decoder` are these. q, k
/// and v are one matrix in the file. PyTorch's layers have NormPlace::post and ReLU by default;
/// norm_first is NormPlace::pre, and a norm after the stack is StackOptions::final_norm.
NameMap torch_transformer_names();

/// How a GGUF file orders the rows of q and k within a head.
enum class GgufRows {
  pairs,  ///< The two rows that RoPE rotates are adjacent: architecture "llama" (LLaMA, Mistral).
  halves  ///< They are head dimension / 2 apart, as in Hugging Face's files: Qwen 2 and 3.
};
/// Returns the names of LLaMA and its relatives in GGUF files of llama.cpp ("blk.0.attn_q.weight"),
/// for the models that llama_names() maps.
NameMap gguf_llama_names(const LanguageModel::Options& options, GgufRows rows = GgufRows::pairs);

/// Returns the conversion between the rows of q or k in a GGUF file of the architecture "llama" and
/// those of the model, for matrices [n_heads · head dimension, in] and for biases.
///
/// llama.cpp rotates rows 2i and 2i + 1 of a head, of D rows. Hugging Face's files and this library
/// rotate rows i and i + D/2. Its converter therefore writes row i + D/2 · s of a head (s is 0 or
/// 1) as row 2i + s:
///
///     to the file     x.reshape(n_heads, 2, D/2, …).transpose(1, 2)
///     to the model    x.reshape(n_heads, D/2, 2, …).transpose(1, 2)
Conversion gguf_rotary_rows(int64_t n_heads);

/// Returns the names of gwinndr's Music Transformer (PyTorch), for a model with gwinndr_options().
NameMap gwinndr_names();

/// Returns the options of that model: post-norm with a norm after the last layer; sinusoids in
/// addition to relative attention; tables shared by heads, out of range an error; embeddings not
/// scaled. `max_length` is its er_len, the number of rows of a table.
LanguageModel::Options gwinndr_options(int64_t vocabulary = 390, int64_t max_length = 2048);

}  // namespace stretto::nn
