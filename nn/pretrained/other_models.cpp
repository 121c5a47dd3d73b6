#include "nn/pretrained/other_models.h"

#include "core/one_line.h"
#include "nn/files/published_names.h"
#include "nn/positions/relative_bias.h"
#include "nn/pretrained/language_models.h"

namespace stretto::nn::pretrained {

T5Config t5_config(ConfigReader& c) {
  const std::string network = c.text("feed_forward_proj", "relu");
  const bool gated = network.starts_with("gated-");
  const std::string activation =
      network == "gated-gelu" ? "gelu_new" : network.substr(gated ? 6 : 0);
  const int64_t vocabulary = c.size("vocab_size");
  T5Config m{t5_options(vocabulary), {}};
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
  layer.norm_eps = c.number("layer_norm_epsilon", 1e-6);
  o.tied = c.flag("tie_word_embeddings", true);
  o.scale_output = c.flag("scale_decoder_outputs", o.tied);
  if (o.scale_output && !o.tied)
    c.refuse("\"scale_decoder_outputs\" is true without \"tie_word_embeddings\"");
  c.require("is_encoder_decoder", true);
  c.require("is_decoder", false);
  c.ignore({"is_gated_act", "dense_act_fn", "initializer_factor", "classifier_dropout",
            "n_positions", "output_past"});
  m.names = t5_names(o);
  return m;
}

BertConfig bert_config(ConfigReader& c) {
  BertConfig m{bert_base(c.size("vocab_size")), bert_names()};
  Bert::Options& o = m.options;
  o.max_length = c.size("max_position_embeddings", 512);
  o.token_types = c.integer("type_vocab_size", 2);
  o.n_layers = c.size("num_hidden_layers", {}, 10'000);
  o.layer.d_model = c.size("hidden_size");
  o.layer.attention.n_heads = c.size("num_attention_heads");
  o.layer.attention.dropout = c.number("attention_probs_dropout_prob", 0.1);
  o.layer.feed_forward.d_hidden = c.size("intermediate_size");
  o.layer.feed_forward.activation = activation_of(c, c.text("hidden_act", "gelu"));
  o.layer.dropout = c.number("hidden_dropout_prob", 0.1);
  o.layer.norm_eps = c.number("layer_norm_eps", 1e-12);
  if (o.token_types < 0 || o.token_types > 1'000)
    c.refuse(str("\"type_vocab_size\" is ", o.token_types, "; expected 0 … 1000"));
  c.require("position_embedding_type", "absolute");
  c.require("is_decoder", false);
  c.require("add_cross_attention", false);
  c.require("is_encoder_decoder", false);
  c.ignore({"classifier_dropout", "tie_word_embeddings", "pooler_fc_size",
            "pooler_num_attention_heads", "pooler_num_fc_layers", "pooler_size_per_head",
            "pooler_type", "directionality"});
  return m;
}

}  // namespace stretto::nn::pretrained
