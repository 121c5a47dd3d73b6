// Malformed and malicious safetensors files: each is rejected with one line that gives the reason.
#include "nn/files/safetensors.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::load_safetensors;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

std::string file_of(const std::string& header, const std::string& data = "") {
  return stretto::testing::safetensors_bytes(header, data);
}

std::string error_of(const std::string& path) {
  return stretto::testing::error_of<Error>([&] { load_safetensors(path); });
}

// A file and a part of its error message.
struct Hostile {
  std::string bytes, text;
};

std::string one(const std::string& entry) { return "{\"a\":" + entry + "}"; }
std::string shaped(const std::string& shape, const std::string& offsets) {
  return one("{\"dtype\":\"F32\",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}");
}

const std::string data(8, '\1');

std::vector<Hostile> without_header() {
  const uint64_t huge = 100'000'001, endless = UINT64_MAX;
  const auto prefix = [](uint64_t n) { return std::string(reinterpret_cast<char*>(&n), 8); };
  return {
      {"", "has 0 bytes"},
      {"1234567", "has 7 bytes; needs at least 8"},
      {prefix(0), "does not begin with {"},
      {prefix(100) + "{}", "truncated: header of 100 bytes in a file of 10"},
      {prefix(huge) + "{}", "header of 100000001 bytes; at most 100000000 allowed"},
      {"version https://git-lfs.github.com/spec/v1\n",
       "allowed; it looks like a pointer of Git LFS"},
      {std::string("PK\3\4\0\0\b\b archive/data.pkl", 25),
       "allowed; it looks like PyTorch's own format"},
      {prefix(endless) + "{}", "header of 18446744073709551615 bytes"},
  };
}

std::vector<Hostile> malformed_headers() {
  return {
      {file_of("not JSON"), "does not begin with {"},
      {file_of("{\"a\":"), "the header: is not JSON (byte 6)"},
      {file_of("{} {}"), "is not JSON"},
      {file_of("{}x"), "is not JSON"},
      {file_of(std::string("{}\0rubbish", 10)), "is not JSON (byte 3)"},
      {file_of("{\"a\xff\":1}"), "is not JSON"},
      {file_of(" {}"), "does not begin with {"},
      {file_of("[]"), "does not begin with {"},
      {file_of("{" + std::string(100000, '[') + "}"), "is not JSON"},
      {file_of("{\"a\":" + std::string(100000, '[')), "more than 64 levels of objects"},
      {file_of("{\"a\":[]}"), "found a list where an object must be"},
      {file_of("{\"a\":1}"), "\"a\": found a number where an object must be"},
      {file_of("{\"a\":null}"), "found null where an object must be"},
      {file_of("{\"a\":\"text\"}"), "found a string where an object must be"},
      {file_of("{\"a\":true}"), "found a boolean where an object must be"},
      {file_of("{\"a\\n" + std::string(200, 'x') + "\":1}"), "\"a?xxx"},
  };
}

std::vector<Hostile> malformed_tensors() {
  const std::string ok = shaped("[2]", "[0,8]");
  return {
      {file_of("{\"a\":{}}"), "\"a\": \"dtype\" is missing"},
      {file_of(one(R"({"dtype":"F32"})")), "\"shape\" is missing"},
      {file_of(one(R"({"dtype":"F32","shape":[]})")), "\"data_offsets\" is missing"},
      {file_of(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1})"), data),
       "\"a\": unknown field \"x\""},
      {file_of(one(R"({"dtype":"F32","dtype":"F32","shape":[2],"data_offsets":[0,8]})"), data),
       "the field \"dtype\" occurs twice"},
      {file_of(one(R"({"dtype":{},"shape":[2],"data_offsets":[0,8]})"), data),
       "\"dtype\" holds an object"},
      {file_of(one(R"({"dtype":[],"shape":[2],"data_offsets":[0,8]})"), data),
       "\"dtype\" holds a list"},
      {file_of(one(R"({"dtype":7,"shape":[2],"data_offsets":[0,8]})"), data),
       "\"dtype\" holds a number"},
      {file_of(one(R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,8]})"), data),
       "\"a\": dtype \"F8_E4M3\" is not supported; accepted: F32, F64, BF16, F16, I64, I32, I16, "
       "I8, U8, BOOL"},
      {file_of(one(R"({"dtype":"F16","shape":[2],"data_offsets":[0,8]})"), data),
       "\"a\": F16 [2] has 4 bytes, data_offsets have 8"},
      {file_of(one(R"({"dtype":"F8_E4M3","shape":[8],"data_offsets":[0,9]})"), data),
       "\"a\": its data end at byte 9, those of the file at 8"},
      {file_of(one(R"({"dtype":"f32","shape":[2],"data_offsets":[0,8]})"), data),
       "dtype \"f32\" is not supported"},
      {file_of(ok.substr(0, ok.size() - 1) + "," + ok.substr(1), data),
       "the field \"a\" occurs twice"},
  };
}

std::vector<Hostile> impossible_shapes() {
  return {
      {file_of(shaped("2", "[0,8]"), data), "\"shape\" holds a number"},
      {file_of(shaped("\"2\"", "[0,8]"), data), "\"shape\" holds a string"},
      {file_of(shaped("null", "[0,8]"), data), "\"shape\" holds null"},
      {file_of(shaped("[[2]]", "[0,8]"), data), "\"shape\" holds a list"},
      {file_of(shaped("[{}]", "[0,8]"), data), "\"shape\" holds an object"},
      {file_of(shaped("[\"2\"]", "[0,8]"), data), "\"shape\" holds a string"},
      {file_of(shaped("[-2]", "[0,8]"), data), "shape holds the negative number -2"},
      {file_of(shaped("[2.0]", "[0,8]"), data), "shape holds 2, which is not an integer in range"},
      {file_of(shaped("[2e0]", "[0,8]"), data), "which is not an integer"},
      {file_of(shaped("[18446744073709551616]", "[0,8]"), data),
       "which is not an integer in range"},
      {file_of(shaped("[9223372036854775808]", "[0,8]"), data), "which is not an integer in range"},
      {file_of(shaped("[9223372036854775807]", "[0,8]"), data), "has too many elements"},
      {file_of(shaped("[4294967296,4294967296]", "[0,0]")), "has too many elements"},
      {file_of(shaped("[0,4611686018427387904,4]", "[0,0]")), "has too many elements"},
      {file_of(shaped("[1,1,1,1,1,1,1,1,2]", "[0,8]"), data), "shape has more than 8 numbers"},
      {file_of(shaped("[3]", "[0,8]"), data), "F32 [3] has 12 bytes, data_offsets have 8"},
      {file_of(shaped("[]", "[0,8]"), data), "F32 [] has 4 bytes, data_offsets have 8"},
      {file_of(shaped("[0]", "[0,8]"), data), "F32 [0] has 0 bytes, data_offsets have 8"},
  };
}

std::vector<Hostile> impossible_data() {
  return {
      {file_of(shaped("[2]", "[8,0]"), data), "its data begin at 8, after their end at 0"},
      {file_of(shaped("[2]", "[-8,0]"), data), "data_offsets holds the negative number -8"},
      {file_of(shaped("[2]", "[0]"), data), "data_offsets has 1 numbers"},
      {file_of(shaped("[2]", "[0,4,8]"), data), "data_offsets has 3 numbers"},
      {file_of(shaped("[2]", "[]"), data), "data_offsets has 0 numbers"},
      {file_of(shaped("[2]", "[4,12]"), data), "its data end at byte 12, those of the file at 8"},
      {file_of(shaped("[2]", "[0,8]"), data.substr(1)),
       "its data end at byte 8, those of the file at 7"},
      {file_of(shaped("[2]", "[0,8]")), "its data end at byte 8, those of the file at 0"},
      {file_of(shaped("[2]", "[0,8]"), data + "x"), "1 bytes after the data of the last tensor"},
      {file_of("{}", "x"), "1 bytes after the data of the last tensor"},
      {file_of(shaped("[1]", "[4,8]"), data), "a gap of 4 bytes before the data of \"a\""},
      {file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
               R"("b":{"dtype":"F32","shape":[1],"data_offsets":[2,6]},)"
               R"("c":{"dtype":"U8","shape":[2],"data_offsets":[6,8]}})",
               data),
       "\"b\": its data overlap those of another tensor"},
      {file_of(R"({"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("b":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
               data),
       "\"b\": its data overlap those of another tensor"},
      {file_of(one(R"({"dtype":"BOOL","shape":[2],"data_offsets":[0,2]})"), "\1\2"),
       "\"a\": a BOOL holds 2"},
  };
}

std::vector<Hostile> malformed_metadata() {
  return {
      {file_of(R"({"__metadata__":1})"), "found a number where an object must be"},
      {file_of(R"({"__metadata__":{"a":1}})"), "metadata: \"a\" holds a number"},
      {file_of(R"({"__metadata__":{"a":{}}})"), "metadata: \"a\" holds an object"},
      {file_of(R"({"__metadata__":{"a":[]}})"), "metadata: \"a\" holds a list"},
      {file_of(R"({"__metadata__":{"a":null}})"), "metadata: \"a\" holds null"},
      {file_of(R"({"__metadata__":{"a":"1","a":"2"}})"), "the field \"a\" occurs twice"},
      {file_of(R"({"__metadata__":{},"__metadata__":{}})"), "\"__metadata__\" occurs twice"},
  };
}

}  // namespace

TEST_CASE("malformed and malicious files are rejected in one line") {
  const TempDir dir;
  const std::string path = dir.file("bad.safetensors");
  for (const auto& files : {without_header, malformed_headers, malformed_tensors, impossible_shapes,
                            impossible_data, malformed_metadata})
    for (const Hostile& c : files()) {
      write_file(path, c.bytes);
      const std::string message = error_of(path);
      INFO(c.bytes.substr(0, 300));
      CHECK_THAT(message, Containing(c.text));
      CHECK(message.find("[safetensors] " + path + ": ") == 0);
      CHECK(message.find('\n') == std::string::npos);
      CHECK(message.size() < path.size() + 250);
      CHECK_THROWS_AS(
          nn::load_safetensors_metadata(path).size() + load_safetensors(path).metadata.size(),
          Error);
    }
  write_file(path, file_of(shaped("[2]", "[0,8]"), data));
  CHECK(load_safetensors(path)["a"].shape() == Shape{2});

  CHECK_THAT(error_of(dir.file("none")), Containing("cannot open: No such file or directory"));
  CHECK_THAT(error_of(dir.file(".")), Containing("is not a regular file"));
  CHECK_THAT(error_of("/dev/zero"), Containing("is not a regular file"));
}
