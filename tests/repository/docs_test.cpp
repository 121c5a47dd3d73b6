// The documentation: files that pages name exist, pages are short, CHANGELOG.md begins with the
// current version, public headers are in stretto.h, and examples use evaluation mode.
#include <algorithm>
#include <filesystem>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/version.h"
#include "tests/support/catch.h"
#include "tests/support/find_upwards.h"
#include "tests/support/sources.h"

namespace fs = std::filesystem;
using namespace stretto;

namespace {

const fs::path root = testing::find_upwards("stretto.h").parent_path();

std::vector<std::string> pages() {
  std::vector<std::string> all{"README.md", "CONTRIBUTING.md", "CHANGELOG.md"};
  for (const auto& entry : fs::directory_iterator(root / "docs"))
    if (entry.path().extension() == ".md")
      all.push_back("docs/" + entry.path().filename().string());
  return all;
}

// Paths on `page`: targets of links and, in inline code, names with a directory and an extension or
// with a slash at the end. Patterns (with NAME, * or {}) and paths in build/ and out/ do not count.
std::set<std::string> paths_of(const std::string& page) {
  static const std::regex link(R"(\]\(([^)#:]+)\))"), code(R"(`([^`\s]+)`)"),
      path(R"(([\w.-]+/)+([\w-]+\.(h|cpp|cu|cuh|md|sh|cmake|py|awk))?)"),
      elsewhere(R"(^(build|out)/.*|.*\b(NAME|FILE|TASK)\b.*)");
  const std::string text = std::regex_replace(page, std::regex("```[^`]*```"), "");  // programs
  std::set<std::string> all;
  for (std::sregex_iterator at(text.begin(), text.end(), link), end; at != end; ++at)
    all.insert((*at)[1]);
  for (std::sregex_iterator at(text.begin(), text.end(), code), end; at != end; ++at)
    if (const std::string found = (*at)[1];
        std::regex_match(found, path) && !std::regex_match(found, elsewhere))
      all.insert(found);
  return all;
}

}  // namespace

TEST_CASE("Files and directories that pages name exist", "[repository][docs]") {
  size_t found = 0;
  for (const std::string& page : pages())
    for (const std::string& path : paths_of(testing::text_of(page))) {
      INFO(page << " names " << path);
      CHECK((fs::exists(root / path) || fs::exists((root / page).parent_path() / path)));
      ++found;
    }
  CHECK(found > 100);
}

TEST_CASE("The files of each row of docs/where-is.md contain its names", "[repository][docs]") {
  static const std::regex row(R"(\| [^|]* \| ([^|]*) \| ([^|]*) \|)"), code(R"(`(\w+)`)");
  const std::string text = testing::text_of("docs/where-is.md");
  int found = 0;
  for (std::sregex_iterator at(text.begin(), text.end(), row), end; at != end; ++at) {
    std::string files;
    for (const std::string& path : paths_of((*at)[1])) files += testing::text_of(path);
    const std::string names = (*at)[2];
    for (std::sregex_iterator n(names.begin(), names.end(), code); n != end; ++n, ++found) {
      INFO((*at)[1].str() << ": " << (*n)[1].str());
      CHECK(std::regex_search(files, std::regex("\\b" + (*n)[1].str() + "\\b")));
    }
  }
  CHECK(found > 30);
}

TEST_CASE("Links and code on a page give its paths", "[repository][docs]") {
  CHECK(paths_of("see `a/b.h`, [c](d.md), `x / y`, `out/z.md`, `t/NAME.cpp`, `nn/` and `f(x)`") ==
        std::set<std::string>{"a/b.h", "d.md", "nn/"});
}

TEST_CASE("README.md has at most 150 lines, docs/tour.md and docs/add-*.md at most 120",
          "[repository][docs]") {
  for (const std::string& page : pages()) {
    const std::string text = testing::text_of(page);
    const auto lines = std::count(text.begin(), text.end(), '\n');
    INFO(page);
    if (page == "README.md") CHECK(lines <= 150);
    if (page.rfind("docs/add-", 0) == 0 || page == "docs/tour.md") CHECK(lines <= 120);
  }
}

TEST_CASE("CHANGELOG.md and CITATION.cff have the current version", "[repository][docs]") {
  const std::string version =
      str(STRETTO_VERSION_MAJOR, ".", STRETTO_VERSION_MINOR, ".", STRETTO_VERSION_PATCH);
  CHECK(testing::text_of("CHANGELOG.md").rfind("# Changes\n\n## " + version, 0) == 0);
  CHECK_THAT(testing::text_of("CITATION.cff"), Containing("\nversion: " + version + "\n"));
  CHECK_THAT(testing::text_of("docs/sbom.spdx.json"), Containing("\"stretto-" + version + "\""));
}

TEST_CASE("Every header of the library is included by an umbrella header or listed as internal",
          "[repository][docs]") {
  // All headers that the three umbrella headers include, directly or indirectly.
  std::set<std::string> public_headers;
  std::vector<std::string> open{"stretto_pretrained.h", "stretto_music.h"};
  static const std::regex include(R"re(#include "([^"]+)")re");
  while (!open.empty()) {
    const std::string path = open.back();
    open.pop_back();
    if (!public_headers.insert(path).second) continue;
    const std::string text = testing::text_of(path);
    for (std::sregex_iterator at(text.begin(), text.end(), include), end; at != end; ++at) {
      const std::string to = (*at)[1];
      const fs::path sibling = fs::path(path).parent_path() / to;
      open.push_back(fs::exists(root / sibling) ? sibling.lexically_normal().generic_string() : to);
    }
  }
  // Headers that are not for users. A new header counts as public unless it is listed here.
  static const std::regex internal(
      "core/(atomic_file|cpu|device_table|environment|float_mode|gpu_channel|gpu_runtime|"
      "input_file|known_format|one_line|parse_number|utf8)\\.h|core/(gemm|simd)/.*|"
      "core/formulas/(elementwise_math|fft_butterfly)\\.h|"
      "autograd/(accumulate|engine|last_leaves)\\.h|ops/in_place\\.h|nn/(leaf_owners|attention/"
      "left_padding)\\.h|"
      "nn/distributed/(nccl_reducer|recursive_halving|mpi|optimizer_shards|data_parallel_step)\\.h|"
      "nn/training/training_step\\.h|nn/files/(checkpoint_format|json\\w*|matcher|other_format|"
      "safetensors_header|safetensors_index|value_format)\\.h|music/"
      "(event_score|event_vocabulary|midi_events|midi_track)\\.h|"
      "pretrained/(generation_config|gguf_model|language_models|llama_\\w+|music_transformer|"
      "other_models|rope_config)\\.h|pretrained/chat/chat_template_\\w+\\.h|"
      "pretrained/files/(byte_reader|dequantize|json\\w*|gguf/gguf_header|"
      "pytorch/(pickle\\w*|zip_archive))\\.h|"
      "pretrained/tokenizers/(tokenizer_data\\.h|(text|files|models|components)/.*)|"
      "ops/"
      "(activation|dropout_draws|elementwise_loops|elementwise_map|linear_into|loops|on_"
      "device|orthogonal|"
      "rows|weight_gradients|widened)\\.h|"
      "ops/conv/conv_(depthwise|kernels)\\.h|ops/fft/fft_plan\\.h|ops/spe/spe_\\w+\\.h|"
      "ops/attention/"
      "(attention_(implementations|problem|rows|score_terms|strips)|block_mask|heads|hidden_keys|"
      "gated_(chunks|decays|linear_attention_implementations)|work_memory|"
      "random_features_device|linear_attention_(chunks|implementations|logarithms))\\.h");
  size_t found = 0;
  for (const testing::Source& file : testing::sources()) {
    const std::string top = file.path.substr(0, file.path.find('/'));
    if (!file.path.ends_with(".h") ||
        !std::set<std::string>{"core", "autograd", "ops", "nn", "music", "pretrained"}.count(top) ||
        std::regex_match(file.path, internal))
      continue;
    INFO(file.path << " is neither in an umbrella header nor listed as internal");
    CHECK(public_headers.count(file.path));
    ++found;
  }
  CHECK(found > 80);
}

TEST_CASE("Single-file examples evaluate and generate in evaluation mode", "[repository][docs]") {
  static const std::regex measures(R"(\b(generate|beam_search|argmax|mean_loss|NoGrad)\b)");
  size_t found = 0;
  for (const auto& entry : fs::directory_iterator(root / "examples")) {
    if (entry.path().extension() != ".cpp") continue;
    const std::string text = testing::text_of("examples/" + entry.path().filename().string());
    INFO(entry.path());
    // EvalMode includes NoGrad; NoGrad alone would leave dropout on.
    if (entry.path().stem() == "microgpt") continue;  // without nn there is no EvalMode
    CHECK(text.find("NoGrad") == std::string::npos);
    if (!std::regex_search(text, measures)) continue;
    CHECK(text.find("EvalMode guard(model)") != std::string::npos);
    ++found;
  }
  CHECK(found >= 4);
}
