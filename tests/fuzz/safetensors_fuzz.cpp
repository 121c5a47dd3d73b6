// The fuzz target of load_safetensors(). An input that begins with { is a header up to the end of
// the line, then data; the length of the header is prepended, so that it is mostly correct.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/error.h"
#include "nn/files/safetensors.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

std::string with_length(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  std::string file;
  for (int i = 0; i < 8; ++i) file += static_cast<char>(end >> 8 * i & 0xFF);
  file += input.substr(0, end);
  if (end < input.size()) file += input.substr(end + 1);
  return file;
}

bool run(std::string_view input) {
  static MemoryFile file;
  const std::string bytes =
      !input.empty() && input[0] == '{' ? with_length(input) : std::string(input);
  file.hold(bytes);
  try {
    const nn::Safetensors loaded = nn::load_safetensors(file.path());
    std::size_t held = 0;
    unsigned sum = 0;
    for (const nn::NamedTensor& named : loaded.tensors) {
      const auto size =
          static_cast<std::size_t>(named.tensor.numel() * item_size(named.tensor.dtype()));
      if (size == 0) continue;
      const auto* values = static_cast<const unsigned char*>(named.tensor.raw_data());
      for (std::size_t i = 0; i < size; ++i) sum += values[i];
      held += size;
    }
    require(held <= 4 * bytes.size(), "more values than bytes");  // I8 becomes i32
    require(sum <= 255 * held, "values out of range");
    require(nn::load_safetensors_metadata(file.path()) == loaded.metadata,
            "load_safetensors_metadata() disagrees");
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find(file.path()) != std::string::npos, "an error without the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    return false;
  }
}

}  // namespace

FuzzTarget safetensors_target() {
  const std::string two = R"({"a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]},)"
                          R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[8,11]}})";
  const std::string texts = R"({"__metadata__":{"format":"pt","note":"\u00e9\n"},)"
                            R"("":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
                            R"("e":{"dtype":"BF16","shape":[0,3],"data_offsets":[8,8]}}  )";
  return {run,
          {two + "\n" + std::string(8, 'x') + std::string(3, '\1'), texts + "\n01234567", "{}",
           with_length(two + "\n" + std::string(11, '\0')),
           R"({"h":{"dtype":"F16","shape":[2],"data_offsets":[0,4]}})"
           "\nabcd"},
          {"\"F32\"",
           "\"F64\"",
           "\"BF16\"",
           "\"F16\"",
           "\"F8_E4M3\"",
           "\"I64\"",
           "\"I32\"",
           "\"U8\"",
           "\"BOOL\"",
           "\"dtype\":",
           "\"shape\":",
           "\"data_offsets\":",
           "\"__metadata__\":",
           "{",
           "}",
           "[",
           "]",
           ",",
           "\n",
           "[0,0]",
           "null",
           "true",
           "1e9",
           "-1",
           "\"\\ud800\"",
           "\xFF",
           R"("c":{"dtype":"U8","shape":[1],"data_offsets":[11,12]},)"}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::safetensors_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
