// The fuzz target of PyTorchFile. An input that begins with "#" is the pickle of a zip archive with
// a storage of 24 bytes; others are whole files.

#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "core/error.h"
#include "pretrained/files/pytorch/pytorch.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/pytorch_bytes.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

/// Checks that the storages of all tensors are small, and reads them.
void check_tensors(const nn::PyTorchFile& file, std::size_t size) {
  std::set<const void*> seen;
  std::size_t held = 0;
  unsigned sum = 0;
  const auto all = file.read([](const std::string&) { return true; });
  require(all.size() == file.entries().size(), "a tensor is missing");
  for (const nn::NamedTensor& n : all) {
    const Storage& storage = n.tensor.storage();
    const Shape &sizes = n.tensor.shape(), &strides = n.tensor.strides();
    int64_t last = n.tensor.offset();
    bool is_empty = false;
    for (int64_t d = 0; d < sizes.dim(); ++d) {
      last += (sizes[d] - 1) * strides[d];
      is_empty |= sizes[d] == 0;
    }
    require(is_empty || (last + 1) * item_size(n.tensor.dtype()) <= storage.bytes,
            "a tensor outside of its storage");
    if (!seen.insert(&storage).second) continue;
    held += static_cast<std::size_t>(storage.bytes);
    const auto* bytes = static_cast<const unsigned char*>(storage.data);
    for (int64_t i = 0; i < storage.bytes; ++i) sum += bytes[i];
  }
  require(held <= 32 * size, "more values than bytes");  // a storage may be read in several dtypes
  require(sum <= 255 * held, "values out of range");
}

bool run(std::string_view input) {
  static MemoryFile memory;
  const std::string bytes = !input.empty() && input[0] == '#'
                                ? zip_bytes({{"a/data.pkl", std::string(input.substr(1))},
                                             {"a/data/0", std::string(24, '\1')}})
                                : std::string(input);
  memory.hold(bytes);
  try {
    const nn::PyTorchFile file(memory.path());
    check_tensors(file, bytes.size());
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find("[PyTorch] " + memory.path() + ": ") == 0, "an error without the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    require(message.size() < 500, "a long error");
    return false;
  }
}

}  // namespace

FuzzTarget pytorch_target() {
  const PickledTensor w{.numel = 6, .offset = 1, .shape = {2, 2}, .strides = {1, 2}};
  const std::string value = pickled_dict(pickled("w") + pickled(w) + pickled("n") + pickled(7));
  const std::string data(24, '\1');
  const PickledTensor flags{.storage = "BoolStorage", .numel = 24, .shape = {3}, .strides = {0}};
  const std::string nested =
      "](" + pickled(flags) + "q\1h\1\x85" + pickled_dict(pickled("a") + "h\1") + "e";
  return {
      run,
      {torch_zip(value, data), zip_bytes({{"data.pkl", pickle(value)}, {"data/0", data}}, true),
       torch_pickles(value, 6, data), "#" + pickle(value), "#" + pickle(nested), "#" + pickle("N")},
      {"PK\3\4",
       "PK\1\2",
       "PK\5\6",
       "PK\6\6",
       "PK\6\7",
       "data.pkl",
       "data/0",
       "\x80\2",
       "h\1",
       "q\1",
       "R",
       ")",
       "(",
       "t",
       "}",
       "u",
       "]",
       "e",
       "s",
       "a",
       "N",
       "\x88",
       "\x85",
       "0",
       "2",
       pickled(1),
       pickled("0"),
       pickled_tuple({1, 2}),
       pickled(w),
       pickled_global("torch", "HalfStorage"),
       pickled_global("torch", "CharStorage"),
       pickled_global("torch.storage", "UntypedStorage"),
       pickled_global("torch._utils", "_rebuild_tensor"),
       pickled_global("torch._utils", "_rebuild_tensor_v3"),
       pickled_global("torch._tensor", "_rebuild_from_type_v2"),
       pickled_global("collections", "OrderedDict"),
       pickled_global("os", "system")}};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto run = stretto::testing::pytorch_target().run;
  run({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
