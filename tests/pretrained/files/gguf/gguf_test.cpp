#include "pretrained/files/gguf/gguf.h"

#include "nn/files/weights.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "pretrained/files/open_weights.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::nn::GgufFile;
using stretto::testing::bytes_of_value;
using stretto::testing::error_of;
using stretto::testing::GgufBytes;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

template <class T>
std::string bytes_of_values(const std::vector<T>& values) {
  std::string bytes;
  for (const T value : values) bytes += bytes_of_value(value);
  return bytes;
}

std::string array(uint32_t type, uint64_t n, const std::string& elements) {
  return bytes_of_value(type) + bytes_of_value(n) + elements;
}

}  // namespace

TEST_CASE("GGUF: metadata of all types is read") {
  const TempDir dir;
  GgufBytes bytes;
  bytes.key("u8", 0, "\xff")
      .key("i8", 1, "\x80")
      .key("u16", 2, bytes_of_value(uint16_t(65535)))
      .key("i16", 3, bytes_of_value(int16_t(-32768)))
      .key("u32", 4, bytes_of_value(uint32_t(4294967295)))
      .key("i32", 5, bytes_of_value(int32_t(-7)))
      .key("f32", 6, bytes_of_value(0.5f))
      .key("bool", 7, "\1")
      .key("string", 8, GgufBytes::text("é"))
      .key("u64", 10, bytes_of_value(uint64_t(INT64_MAX)))
      .key("i64", 11, bytes_of_value(INT64_MIN))
      .key("f64", 12, bytes_of_value(0.1))
      .key("strings", 9, array(8, 2, GgufBytes::text("a") + GgufBytes::text("")))
      .key("numbers", 9, array(6, 2, bytes_of_value(1.5f) + bytes_of_value(-2.0f)))
      .key("integers", 9, array(1, 2, "\1\xff"))
      .key("bools", 9, array(7, 2, std::string("\1\0", 2)))
      .key("nested", 9, array(9, 2, array(0, 1, "\5") + array(8, 0, "")));
  write_file(dir.file("a"), bytes.file());
  const GgufFile file(dir.file("a"));
  CHECK(file.entries().empty());
  CHECK(file.get<int64_t>("u8") == 255);
  CHECK(file.get<int64_t>("i8") == -128);
  CHECK(file.get<int64_t>("u16") == 65535);
  CHECK(file.get<int64_t>("i16") == -32768);
  CHECK(file.get<int64_t>("u32") == 4294967295);
  CHECK(file.get<int64_t>("i32") == -7);
  CHECK(file.get<double>("f32") == 0.5);
  CHECK(file.get<bool>("bool"));
  CHECK(file.get<std::string>("string") == "é");
  CHECK(file.get<int64_t>("u64") == INT64_MAX);
  CHECK(file.get<int64_t>("i64") == INT64_MIN);
  CHECK(file.get<double>("f64") == 0.1);
  CHECK(file.get<double>("i32") == -7);
  CHECK(file.get<std::vector<std::string>>("strings") == std::vector<std::string>{"a", ""});
  CHECK(file.get<std::vector<double>>("numbers") == std::vector<double>{1.5, -2});
  CHECK(file.get<std::vector<int64_t>>("integers") == std::vector<int64_t>{1, -1});
  CHECK(file.get<std::vector<bool>>("bools") == std::vector<bool>{true, false});
  const auto nested = file.get<std::vector<nn::GgufValue>>("nested");
  REQUIRE(nested.size() == 2);
  CHECK(nested[0].type == "array of u8");
  CHECK(std::get<std::vector<int64_t>>(nested[0].value) == std::vector<int64_t>{5});
  CHECK(file.values().size() == 17);
  CHECK(file.metadata().at("string") == "é");
  CHECK(file.metadata().at("bool") == "true");
  CHECK(file.metadata().at("f32") == "0.5");
  CHECK_FALSE(file.metadata().contains("strings"));
  CHECK(file.get<int64_t>("no", 3) == 3);
  CHECK(file.find("no") == nullptr);

  const std::string begin = "[GGUF] " + dir.file("a") + ": key ";
  CHECK(error_of<Error>([&] { file.get<int64_t>("string"); }) ==
        begin + "\"string\" is a string; expected an integer");
  CHECK(error_of<Error>([&] { file.get<std::string>("integers"); }) ==
        begin + "\"integers\" is an array of i8; expected a string");
  CHECK(error_of<Error>([&] { file.get<bool>("no"); }) ==
        begin + "\"no\" is missing; expected a bool");
  CHECK(error_of<Error>([&] { file.get<double>("bool"); }) ==
        begin + "\"bool\" is a bool; expected a number");
  CHECK(error_of<Error>([&] { file.get<int64_t>("f32", 3); }) ==
        begin + "\"f32\" is an f32; expected an integer");
}

TEST_CASE("GGUF: tensors are read in row-major order") {
  const TempDir dir;
  for (const uint32_t version : {2u, 3u})
    for (const uint32_t alignment : {32u, 8u, 1024u}) {
      GgufBytes bytes;
      bytes.version = version;
      bytes.alignment = alignment;
      bytes.key("general.alignment", alignment)
          .tensor("a", {3, 2}, 0, bytes_of_values<float>({1, 2, 3, 4, 5, 6}))
          .tensor("half", {2}, 1, std::string("\x00\x3c\x00\xc1", 4))
          .tensor("b", {}, 30, "\x80\x3f")
          .tensor("i8", {4}, 24, "\1\2\3\xff")
          .tensor("i64", {1}, 27, bytes_of_value(int64_t(1) << 40))
          .tensor("q", {32, 1}, 8, std::string("\x00\x3c", 2) + std::string(32, '\x05'))
          .tensor("other", {256}, 10, std::string(84, '\0'))
          .tensor("unknown", {7}, 5, "")
          .tensor("empty", {0, 4}, 0, "");
      write_file(dir.file("a"), bytes.file() + std::string(alignment, '\0'));
      const GgufFile file(dir.file("a"));
      REQUIRE(file.entries().size() == 9);
      CHECK(file.entries()[0].name == "a");
      CHECK(file.entries()[0].shape == Shape{2, 3});
      CHECK(file.entries()[0].dtype == "F32");
      CHECK(file["a"].to_vector<float>() == std::vector<float>{1, 2, 3, 4, 5, 6});
      CHECK(file["half"].to_vector<float>() == std::vector<float>{1, -2.5});
      CHECK(file["half"].dtype() == f32);
      CHECK(file["b"].dtype() == bf16);
      CHECK(file["b"].item() == 1);
      CHECK(file["i8"].to_vector<int>() == std::vector<int>{1, 2, 3, -1});
      CHECK(file["i64"].item<int64_t>() == int64_t(1) << 40);
      CHECK(file["q"].shape() == Shape{1, 32});
      CHECK(file["q"].to_vector<float>() == std::vector<float>(32, 5));
      CHECK(file["empty"].shape() == Shape{4, 0});
      CHECK_THROWS_WITH(file["other"],
                        Containing("\"other\" has Q2_K, which is not supported; accepted: F32, "));
      CHECK_THROWS_WITH(file["unknown"], Containing("\"unknown\" has type 5, which is not"));
      CHECK_THROWS_WITH(file["none"], Containing(dir.file("a") + ": no tensor \"none\""));
    }
}

TEST_CASE("GGUF: weights are loaded in the dtype of the model") {
  const TempDir dir;
  GgufBytes bytes;
  std::string row(2, '\0');
  row[1] = '\x3c';
  for (int i = 0; i < 32; ++i) row += char(i - 16);
  bytes.tensor("w", {32, 2}, 8, row + row).tensor("b", {2}, 0, bytes_of_values<float>({1.5, -1}));
  write_file(dir.file("a"), bytes.file());
  const nn::NameMap names{{"w", "weight"}, {"b", "bias"}};
  for (const DType dtype : {f32, f64, bf16}) {
    nn::Linear layer({.in = 32, .out = 2});
    layer.to(dtype);
    CHECK(nn::load_weights(*nn::open_weights(dir.file("a")), layer, names).loaded.size() == 2);
    CHECK(layer.weight.dtype() == dtype);
    CHECK(layer.weight[1].to_vector<float>()[3] == -13);
    CHECK(layer.bias.to_vector<float>() == std::vector<float>{1.5, -1});
  }
  nn::Linear wrong({.in = 32, .out = 3});
  CHECK_THROWS_WITH(nn::load_weights(*nn::open_weights(dir.file("a")), wrong, names),
                    Containing("weight (w): file has f32 [2, 32], the model f32 [3, 32]"));
}
