// The fuzz target of config.json: an input is the configuration of a published model.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "pretrained/language_models.h"
#include "pretrained/other_models.h"
#include "tests/fuzz/mutate.h"

namespace stretto::testing {
namespace {

using namespace nn::pretrained;

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

// Reads a configuration as load_pretrained() does; returns its number of layers.
int64_t layers_of(JsonReader& c) {
  const std::string type = c.text("model_type", "");
  ignore_general_fields(c);
  int64_t n = 0;
  if (type == "t5") {
    n = t5_config(c).options.n_encoder_layers;
  } else if (type == "bert") {
    n = bert_config(c).options.n_layers;
  } else if (type == "roberta") {
    const nn::Bert::Options o = roberta_config(c).options;
    require(o.first_position > 0 && o.max_length > 0, "positions before the first token");
    n = o.n_layers;
  } else if (type == "modernbert") {
    n = modernbert_config(c).options.n_layers;
  } else if (type == "mpnet") {
    n = mpnet_config(c).options.n_layers;
  } else if (type == "deberta-v2") {
    const nn::Bert::Options o = deberta_config(c).options;
    require(o.disentangled->n_rows() <= 1 << 25, "a table without limit");
    n = o.n_layers;
  } else if (type == "transfo-xl") {
    const nn::LanguageModel::Options o = transformer_xl_config(c).options;
    for (const int64_t cutoff : o.adaptive->cutoffs)
      require(cutoff > 0 && cutoff < o.vocabulary, "a cutoff outside the vocabulary");
    require(o.tied_projections.size() == o.adaptive->cutoffs.size() + 1,
            "a projection without a cluster");
    n = o.n_layers;
  } else {
    n = language_model_config(type, c).options.n_layers;
  }
  c.finish();
  return n;
}

bool run(std::string_view input) {
  try {
    JsonReader c = JsonReader::parse("load_pretrained", "config.json", std::string(input));
    const int64_t n = layers_of(c);
    require(n >= 1 && n <= 10'000, "a number of layers out of range");
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find("[load_pretrained] config.json: ") == 0, "an error without the file");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < 1000, "a long error");
    return false;
  }
}

}  // namespace

FuzzTarget model_config_target() {
  return {
      run,
      {R"({"model_type": "deberta-v2", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2,
"num_attention_heads": 3, "intermediate_size": 40, "max_position_embeddings": 32,
"relative_attention": true, "max_relative_positions": -1, "position_buckets": 6,
"norm_rel_ebd": "layer_norm", "share_att_key": true, "pos_att_type": "p2c|c2p",
"position_biased_input": false, "layer_norm_eps": 1e-7, "type_vocab_size": 0,
"conv_kernel_size": 3, "conv_act": "gelu", "attention_head_size": 8})",
       R"({"model_type": "transfo-xl", "vocab_size": 61, "n_layer": 2, "d_model": 24, "d_embed": 24,
"n_head": 3, "d_head": 10, "d_inner": 40, "mem_len": 5, "clamp_len": 4, "same_length": true,
"pre_lnorm": false, "untie_r": true, "cutoffs": [20, 40], "div_val": 2, "dropatt": 0.0,
"tie_projs": [false, true, true], "attn_type": 0, "adaptive": true, "eos_token_id": 0})",
       R"({"model_type": "bert", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2,
"num_attention_heads": 3, "intermediate_size": 40, "type_vocab_size": 2, "hidden_act": "gelu"})",
       R"({"model_type": "roberta", "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 2,
"num_attention_heads": 3, "intermediate_size": 40, "pad_token_id": 1, "max_position_embeddings": 34})",
       R"({"model_type": "gemma3_text", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 7, "num_attention_heads": 2, "num_key_value_heads": 1, "sliding_window": 5,
"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
"sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}, "sliding_window_pattern": 6})",
       R"({"model_type": "modernbert", "hidden_size": 24, "num_hidden_layers": 2,
"num_attention_heads": 3, "intermediate_size": 40})",
       R"({"model_type": "gpt_oss", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1})",
       R"({"model_type": "qwen3_next", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 8,
"linear_num_key_heads": 2, "linear_num_value_heads": 4, "num_experts": 4, "mlp_only_layers": [1],
"layer_types": ["linear_attention", "full_attention"], "num_experts_per_tok": 2})",
       R"({"model_type": "olmo_hybrid", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 2, "num_attention_heads": 2, "linear_key_head_dim": 3,
"layer_types": ["linear_attention", "full_attention"], "rope_parameters": {"rope_theta": null}})",
       R"({"model_type": "inkling2_text", "vocab_size": 7, "unpadded_vocab_size": 6,
"hidden_size": 8, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1,
"swa_num_attention_heads": 2, "swa_num_key_value_heads": 1, "n_routed_experts": 4,
"num_experts_per_tok": 2, "layer_types": ["hybrid_sliding", "hybrid"]})",
       R"({"model_type": "phi3", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 1, "num_attention_heads": 2, "original_max_position_embeddings": 16,
"rope_scaling": {"type": "longrope", "short_factor": [1.0, 2], "long_factor": [2, 3]}})",
       R"({"model_type": "t5", "vocab_size": 61, "d_model": 24, "d_kv": 8, "d_ff": 40,
"num_layers": 2, "num_heads": 3, "feed_forward_proj": "gated-gelu", "tie_word_embeddings": false})",
       R"({"model_type": "llama", "vocab_size": 7, "hidden_size": 8, "intermediate_size": 12,
"num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1, "rms_norm_eps": 1e-5,
"rope_scaling": {"type": "linear", "factor": 2.0}, "eos_token_id": [3, 4]})",
       R"({"model_type": "gpt2", "vocab_size": 7, "n_embd": 8, "n_layer": 1, "n_head": 2})"},
      {"\"model_type\": ",
       "null",
       "true",
       "false",
       "-1",
       "0",
       "0.5",
       "1e300",
       "16777216",
       "[",
       "]",
       "{",
       "}",
       "\"",
       ", ",
       "\"layer_norm\"",
       "\"c2p|p2p\"",
       "\"relu\"",
       "\"n_token\": 61",
       "\"proj_share_all_but_first\": true",
       "\"embedding_size\": 24",
       "\"tie_word_embeddings\": false",
       "\"is_encoder_decoder\": true"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::model_config_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
