// Models of transformers, written by tests/pretrained/expected.py, loaded and compared with its outputs.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <span>

#include "stretto_pretrained.h"
#include "tests/pretrained/output_of.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/error_of.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::output_of;
using testing::worst_error;

namespace {

// A valid configuration of a small LLaMA, with a changed text.
std::string llama_config(const std::string& from = "", const std::string& to = "") {
  std::string text = R"({"model_type": "llama", "vocab_size": 7, "hidden_size": 8,
    "intermediate_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 1, "rms_norm_eps": 1e-5, "rope_theta": 1e4, "rope_scaling": null,
    "max_position_embeddings": 32, "eos_token_id": [3, 4]})";
  if (!from.empty()) text.replace(text.find(from), from.size(), to);
  return text;
}

// Writes a folder with this configuration and matching weights.
void write_llama(const testing::TempDir& folder, const std::string& config) {
  std::ofstream(folder.file("config.json")) << config;
  nn::LanguageModel::Options o = nn::llama(7);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.attention.n_kv_heads = 1;
  o.layer.feed_forward.d_hidden = 12;
  const nn::LanguageModel model(o);
  nn::save_weights(folder.file("model.safetensors"), model, nn::llama_names(o));
}

}  // namespace

TEST_CASE("load_pretrained computes what transformers computes", "[pretrained]") {
  const std::string models = testing::expected_values("STRETTO_EXPECTED_MODELS", "pretrained");
  if (models.empty()) STRETTO_SKIP("no models of tests/pretrained/expected.py");
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const std::string folder = entry.path();
    if (std::filesystem::exists(folder + "/adapter_config.json")) continue;
    INFO(folder);
    const nn::Pretrained p = nn::load_pretrained(folder, {.dtype = f64});
    const nn::Safetensors expected = nn::load_safetensors(folder + "/expected.safetensors");
    const NoGrad guard;
    Tensor y = output_of(p, expected), want = expected["output"];
    const auto has = [&](const std::string& name) {
      return std::any_of(expected.tensors.begin(), expected.tensors.end(),
                         [&](const nn::NamedTensor& t) { return t.name == name; });
    };
    if (has("pooled")) CHECK(worst_error(p.bert().pooled(y), expected["pooled"]) < 1e-5);
    if (has("padding")) {
      y = y.slice(1, 0, 13);  // the second row has 13 tokens
      want = want.slice(1, 0, 13);
    }
    CHECK(worst_error(y, want) < 2e-5);
    ++n;
  }
  CHECK(n >= 40);
}

TEST_CASE("load_pretrained reads DeBERTa's SentencePiece model", "[pretrained]") {
  const std::string models = testing::expected_values("STRETTO_EXPECTED_MODELS", "pretrained");
  const std::string folder = models + "/deberta-v3";
  if (models.empty() || !std::filesystem::exists(folder + "/spm.model"))
    STRETTO_SKIP("no models of tests/pretrained/expected.py");
  const nn::Pretrained p = nn::load_pretrained(folder);
  const nn::Safetensors expected = nn::load_safetensors(folder + "/tokenizer.safetensors");
  std::string text;
  for (const int64_t byte : expected["text"].to_vector<int64_t>()) text += char(byte);
  CHECK(p.tokenizer->encode(text) == expected["ids"].to_vector<int64_t>());
  CHECK(p.tokenizer->encode("[MASK]", {.add_special_tokens = false}).back() ==
        expected["mask"].to_vector<int64_t>()[0]);

  const auto encoder = nn::SentenceEncoder::load(folder);
  const std::vector<std::string> sentences{"the cat", "music is made of notes and of rests"};
  const Tensor batch = encoder.encode(sentences);
  for (int64_t i = 0; i < 2; ++i)
    CHECK(worst_error(batch[i], encoder.encode({sentences[size_t(i)]})[0]) < 1e-5);
}

TEST_CASE("load_pretrained reads sizes, dtype and the tokens that end an answer", "[pretrained]") {
  const testing::TempDir folder;
  write_llama(folder, llama_config());
  const nn::Pretrained p = nn::load_pretrained(folder.str(), {.dtype = bf16});
  CHECK(p.model_type == "llama");
  CHECK(p.max_length == 32);
  CHECK(p.generation.end_tokens == std::vector<int64_t>{3, 4});
  CHECK_FALSE(p.model->training());
  for (const nn::NamedTensor& n : p.model->named_tensors()) CHECK(n.tensor.dtype() == bf16);
  CHECK_THROWS_WITH(p.bert(), Containing("a llama model is a LanguageModel, not a Bert"));
}

TEST_CASE("load_pretrained names what it does not support", "[pretrained]") {
  const auto error = [](const std::string& from, const std::string& to) {
    const testing::TempDir folder;
    write_llama(folder, llama_config(from, to));
    try {
      nn::load_pretrained(folder.str());
    } catch (const Error& e) {
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error("", "") == "no error");
  CHECK_THAT(error("\"llama\"", "\"mamba\""),
             Containing("\"model_type\" is \"mamba\"; supported are llama, mistral"));
  CHECK_THAT(error("\"vocab_size\": 7", "\"vocab_size\": 7, \"new_trick\": true"),
             Containing("not supported: \"new_trick\" = true"));
  CHECK_THAT(
      error("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"axial\", \"factor\": 2}"),
      Containing("\"rope_type\" is \"axial\"; supported are \"default\", \"linear\""));
  CHECK_THAT(error("\"hidden_size\": 8", "\"hidden_size\": -8"), Containing("expected 1 … "));
  CHECK_THAT(error("\"hidden_size\": 8", "\"hidden_size\": \"8\""),
             Containing("\"hidden_size\" is \"8\"; expected an integer"));
  CHECK_THAT(error("\"hidden_size\": 8,", ""), Containing("the field \"hidden_size\" is missing"));
  CHECK_THAT(error("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3"),
             Containing("not a divisor of 2"));
  CHECK_THAT(error("\"vocab_size\": 7", "\"vocab_size\": 8"), Containing("lm_head.weight"));
  CHECK_THAT(error("\"vocab_size\": 7", "\"hidden_act\": \"mish\", \"vocab_size\": 7"),
             Containing("activation \"mish\" is not supported; supported are relu, gelu"));
  CHECK_THAT(error("}", ""), Containing("is not JSON (byte"));
  CHECK_THAT(error("null", std::string(100, '[') + std::string(100, ']')),
             Containing("more than 64 levels of objects and lists"));
}

TEST_CASE("load_pretrained accepts fields of published files that have no effect", "[pretrained]") {
  const testing::TempDir folder;
  const auto load = [&](const std::string& fields) {
    write_llama(folder, llama_config("\"vocab_size\": 7", "\"vocab_size\": 7, " + fields));
    return nn::load_pretrained(folder.str());
  };
  // transformers writes the first ones; transformers 4 wrote the options of generation here.
  load(R"("_model_name_or_path": "x", "unk_token_id": 0, "mask_token_id": 1, "num_labels": 2,
      "pruned_heads": {}, "add_cross_attention": false, "tie_encoder_decoder": false,
      "use_bfloat16": false, "output_past": true, "is_decoder": false, "unsloth_fixed": true,
      "max_length": 20, "temperature": 0.9, "bad_words_ids": null, "diversity_penalty": 0.0)");
  const auto error = [&](const std::string& fields) {
    return testing::error_of<Error>([&] { load(fields); });
  };
  CHECK_THAT(error(R"("add_cross_attention": true)"),
             Containing("\"add_cross_attention\" is true; supported is false"));
  CHECK_THAT(error(R"("pruned_heads": {"0": [1]})"), Containing("\"0\" = [1]"));
  CHECK_THAT(error(R"("is_causal": null)"), Containing("\"is_causal\" is null"));
  CHECK_THAT(error(R"("quantization_config": {"bits": 4})"),
             Containing("\"quantization_config\" = {\"bits\":4}"));
}

TEST_CASE("options of generation are read from config.json if they have no file", "[pretrained]") {
  const testing::TempDir folder;
  write_llama(folder, llama_config("\"vocab_size\": 7",
                                   "\"vocab_size\": 7, \"do_sample\": true, \"top_p\": 0.5"));
  CHECK(nn::load_pretrained(folder.str()).generation.sampling.temperature == 1);
  CHECK(nn::load_pretrained(folder.str()).generation.sampling.top_p == 0.5);
  testing::write_file(folder.file("generation_config.json"), "{}");
  CHECK(nn::load_pretrained(folder.str()).generation.sampling.temperature == 0);
}

TEST_CASE("the end token is that of transformers if no file names one", "[pretrained]") {
  const testing::TempDir folder;
  const auto ends = [&](const std::string& field) {
    write_llama(folder, llama_config(", \"eos_token_id\": [3, 4]", field));
    return nn::load_pretrained(folder.str()).generation.end_tokens;
  };
  CHECK(ends("") == std::vector<int64_t>{2});
  CHECK(ends(", \"eos_token_id\": null").empty());
}

TEST_CASE("settings of generation_config.json are used, or named when a token is sampled",
          "[pretrained]") {
  const testing::TempDir folder;
  write_llama(folder, llama_config());
  const auto generation = [&](const std::string& fields) {
    testing::write_file(folder.file("generation_config.json"), "{" + fields + "}");
    return nn::load_pretrained(folder.str()).generation;
  };
  const auto error = [&](const std::string& fields) {
    nn::GenerationOptions o = generation(fields);
    o.max_tokens = 1;
    return testing::error_of<Error>([&] {
      nn::generate([](const Tensor& x) { return zeros({1, x.size(1), 7}); }, {1}, o);
    });
  };
  // Values without effect, as in published files; transformers ignores unknown names.
  CHECK(error(R"("num_beams": 1, "max_length": 20, "min_length": 0, "no_repeat_ngram_size": 0,
      "bad_words_ids": null, "sequence_bias": null, "begin_suppress_tokens": [], "typical_p": 0.5,
      "pad_token_id": 0, "chat_format": "chatml", "cache_implementation": "hybrid")") ==
        "(nothing thrown)");
  const nn::GenerationOptions o = generation(R"("max_new_tokens": 9, "suppress_tokens": [5, 2],
      "eos_token_id": 3, "bad_words_ids": [[1], [3]], "stop_strings": "END")");
  CHECK(o.max_tokens == 9);
  CHECK(o.sampling.forbidden == std::vector<int64_t>{5, 2, 1});  // 3 ends the text
  CHECK(o.stop_strings == std::vector<std::string>{"END"});
  CHECK_FALSE(o.sampling.constrain);
  for (const std::string field :
       {"\"num_beams\": 4", "\"no_repeat_ngram_size\": 3", "\"min_new_tokens\": 2",
        "\"sequence_bias\": [[[1], 2]]", "\"forced_eos_token_id\": 2",
        "\"do_sample\": true, \"typical_p\": 0.5"}) {
    CHECK_THAT(error(field), Containing("settings of generation are not supported: "));
  }
  CHECK_THAT(error(R"("num_beams": 4, "bad_words_ids": [[1, 2]])"),
             Containing("\"num_beams\" = 4, \"bad_words_ids\" of several tokens; set"));
}

TEST_CASE("a tokenizer may have more tokens than the embedding", "[pretrained]") {
  const testing::TempDir folder;
  write_llama(folder, llama_config());
  nn::train_bpe("hello", {.vocabulary = 257}).save(folder.str());
  testing::write_file(folder.file("generation_config.json"), R"({"stop_strings": ["lo"]})");
  const nn::Pretrained p = nn::load_pretrained(folder.str());
  CHECK(p.tokenizer->size() > 7);
  CHECK(p.generation.decode({int64_t(p.tokenizer->encode("l")[0])}) == "l");
  CHECK_NOTHROW(p.language_model()(tensor(std::vector<int64_t>{6}, {1, 1})));
  CHECK_THAT(testing::error_of<Error>([&] {
               p.language_model()(tensor(std::vector<int64_t>{7}, {1, 1}));
             }),
             Containing("index 7 at position [0, 0] is out of range"));
}

TEST_CASE("of several chat templates the default one is read", "[pretrained]") {
  const testing::TempDir folder;
  write_llama(folder, llama_config());
  const auto chat_template = [&](const std::string& value) {
    testing::write_file(folder.file("tokenizer_config.json"), "{\"chat_template\": " + value + "}");
    return nn::load_pretrained(folder.str()).chat_template;
  };
  CHECK(chat_template("\"a\"") == "a");
  CHECK(chat_template(R"([{"name": "tool_use", "template": "t"},
                         {"name": "default", "template": "d"}])") == "d");
  CHECK(chat_template(R"([{"name": "tool_use", "template": "t"}])").empty());
  CHECK(chat_template("null").empty());
  CHECK_THROWS_WITH(chat_template("3"), Containing("\"chat_template\" is 3; expected a list"));
}

TEST_CASE("Pretrained::chat streams the answer up to a stop string", "[pretrained]") {
  nn::Pretrained p;
  p.tokenizer = nn::train_bpe("to be or not", {.vocabulary = 258, .special_tokens = {"<end>"}});
  p.chat_template = "{{ messages[-1].content }}:";
  p.model = std::make_unique<nn::LanguageModel>(nn::LanguageModelOptions{
      .vocabulary = p.tokenizer->size(),
      .layer = {.d_model = 8, .attention = {.n_heads = 1}, .feed_forward = {.d_hidden = 8}},
      .input = {.sinusoid = nn::Sinusoid::interleaved}});
  const std::vector<int64_t> prompt = p.tokenizer->encode("Q:");
  std::string pieces;
  // The answer that the model gives to Q, whatever its weights are.
  const auto answer = [&](const std::string& text, nn::GenerationOptions o) {
    const std::vector<int64_t> ids = p.tokenizer->encode(text);
    o.sampling.constrain = [&, ids](std::span<double> logits, const std::vector<int64_t>& tokens) {
      REQUIRE(std::equal(prompt.begin(), prompt.end(), tokens.begin()));
      for (size_t i = 0; i < logits.size(); ++i)
        if (int64_t(i) != ids[tokens.size() - prompt.size()]) logits[i] = -HUGE_VAL;
    };
    o.max_tokens = int64_t(ids.size());
    pieces.clear();
    return p.chat(
        {{"user", "Q"}}, [&](const std::string& piece) { pieces += piece + "|"; }, o);
  };
  CHECK(answer("tag", {}) == "tag");
  CHECK(pieces == "t|a|g|");
  CHECK(answer("to<b", {.stop_strings = {"<br>", "<end>"}}) == "to<b");
  CHECK(answer("yes<en<end>no", {.stop_strings = {"<br>", "<end>"}}).starts_with("yes<en"));
  CHECK(answer("a<br>no", {.stop_strings = {"<br>"}}) == "a");
  CHECK(pieces == "a|");
  CHECK(answer("é", {}) == "é");
  CHECK(pieces == "é|");
  p.chat_template = "";
  CHECK_THROWS_WITH(p.chat({{"user", "Q"}}), Containing("model without a chat template"));
}

TEST_CASE("initialize_pretrained makes a new model of a configuration", "[pretrained]") {
  const std::string config =
      R"({"model_type": "llama", "vocab_size": 300, "hidden_size": 64, "num_hidden_layers": 2,
          "num_attention_heads": 4, "intermediate_size": 96, "tie_word_embeddings": true,
          "max_position_embeddings": 32)";
  manual_seed(3);
  const nn::Pretrained p = nn::initialize_pretrained(config + R"(, "initializer_range": 0.05})");
  CHECK(p.max_length == 32);
  CHECK(!p.tokenizer);
  CHECK(!p.model->training());
  for (const nn::NamedTensor& n : p.model->named_parameters()) {
    if (n.tensor.dim() != 2) continue;
    INFO(n.name);
    CHECK(std::abs(n.tensor.square().mean().sqrt().item() - 0.05) < 0.005);
  }
  manual_seed(3);
  const nn::Pretrained again =
      nn::initialize_pretrained(config + R"(, "initializer_range": 0.05})", {.dtype = f64});
  CHECK(again.model->parameters().at(0).dtype() == f64);
  const testing::TempDir folder;
  nn::save_pretrained(folder.file("new"), p);
  const nn::Pretrained read = nn::load_pretrained(folder.file("new"));
  const Tensor tokens = tensor({1, 2, 3}).unsqueeze(0);
  CHECK(testing::same_bits(read.language_model()(tokens), p.language_model()(tokens)));

  CHECK_THROWS_WITH(nn::initialize_pretrained(R"({"model_type": "bert"})"),
                    Containing("[initialize_pretrained] config: \"model_type\" is \"bert\""));
  CHECK_THROWS_WITH(nn::initialize_pretrained(config + R"(, "unknown_field": 1})"),
                    Containing("unknown_field"));
  CHECK_THROWS_WITH(nn::initialize_pretrained("{"), Containing("[initialize_pretrained] config: "));
  CHECK_THROWS_WITH(nn::initialize_pretrained(config + "}", {.dtype = i64}),
                    Containing("[initialize_pretrained] dtype i64"));
}
