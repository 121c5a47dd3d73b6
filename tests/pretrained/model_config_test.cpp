// What config.json means for each model type: absent and null fields as in transformers, and fields
// that contradict each other. Each expected value is that of the class of transformers 5.
#include <cmath>

#include "nn/positions/rotary.h"
#include "pretrained/language_models.h"
#include "pretrained/other_models.h"
#include "pretrained/rope_config.h"
#include "stretto_pretrained.h"
#include "tests/pretrained/config_of.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"

using namespace stretto;
using nn::files::JsonReader;
using testing::error;
using testing::error_of;
using testing::llama_fields;
using testing::options_of;
using testing::windows;
using Integers = std::vector<int64_t>;

namespace {

std::string neox(const std::string& more) {
  return R"({"vocab_size": 13, "hidden_size": 36, "num_hidden_layers": 1, "intermediate_size": 8,
    "num_attention_heads": 3)" +
         more + "}";
}

}  // namespace

TEST_CASE("an absent dropout of embeddings is that of branches", "[pretrained]") {
  const std::string sizes = R"({"vocab_size": 13, "n_embd": 8, "n_layer": 1, "n_head": 2)";
  CHECK(options_of("gpt2", sizes + R"(, "resid_pdrop": 0})").layer.dropout == 0);
  CHECK(options_of("gpt2", sizes + "}").layer.dropout == 0.1);
  CHECK_THAT(error_of<Error>(
                 [&] { options_of("gpt2", sizes + R"(, "resid_pdrop": 0, "embd_pdrop": 0.1})"); }),
             Containing("\"embd_pdrop\" differs from \"resid_pdrop\"; both must be equal"));
}

TEST_CASE("absent fields of config.json have the defaults of transformers", "[pretrained]") {
  CHECK(windows("mistral", "") == Integers{4096, 4096, 4096});
  CHECK(windows("mistral", R"("sliding_window": null)") == Integers{0, 0, 0});
  CHECK(windows("gemma2", R"("sliding_window": 5)") == Integers{5, 0, 5});
  CHECK(windows("gemma2", "") == Integers{4096, 0, 4096});
  CHECK(windows("qwen2", "") == Integers{0, 0, 0});
  CHECK(windows("qwen2", R"("use_sliding_window": true, "max_window_layers": 2)") ==
        Integers{0, 0, 4096});
  const nn::LanguageModel::Options gemma = options_of("gemma2", llama_fields(""));
  CHECK(gemma.layer.attention.soft_cap == 50);
  CHECK(gemma.soft_cap == 30);
  const nn::LanguageModel::Options uncapped = options_of(
      "gemma2", llama_fields(R"("attn_logit_softcapping": null, "final_logit_softcapping": null)"));
  CHECK(uncapped.layer.attention.soft_cap == 0);
  CHECK(uncapped.soft_cap == 0);
  CHECK_THAT(error("gemma2", R"("final_logit_softcapping": 0)"),
             Containing("\"final_logit_softcapping\" is 0; must be positive, or null for none"));

  CHECK(windows("gemma3_text", R"("sliding_window": 5, "sliding_window_pattern": 3)") ==
        Integers{5, 5, 0});
  CHECK(windows("gemma3_text", "") == Integers{4096, 4096, 4096});
  const nn::LanguageModel::Options gemma3 = options_of("gemma3_text", llama_fields(""));
  CHECK(gemma3.layer.attention.soft_cap == 0);
  CHECK(gemma3.soft_cap == 0);
  CHECK(gemma3.layer.attention.qk_norm);
  CHECK_THAT(error("gemma3_text", R"("attn_logit_softcapping": 50)"),
             Containing("\"attn_logit_softcapping\" is set, which Gemma 3 does not use"));
  CHECK_THAT(error("gemma3_text", R"("rope_parameters": {"rope_theta": 5})"),
             Containing("\"rope_theta\""));
  CHECK_THAT(error("gemma3_text", R"("rope_scaling": {"rope_type": "linear", "factor": 2},
                                     "rope_parameters": {"full_attention": {"rope_theta": 5}})"),
             Containing("\"rope_parameters\" and \"rope_scaling\" are both set"));
  CHECK_THAT(error("gemma2", R"("query_pre_attn_scalar": -1)"),
             Containing("\"query_pre_attn_scalar\" is -1; must be positive"));

  const std::string small = R"({"vocab_size": 13, "hidden_size": 768, "intermediate_size": 12,
      "num_hidden_layers": 1, "num_attention_heads": 32)";
  const auto attention = [&](const std::string& type, const std::string& more) {
    return options_of(type, small + more + "}").layer.attention;
  };
  CHECK(attention("llama", "").n_kv_heads == 32);
  CHECK(attention("mistral", "").n_kv_heads == 8);
  CHECK(attention("mistral", R"(, "num_key_value_heads": null)").n_kv_heads == 32);
  CHECK(attention("smollm3", "").n_kv_heads == 4);
  CHECK(attention("gemma2", "").d_key == 256);
  CHECK(attention("qwen3", "").d_key == 128);
  CHECK(attention("qwen3", R"(, "head_dim": null)").d_key == 24);

  const std::string gpt = R"({"vocab_size": 13, "n_embd": 256, "n_layer": 1, "n_head": 2)";
  CHECK(options_of("gpt2", gpt + "}").layer.dropout == 0.1);
  CHECK(options_of("gptj", gpt + "}").layer.dropout == 0);
  CHECK_NOTHROW(nn::LanguageModel(options_of("gptj", gpt + "}")));
  CHECK_THAT(error_of<Error>([&] { options_of("gptj", gpt + R"(, "rotary_dim": null})"); }),
             Containing("the field \"rotary_dim\" is missing"));
}

TEST_CASE("RoBERTa's positions begin after its padding", "[pretrained]") {
  const auto config = [](const std::string& more) {
    const std::string text = R"({"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 6)" +
                             more + "}";
    JsonReader reader = JsonReader::parse("test", "config.json", text);
    return nn::pretrained::roberta_config(reader);
  };
  CHECK(config("").options.first_position == 2);
  CHECK(config("").options.max_length == 4);
  CHECK(config("").max_length == 4);
  CHECK(config(R"(, "pad_token_id": 0)").options.first_position == 1);
  for (const char* id : {"-1", "5", "1000000000"})
    CHECK_THAT(error_of<Error>([&] { config(str(R"(, "pad_token_id": )", id)); }),
               Containing(str("\"pad_token_id\" is ", id, " for 6 positions")));
}

TEST_CASE("SmolLM3 slides only over layers without RoPE", "[pretrained]") {
  const std::string sliding = R"("use_sliding_window": true, "sliding_window": 4, )";
  CHECK(windows("smollm3", sliding + R"("no_rope_layers": [1, 0, 1])") == Integers{0, 4, 0});
  CHECK(windows("smollm3", sliding + R"("no_rope_layer_interval": 2)") == Integers{0, 4, 0});
  CHECK(windows("smollm3", sliding + R"("no_rope_layers": [1, 0, 1], "layer_types":
      ["sliding_attention", "full_attention", "full_attention"])") == Integers{4, 0, 0});
}

TEST_CASE("types of RoPE that depend on the length, or turn a share of the pairs", "[pretrained]") {
  const auto rope = [](const std::string& type, const std::string& more) {
    JsonReader c = JsonReader::parse("load_pretrained", "config.json", llama_fields(more));
    nn::pretrained::LanguageModelConfig m = nn::pretrained::language_model_config(type, c);
    c.finish();
    m.options.n_layers = 1;
    const nn::LanguageModel model(m.options);
    for (const auto& [name, part] : model.layers[0].self_attention().children())
      if (name == "position")
        return std::pair(dynamic_cast<nn::Rotary&>(*part).options, m.max_length);
    return std::pair(RotaryOptions(), int64_t(0));
  };
  const auto dynamic = rope("llama", R"("max_position_embeddings": 64, "rope_scaling":
      {"rope_type": "dynamic", "factor": 2.0})");
  CHECK(dynamic.first.max_length == 64);
  CHECK(dynamic.first.base == 1e4);
  const std::string factors = R"("short_factor": [1.0, 2], "long_factor": [4, 8])";
  const std::string lengths = R"("max_position_embeddings": 64, )";
  const auto longrope = rope("llama", lengths + R"("rope_scaling": {"rope_type": "longrope",
      "original_max_position_embeddings": 16, )" +
                                          factors + "}");
  CHECK(longrope.first.frequencies == std::vector<double>{1, 0.005});
  CHECK(longrope.first.attention_factor == Approx(std::sqrt(1.5)).epsilon(1e-15));
  CHECK(longrope.first.max_length == 16);
  CHECK(longrope.second == 16);
  const auto proportional = rope("llama", R"("rope_parameters": {"rope_type": "proportional",
      "partial_rotary_factor": 0.6, "factor": 2, "rope_theta": 100})");
  CHECK(proportional.first.frequencies == std::vector<double>{1, 0});
  CHECK(proportional.first.scale == 2);
  const auto phi = [&](const std::string& outside, const std::string& inside) {
    return error("phi3", lengths + outside + R"("rope_scaling": {"type": )" + inside + "}");
  };
  const std::string original = R"("original_max_position_embeddings": 16, )";
  for (const char* type : {"su", "yarn", "longrope"})
    CHECK(phi(original, str('"', type, "\", ", factors)) == "(nothing thrown)");
  CHECK_THAT(phi(original, R"("longrope", "original_max_position_embeddings": 8, )" + factors),
             Containing("\"original_max_position_embeddings\" inside and outside"));
  CHECK_THAT(phi("", R"("linear", "factor": 2)"),
             Containing("\"rope_type\" is \"linear\"; Phi-3 supports \"default\", \"longrope\""));
  CHECK_THAT(phi(original, R"("longrope", "short_factor": [1], "long_factor": [1, 2])"),
             Containing("\"short_factor\" has 1 numbers for 4 rotated features"));
  CHECK_THAT(phi(original, R"("longrope", "short_factor": [1, 2], "long_factor": [1, 0])"),
             Containing("\"long_factor\" has 0; must be positive"));
  CHECK_THAT(phi(original, R"("longrope", "short_factor": [1, "2"], "long_factor": [1, 0])"),
             Containing("\"short_factor\" is [1,\"2\"]; expected a list of numbers"));
  CHECK_THAT(error("llama", R"("rope_scaling": {"rope_type": "dynamic"})"),
             Containing("the field \"factor\" is missing"));
  CHECK_THAT(error("llama", R"("rope_parameters": {"rope_type": "proportional",
      "partial_rotary_factor": 1.5})"),
             Containing("\"partial_rotary_factor\" is 1.5; must be 0 … 1"));
}

TEST_CASE("OLMo, Granite and gpt-oss: absent fields and refused values", "[pretrained]") {
  CHECK(windows("olmo3", "") == Integers{4096, 4096, 4096});
  CHECK(windows("olmo3", R"("sliding_window": 7, "layer_types":
      ["full_attention", "sliding_attention", "full_attention"])") == Integers{0, 7, 0});
  CHECK(options_of("olmo2", llama_fields("")).layer.attention.qk_norm->dim == 16);
  CHECK(options_of("olmo2", llama_fields("")).layer.norm_eps == 1e-5);
  CHECK_THAT(error("olmo3", "\"sliding_window\": null"), Containing("\"sliding_window\" is 0"));
  CHECK_THAT(error("olmo3", R"("rope_parameters": {"rope_theta": 5})"),
             Containing("\"rope_theta\""));
  CHECK_THAT(error("olmo2", "\"clip_qkv\": 8.0"), Containing("\"clip_qkv\" = 8.0"));

  const nn::LanguageModel::Options granite = options_of("granite", llama_fields(""));
  CHECK(granite.layer.attention.scale == 1);
  CHECK(granite.logit_scale == 1);
  CHECK_THAT(error("granite", "\"logits_scaling\": 0"),
             Containing("\"logits_scaling\" is 0; must not be 0"));

  CHECK(windows("gpt_oss", "") == Integers{128, 0, 128});
  CHECK(options_of("gpt_oss", llama_fields("")).layer.attention.bias);
  CHECK(options_of("gpt_oss", llama_fields("")).layer.feed_forward.clamped->limit == 7);
  CHECK_THAT(error("gpt_oss", R"("quantization_config": {"quant_method": "mxfp4"})"),
             Containing("\"quantization_config\" is set; supported are weights in bf16 or f32"));
  CHECK_THAT(error("gpt_oss", "\"hidden_act\": \"gelu\""),
             Containing("\"hidden_act\" is \"gelu\""));
  CHECK_THAT(error("gpt_oss", "\"swiglu_limit\": 0"), Containing("\"swiglu_limit\" is 0"));
  CHECK_THAT(error("gpt_oss", "\"num_local_experts\": 2"),
             Containing("\"num_experts_per_tok\" is 4 of 2 experts"));
  CHECK_THAT(error("gpt_oss", "\"experts_per_token\": 2"),
             Containing("\"experts_per_token\" differs from \"num_experts_per_tok\""));
}

TEST_CASE("MPNet's fields", "[pretrained]") {
  const auto config = [](const std::string& more) {
    JsonReader reader =
        JsonReader::parse("test", "config.json",
                          R"({"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 1,
        "num_attention_heads": 2, "intermediate_size": 8, "max_position_embeddings": 6)" +
                              more + "}");
    return nn::pretrained::mpnet_config(reader);
  };
  CHECK(config(R"(, "pad_token_id": 0)").options.first_position == 2);
  CHECK(config("").max_length == 4);
  CHECK_THAT(error_of<Error>([&] { config(R"(, "relative_attention_num_buckets": 16)"); }),
             Containing("\"relative_attention_num_buckets\" is 16; supported is 32"));
  CHECK_THAT(error_of<Error>([&] { config(R"(, "type_vocab_size": 2)"); }),
             Containing("MPNet has no token types"));
}

TEST_CASE("ModernBERT's fields", "[pretrained]") {
  const auto config = [](const std::string& more) {
    JsonReader reader =
        JsonReader::parse("test", "config.json",
                          R"({"vocab_size": 9, "hidden_size": 8, "num_hidden_layers": 4,
        "num_attention_heads": 2, "intermediate_size": 8)" +
                              more + "}");
    return nn::pretrained::modernbert_config(reader);
  };
  const auto windows_of = [&](const std::string& more) {
    const nn::Bert::Options o = config(more).options;
    Integers all;
    for (int64_t i = 0; i < o.n_layers; ++i) {
      nn::LayerOptions layer = o.layer;
      o.vary_layer(i, layer);
      CHECK(layer.attention.window == layer.attention.window_after);
      CHECK(layer.mixer_norm == (i > 0));
      all.push_back(layer.attention.window);
    }
    return all;
  };
  CHECK(windows_of("") == Integers{0, 65, 65, 0});
  CHECK(windows_of(R"(, "local_attention": 9, "global_attn_every_n_layers": 2)") ==
        Integers{0, 5, 0, 5});
  CHECK(config("").max_length == 8192);
  const auto error = [&](const std::string& more) {
    return error_of<Error>([&] { config(more); });
  };
  CHECK_THAT(error(R"(, "mlp_dropout": 0.1)"), Containing("\"mlp_dropout\" is not 0"));
  CHECK_THAT(error(R"(, "rope_scaling": {"rope_type": "linear", "factor": 2})"),
             Containing("\"rope_scaling\" is set"));
  CHECK_THAT(error(R"(, "layer_types": ["full_attention"])"),
             Containing("\"layer_types\" has 1 entries for 4 layers"));
}

TEST_CASE("RoPE rotates an even number of features", "[pretrained]") {
  CHECK_NOTHROW(options_of("gpt_neox", neox(R"(, "rotary_pct": 0.5)")));
  for (const std::string more :
       {"", R"(, "rotary_pct": 0.26)", R"(, "rope_parameters": {"partial_rotary_factor": 0.42})"})
    CHECK_THAT(error_of<Error>([&] { options_of("gpt_neox", neox(more)); }),
               Containing("of 12 features of a head; must be an even number"));
  CHECK_THAT(error_of<Error>([&] { options_of("gpt_neox", neox(R"(, "rotary_pct": 0)")); }),
             Containing("RoPE rotates 0 of 12 features"));
  CHECK_THAT(error("llama", R"("partial_rotary_factor": 0.5)"),
             Containing("\"partial_rotary_factor\" is 0.5; this model type rotates all features"));
  CHECK_THAT(error("qwen3", R"("rope_parameters": {"partial_rotary_factor": 0.5})"),
             Containing("\"partial_rotary_factor\" is 0.5; this model type rotates all features"));
  CHECK(error("llama", R"("partial_rotary_factor": 1.0)") == "(nothing thrown)");
  const auto llama3 = [](const std::string& low) {
    return error("llama", R"("rope_scaling": {"rope_type": "llama3", "factor": 8,
        "high_freq_factor": 4, "low_freq_factor": )" +
                              low + "}");
  };
  CHECK(llama3("1") == "(nothing thrown)");
  CHECK_THAT(llama3("-1"), Containing("\"low_freq_factor\" is -1; must be positive"));
  CHECK_THAT(llama3("4"), Containing("must be less than \"high_freq_factor\""));
}

TEST_CASE("fields of config.json that contradict each other are refused", "[pretrained]") {
  const std::string yarn = R"({"rope_type": "yarn", "factor": 4.0})";
  CHECK_THAT(error("qwen3", R"("rope_parameters": {"rope_theta": 1e6}, "rope_scaling": )" + yarn),
             Containing("\"rope_parameters\" and \"rope_scaling\" differ"));
  CHECK_THAT(error("llama", R"("rope_parameters": {"rope_type": "default"}, "rope_scaling":
      {"rope_type": "dynamic", "factor": 2.0})"),
             Containing("\"rope_parameters\" and \"rope_scaling\" differ"));
  CHECK(error("llama", "\"rope_parameters\": " + yarn + ", \"rope_scaling\": " + yarn) ==
        "(nothing thrown)");
  CHECK(error("llama", R"("rope_parameters": {}, "rope_scaling": )" + yarn) == "(nothing thrown)");
  JsonReader config =
      JsonReader::parse("load_pretrained", "config.json", R"({"rope_scaling": )" + yarn + "}");
  CHECK(nn::pretrained::rotary_options(config, 64, {.max_length = 4096}).frequencies ==
        yarn_frequencies(
            {.dims = 64, .factor = 4, .length = 4096}));  // with the absent fields' values
  CHECK_THAT(error_of<Error>([&] {
               options_of("gpt_neox", neox(R"(, "rotary_emb_base": 100, "rope_theta": 1e4)"));
             }),
             Containing("\"rope_theta\" and \"partial_rotary_factor\" differ from"));
  CHECK_THAT(error("llama", R"("rotary_emb_base": 100)"), Containing("\"rotary_emb_base\" = 100"));
  CHECK_THAT(error("mistral", R"("sliding_window": 3, "layer_types":
      ["sliding_attention", "full_attention", "full_attention"])"),
             Containing("\"layer_types\" contradicts \"sliding_window\""));
  CHECK_THAT(error("qwen2", R"("sliding_window": 3, "layer_types":
      ["sliding_attention", "full_attention", "full_attention"])"),
             Containing("\"sliding_window\" is 0; must be positive"));
  CHECK_THAT(error("llama", R"("rms_norm_eps": -0.01)"),
             Containing("\"rms_norm_eps\" is -0.01; must not be negative"));

  const auto bloom = [](const std::string& more) {
    return error_of<Error>([&] {
      options_of("bloom",
                 R"({"vocab_size": 13, "hidden_size": 12, "n_layer": 1, "n_head": 3)" + more + "}");
    });
  };
  CHECK(bloom(R"(, "num_attention_heads": 3, "n_embed": 12)") == "(nothing thrown)");
  CHECK_THAT(bloom(R"(, "num_attention_heads": 4)"),
             Containing("\"n_head\" differs from \"num_attention_heads\""));
  CHECK_THAT(bloom(R"(, "n_embed": 24)"), Containing("\"hidden_size\" differs from \"n_embed\""));

  const auto t5 = [](const std::string& more) {
    JsonReader c = JsonReader::parse("load_pretrained", "config.json",
                                     R"({"vocab_size": 13, "d_model": 12, "d_kv": 4, "d_ff": 10,
        "num_layers": 1, "num_heads": 3, "feed_forward_proj": "gated-gelu")" +
                                         more + "}");
    return error_of<Error>([&] {
      const bool scales = nn::pretrained::t5_config(c).options.scale_output;
      CHECK(scales == !more.ends_with("null"));  // null is false, as in transformers
    });
  };
  CHECK(t5(R"(, "scale_decoder_outputs": null)") == "(nothing thrown)");
  CHECK(t5(R"(, "dense_act_fn": "gelu_new", "is_gated_act": true)") == "(nothing thrown)");
  CHECK_THAT(t5(R"(, "dense_act_fn": "relu")"), Containing("\"dense_act_fn\" contradicts"));
  CHECK_THAT(t5(R"(, "is_gated_act": false)"), Containing("\"is_gated_act\" contradicts"));
}
