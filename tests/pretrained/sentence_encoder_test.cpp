#include <filesystem>
#include <fstream>
#include <sstream>

#include "stretto_pretrained.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::worst_error;

// The expected vectors are those of tests/pretrained/expected_minilm.py.
TEST_CASE("MiniLM gives the vectors of sentence-transformers", "[pretrained]") {
  const std::string expected = testing::published_model("expected/minilm.safetensors"),
                    model = testing::published_model("minilm/model");
  if (expected.empty() || model.empty())
    STRETTO_SKIP("no MiniLM, or no vectors of tests/pretrained/expected_minilm.py");
  const nn::Safetensors file = nn::load_safetensors(expected);
  std::string text;
  for (const int64_t byte : file["text"].to_vector<int64_t>()) text += char(byte);
  std::vector<std::string> sentences;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) sentences.push_back(line);
  const auto encoder = nn::SentenceEncoder::load(model);
  CHECK(encoder.max_length() == 256);
  CHECK(encoder.pooling() == nn::Pooling::mean);
  CHECK(encoder.normalizes());
  const Tensor vectors = encoder.encode(sentences);
  const std::vector<double> ours = vectors.to_vector<double>(),
                            theirs = file["vectors"].to_vector<double>();
  REQUIRE(ours.size() == theirs.size());
  double worst = 0;
  for (size_t i = 0; i < ours.size(); ++i) worst = std::max(worst, std::abs(ours[i] - theirs[i]));
  INFO("largest difference " << worst);
  CHECK(worst < 1e-6);
  CHECK(worst_error(encoder.encode(sentences, 1), vectors) < 1e-5);
  CHECK(encoder.encode({}).shape() == Shape{0, 384});
}

TEST_CASE("a sentence encoder refuses modules that it does not have", "[pretrained]") {
  const std::string model = testing::published_model("minilm/model");
  if (model.empty()) STRETTO_SKIP("no MiniLM of tests/published_models.sh");
  const testing::TempDir dir;
  for (const auto& entry : std::filesystem::directory_iterator(model))
    if (entry.path().filename() != "modules.json")
      std::filesystem::create_symlink(std::filesystem::absolute(entry.path()),
                                      dir.file(entry.path().filename()));
  const auto error = [&](const std::string& modules) {
    std::ofstream(dir.file("modules.json")) << modules;
    try {
      nn::SentenceEncoder::load(dir.str());
    } catch (const Error& e) {
      return std::string(e.what());
    }
    return std::string("no error");
  };
  CHECK(error("[]") == "no error");
  CHECK_THAT(error(R"([{"type": "sentence_transformers.models.Dense", "path": "2_Dense"}])"),
             Containing("Dense\" is not supported; supported are Transformer, Pooling, Normalize"));
  CHECK_THAT(error(R"([{"type": "x.Pooling", "path": "../1_Pooling"}])"),
             Containing("leaves the folder"));
  CHECK_THAT(error("{}"), Containing("must be a list of JSON"));
  CHECK_THAT(error("[3]"), Containing("must be an object of JSON"));
}

TEST_CASE("settings of sentence-transformers are used or refused", "[pretrained]") {
  nn::Bert::Options o = nn::bert_base(9);
  o.n_layers = 1;
  o.layer.d_model = 8;
  o.layer.attention.n_heads = 2;
  o.layer.feed_forward.d_hidden = 12;
  o.max_length = 16;
  o.pooler = false;
  const nn::Bert model(o);
  const testing::TempDir dir;
  const auto write = [&](const std::string& folder) {
    std::filesystem::create_directories(dir.file(folder));
    testing::write_file(dir.file(folder + "/config.json"),
                        R"({"model_type": "bert", "vocab_size": 9, "hidden_size": 8,
        "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 12,
        "max_position_embeddings": 16})");
    testing::write_file(dir.file(folder + "/vocab.txt"),
                        "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nab\ncd\nAB\n\u00FC\n");
    testing::write_file(dir.file(folder + "/tokenizer_config.json"), R"({"do_lower_case": false})");
    nn::save_weights(dir.file(folder + "/model.safetensors"), model, nn::bert_names());
  };
  write("new");
  write("old/0_Transformer");
  testing::write_file(dir.file("old/modules.json"),
                      R"([{"type": "sentence_transformers.models.Transformer", "path":
                      "0_Transformer"}])");
  const auto encode = [&](const std::string& folder, const std::string& text) {
    return nn::SentenceEncoder::load(dir.file(folder)).encode({text});
  };
  const Tensor ab = encode("new", "ab"), upper = encode("new", "AB");
  CHECK(worst_error(ab, upper) > 1e-3);
  CHECK(testing::same_bits(encode("old", "ab"), ab));

  testing::write_file(dir.file("old/0_Transformer/sentence_bert_config.json"),
                      R"({"max_seq_length": 8, "do_lower_case": true})");
  CHECK(testing::same_bits(encode("old", "AB"), ab));
  CHECK(testing::same_bits(encode("old", "\u00DC"), encode("new", "\u00FC")));
  CHECK(nn::SentenceEncoder::load(dir.file("old")).max_length() == 8);
  // A longer sentence is cut before its end marker.
  CHECK(testing::same_bits(encode("old", "ab ab ab ab ab ab cd cd"),
                           encode("old", "ab ab ab ab ab ab")));
  const std::string task = R"({"transformer_task": "feature-extraction", "module_output_name":
      "token_embeddings", "modality_config": {"text": {"method": "forward", "method_output_name":
      "last_hidden_state"})";
  testing::write_file(dir.file("new/sentence_bert_config.json"), task + "}}");
  for (const auto& [length, limit] : {std::pair<const char*, int64_t>("6", 6), {"1e30", 16}}) {
    testing::write_file(
        dir.file("new/tokenizer_config.json"),
        std::string(R"({"do_lower_case": false, "model_max_length": )") + length + "}");
    CHECK(nn::SentenceEncoder::load(dir.file("new")).max_length() == limit);
  }
  CHECK(testing::same_bits(encode("new", "ab"), ab));
  testing::write_file(dir.file("new/sentence_bert_config.json"),
                      task + R"(, "image": {"method": "forward"}}})");
  CHECK_THROWS_WITH(encode("new", "ab"), Containing("\"image\""));
  testing::write_file(dir.file("new/sentence_bert_config.json"), R"({"new_trick": 3})");
  CHECK_THROWS_WITH(encode("new", "ab"), Containing("not supported: \"new_trick\" = 3"));

  const auto prompted = [&](const std::string& fields) {
    testing::write_file(dir.file("old/config_sentence_transformers.json"), fields);
    return encode("old", "ab");
  };
  CHECK(testing::same_bits(prompted(R"({"prompts": {"query": "cd "}, "default_prompt_name": null,
      "similarity_fn_name": "cosine"})"),
                           ab));
  const Tensor query = prompted(R"({"prompts": {"query": "cd "}, "default_prompt_name": "query"})");
  prompted("{}");
  CHECK(testing::same_bits(query, encode("old", "cd ab")));
  CHECK_THROWS_WITH(prompted(R"({"prompts": {"a": "x"}, "default_prompt_name": "query"})"),
                    Containing("the field \"query\" is missing"));
}
