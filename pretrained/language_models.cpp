#include "pretrained/language_models.h"

#include <algorithm>

#include "core/one_line.h"
#include "nn/positions/relative_bias.h"
#include "nn/positions/rotary.h"
#include "pretrained/files/published_names.h"
#include "pretrained/llama_hybrids.h"
#include "pretrained/llama_models.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {
namespace {

// Reads the dropouts of a model whose configuration has one for embeddings and one for branches;
// `absent` is their default. Without the former, embeddings have the dropout of branches.
void read_dropout(JsonReader& c, LanguageModel::Options& o, const char* attention,
                  const char* branches, const char* embeddings, double absent) {
  o.layer.attention.dropout = c.number(attention, absent);
  o.layer.dropout = c.number(branches, absent);
  o.layer.feed_forward.dropout = 0;
  if (embeddings && c.number(embeddings, o.layer.dropout) != o.layer.dropout)
    c.refuse(str("\"", embeddings, "\" differs from \"", branches, "\"; both must be equal"));
}

// Reads the sizes under the names of GPT-2; `dropout` is the default of its dropouts.
LanguageModelConfig gpt_like(JsonReader& c, int64_t max_length, double dropout) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = c.size("n_layer", {}, 10'000);
  o.input.scale = false;
  o.layer.d_model = c.size("n_embd");
  o.layer.attention.n_heads = c.size("n_head");
  o.layer.feed_forward = {
      .d_hidden = c.size("n_inner", 4 * o.layer.d_model),
      .activation = activation_of(c, c.text("activation_function", "gelu_new"))};
  o.layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  m.max_length = c.size("n_positions", max_length);
  read_dropout(c, o, "attn_pdrop", "resid_pdrop", "embd_pdrop", dropout);
  c.ignore({"n_ctx", "summary_activation", "summary_first_dropout", "summary_proj_to_labels",
            "summary_type", "summary_use_proj"});
  return m;
}

LanguageModelConfig gpt2_config(JsonReader& c) {
  LanguageModelConfig m = gpt_like(c, 1024, 0.1);
  m.options.input.learned_length = m.max_length;
  m.options.tied = c.flag("tie_word_embeddings", true);
  if (!c.flag("scale_attn_weights", true)) m.options.layer.attention.scale = 1;
  c.require("scale_attn_by_inverse_layer_idx", false);
  c.ignore({"reorder_and_upcast_attn"});  // another order of the same operations
  m.names = gpt2_names(m.options);
  return m;
}

LanguageModelConfig gptj_config(JsonReader& c) {
  LanguageModelConfig m = gpt_like(c, 2048, 0);
  LanguageModel::Options& o = m.options;
  o.layer.attention.bias = false;
  o.layer.attention.position =
      rotary({.dims = size_or(c, "rotary_dim", 64, {}), .pairing = RotaryPairing::interleaved});
  o.layer.residual = Residual::parallel_one_norm;
  o.tied = c.flag("tie_word_embeddings", false);
  o.output_bias = !o.tied;
  c.ignore({"rotary", "scale_attn_weights"});
  m.names = gptj_names(o);
  return m;
}

LanguageModelConfig gpt_neox_config(JsonReader& c) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  o.input.scale = false;
  o.tied = c.flag("tie_word_embeddings", false);
  o.layer.d_model = c.size("hidden_size");
  o.layer.attention.n_heads = c.size("num_attention_heads");
  o.layer.attention.bias = c.flag("attention_bias", true);
  o.layer.feed_forward = {.d_hidden = c.size("intermediate_size"),
                          .activation = activation_of(c, c.text("hidden_act", "gelu"))};
  o.layer.norm_eps = read_eps(c, "layer_norm_eps", 1e-5);
  if (c.flag("use_parallel_residual", true)) o.layer.residual = Residual::parallel;
  read_dropout(c, o, "attention_dropout", "hidden_dropout", nullptr, 0);
  c.ignore({"classifier_dropout", "attention_probs_dropout_prob", "hidden_dropout_prob"});
  m.max_length = c.integer("max_position_embeddings", 2048);
  o.layer.attention.position =
      rope(m, rotary_options(
                  c, o.layer.d_model / o.layer.attention.n_heads,
                  {.theta_field = "rotary_emb_base", .share_field = "rotary_pct", .share = 0.25}));
  m.names = gpt_neox_names(o);
  return m;
}

LanguageModelConfig bloom_config(JsonReader& c) {
  LanguageModelConfig m;
  LanguageModel::Options& o = m.options;
  o.vocabulary = c.size("vocab_size");
  o.n_layers = size_of_names(c, "n_layer", "num_hidden_layers", 2, 10'000);
  o.layer.d_model = size_of_names(c, "hidden_size", "n_embed", 64);
  o.layer.attention = {.n_heads = size_of_names(c, "n_head", "num_attention_heads", 8),
                       .position = alibi()};
  o.layer.feed_forward = {.d_hidden = 4 * o.layer.d_model, .activation = Activation::gelu_tanh};
  o.layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  o.input = {.scale = false, .norm = true};
  o.tied = c.flag("tie_word_embeddings", true);
  read_dropout(c, o, "attention_dropout", "hidden_dropout", nullptr, 0);
  c.require("apply_residual_connection_post_layernorm", false);
  c.ignore({"pretraining_tp", "slow_but_exact", "offset_alibi", "seq_length", "skip_bias_add",
            "skip_bias_add_qkv", "masked_softmax_fusion", "bias_dropout_fusion",
            "attention_softmax_in_fp32"});
  m.names = bloom_names(o);
  return m;
}

const std::vector<std::pair<std::string, MakeConfig>>& makers() {
  static const std::vector<std::pair<std::string, MakeConfig>> all = [] {
    std::vector<std::pair<std::string, MakeConfig>> list = llama_models();
    list.insert(list.end(), llama_hybrids().begin(), llama_hybrids().end());
    list.insert(list.end(), {{"gpt2", gpt2_config},
                             {"gpt_neox", gpt_neox_config},
                             {"gptj", gptj_config},
                             {"bloom", bloom_config}});
    return list;
  }();
  return all;
}

}  // namespace

std::vector<std::string> language_model_types() {
  std::vector<std::string> names;
  for (const auto& [name, make] : makers()) names.push_back(name);
  return names;
}

LanguageModelConfig language_model_config(const std::string& model_type, JsonReader& config) {
  config.ignore({"is_decoder"});  // always causal
  for (const auto& [name, make] : makers())
    if (name == model_type) return make(config);
  config.refuse(str("model type ", in_quotes(model_type), " is not a language model"));
}

MakePositionalEncoding rope(LanguageModelConfig& m, const RotaryOptions& o) {
  if (o.max_length > 0)
    m.max_length = m.max_length > 0 ? std::min(m.max_length, o.max_length) : o.max_length;
  return rotary(o);
}

int64_t size_or(JsonReader& config, const char* name, int64_t absent, std::optional<int64_t> null) {
  return config.size(name, config.is_present(name) ? null : absent);
}

int64_t size_of_names(JsonReader& c, const char* name, const char* other, int64_t fallback,
                      int64_t largest) {
  const int64_t size = c.size(name, c.has(other) ? c.size(other, {}, largest) : fallback, largest);
  if (c.size(other, size) != size)
    c.refuse(str('"', name, "\" differs from \"", other, "\"; both must be equal"));
  return size;
}

double read_eps(JsonReader& config, const char* name, double fallback) {
  const double eps = config.number(name, fallback);
  if (eps < 0) config.refuse(str('"', name, "\" is ", eps, "; must not be negative"));
  return eps;
}

Activation activation_of(const JsonReader& config, const std::string& name) {
  static const std::vector<std::pair<std::string, Activation>> all{
      {"relu", Activation::relu},           {"gelu", Activation::gelu},
      {"gelu_new", Activation::gelu_tanh},  {"gelu_pytorch_tanh", Activation::gelu_tanh},
      {"silu", Activation::silu},           {"swish", Activation::silu},
      {"gelu_fast", Activation::gelu_tanh}, {"gelu_python", Activation::gelu}};
  std::string names;
  for (const auto& [known, activation] : all) {
    if (known == name) return activation;
    names += (names.empty() ? "" : ", ") + known;
  }
  config.refuse(str("activation ", in_quotes(name), " is not supported; supported are ", names));
}

void ignore_general_fields(JsonReader& config) {
  // Names, tokens and training.
  config.ignore({"_name_or_path",
                 "_model_name_or_path",
                 "name_or_path",
                 "_commit_hash",
                 "architectures",
                 "model_type",
                 "transformers_version",
                 "torch_dtype",
                 "dtype",
                 "use_cache",
                 "id2label",
                 "label2id",
                 "num_labels",
                 "_num_labels",
                 "return_dict",
                 "output_attentions",
                 "output_hidden_states",
                 "output_past",
                 "problem_type",
                 "initializer_range",
                 "chunk_size_feed_forward",
                 "gradient_checkpointing",
                 "tokenizer_class",
                 "task_specific_params",
                 "bos_token_id",
                 "eos_token_id",
                 "pad_token_id",
                 "unk_token_id",
                 "sep_token_id",
                 "cls_token_id",
                 "mask_token_id",
                 "decoder_start_token_id",
                 "_attn_implementation",
                 "_attn_implementation_autoset",
                 "torchscript",
                 "finetuning_task",
                 "prefix",
                 "use_bfloat16",
                 "tf_legacy_loss",
                 "sentence_transformers",
                 "sbert_ce_default_activation_function",
                 "unsloth_fixed",
                 "unsloth_version"});
  // Generation: transformers 4 had these fields in every configuration.
  config.ignore({"do_sample",
                 "temperature",
                 "top_k",
                 "top_p",
                 "typical_p",
                 "max_length",
                 "min_length",
                 "num_beams",
                 "num_beam_groups",
                 "num_return_sequences",
                 "diversity_penalty",
                 "repetition_penalty",
                 "length_penalty",
                 "early_stopping",
                 "no_repeat_ngram_size",
                 "encoder_no_repeat_ngram_size",
                 "bad_words_ids",
                 "forced_bos_token_id",
                 "forced_eos_token_id",
                 "suppress_tokens",
                 "begin_suppress_tokens",
                 "exponential_decay_length_penalty",
                 "output_scores",
                 "return_dict_in_generate",
                 "remove_invalid_values"});
  if (config.is_present("is_causal") && !config.has("is_causal"))  // for transformers, false
    config.refuse("\"is_causal\" is null; supported is to leave it out");
  for (const char* name : {"add_cross_attention", "tie_encoder_decoder"})
    config.require(name, false);
  if (const auto heads = config.object("pruned_heads")) heads->finish();
}

}  // namespace stretto::nn::pretrained
