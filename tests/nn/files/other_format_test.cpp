// Files of other formats, in place of safetensors files, are recognized and named.
#include "nn/files/other_format.h"

#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::error_of;
using stretto::testing::safetensors_bytes;
using stretto::testing::TempDir;
using stretto::testing::write_file;

TEST_CASE("other formats and failed downloads are named") {
  using namespace std::string_literals;
  const TempDir dir;
  const std::string path = dir.file("model.safetensors");
  struct Case {
    std::string bytes, text;
  };
  const std::vector<Case> cases = {
      {"PK\3\4\0\0\b\b archive/data.pkl"s, "PyTorch's own format, or another archive"},
      {"\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P"s, "PyTorch's old format, a pickle"},
      {"\x80\4\x95\0\0\0\0\0\1\0\0"s, "a pickle of Python"},
      {"\x1f\x8b\b\0\0\0\0\1\2\3"s, "a compressed file (gzip)"},
      {"GGUF\3\0\0\0\1\0\0\0"s, "GGUF, the format of llama.cpp"},
      {"\x89HDF\r\n\x1a\n\0\0"s, "HDF5, the format of Keras"},
      {"\x93NUMPY\1\0v\0{'descr"s, "an array of NumPy"},
      {"version https://git-lfs.github.com/spec/v1\n", "a pointer of Git LFS"},
      {"<!DOCTYPE html><html><head><title>404</title>",
       "an HTML page, e.g. from a failed download: \"<!DOCTYPE html><html>"},
      {"\n  <html>\n<body>not found", "an HTML page"},
      {"\xEF\xBB\xBF<html>not found", "an HTML page"},
      {"<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>", "an HTML page"},
      {R"({"error":"Repository not found"})",
       R"(the index has no "weight_map"; it looks like JSON, e.g. from a failed download: "{"er)"},
      {R"( { "error": "Invalid username or password." })", "JSON, e.g. from a failed download"},
      {R"([{"error":"not found"}])", "JSON, e.g. from a failed download"},
      {"{oops oops", "the index: is not JSON (byte 2)"},
      {"Entry not found", "text: \"Entry not found\""},
      {"Invalid credentials\n", "text: \"Invalid credentials"},
      {"404", "has 3 bytes; needs at least 8; it looks like text: \"404\""},
      {"version of 2024", "it looks like text: \"version of 2024\""},
  };
  for (const Case& c : cases) {
    write_file(path, c.bytes);
    INFO(c.text);
    const std::string message = error_of<Error>([&] { nn::load_safetensors(path); });
    CHECK_THAT(message, Containing(c.text));
    CHECK(message.find("[safetensors] " + path) == 0);
    CHECK(message.find('\n') == std::string::npos);
    CHECK(error_of<Error>([&] { nn::load_safetensors_metadata(path); }) == message);
  }
  // An unknown format is not named.
  write_file(path, "\1\2\3\4\5\6\7\x08 binary");
  const std::string message = error_of<Error>([&] { nn::load_safetensors(path); });
  CHECK(message.find("looks like") == std::string::npos);
}

TEST_CASE("metadata may be null") {
  const TempDir dir;
  const std::string path = dir.file("a");
  write_file(
      path,
      safetensors_bytes(
          R"({"__metadata__":null,"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", "\1\2"));
  const nn::Safetensors file = nn::load_safetensors(path);
  CHECK(file.metadata.empty());
  CHECK(file["a"].to_vector<int32_t>() == std::vector<int32_t>{1, 2});
  write_file(path, safetensors_bytes(R"({"__metadata__":null})"));
  CHECK(nn::load_safetensors(path).tensors.empty());
  write_file(path, safetensors_bytes(R"({"__metadata__":null,"__metadata__":{}})"));
  CHECK_THROWS_WITH(nn::load_safetensors(path),
                    Containing("the field \"__metadata__\" occurs twice"));
}
