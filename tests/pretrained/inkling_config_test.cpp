// The fields of config.json of Inkling and Inkling 2.
#include <cmath>

#include "autograd/tape.h"
#include "nn/models/generation.h"
#include "nn/models/moe.h"
#include "nn/positions/relative_table.h"
#include "ops/create.h"
#include "ops/indexing.h"
#include "pretrained/llama_inkling.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"

using namespace stretto;
using nn::pretrained::JsonReader;
using testing::error_of;

namespace {

const std::string small =
    R"("num_key_value_heads": 2, "head_dim": 5,
    "swa_num_attention_heads": 2, "swa_num_key_value_heads": 1, "swa_head_dim": 6,
    "sliding_window_size": 3, "d_rel": 2, "rel_extent": 7, "moe_intermediate_size": 9,
    "n_routed_experts": 5, "num_experts_per_tok": 2)";

nn::pretrained::LanguageModelConfig read(nn::pretrained::LanguageModelConfig (*make)(JsonReader&),
                                         const std::string& fields, const std::string& more) {
  JsonReader reader = JsonReader::parse("test", "config.json",
                                        "{" + fields + (more.empty() ? "" : ", " + more) + "}");
  nn::pretrained::LanguageModelConfig m = make(reader);
  reader.finish();
  return m;
}

nn::pretrained::LanguageModelConfig config(const std::string& more) {
  return read(nn::pretrained::inkling_config,
              R"("vocab_size": 13, "hidden_size": 16, "intermediate_size": 12,
      "num_hidden_layers": 7, "num_attention_heads": 64)",
              more);
}

nn::pretrained::LanguageModelConfig config2(const std::string& more, int64_t vocabulary = 13) {
  return read(nn::pretrained::inkling2_config,
              str(R"("vocab_size": )", vocabulary, R"(, "hidden_size": 16, "num_hidden_layers": 7,
      "num_attention_heads": 48)"),
              more);
}

std::string refused(const std::string& more) {
  return error_of<Error>([&] { config(more); });
}

nn::LayerOptions layer_of(const nn::LanguageModel::Options& o, int64_t i) {
  nn::LayerOptions layer = o.layer;
  o.vary_layer(i, layer);
  return layer;
}

const nn::InklingRelative::Options& position_of(const nn::TransformerLayer& layer) {
  for (const auto& [name, child] : layer.self_attention().children())
    if (name == "position") return dynamic_cast<const nn::InklingRelative&>(*child).options;
  FAIL("no position");
  throw;
}

}  // namespace

TEST_CASE("absent fields of Inkling have the defaults of transformers", "[pretrained]") {
  const auto m = config("");
  CHECK(m.max_length == 131072);
  CHECK(m.options.logit_scale == 1.0 / 24);
  CHECK(m.options.n_logits == 0);
  CHECK(m.options.input.norm);
  for (int64_t i = 0; i < 7; ++i) {
    const nn::LayerOptions layer = layer_of(m.options, i);
    CHECK(layer.attention.window == (i == 5 ? 0 : 512));
    CHECK(layer.attention.n_heads == 64);
    CHECK(layer.attention.n_kv_heads == (i == 5 ? 8 : 16));
    CHECK(layer.attention.d_key == 128);
    CHECK(*layer.attention.scale == 1.0 / 128);
    CHECK(layer.attention.taps == 4);
    CHECK(layer.branch_taps == 4);
    CHECK(layer.feed_forward.d_hidden == 3072);
    CHECK(layer.feed_forward.network);
  }
}

TEST_CASE("the layers, experts and logits of Inkling", "[pretrained]") {
  const auto m = config(small + R"(, "local_layer_ids": [0, 2], "dense_mlp_idx": 1,
      "log_scaling_n_floor": 4, "log_scaling_alpha": 0.3, "sconv_kernel_size": 2,
      "model_max_length": 99, "unpadded_vocab_size": 11, "embedding_multiplier": 3,
      "dense_intermediate_size": 20, "n_shared_experts": 3, "route_scale": 1.5)");
  CHECK(m.max_length == 99);
  CHECK(m.options.n_logits == 11);
  CHECK(m.options.logit_scale == 1.0 / 3);
  CHECK(m.options.layer.branch_taps == 2);
  nn::LanguageModel model(m.options);
  for (const int64_t i : {0, 1, 2, 3}) {
    const bool local = i == 0 || i == 2;
    CHECK(model.layers[i].self_attention().options.window == (local ? 3 : 0));
    CHECK(model.layers[i].self_attention().options.d_key == (local ? 6 : 5));
    const nn::InklingRelative::Options& position = position_of(model.layers[i]);
    CHECK(position.dim == 2);
    CHECK(position.extent == (local ? 3 : 7));
    CHECK(position.log_floor == (local ? 0 : 4));
    CHECK(position.log_strength == 0.3);
  }
  CHECK(model.layers[0].feed_forward().options.d_hidden == 20);
  const auto& experts = dynamic_cast<const nn::MoE&>(*model.layers[1].network);
  CHECK(experts.expert.d_hidden == 12);  // "intermediate_size" next to "dense_intermediate_size"
  CHECK(experts.options.n_experts == 5);
  CHECK(experts.options.n_always == 3);
  CHECK(experts.options.scale == 1.5);
  CHECK(config(R"("unpadded_vocab_size": 90)").options.n_logits == 0);

  model.to(f64);
  model.eval();
  const NoGrad guard;
  const Tensor tokens = randint(0, 13, {2, 9}), y = model(tokens);
  CHECK(y.shape() == Shape{2, 9, 11});
  nn::LanguageModel::Cache cache;
  const Tensor first = model(tokens.slice(1, 0, 4), &cache);
  CHECK(testing::worst_error(cat({first, model(tokens.slice(1, 4), &cache)}, 1), y) < 1e-12);
  const std::vector<std::vector<int64_t>> prompts{{1, 2, 3, 4, 5}, {6}};
  const nn::GenerationOptions greedy{.max_tokens = 6, .sampling = {.temperature = 0}};
  const auto together = nn::generate_batch(model, prompts, greedy);
  for (size_t i = 0; i < prompts.size(); ++i)
    CHECK(together[i] == nn::generate(model, prompts[i], greedy));
}

TEST_CASE("fields of Inkling that are refused", "[pretrained]") {
  CHECK(refused(small) == "(nothing thrown)");
  CHECK_THAT(refused(R"("layer_types": ["hybrid", "full_attention", "hybrid", "hybrid", "hybrid",
      "hybrid", "hybrid"])"),
             Containing("\"layer_types\" has \"full_attention\"; supported are \"hybrid\", "
                        "\"hybrid_sliding\""));
  CHECK_THAT(refused(R"("mlp_layer_types": ["dense"])"),
             Containing("\"mlp_layer_types\" has 1 entries for 7 layers"));
  CHECK_THAT(refused(R"("swa_num_key_value_heads": 3)"),
             Containing("\"swa_num_key_value_heads\" is 3, not a divisor of 64"));
  CHECK_THAT(refused(R"("sliding_window_size": 5, "sliding_window": 6)"),
             Containing("\"sliding_window_size\" differs from \"sliding_window\""));
  CHECK_THAT(refused(R"("log_scaling_alpha": -1)"), Containing("must not be negative"));
  CHECK_THAT(refused(R"("log_scaling_n_floor": 0)"), Containing("expected 1"));
  CHECK_THAT(refused(R"("logits_mup_width_multiplier": 0)"), Containing("must not be 0"));
  CHECK_THAT(refused(R"("logits_mup_width_multiplier": 2, "embedding_multiplier": 3)"),
             Containing("and have one value"));
  CHECK_THAT(refused(R"("n_shared_experts": 0)"), Containing("expected 1"));
  CHECK_THAT(refused(R"("num_experts_per_tok": 300)"), Containing("300 of 256 experts"));
  for (const char* field : {"tie_word_embeddings", "attention_bias", "mlp_bias"})
    CHECK_THAT(refused(str('"', field, "\": true")), Containing(field));
  CHECK_THAT(refused(R"("shared_expert_sink": false)"), Containing("\"shared_expert_sink\""));
  CHECK_THAT(refused(R"("rope_theta": 5)"), Containing("\"rope_theta\" = 5"));
}

TEST_CASE("absent fields of Inkling 2 have the defaults of transformers", "[pretrained]") {
  const auto m = config2("", 201024);
  CHECK(m.max_length == 1048576);
  CHECK(m.options.n_logits == 200058);
  CHECK(m.options.soft_cap == 30);
  CHECK(m.options.depth_block == 6);
  CHECK(m.options.layer.norm_eps == 1e-6);
  for (int64_t i = 0; i < 7; ++i) {
    const nn::LayerOptions layer = layer_of(m.options, i);
    const nn::MultiHeadAttention::Options& a = layer.attention;
    CHECK(a.window == (i == 5 ? 0 : 1024));
    CHECK(a.n_heads == 48);
    CHECK(a.n_kv_heads == 8);
    CHECK(a.d_key == 128);
    CHECK_FALSE(a.scale);
    CHECK(a.taps == 4);
    CHECK(a.scaled_taps);
    CHECK(a.dynamic_taps == (i == 5));
    CHECK(a.separate_inputs == (i == 5));
    CHECK(a.qk_clip == 22.627416997969522);
    CHECK(a.v_norm_eps == 1e-6);
    CHECK(a.query_sinks);
    CHECK(a.gate == nn::AttentionGate::per_element);
    CHECK(layer.branch_taps == 4);
    CHECK(layer.branch_scale == 1 / std::sqrt(5.0));
    CHECK(layer.feed_forward.d_hidden == 2304);
    CHECK(layer.feed_forward.capped->gate == 4);
    CHECK(layer.feed_forward.capped->up == 25);
  }
}

TEST_CASE("the layers, experts and logits of Inkling 2", "[pretrained]") {
  const auto m = config2(small + R"(, "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding",
      "hybrid", "hybrid", "hybrid", "hybrid"], "log_scaling_n_floor": 4, "rel_l2_clip_threshold": 3,
      "unpadded_vocab_size": 11, "route_scale": 1.5, "n_layers_per_attn_res_block": 2)");
  nn::LanguageModel model(m.options);
  for (const int64_t i : {0, 1, 2, 3}) {
    const bool local = i % 2 == 0;
    const nn::InklingRelative::Options& position = position_of(model.layers[i]);
    CHECK(position.extent == (local ? 3 : 7));
    CHECK(position.log_floor == (local ? 0 : 4));
    CHECK(position.clip == 3);
    CHECK(bool(model.layers[i].k_norm1) == !local);
    CHECK(model.layers[i].mixer_query.defined() == (i > 0));
  }
  const auto& experts = dynamic_cast<const nn::MoE&>(*model.layers[1].network);
  CHECK(experts.expert.d_hidden == 9);
  CHECK(experts.options.scale == 1.5);
  CHECK(experts.selection_bias.defined());
  CHECK(model(zeros({1, 3}, {.dtype = i64})).shape() == Shape{1, 3, 11});
}

TEST_CASE("fields of Inkling 2 that are refused", "[pretrained]") {
  const auto refused2 = [](const std::string& more) {
    return error_of<Error>([&] { config2("\"unpadded_vocab_size\": 13, " + more); });
  };
  CHECK(refused2(small) == "(nothing thrown)");
  CHECK_THAT(error_of<Error>([] { config2("\"unpadded_vocab_size\": 14"); }),
             Containing("\"unpadded_vocab_size\" is 14 of 13 tokens"));
  for (const char* field : {"qk_l2_clip_threshold", "rel_l2_clip_threshold", "mlp_gate_softcap",
                            "mlp_up_softcap", "final_logit_softcapping"})
    CHECK_THAT(refused2(str('"', field, "\": 0")), Containing(str('"', field, "\" is 0; must be")));
  CHECK_THAT(refused2(R"("scoring_func": "softmax")"), Containing("\"scoring_func\""));
  CHECK_THAT(refused2(R"("hidden_act": "gelu")"), Containing("\"hidden_act\""));
  CHECK_THAT(refused2(R"("n_layers_per_attn_res_block": 0)"), Containing("expected 1"));
  CHECK_THAT(refused2(R"("log_scaling_n_floor": 0)"), Containing("expected 1"));
  CHECK_THAT(refused2(R"("moe_intermediate_size": 5, "intermediate_size": 6)"),
             Containing("differs from"));
  CHECK_THAT(refused2(R"("n_shared_experts": 2)"), Containing("\"n_shared_experts\" = 2"));
  CHECK_THAT(refused2(R"("tie_word_embeddings": true)"), Containing("tie_word_embeddings"));
}
