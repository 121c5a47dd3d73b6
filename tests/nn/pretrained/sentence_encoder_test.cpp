#include <filesystem>
#include <fstream>
#include <sstream>

#include "stretto.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/published_models.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using testing::worst_error;

// The expected vectors are those of tests/nn/pretrained/expected_minilm.py.
TEST_CASE("MiniLM gives the vectors of sentence-transformers", "[pretrained]") {
  const std::string expected = testing::published_model("expected/minilm.safetensors"),
                    model = testing::published_model("minilm/model");
  if (expected.empty() || model.empty())
    STRETTO_SKIP("no MiniLM, or no vectors of tests/nn/pretrained/expected_minilm.py");
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
