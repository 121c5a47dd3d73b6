// What config.json means for models whose layers have experts, linear attention or latents.
#include <cmath>
#include <memory>
#include <set>

#include "stretto_pretrained.h"
#include "tests/pretrained/config_of.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"

using namespace stretto;
using testing::error;
using testing::error_of;
using testing::llama_fields;
using testing::options_of;
using testing::windows;
using Integers = std::vector<int64_t>;

TEST_CASE("the layers of a config.json that have experts", "[pretrained]") {
  const auto experts = [](const std::string& type, const std::string& more) {  // hidden sizes
    const nn::LanguageModel::Options o = options_of(type, llama_fields(more));
    Integers all;
    for (int64_t i = 0; i < o.n_layers; ++i) {
      nn::LayerOptions layer = o.layer;
      o.vary_layer(i, layer);
      all.push_back(layer.feed_forward.network ? layer.feed_forward.d_hidden : 0);
    }
    return all;
  };
  CHECK(experts("qwen3_moe", "") == Integers{768, 768, 768});
  CHECK(experts("qwen3_moe", R"("decoder_sparse_step": 2, "moe_intermediate_size": 5)") ==
        Integers{0, 5, 0});
  CHECK(experts("qwen2_moe", R"("mlp_only_layers": [0, 2])") == Integers{0, 1408, 0});
  CHECK(windows("qwen2_moe", R"("use_sliding_window": true, "max_window_layers": 2)") ==
        Integers{4096, 0, 0});
  CHECK(options_of("qwen3_moe", llama_fields(R"("use_sliding_window": true, "sliding_window": 7)"))
            .layer.attention.window == 7);
  for (const char* type : {"mixtral", "phi3", "qwen2_moe", "qwen3_moe"}) {
    INFO(type);
    nn::LanguageModel::Options o = options_of(type, llama_fields(""));
    o.n_layers = 1;
    const nn::LanguageModel model(o);
    const double base = type == std::string("mixtral") ? 1e6 : 1e4;
    for (const auto& [name, part] : model.layers[0].self_attention().children())
      if (name == "position") CHECK(dynamic_cast<nn::Rotary&>(*part).options.base == base);
  }
  CHECK_THAT(error("mixtral", R"("num_local_experts": 2, "num_experts_per_tok": 3)"),
             Containing("\"num_experts_per_tok\" is 3 of 2 experts"));
  CHECK_THAT(error("mixtral", R"("router_jitter_noise": 0.1)"), Containing("is not supported"));
}

TEST_CASE("the layers of a config.json that have linear attention", "[pretrained]") {
  const std::string half = R"("partial_rotary_factor": 0.5)";  // 2 of 4 features
  const auto linear = [&](const std::string& type, const std::string& more) {
    const nn::LanguageModel::Options o = options_of(type, llama_fields(half + more));
    Integers all;
    for (int64_t i = 0; i < o.n_layers; ++i) {
      nn::LayerOptions layer = o.layer;
      o.vary_layer(i, layer);
      all.push_back(layer.mixer ? 1 : 0);
    }
    return all;
  };
  const auto refused = [&](const std::string& type, const std::string& more) {
    return error(type, half + ", " + more);
  };
  const std::string types = R"("layer_types": ["linear_attention", "full_attention", )";
  for (const std::string type : {"qwen3_next", "qwen3_5_text", "qwen3_5_moe_text"}) {
    INFO(type);
    CHECK(linear(type, "") == Integers{1, 1, 1});
    CHECK(linear(type, R"(, "full_attention_interval": 2)") == Integers{1, 0, 1});
    CHECK(linear(type, ", " + types + R"("full_attention"])") == Integers{1, 0, 0});
    CHECK_THAT(refused(type, types + R"("sliding_attention"])"),
               Containing("\"layer_types\" has \"sliding_attention\"; supported are "
                          "\"full_attention\", \"linear_attention\""));
    CHECK_THAT(refused(type, R"("linear_num_value_heads": 24)"),
               Containing("\"linear_num_value_heads\" is 24, not a multiple of "
                          "\"linear_num_key_heads\", 16"));
    CHECK_THAT(refused(type, R"("hidden_act": "gelu")"),
               Containing("\"hidden_act\" must be \"silu\""));
    CHECK_THAT(refused(type, R"("linear_conv_kernel_dim": 0)"), Containing("expected 1"));
    CHECK_THAT(refused(type, R"("attn_output_gate": false)"), Containing("\"attn_output_gate\""));
    CHECK_THAT(error(type, ""), Containing("RoPE rotates 1 of 4 features"));
    const nn::LanguageModel::Options absent =
        options_of(type, R"({"vocab_size": 13, "hidden_size": 16, "intermediate_size": 12,
        "num_hidden_layers": 1, "num_attention_heads": 4})");
    CHECK(absent.layer.attention.d_key == 256);
    CHECK(absent.layer.attention.n_kv_heads == (type == "qwen3_5_text" ? 4 : 2));
    const nn::LanguageModel model(absent);
    const auto& mixer = dynamic_cast<const nn::MultiHeadAttention&>(*model.layers[0].mixer);
    CHECK(mixer.options.n_heads == 16);
    CHECK(mixer.options.n_value_heads == 32);
    CHECK(mixer.options.d_key == 128);
    CHECK(mixer.options.d_value == 128);
    CHECK(mixer.get_parameter("kernel.convolution.weight").size(1) == 4);
  }
  nn::LanguageModel model(options_of("qwen3_next", llama_fields(half + R"(, "num_experts": 3,
      "num_experts_per_tok": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
      "full_attention_interval": 2)")));
  model.to(f64);
  model.eval();
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}};
  const nn::GenerationOptions greedy{.max_tokens = 6, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(model, prompts, greedy);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(model, prompts[i], greedy));
  const NoGrad guard;
  const Tensor tokens = randint(0, 13, {2, 9});
  nn::LanguageModel::Cache cache;
  const Tensor first = model(tokens.slice(1, 0, 4), &cache);
  CHECK(testing::worst_error(cat({first, model(tokens.slice(1, 4), &cache)}, 1), model(tokens)) <
        1e-12);

  const std::string mrope = R"("partial_rotary_factor": 0.5, "rope_parameters":
      {"rope_theta": 5, "partial_rotary_factor": 0.5, "mrope_section": [1, 1, 1]})";
  CHECK(error("qwen3_5_text", mrope) == "(nothing thrown)");
  CHECK_THAT(error("qwen3_next", mrope), Containing("\"mrope_section\""));
  CHECK_THAT(refused("qwen3_5_text", R"("num_experts": 4)"), Containing("\"num_experts\" = 4"));
}

TEST_CASE("the layers of OLMo Hybrid", "[pretrained]") {
  const std::string type = "olmo_hybrid";
  const auto layers = [&](const std::string& more) {  // 1: linear attention
    const nn::LanguageModel::Options o = options_of(type, llama_fields(more));
    Integers all;
    for (int64_t i = 0; i < o.n_layers; ++i) {
      nn::LayerOptions layer = o.layer;
      o.vary_layer(i, layer);
      all.push_back(layer.mixer ? 1 : 0);
      CHECK(layer.norm == (layer.mixer ? nn::NormPlace::pre : nn::NormPlace::output));
    }
    return all;
  };
  const std::string types = R"("layer_types": ["linear_attention", "linear_attention", )";
  CHECK(layers("") == Integers{1, 1, 0});  // not only linear attention
  CHECK(layers(R"("layer_types": ["full_attention", "linear_attention", "full_attention"])") ==
        Integers{0, 1, 0});
  const nn::LanguageModel::Options five =
      options_of(type, R"({"vocab_size": 13, "hidden_size": 16, "intermediate_size": 12,
      "num_hidden_layers": 5, "num_attention_heads": 4})");
  const nn::LanguageModel by_default(five);
  const auto kernel = [](const nn::LanguageModel& model) {  // of the first layer
    for (const auto& [name, part] : model.layers[0].mixer->children())
      if (name == "kernel") return dynamic_cast<nn::GatedLinearKernel&>(*part).options;
    return nn::GatedLinearKernelOptions();
  };
  CHECK(kernel(by_default).negative_eigenvalues);
  CHECK(kernel(by_default).norm_eps == 1e-5);
  const nn::LanguageModel positive(
      options_of(type, llama_fields(R"("linear_allow_neg_eigval": false, "rms_norm_eps": 0.25)")));
  CHECK(kernel(positive).taps == 4);
  CHECK_FALSE(kernel(positive).negative_eigenvalues);
  CHECK(kernel(positive).norm_eps == 1e-5);  // not "rms_norm_eps"
  for (const int64_t i : {0, 1, 2, 4}) {
    const auto& mixer = dynamic_cast<const nn::MultiHeadAttention&>(*by_default.layers[i].mixer);
    CHECK(mixer.options.n_heads == 4);
    CHECK(mixer.options.n_value_heads == 4);
    CHECK(mixer.options.d_key == 3);
    CHECK(mixer.options.d_value == 6);
    CHECK(mixer.get_parameter("kernel.convolution.weight").size(1) == 4);
  }
  const nn::MultiHeadAttention::Options& softmax = by_default.layers[3].self_attention().options;
  CHECK(softmax.n_kv_heads == 4);
  CHECK(softmax.qk_norm->dim == 16);
  CHECK(*softmax.qk_norm->eps == 1e-6);

  // The base of RoPE; 0 without RoPE.
  const auto base = [&](const std::string& more) {
    const nn::LanguageModel model(options_of(type, llama_fields(more)));
    for (const auto& [name, part] : model.layers[2].self_attention().children())
      if (name == "position") {
        const auto* rope = dynamic_cast<nn::Rotary*>(part);
        return rope ? rope->options.base : 0.0;
      }
    return 0.0;
  };
  CHECK(base("") == 1e4);
  CHECK(base(R"("rope_parameters": null)") == 1e4);
  CHECK(base(R"("rope_theta": 500)") == 500);
  CHECK(base(R"("rope_theta": null)") == 0);
  CHECK(base(R"("rope_parameters": null, "rope_theta": null)") == 0);  // as transformers converts
  CHECK(base(R"("rope_parameters": {"rope_theta": null, "rope_type": "default"})") == 0);
  CHECK(base(R"("rope_parameters": {"rope_theta": 500}, "rope_theta": null)") == 500);
  CHECK_THAT(error(type, R"("rope_parameters": {"rope_theta": null}, "rope_theta": 500)"),
             Containing("\"rope_theta\" = 500"));

  CHECK_THAT(error(type, types + R"("linear_attention"])"),
             Containing("3 of 3 layers have linear attention; must be some but not all"));
  CHECK_THAT(
      error(type, R"("layer_types": ["full_attention", "full_attention", "full_attention"])"),
      Containing("0 of 3 layers have linear attention"));
  CHECK_THAT(error(type, types + R"("sliding_attention"])"), Containing("\"sliding_attention\""));
  CHECK_THAT(error(type, R"("linear_num_key_heads": 3)"),
             Containing("\"linear_num_value_heads\" is 4, not a multiple of"));
  CHECK_THAT(error(type, R"("hidden_act": "relu")"), Containing("\"hidden_act\" must be"));
  CHECK_THAT(error(type, R"("mlp_bias": true)"), Containing("\"mlp_bias\" is true"));
  CHECK_THAT(error(type, R"("sliding_window": 4)"), Containing("\"sliding_window\" = 4"));
  CHECK(error(type, R"("linear_a_log_min": 1, "linear_a_log_max": 2, "linear_dt_min": 0.1,
      "linear_dt_max": 0.2, "linear_dt_init_floor": 0.1)") == "(nothing thrown)");
}

TEST_CASE("the names of OLMo Hybrid in files and in transformers", "[pretrained]") {
  nn::files::JsonReader c =
      nn::files::JsonReader::parse("load_pretrained", "config.json", llama_fields(""));
  const nn::pretrained::LanguageModelConfig config =
      nn::pretrained::language_model_config("olmo_hybrid", c);
  const auto target = [&](const std::string& name) {
    const std::vector<std::string> all = config.names.targets("model.layers." + name + ".weight");
    return all.size() == 1 ? all[0] : "";
  };
  CHECK(target("0.attention_layer_norm") == "layers.0.norm1.weight");
  CHECK(target("0.feedforward_layer_norm") == "layers.0.norm2.weight");
  CHECK(target("0.input_layernorm") == "layers.0.norm1.weight");
  CHECK(target("0.post_attention_layernorm") == "layers.0.norm2.weight");
  CHECK(target("2.post_attention_layernorm") == "layers.2.norm1.weight");
  CHECK(target("2.feedforward_layer_norm") == "layers.2.norm1.weight");
  CHECK(target("2.post_feedforward_layernorm") == "layers.2.norm2.weight");
  for (const char* convolution : {"conv1d", "q_conv1d", "k_conv1d", "v_conv1d"})
    CHECK(target(std::string("1.linear_attn.") + convolution) ==
          "layers.1.linear_attention.kernel.convolution.weight");

  nn::LanguageModel model(config.options);
  std::set<std::string> saved;
  for (const nn::NamedTensor& n : config.names.backwards(model.named_parameters()))
    saved.insert(n.name);
  for (const char* name :
       {"0.attention_layer_norm", "0.feedforward_layer_norm", "2.post_attention_layernorm",
        "2.post_feedforward_layernorm", "0.linear_attn.q_conv1d", "0.linear_attn.v_conv1d"}) {
    INFO(name);
    CHECK(saved.contains(str("model.layers.", name, ".weight")));
  }

  model.to(f64);
  model.eval();
  const NoGrad guard;
  const Tensor tokens = randint(0, 13, {2, 9});
  nn::LanguageModel::Cache cache;
  const Tensor first = model(tokens.slice(1, 0, 4), &cache);
  CHECK(testing::worst_error(cat({first, model(tokens.slice(1, 4), &cache)}, 1), model(tokens)) <
        1e-12);
}

TEST_CASE("the latents and experts of DeepSeek", "[pretrained]") {
  const auto fields = [](const std::string& more) {
    return R"({"vocab_size": 13, "hidden_size": 16, "intermediate_size": 12, "num_hidden_layers": 3,
      "num_attention_heads": 4, "qk_rope_head_dim": 6, "num_experts_per_tok": 2,
      "n_routed_experts": 8)" +
           more + "}";
  };
  const auto made = [&](const std::string& type, const std::string& more) {
    nn::LanguageModel::Options o = options_of(type, fields(more));
    o.n_layers = 1;
    return std::make_unique<nn::LanguageModel>(o);
  };
  const auto latent = [](const nn::LanguageModel& model) {
    return dynamic_cast<const nn::LatentAttention&>(*model.layers[0].mixer).options;
  };
  const auto v2 = made("deepseek_v2", "");
  CHECK(latent(*v2).d_latent == 512);
  CHECK(latent(*v2).d_query_latent == 1536);
  CHECK(latent(*v2).scale == 1 / std::sqrt(128.0 + 6));
  const auto& experts = dynamic_cast<const nn::MoE&>(*v2->layers[0].network);
  CHECK(experts.options.n_groups == 1);
  CHECK(experts.options.d_shared == 2 * 1407);
  CHECK_FALSE(experts.options.normalize);
  const auto v3 = made("deepseek_v3", R"(, "q_lora_rank": null, "first_k_dense_replace": 0,
      "rope_scaling": {"type": "yarn", "factor": 40, "mscale": 1.0, "mscale_all_dim": 1.0,
                       "original_max_position_embeddings": 4096}, "n_group": 4, "topk_group": 3)");
  const double mscale = 0.1 * std::log(40.0) + 1;
  CHECK(latent(*v3).d_query_latent == 0);
  CHECK(*latent(*v3).scale == Approx(mscale * mscale / std::sqrt(128.0 + 6)).epsilon(1e-15));
  const auto& groups = dynamic_cast<const nn::MoE&>(*v3->layers[0].network);
  CHECK(groups.options.top_groups == 3);
  CHECK(groups.options.scale == 2.5);
  for (const auto& [part, child] : v3->layers[0].mixer->children())
    if (part == "position") {
      const auto& rope = dynamic_cast<const nn::Rotary&>(*child).options;
      CHECK(rope.attention_factor == 1);  // both weights are 1
      CHECK(rope.pairing == RotaryPairing::interleaved);
    }
  nn::files::JsonReader longrope = nn::files::JsonReader::parse(
      "load_pretrained", "config.json", fields(R"(, "rope_scaling": {"rope_type": "longrope",
      "short_factor": [1, 1, 1], "long_factor": [2, 2, 2], "original_max_position_embeddings": 16})"));
  CHECK(nn::pretrained::language_model_config("deepseek_v3", longrope).max_length == 16);
  const auto refused = [&](const std::string& type, const std::string& more) {
    return error_of<Error>([&] { options_of(type, fields(more)); });
  };
  CHECK_THAT(
      refused("deepseek_v2", R"(, "num_key_value_heads": 2)"),
      Containing("\"num_key_value_heads\" is 2, but latent attention has keys for each of the 4"));
  CHECK_THAT(refused("deepseek_v2", R"(, "head_dim": 4)"),
             Containing("\"head_dim\" is 4, not \"qk_rope_head_dim\", 6"));
  CHECK_THAT(refused("deepseek_v2", R"(, "qk_head_dim": 4)"),
             Containing("\"qk_head_dim\" is not the"));
  CHECK_THAT(refused("deepseek_v2", R"(, "topk_method": "noaux_tc")"),
             Containing("\"topk_method\" is \"noaux_tc\"; supported are \"greedy\""));
  CHECK_THAT(refused("deepseek_v2", R"(, "norm_topk_prob": true)"), Containing("norm_topk_prob"));
  CHECK_THAT(refused("deepseek_v3", R"(, "n_group": 3)"),
             Containing("\"n_group\" is 3, not a divisor of 8"));
  CHECK_THAT(error("mixtral", R"("num_local_experts": 10001)"),
             Containing("the number of experts is 10001; expected 1 … 10000"));
  CHECK_THAT(refused("deepseek_v3", R"(, "moe_layer_freq": 2)"), Containing("moe_layer_freq"));
  CHECK_THAT(refused("deepseek_v3", R"(, "quantization_config": {"quant_method": "fp8"})"),
             Containing("quantization_config"));
}
