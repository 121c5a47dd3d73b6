// The fuzz target of GgufFile.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "pretrained/files/gguf/gguf.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/gguf_bytes.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

/// Reads all tensors whose types are supported, one by one.
void check_tensors(const nn::GgufFile& file, std::size_t size) {
  std::size_t held = 0;
  unsigned sum = 0;
  for (const nn::WeightsFile::Entry& entry : file.entries()) {
    try {
      file.visit([&](const std::string& name) { return name == entry.name; },
                 [&](const nn::NamedTensor& n) {
                   require(n.tensor.shape() == entry.shape, "a shape");
                   const auto bytes =
                       static_cast<std::size_t>(n.tensor.numel() * item_size(n.tensor.dtype()));
                   const auto* values = static_cast<const unsigned char*>(n.tensor.raw_data());
                   for (std::size_t i = 0; i < bytes; ++i) sum += values[i];
                   held += bytes;
                 });
    } catch (const Error& error) {
      require(std::string_view(error.what()).find("not supported") != std::string_view::npos,
              "an accepted tensor that cannot be read");
    }
  }
  require(held <= 8 * size, "more values than bytes");  // Q4_K: 7.1 f32 bytes per byte
  require(sum <= 255 * held, "values out of range");
}

bool run(std::string_view input) {
  static MemoryFile memory;
  memory.hold(input);
  try {
    const nn::GgufFile file(memory.path());
    check_tensors(file, input.size());
    for (const auto& [key, value] : file.values())
      require(file.find(key) == &value && !value.type.empty(), "a value");
    require(file.metadata().size() <= file.values().size(), "more texts than values");
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find("[GGUF] " + memory.path() + ": ") == 0, "an error without the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < 400, "a long error");
    return false;
  }
}

}  // namespace

FuzzTarget gguf_target() {
  GgufBytes tensors, keys;
  tensors.key("general.architecture", "llama")
      .tensor("a", {3, 2}, 0, std::string(24, 'a'))
      .tensor("b", {32, 2}, 2, std::string(36, 'b'))
      .tensor("c", {256}, 14, std::string(210, 'c'))
      .tensor("d", {2}, 30, "abcd")
      .tensor("e", {4}, 24, "abcd");
  const std::string texts = bytes_of_value(uint32_t(8)) + bytes_of_value(uint64_t(2)) +
                            GgufBytes::text("x") + GgufBytes::text("yz");
  keys.alignment = 8;
  keys.key("general.alignment", 8)
      .key("n", 11, bytes_of_value(int64_t(-1)))
      .key("f", 6, bytes_of_value(1.5f))
      .key("t", 7, "\1")
      .key("a", 9, texts)
      .key("aa", 9, bytes_of_value(uint32_t(9)) + bytes_of_value(uint64_t(1)) + texts)
      .tensor("x", {2, 2}, 0, std::string(16, 'x'));
  return {
      run,
      {GgufBytes().file(), tensors.file(), keys.file()},
      {"GGUF", bytes_of_value(uint64_t(1)), bytes_of_value(uint32_t(9)),
       bytes_of_value(uint32_t(8)), bytes_of_value(uint64_t(32)), GgufBytes::text("a"),
       GgufBytes::text("general.alignment"), texts, std::string(8, '\0'), std::string(8, '\xff')}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::gguf_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
