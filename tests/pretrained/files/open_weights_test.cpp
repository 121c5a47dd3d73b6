#include "pretrained/files/open_weights.h"

#include <filesystem>

#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/pytorch_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using namespace stretto::testing;
using stretto::nn::open_weights;

namespace {

const std::string eight = std::string("\0\0\x80\x3f", 4) + std::string("\0\0\0\x40", 4);

std::string torch_file() {
  return torch_zip(
      pickled_dict(pickled("x") + pickled(PickledTensor{.numel = 2, .shape = {2}, .strides = {1}})),
      eight);
}
std::string gguf_file() { return GgufBytes().tensor("x", {2}, 0, eight).file(); }

void check_opens(const std::string& path) {
  INFO(path);
  const std::unique_ptr<nn::WeightsFile> file = open_weights(path);
  REQUIRE(file->entries().size() == 1);
  CHECK(file->entries()[0].name == "x");
  CHECK((*file)["x"].to_vector<float>() == std::vector<float>{1, 2});
}

}  // namespace

TEST_CASE("open_weights recognizes formats by their content") {
  const TempDir dir;
  const std::string path = dir.file("a.name");
  write_file(path, torch_file());
  check_opens(path);
  write_file(path, torch_pickles(
                       pickled_dict(pickled("x") + pickled(PickledTensor{
                                                       .numel = 2, .shape = {2}, .strides = {1}})),
                       2, eight));
  check_opens(path);
  write_file(path, gguf_file());
  check_opens(path);
  nn::save_safetensors(path, {{"x", tensor(std::vector<float>{1, 2}, {2})}});
  check_opens(path);
  // As many tensors as a safetensors header would begin with.
  GgufBytes many;
  for (int i = 0; i < '{'; ++i) many.tensor(str("x", i), {2}, 0, eight);
  write_file(path, many.file());
  CHECK(open_weights(path)->entries().size() == '{');

  CHECK_THROWS_WITH(open_weights(dir.file("no")), Containing("[load] " + dir.file("no")));
  write_file(path, "some text");
  CHECK_THROWS_WITH(open_weights(path), Containing("it looks like text: \"some text\""));
}

TEST_CASE("open_weights finds the file of a directory") {
  const TempDir dir;
  CHECK_THROWS_WITH(open_weights(dir.str()),
                    Containing(": is not a regular file, nor a directory with model.safetensors"));
  write_file(dir.file("a.gguf"), gguf_file());
  check_opens(dir.str());
  write_file(dir.file("b.gguf"), gguf_file());
  CHECK_THROWS_WITH(open_weights(dir.str()), Containing(": has 2 files *.gguf; pass the path"));
  write_file(dir.file("pytorch_model.bin"), torch_file());
  check_opens(dir.str());
  nn::save_safetensors(dir.file("model.safetensors"),
                       {{"x", tensor(std::vector<float>{1, 2}, {2})}});
  CHECK(open_weights(dir.str())->path() == dir.file("model.safetensors"));
}

TEST_CASE("open_weights opens shards of any format") {
  const TempDir dir;
  const std::string index = dir.file("pytorch_model.bin.index.json");
  const auto write_index = [&](const std::string& shard) {
    write_file(index, R"({"metadata":{},"weight_map":{"x":")" + shard + "\"}}");
  };
  write_file(dir.file("pytorch_model-00001-of-00001.bin"), torch_file());
  write_index("pytorch_model-00001-of-00001.bin");
  check_opens(index);
  check_opens(dir.str());
  write_file(dir.file("a.gguf"), gguf_file());
  write_index("a.gguf");
  check_opens(index);
  write_file(index, R"({"weight_map":{"x":"a.gguf","y":"a.gguf"}})");
  check_opens(index);
  CHECK_THROWS_WITH((*open_weights(index))["y"],
                    Containing(dir.file("a.gguf") + ": has no tensor \"y\", which the index"));
  for (const char* shard : {"../a.gguf", "/etc/passwd", "..", ".", ""}) {
    write_index(shard);
    CHECK_THROWS_WITH(open_weights(index), Containing("a shard must be a file name without"));
  }
  write_index("missing.bin");
  CHECK_THROWS_WITH(open_weights(index),
                    "[load] " + index + ": the shard \"missing.bin\" is missing");
  write_file(index, "{}");
  CHECK_THROWS_WITH(open_weights(index), Containing("[load] " + index + ": the index has no"));
  write_index("pytorch_model.bin.index.json");
  CHECK_THROWS_AS(open_weights(index), Error);
}
