#include "pretrained/other_models.h"

#include <algorithm>

#include "core/one_line.h"
#include "nn/models/transformer_xl.h"
#include "nn/positions/relative_bias.h"
#include "pretrained/files/published_names.h"
#include "pretrained/language_models.h"
#include "pretrained/llama_like.h"
#include "pretrained/rope_config.h"

namespace stretto::nn::pretrained {

ModelConfig<SequenceToSequence> t5_config(JsonReader& c) {
  const std::string network = c.text("feed_forward_proj", "relu");
  const bool gated = network.starts_with("gated-");
  const std::string activation =
      network == "gated-gelu" ? "gelu_new" : network.substr(gated ? 6 : 0);
  const int64_t vocabulary = c.size("vocab_size");
  ModelConfig<SequenceToSequence> m{t5_options(vocabulary)};
  SequenceToSequence::Options& o = m.options;
  LayerOptions& layer = o.layer;
  o.n_encoder_layers = c.size("num_layers", {}, 10'000);
  o.n_decoder_layers = c.size("num_decoder_layers", o.n_encoder_layers, 10'000);
  layer.d_model = c.size("d_model");
  layer.attention.n_heads = c.size("num_heads");
  layer.attention.d_key = layer.attention.d_value = c.size("d_kv");
  layer.attention.position =
      t5_bias({.buckets = c.size("relative_attention_num_buckets", 32),
               .max_distance = c.size("relative_attention_max_distance", 128)});
  layer.feed_forward.d_hidden = c.size("d_ff");
  layer.feed_forward.gated = gated;
  layer.feed_forward.activation = activation_of(c, activation);
  layer.dropout = layer.attention.dropout = c.number("dropout_rate", 0.1);
  layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-6);
  o.tied = c.flag("tie_word_embeddings", true);
  o.scale_output = c.flag("scale_decoder_outputs",  // null is false
                          o.tied && !c.is_present("scale_decoder_outputs"));
  if (o.scale_output && !o.tied)
    c.refuse("\"scale_decoder_outputs\" is true without \"tie_word_embeddings\"");
  c.require("is_encoder_decoder", true);
  c.require("is_decoder", false);
  if (activation_of(c, c.text("dense_act_fn", activation)) != layer.feed_forward.activation)
    c.refuse("\"dense_act_fn\" contradicts \"feed_forward_proj\"");
  if (c.flag("is_gated_act", gated) != gated)
    c.refuse("\"is_gated_act\" contradicts \"feed_forward_proj\"");
  c.ignore({"initializer_factor", "classifier_dropout", "n_positions"});
  m.names = t5_names(o);
  return m;
}

namespace {

// Reads the fields that BERT and DeBERTa have in common.
void read_bert_like(JsonReader& c, ModelConfig<Bert>& m, int64_t token_types, double norm_eps) {
  Bert::Options& o = m.options;
  m.max_length = o.max_length = c.size("max_position_embeddings", 512);
  o.token_types = c.integer("type_vocab_size", token_types);
  if (o.token_types < 0 || o.token_types > 1'000)
    c.refuse(str("\"type_vocab_size\" is ", o.token_types, "; expected 0 … 1000"));
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  o.layer.d_model = c.size("hidden_size");
  o.layer.attention.n_heads = c.size("num_attention_heads");
  if (o.layer.d_model % o.layer.attention.n_heads != 0)
    c.refuse(str("\"hidden_size\" is ", o.layer.d_model, ", not a multiple of ",
                 o.layer.attention.n_heads));
  o.layer.attention.dropout = c.number("attention_probs_dropout_prob", 0.1);
  o.layer.feed_forward.d_hidden = c.size("intermediate_size");
  o.layer.feed_forward.activation = activation_of(c, c.text("hidden_act", "gelu"));
  o.layer.dropout = c.number("hidden_dropout_prob", 0.1);
  o.layer.norm_eps = read_eps(c, "layer_norm_eps", norm_eps);
  c.ignore({"tie_word_embeddings"});
}

// Returns the entries of a list, or of a text such as "p2c|c2p".
std::vector<std::string> alternatives(JsonReader& c, const std::string& name) {
  if (c.has(name) && !c.is_text(name)) return c.texts(name);
  std::vector<std::string> all;
  std::string word;
  for (const char x : c.text(name, "") + '|') {
    if (x != '|') {
      if (x != ' ') word += x;
    } else if (!word.empty()) {
      all.push_back(std::move(word));
      word.clear();
    }
  }
  return all;
}

Disentangled::Options disentangled_options(JsonReader& c, int64_t max_length, double dropout) {
  if (!c.flag("relative_attention", false))
    c.refuse("\"relative_attention\" is false; supported is true");
  Disentangled::Options p{.content_to_position = false,
                          .position_to_content = false,
                          .mirrored = false,
                          .shared_projections = c.flag("share_att_key", false),
                          .key_bias = true,
                          .dropout = dropout};
  for (const std::string& term : alternatives(c, "pos_att_type")) {
    if (term != "c2p" && term != "p2c")
      c.refuse(str("\"pos_att_type\" has ", in_quotes(term), "; supported are \"c2p\", \"p2c\""));
    (term == "c2p" ? p.content_to_position : p.position_to_content) = true;
  }
  if (!p.content_to_position && !p.position_to_content)
    c.refuse("\"pos_att_type\" is empty; supported are \"c2p\", \"p2c\" or both");
  constexpr int64_t most = 1 << 24;
  p.max_distance = c.integer("max_relative_positions", -1);
  if (p.max_distance < 1) p.max_distance = max_length;
  p.buckets = std::max<int64_t>(c.integer("position_buckets", -1), 0);
  if (p.max_distance > most || p.buckets > most || p.buckets == 1 ||
      (p.buckets > 0 && p.buckets / 2 >= p.max_distance - 1))
    c.refuse(str("\"position_buckets\" is ", p.buckets, " for distances up to ", p.max_distance,
                 "; half of the buckets must be less than these distances"));
  return p;
}

// Positions begin after that of the padding.
void set_first_position(const JsonReader& c, ModelConfig<Bert>& m, int64_t first) {
  Bert::Options& o = m.options;
  o.first_position = first;
  if (first < 1 || first >= o.max_length)
    c.refuse(str("\"pad_token_id\" is ", first - 1, " for ", o.max_length,
                 " positions; the first token needs one after it"));
  m.max_length = o.max_length -= first;
}

}  // namespace

ModelConfig<Bert> roberta_config(JsonReader& c) {
  ModelConfig<Bert> m = bert_config(c);
  m.names = bert_names("roberta");
  set_first_position(c, m, c.integer("pad_token_id", 1) + 1);
  return m;
}

ModelConfig<Bert> mpnet_config(JsonReader& c) {
  ModelConfig<Bert> m{bert_base(c.size("vocab_size")), mpnet_names()};
  read_bert_like(c, m, 0, 1e-12);
  if (m.options.token_types > 0)
    c.refuse("\"type_vocab_size\" is positive; MPNet has no token types");
  set_first_position(c, m, 2);  // whatever "pad_token_id" is
  m.options.layer.attention.position = t5_bias();
  if (const int64_t n = c.integer("relative_attention_num_buckets", 32); n != 32)
    c.refuse(str("\"relative_attention_num_buckets\" is ", n, "; supported is 32"));
  return m;
}

ModelConfig<Bert> modernbert_config(JsonReader& c) {
  ModelConfig<Bert> m{bert_base(c.size("vocab_size", 50368)), modernbert_names()};
  Bert::Options& o = m.options;
  o.token_types = 0;
  o.pooler = o.learned_positions = false;
  o.final_norm = true;
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  m.max_length = o.max_length = c.size("max_position_embeddings", 8192);
  LayerOptions& all_layers = o.layer = {};
  all_layers.d_model = c.size("hidden_size");
  all_layers.attention.n_heads = c.size("num_attention_heads");
  all_layers.attention.bias = c.flag("attention_bias", false);
  all_layers.feed_forward = {.d_hidden = c.size("intermediate_size"),
                             .activation = activation_of(c, c.text("hidden_activation", "gelu")),
                             .bias = c.flag("mlp_bias", false),
                             .gated = true};
  all_layers.norm_eps = read_eps(c, "norm_eps", 1e-5);
  all_layers.norm_bias = c.flag("norm_bias", false);
  const int64_t n_heads = o.layer.attention.n_heads, d_head = o.layer.d_model / n_heads;
  if (o.layer.d_model % n_heads != 0)
    c.refuse(str("\"hidden_size\" is ", o.layer.d_model, ", not a multiple of ", n_heads));
  for (const char* name : {"embedding_dropout", "attention_dropout", "mlp_dropout"})
    if (c.number(name, 0) != 0) c.refuse(str('"', name, "\" is not 0, which is not supported"));
  if (c.has("rope_scaling"))
    c.refuse("\"rope_scaling\" is set; write the parameters of RoPE into \"rope_parameters\"");
  const auto rope_of = [&](const char* type, double theta, const char* field) {
    const RotaryOptions r = rotary_options_of(
        type, c, d_head, {.theta = theta, .max_length = m.max_length, .theta_field = field});
    if (r.max_length > 0) m.max_length = std::min(m.max_length, r.max_length);
    return rotary(r);
  };
  o.layer.attention.position = rope_of("full_attention", 160'000, "global_rope_theta");
  const auto local = rope_of("sliding_attention", 10'000, "local_rope_theta");
  const int64_t every = c.size("global_attn_every_n_layers", 3);
  const std::vector<int64_t> all = windows(c, o.n_layers, c.size("local_attention", 128) / 2 + 1,
                                           [=](int64_t i) { return i % every != 0; });
  o.vary_layer = [=](int64_t i, LayerOptions& layer) {
    layer.mixer_norm = i > 0;
    layer.attention.window = layer.attention.window_after = all[size_t(i)];
    if (all[size_t(i)] > 0) layer.attention.position = local;
  };
  c.ignore({"initializer_cutoff_factor", "decoder_bias", "classifier_pooling", "classifier_dropout",
            "classifier_bias", "classifier_activation", "deterministic_flash_attn",
            "sparse_prediction", "sparse_pred_ignore_index", "tie_word_embeddings",
            "reference_compile", "repad_logits_with_grad", "position_embedding_type",
            "layer_norm_eps"});
  return m;
}

ModelConfig<Bert> bert_config(JsonReader& c) {
  ModelConfig<Bert> m{bert_base(c.size("vocab_size")), bert_names()};
  read_bert_like(c, m, 2, 1e-12);
  c.require("position_embedding_type", "absolute");
  c.require("is_decoder", false);
  c.require("is_encoder_decoder", false);
  c.ignore({"classifier_dropout", "pooler_fc_size", "pooler_num_attention_heads",
            "pooler_num_fc_layers", "pooler_size_per_head", "pooler_type", "directionality"});
  return m;
}

ModelConfig<Bert> deberta_config(JsonReader& c) {
  ModelConfig<Bert> m{deberta_v3_base(c.size("vocab_size"))};
  Bert::Options& o = m.options;
  read_bert_like(c, m, 0, 1e-7);
  o.learned_positions = c.flag("position_biased_input", true);
  o.disentangled = disentangled_options(c, o.max_length, o.layer.dropout);
  o.relative_norm = false;
  for (const std::string& norm : alternatives(c, "norm_rel_ebd")) {
    if (norm != "layer_norm" && norm != "none")
      c.refuse(str("\"norm_rel_ebd\" has ", in_quotes(norm),
                   "; supported are \"layer_norm\", \"none\""));
    o.relative_norm = o.relative_norm || norm == "layer_norm";
  }
  const int64_t d_model = o.layer.d_model, d_head = d_model / o.layer.attention.n_heads;
  if (c.size("embedding_size", d_model) != d_model)
    c.refuse("\"embedding_size\" differs from \"hidden_size\"; both must be equal");
  if (c.size("attention_head_size", d_head) != d_head)
    c.refuse(
        str("\"attention_head_size\" is not \"hidden_size\" / \"num_attention_heads\", ", d_head));
  if (c.integer("conv_kernel_size", 0) > 0) {
    o.kernel_size = c.size("conv_kernel_size", {}, 101);
    if (o.kernel_size % 2 == 0)
      c.refuse(str("\"conv_kernel_size\" is ", o.kernel_size, "; supported are odd sizes"));
    o.kernel_activation = activation_of(c, c.text("conv_act", "tanh"));
    if (c.integer("conv_groups", 1) != 1) c.refuse("\"conv_groups\" is not 1; supported is 1");
  }
  c.require("is_encoder_decoder", false);
  c.ignore({"conv_act", "conv_groups", "legacy", "pooler_dropout", "pooler_hidden_act",
            "pooler_hidden_size", "classifier_dropout", "cls_dropout"});
  m.names = deberta_names(o);
  return m;
}

namespace {

// Returns for each cluster whether input and output share a projection.
std::vector<bool> tied_projections(JsonReader& c, size_t n_clusters) {
  std::vector<bool> tied(n_clusters, c.flag("proj_share_all_but_first", true));
  tied[0] = false;
  if (!c.has("tie_projs")) return tied;
  std::vector<bool> given = c.flags("tie_projs");
  if (given.size() != n_clusters)
    c.refuse(str("\"tie_projs\" has ", given.size(), " entries for ", n_clusters, " clusters"));
  if (c.has("proj_share_all_but_first") && given != tied)
    c.refuse("\"tie_projs\" and \"proj_share_all_but_first\" disagree");
  return given;
}

void read_clusters(JsonReader& c, LanguageModel::Options& o) {
  AdaptiveOptions& a = *o.adaptive;
  a.d_embedding = c.size("d_embed", o.layer.d_model);
  a.div = c.size("div_val", 1);
  a.cutoffs = c.integers("cutoffs");
  if (a.cutoffs.size() > 100)
    c.refuse(str("\"cutoffs\" has ", a.cutoffs.size(), " entries; expected at most 100"));
  int64_t before = 0, width = a.d_embedding;
  for (const int64_t cutoff : a.cutoffs) {
    if (cutoff <= before || cutoff >= o.vocabulary)
      c.refuse(str("\"cutoffs\" has ", cutoff, " after ", before,
                   "; they must rise and be less than the vocabulary, ", o.vocabulary));
    before = cutoff;
    width /= a.div;
  }
  if (width == 0)
    c.refuse(str("\"d_embed\" is ", a.d_embedding, "; with \"div_val\" ", a.div,
                 " the vectors of the last cluster have no features"));
  o.tied = c.flag("tie_word_embeddings", true);
  o.tied_projections = tied_projections(c, a.cutoffs.size() + 1);
}

void read_memory(JsonReader& c, MemoryOptions& m) {
  const auto length = [&](const char* name, int64_t fallback) {
    const int64_t value = c.integer(name, fallback);
    if (value > 1 << 24) c.refuse(str('"', name, "\" is ", value, "; expected at most ", 1 << 24));
    return std::max<int64_t>(value, 0);
  };
  m.length = length("mem_len", 1600);
  m.clamp = length("clamp_len", 1000);
  if (c.flag("same_length", true)) m.same_length = SameLength::original;
  if (m.length == 0 && m.same_length != SameLength::off)
    c.refuse("\"same_length\" is true, but \"mem_len\" 0 leaves no key to attend to");
  if (c.integer("ext_len", 0) != 0) c.refuse("\"ext_len\" is not 0; supported is 0");
  m.zero_start = true;
}

}  // namespace

ModelConfig<LanguageModel> transformer_xl_config(JsonReader& c) {
  const char* size_name = c.has("vocab_size") ? "vocab_size" : "n_token";
  ModelConfig<LanguageModel> m{transformer_xl(c.size(size_name))};
  LanguageModel::Options& o = m.options;
  if (c.size("n_token", o.vocabulary) != o.vocabulary)
    c.refuse("\"n_token\" differs from \"vocab_size\"; both must be equal");
  o.n_layers = c.size("n_layer", {}, 10'000);
  LayerOptions& layer = o.layer;
  layer.d_model = c.size("d_model");
  if (layer.d_model % 2 != 0)
    c.refuse(str("\"d_model\" is ", layer.d_model, "; must be even, for the sinusoids"));
  layer.attention.n_heads = c.size("n_head");
  layer.attention.d_key = layer.attention.d_value = c.size("d_head");
  layer.attention.dropout = c.number("dropatt", 0);
  layer.feed_forward.d_hidden = c.size("d_inner");
  layer.dropout = c.number("dropout", 0.1);
  layer.norm = c.flag("pre_lnorm", false) ? NormPlace::pre : NormPlace::post;
  layer.norm_eps = read_eps(c, "layer_norm_epsilon", 1e-5);
  read_memory(c, o.memory);
  o.tied_biases = !c.flag("untie_r", true);
  read_clusters(c, o);
  c.require("tie_weight", true);
  c.require("adaptive", true);
  c.require("is_encoder_decoder", false);
  if (c.integer("attn_type", 0) != 0) c.refuse("\"attn_type\" is not 0; supported is 0");
  if (c.integer("sample_softmax", -1) > 0)
    c.refuse("\"sample_softmax\" is above 0; supported is -1");
  c.ignore({"init", "init_range", "init_std", "proj_init_std", "tgt_len", "trainer_compatible"});
  m.names = transformer_xl_names(o, TransformerXLSource::hugging_face);
  return m;
}

}  // namespace stretto::nn::pretrained
