// Damaged and hostile GGUF files are rejected with one line, before memory is allocated.
#include <functional>

#include "core/storage.h"
#include "pretrained/files/gguf/gguf.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::bytes_of_value;
using stretto::testing::GgufBytes;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

constexpr uint64_t huge = uint64_t(1) << 60;

std::string array(uint32_t type, uint64_t n, const std::string& elements = "") {
  return bytes_of_value(type) + bytes_of_value(n) + elements;
}

std::string counts(uint64_t tensors, uint64_t keys) {
  return "GGUF" + bytes_of_value(uint32_t(3)) + bytes_of_value(tensors) + bytes_of_value(keys) +
         std::string(100, '\0');
}

}  // namespace

TEST_CASE("GGUF: invalid files are rejected") {
  const TempDir dir;
  const std::string path = dir.file("a");
  const auto error = [&](const std::string& bytes) {
    write_file(path, bytes);
    const std::string message = stretto::testing::error_of<Error>(
        [&] { nn::GgufFile(path).read([](const std::string&) { return true; }); });
    CHECK(message.starts_with("[GGUF] " + path + ": "));
    CHECK(message.find('\n') == std::string::npos);
    return message;
  };
  const auto with = [](auto... arguments) { return GgufBytes().key(arguments...).file(); };
  const auto tensor = [](auto... arguments) { return GgufBytes().tensor(arguments...).file(); };
  const std::string eight(32, '\0');

  CHECK_THAT(error(""), Containing("is not a GGUF file"));
  CHECK_THAT(error("GGUF"), Containing("is not a GGUF file"));
  CHECK_THAT(error("PK\3\4" + std::string(30, ' ')), Containing("looks like PyTorch's own format"));
  GgufBytes other;
  other.version = 1;
  CHECK_THAT(error(other.file()), Containing("has version 1; supported are versions 2 and 3"));
  other.version = 0x03000000;
  CHECK_THAT(error(other.file()), Containing("is big-endian; only little-endian"));
  CHECK_THAT(error(counts(huge, 0)), Containing("tensors; at most 100000 allowed"));
  CHECK_THAT(error(counts(0, huge)), Containing("keys; at most 100000 allowed"));
  CHECK_THAT(error(counts(0, 100'000)), Containing("key \"\" occurs twice"));
  CHECK_THAT(error(counts(0, 1).substr(0, 30)), Containing("truncated: 8 bytes at byte 24"));
  CHECK_THAT(error(with("k", 99u, std::string())), Containing("\"k\" has the unknown type 99"));
  CHECK_THAT(error(with("k", 8u, bytes_of_value(huge))), Containing("truncated: 1152921504606"));
  CHECK_THAT(error(with("k", 9u, array(0, huge))), Containing("truncated"));
  CHECK_THAT(error(with("k", 9u, array(8, 1000))), Containing("truncated"));
  CHECK_THAT(error(with("k", 7u, std::string("\2"))), Containing("\"k\": a bool holds 2"));
  CHECK_THAT(error(with("k", 10u, bytes_of_value(~uint64_t(0)))),
             Containing("\"k\" holds 18446744073709551615; at most 9223372036854775807"));
  CHECK_THAT(error(with("k", 9u, array(9, 1, array(9, 1, array(9, 1, array(9, 1, array(0, 0))))))),
             Containing("\"k\" has arrays in more than 4 arrays"));
  CHECK_THAT(error(GgufBytes().key("k", 1u).key("k", 2u).file()),
             Containing("key \"k\" occurs twice"));
  for (const uint32_t alignment : {0u, 3u, 1u << 21})
    CHECK_THAT(error(with("general.alignment", alignment)), Containing("must be a power of two"));
  CHECK_THAT(error(with("general.alignment", std::string("x"))), Containing("a power of two"));
  CHECK_THAT(error(with("split.count", 3u)), Containing("is one of 3 files of a model"));

  using Sizes = std::vector<uint64_t>;
  CHECK_THAT(error(tensor("t", Sizes(9, 1), 0u, eight)), Containing("\"t\" has 9 dimensions"));
  CHECK_THAT(error(tensor("t", Sizes{~uint64_t(0)}, 0u, eight)), Containing("is too large"));
  CHECK_THAT(
      error(tensor("t", Sizes{uint64_t(1) << 40, uint64_t(1) << 40}, 0u, eight)),
      Containing("\"t\": shape [1099511627776, 1099511627776] of F32 has too many elements"));
  CHECK_THAT(error(tensor("t", Sizes{9}, 0u, eight)), Containing("\"t\": truncated: 36 bytes"));
  CHECK_THAT(error(tensor("t", Sizes{33}, 8u, eight)), Containing("whole blocks of 32"));
  CHECK_THAT(error(tensor("t", Sizes{1}, 0u, eight, uint64_t(4))),
             Containing("begin at byte 4 of the data, which is not a multiple of 32"));
  CHECK_THAT(error(tensor("t", Sizes{1}, 0u, eight, huge)), Containing("after their end"));
  CHECK_THAT(error(GgufBytes().tensor("t", {1}, 0, eight).tensor("t", {1}, 0, eight).file()),
             Containing("the tensor \"t\" occurs twice"));
  CHECK_THAT(error(GgufBytes().tensor("s", {8}, 0, eight).tensor("t", {8}, 0, eight, 0).file()),
             Containing("\"t\": its data overlap those of another tensor"));
}

TEST_CASE("GGUF: every truncated file is rejected, and nothing large is allocated") {
  const TempDir dir;
  GgufBytes bytes;
  bytes.key("general.architecture", "llama")
      .key("a", 9, array(8, 2, GgufBytes::text("x") + GgufBytes::text("y")))
      .tensor("t", {4, 2}, 0, std::string(32, '\1'));
  const std::string whole = bytes.file();
  const int64_t before = memory_stats(cpu).live;
  for (size_t n = 0; n < whole.size(); ++n) {
    write_file(dir.file("a"), whole.substr(0, n));
    CHECK_THROWS_WITH(nn::GgufFile(dir.file("a")), Containing("[GGUF] "));
  }
  write_file(dir.file("a"), whole);
  CHECK(nn::GgufFile(dir.file("a"))["t"].shape() == Shape{2, 4});
  CHECK(memory_stats(cpu).live == before);
}
