// The fuzz targets of load_npy() and load_npz(). An input of load_npy() that begins with { is a
// header up to the end of the line, then data; magic, version and length are prepended.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "ops/create.h"
#include "pretrained/files/npy.h"
#include "tests/fuzz/memory_file.h"
#include "tests/fuzz/mutate.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {
namespace {

void require(bool good, const char* what) {
  if (!good) throw FuzzFailure(what);
}

std::string with_length(std::string_view input) {
  const std::size_t end = std::min(input.find('\n'), input.size());
  std::string file = "\x93NUMPY\1";
  file += '\0';
  file += static_cast<char>(end & 0xFF);
  file += static_cast<char>(end >> 8 & 0xFF);
  file += input.substr(0, end);
  if (end < input.size()) file += input.substr(end + 1);
  return file;
}

// Loads `bytes`, and reads all values.
bool loads(std::string_view bytes,
           const std::function<std::vector<Tensor>(const std::string&)>& load) {
  static MemoryFile file;
  file.hold(bytes);
  try {
    std::size_t held = 0;
    for (const Tensor& x : load(file.path())) {
      x.to_vector<double>();
      held += static_cast<std::size_t>(x.numel() * item_size(x.dtype()));
    }
    require(held <= 4 * bytes.size(), "more values than bytes");  // i1 becomes i32
    return true;
  } catch (const Error& error) {
    const std::string message = error.what();
    require(message.find(file.path()) != std::string::npos, "an error without the path");
    require(message.find('\n') == std::string::npos, "an error of several lines");
    return false;
  }
}

bool run_npy(std::string_view input) {
  return loads(!input.empty() && input[0] == '{' ? with_length(input) : std::string(input),
               [](const std::string& path) { return std::vector<Tensor>{nn::load_npy(path)}; });
}

bool run_npz(std::string_view input) {
  return loads(input, [](const std::string& path) {
    std::vector<Tensor> tensors;
    for (const nn::NamedTensor& named : nn::load_npz(path)) tensors.push_back(named.tensor);
    return tensors;
  });
}

std::vector<std::string> words() {
  return {"'<f4'", "'<f8'",   "'<f2'",    "'<i8'",           "'|i1'",       "'|b1'", "'>f4'",
          "'|O'",  "'descr'", "'shape'",  "'fortran_order'", "True",        "False", "(",
          ")",     ",",       "(0,)",     "(1, 1, )",        "99999999999", "\n",    "{",
          "}",     "-1",      "\x93NUMPY"};
}

}  // namespace

FuzzTarget npy_target() {
  const std::string matrix = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 1), }";
  const std::string column = "{'descr': '|b1', 'fortran_order': True, 'shape': (3,), }";
  return {run_npy,
          {matrix + "\n12345678", column + "\n" + std::string(3, '\1'),
           "{\"shape\": (), 'fortran_order': False, \"descr\": '<i2'}\n12",
           with_length(matrix + "\nabcdefgh")},
          words()};
}

FuzzTarget npz_target() {
  const TempDir dir;
  const std::string path = dir.file("seed.npz");
  nn::save_npz(path, {{"a", arange(3, {.dtype = i32})}, {"b", ones({2, 2}, {.dtype = boolean})}});
  return {run_npz, {read_file(path)}, words()};
}

}  // namespace stretto::testing

#ifdef STRETTO_LIBFUZZER
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  stretto::testing::run_npy({reinterpret_cast<const char*>(data), size});
  stretto::testing::run_npz({reinterpret_cast<const char*>(data), size});
  return 0;
}
#endif
