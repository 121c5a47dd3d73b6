// The fuzz target of the index of shards: an input is an index next to two valid shards. A file
// outside their directory must never be opened.

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

#include "core/error.h"
#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

struct Folder {
  const TempDir outside;
  const std::string path = outside.file("in");
  const std::string index = path + "/index.json";
  MemoryFile memory;  // index.json links to it

  Folder() {
    std::filesystem::create_directory(path);
    std::filesystem::create_symlink(memory.path(), index);
    nn::save_safetensors(path + "/m-1", {{"a", full({2}, 1)}, {"b", full({1}, 2)}});
    nn::save_safetensors(path + "/m-2", {{"c", full({3}, 3)}});
    nn::save_safetensors(outside.file("m-1"), {{"a", full({1}, 4)}, {"b", full({1}, 4)}});
  }
};

bool run(std::string_view input) {
  static Folder folder;
  folder.memory.hold(input);
  try {
    const nn::Safetensors loaded = nn::load_safetensors(folder.index);
    for (const auto& [name, value] : loaded.tensors) {
      require(name == "a" || name == "b" || name == "c", "a tensor of another file");
      const double want = name == "a" ? 1 : name == "b" ? 2 : 3;
      require(value.to_vector<double>()[0] == want, "a value of another file");
    }
    require(loaded.tensors.size() <= 3, "more tensors than the shards have");
    require(input.find("weight_map") != std::string_view::npos, "accepted without a weight_map");
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find("[safetensors] " + folder.path) == 0, "an error without the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < 2 * folder.path.size() + 400, "a long error");
    return false;
  }
}

}  // namespace

FuzzTarget safetensors_index_target() {
  const std::string one = R"({"metadata": {"total_size": 24, "note": "\u00e9", "more": [1, {}]},)"
                          R"( "weight_map": {"a": "m-1", "b": "m-1", "c": "m-2"}})";
  return {run,
          {one, R"({"weight_map":{"c":"m-2"}} )", R"({"weight_map":{}, "format": null})"},
          {"\"weight_map\":",
           "\"a\":",
           "\"m-1\"",
           "\"m-2\"",
           "\"../m-1\"",
           "\"./m-1\"",
           "\"in/../m-1\"",
           "\"..\"",
           "\"m-1\\u0000\"",
           "/",
           "\\",
           "{",
           "}",
           "[",
           "]",
           ",",
           "null",
           "true",
           "1e9",
           "-1",
           "\"\\ud800\"",
           "\xFF",
           R"("a":"m-2",)",
           R"("d":"m-1",)"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::safetensors_index_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
