// Models of transformers, written by tests/nn/pretrained/expected.py, loaded and compared with its outputs.
#include <filesystem>
#include <fstream>

#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::worst_error;

namespace {

// Returns the output of a loaded model for the inputs in `expected`.
Tensor output_of(const nn::Pretrained& p, const nn::Safetensors& expected) {
  const Device device = p.model->device();
  const Tensor tokens = expected["tokens"].to(device);
  if (p.model_type == "t5") return p.sequence_to_sequence()(tokens, expected["target"].to(device));
  if (p.model_type == "bert" || p.model_type == "deberta-v2")
    return p.bert()(nn::TokenBatch(tokens, expected["padding"].to(device)));
  if (p.model_type == "transfo-xl") {
    nn::TransformerXL::Memory memory;
    const Tensor first = p.transformer_xl().log_probabilities(tokens.slice(1, 0, 8), &memory);
    return cat({first, p.transformer_xl().log_probabilities(tokens.slice(1, 8), &memory)}, 1);
  }
  return p.language_model()(tokens);
}

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
  const std::string models = testing::expected_values("STRETTO_PRETRAINED", "pretrained");
  if (models.empty()) STRETTO_SKIP("no models of tests/nn/pretrained/expected.py");
  int n = 0;
  for (const auto& entry : std::filesystem::directory_iterator(models)) {
    const std::string folder = entry.path();
    if (std::filesystem::exists(folder + "/adapter_config.json")) continue;
    INFO(folder);
    const nn::Pretrained p = nn::load_pretrained(folder, {.dtype = f64});
    const nn::Safetensors expected = nn::load_safetensors(folder + "/expected.safetensors");
    const NoGrad guard;
    Tensor y = output_of(p, expected), want = expected["output"];
    if (p.model_type == "bert") CHECK(worst_error(p.bert().pooled(y), expected["pooled"]) < 1e-5);
    if (p.model_type == "bert" || p.model_type == "deberta-v2") {
      y = y.slice(1, 0, 13);  // the second row has 13 tokens
      want = want.slice(1, 0, 13);
    }
    CHECK(worst_error(y, want) < 2e-5);
    ++n;
  }
  CHECK(n >= 28);
}

TEST_CASE("load_pretrained reads DeBERTa's SentencePiece model", "[pretrained]") {
  const std::string models = testing::expected_values("STRETTO_PRETRAINED", "pretrained");
  const std::string folder = models + "/deberta-v3";
  if (models.empty() || !std::filesystem::exists(folder + "/spm.model"))
    STRETTO_SKIP("no models of tests/nn/pretrained/expected.py");
  const nn::Pretrained p = nn::load_pretrained(folder);
  const nn::Safetensors expected = nn::load_safetensors(folder + "/tokenizer.safetensors");
  std::string text;
  for (const int64_t byte : expected["text"].to_vector<int64_t>()) text += char(byte);
  const std::vector<int32_t> ids = p.tokenizer->encode(text);
  CHECK(std::vector<int64_t>(ids.begin(), ids.end()) == expected["ids"].to_vector<int64_t>());
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
             Containing("not supported for this model: \"new_trick\" = true"));
  CHECK_THAT(
      error("\"rope_scaling\": null", "\"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 2}"),
      Containing("\"rope_type\" is \"dynamic\"; supported are \"default\", \"linear\""));
  CHECK_THAT(error("\"hidden_size\": 8", "\"hidden_size\": -8"), Containing("expected 1 … "));
  CHECK_THAT(error("\"hidden_size\": 8", "\"hidden_size\": \"8\""),
             Containing("\"hidden_size\" is \"8\"; expected an integer"));
  CHECK_THAT(error("\"hidden_size\": 8,", ""), Containing("the field \"hidden_size\" is missing"));
  CHECK_THAT(error("\"num_key_value_heads\": 1", "\"num_key_value_heads\": 3"),
             Containing("not a divisor of 2"));
  CHECK_THAT(error("\"vocab_size\": 7", "\"vocab_size\": 8"), Containing("lm_head.weight"));
  CHECK_THAT(error("\"vocab_size\": 7", "\"hidden_act\": \"mish\", \"vocab_size\": 7"),
             Containing("activation \"mish\" is not supported; supported are relu, gelu"));
  CHECK_THAT(error("}", ""), Containing("not valid JSON"));
  CHECK_THAT(error("null", std::string(100, '[') + std::string(100, ']')),
             Containing("nested more than 32 levels deep"));
}
