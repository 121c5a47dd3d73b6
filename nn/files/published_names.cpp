#include "nn/files/published_names.h"

#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/indexing.h"

namespace stretto::nn {

NameMap transformer_xl_names(const TransformerXL::Options& o, TransformerXLSource source) {
  const bool hugging_face = source == TransformerXLSource::hugging_face;
  const std::string prefix = hugging_face ? "transformer." : "";
  const std::string layer = prefix + "layers.{}.", ours = "layers.{}.";
  NameMap map;
  map.split(layer + "dec_attn.qkv_net.weight",
            {ours + "self_attention.q.weight", ours + "self_attention.k.weight",
             ours + "self_attention.v.weight"})
      .rename(layer + "dec_attn.r_net.weight", ours + "self_attention.position.r.weight")
      .rename(layer + "dec_attn.o_net.weight", ours + "self_attention.out.weight");
  for (const char* kind : {"weight", "bias"})
    map.rename(layer + "dec_attn.layer_norm." + kind, ours + "norm1." + kind)
        .rename(layer + "pos_ff.layer_norm." + kind, ours + "norm2." + kind)
        .rename(layer + "pos_ff.CoreNet.0." + kind, ours + "feed_forward.linear1." + kind)
        .rename(layer + "pos_ff.CoreNet.3." + kind, ours + "feed_forward.linear2." + kind);

  const std::pair<const char*, const char*> biases[] = {{"r_w_bias", "u"}, {"r_r_bias", "v"}};
  for (const auto& [theirs, name] : biases)
    if (o.tied_biases) {  // Hugging Face's layers list the shared pair once more
      map.rename(prefix + theirs, name).rename(layer + "dec_attn." + theirs, name);
    } else {
      map.rename(layer + "dec_attn." + theirs, ours + "self_attention.position." + name);
    }

  map.drop(prefix + "pos_emb.inv_freq")
      .rename(prefix + "word_emb.emb_layers.{}.weight", "embedding.weight{}")
      .rename(prefix + "word_emb.emb_projs.{}", "embedding.projection{}")
      .rename("crit.out_layers.{}.weight", o.tied ? "embedding.weight{}" : "output.weight{}")
      .join("crit.out_layers.{}.bias", "output.bias");
  for (size_t i = 0; i < o.tied_projections.size(); ++i)
    if (o.tied_projections[i])
      map.rename(str("crit.out_projs.", i), str("embedding.projection", o.div == 1 ? 0 : i));
  map.rename("crit.out_projs.{}", "output.projection{}");
  const auto reversed = [](const Tensor& rows) {
    std::vector<int64_t> order;
    for (int64_t i = rows.dim() == 0 ? 0 : rows.size(0); i-- > 0;) order.push_back(i);
    return order.empty() ? rows : index_select(rows, 0, tensor(order, {int64_t(order.size())}));
  };
  for (const char* name : {"cluster_weight", "cluster_bias"}) {
    const std::string theirs = str("crit.", name), target = str("output.", name);
    hugging_face ? map.rename(theirs, target) : map.convert(theirs, target, reversed);
  }
  return map;
}

NameMap t5_names(const SequenceToSequence::Options& options) {
  NameMap map;
  map.rename("shared.weight", "source_embedding.weight")
      .rename("lm_head.weight", options.tied ? "source_embedding.weight" : "out.weight")
      .drop("decoder.block.{}.layer.1.EncDecAttention.relative_attention_bias.weight");
  for (const std::string stack : {"encoder.", "decoder."}) {
    const bool decoder = stack == "decoder.";
    const std::string ours = stack + "layers.{}.";
    const auto part = [&](int i) { return str(stack, "block.{}.layer.", i, "."); };
    const auto attention = [&](const std::string& theirs, const std::string& name) {
      for (const char* x : {"q", "k", "v"})
        map.rename(str(theirs, ".", x, ".weight"), str(ours, name, ".", x, ".weight"));
      map.rename(theirs + ".o.weight", ours + name + ".out.weight");
    };
    attention(part(0) + "SelfAttention", "self_attention");
    if (decoder) attention(part(1) + "EncDecAttention", "cross_attention");
    const int last = decoder ? 2 : 1;
    for (int i = 0; i <= last; ++i)
      map.rename(part(i) + "layer_norm.weight", str(ours, "norm", i + 1, ".weight"));
    map.rename(part(last) + "DenseReluDense.wi.weight", ours + "feed_forward.linear1.weight")
        .rename(part(last) + "DenseReluDense.wi_0.weight", ours + "feed_forward.gate.weight")
        .rename(part(last) + "DenseReluDense.wi_1.weight", ours + "feed_forward.up.weight")
        .rename(part(last) + "DenseReluDense.wo.weight", ours + "feed_forward.linear2.weight")
        .rename(part(0) + "SelfAttention.relative_attention_bias.weight",
                ours + "self_attention.position.table")
        .rename(stack + "final_layer_norm.weight", stack + "norm.weight")
        .rename(stack + "embed_tokens.weight", "source_embedding.weight");
  }
  return map;
}

NameMap gwinndr_names() {
  const std::string layer = "transformer.encoder.layers.{}.", ours = "layers.{}.";
  const std::string attention = layer + "self_attn.", our_attention = ours + "self_attention.";
  NameMap map;
  map.drop("positional_encoding.pe")
      .convert(attention + "Er", our_attention + "position.table",
               [](const Tensor& rows) { return rows.unsqueeze(0); });
  for (const std::string kind : {"weight", "bias"}) {
    map.split(
           attention + "in_proj_" + kind,
           {our_attention + "q." + kind, our_attention + "k." + kind, our_attention + "v." + kind})
        .rename(attention + "out_proj." + kind, our_attention + "out." + kind)
        .rename("transformer.encoder.norm." + kind, "norm." + kind)
        .rename("Wout." + kind, "out." + kind);
    for (const char* n : {"1", "2"})
      map.rename(layer + "linear" + n + "." + kind, ours + "feed_forward.linear" + n + "." + kind)
          .rename(layer + "norm" + n + "." + kind, ours + "norm" + n + "." + kind);
  }
  return map;
}

LanguageModel::Options gwinndr_options(int64_t vocabulary, int64_t max_length) {
  return {.vocabulary = vocabulary,
          .layer = {.d_model = 512,
                    .n_heads = 8,
                    .d_hidden = 1024,
                    .norm = NormPlace::post,
                    .dropout = 0.1,
                    .position = music_relative(
                        {.length = max_length, .shared_by_heads = true, .beyond = Beyond::error})},
          .input = {.scale = false, .sinusoid = Sinusoid::interleaved},
          .final_norm = true,
          .output_bias = true};
}

}  // namespace stretto::nn
