// Files that PyTorch and the gguf package of Python have written (write_peer_files.py) are read
// bit for bit. STRETTO_PYTHON names a Python with these packages.
#include <cstdlib>
#include <cstring>

#include "nn/files/safetensors.h"
#include "pretrained/files/gguf/gguf.h"
#include "pretrained/files/open_weights.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/find_upwards.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using stretto::testing::TempDir;

namespace {

bool equal_bits(const Tensor& a, const Tensor& b) {
  const Tensor x = a.contiguous(), y = b.contiguous();
  return x.shape() == y.shape() && x.dtype() == y.dtype() &&
         (x.numel() == 0 ||
          std::memcmp(x.raw_data(), y.raw_data(), size_t(x.numel() * item_size(x.dtype()))) == 0);
}

void check_torch_file(const std::string& path, const nn::Safetensors& expected) {
  INFO(path);
  const auto readable = [](const std::string& name) { return !name.starts_with("others."); };
  const std::unique_ptr<nn::WeightsFile> file = nn::open_weights(path);
  const std::vector<nn::NamedTensor> all = file->read(readable);
  CHECK(all.size() == expected.tensors.size());
  CHECK(file->entries().size() == all.size() + 3);
  for (const nn::NamedTensor& n : all) {
    INFO(n.name);
    CHECK(equal_bits(n.tensor, expected[n.name]));
    CHECK(equal_bits((*file)[n.name], expected[n.name]));
  }
  for (const char* name : {"others.c64", "others.u16", "others.f8"})
    CHECK_THROWS_WITH((*file)[name], Containing(", which is not supported; accepted: F32, "));
  for (const auto& [key, value] : nn::Metadata{{"epoch", "3"},
                                               {"rate", "0.1"},
                                               {"name", "run"},
                                               {"on", "true"},
                                               {"dtype", "torch.float16"},
                                               {"device", "cpu"}})
    CHECK(file->metadata().at(key) == value);
}

}  // namespace

TEST_CASE("files of PyTorch and of the gguf package are read bit for bit") {
  const char* variable = std::getenv("STRETTO_PYTHON");
  const std::string python = variable ? variable : "python3";
  if (std::system((python + " -c 'import gguf, safetensors, torch' >/dev/null 2>&1").c_str()) != 0)
    STRETTO_SKIP(python + " cannot import gguf, safetensors and torch; set STRETTO_PYTHON");
  const TempDir dir;
  const std::string script =
      stretto::testing::find_upwards("tests/pretrained/files/write_peer_files.py").string();
  REQUIRE(std::system((python + " " + script + " " + dir.str()).c_str()) == 0);

  const nn::Safetensors torch_values = nn::load_safetensors(dir.file("torch.safetensors"));
  for (const char* name : {"zip.pt", "zip4.pt", "old.pt"})
    check_torch_file(dir.file(name), torch_values);
  CHECK_THROWS_WITH(nn::open_weights(dir.file("module.pt")),
                    Containing("the pickle refers to \"torch.nn.modules.linear.Linear\"; only"));

  const nn::Safetensors gguf_values = nn::load_safetensors(dir.file("gguf.safetensors"));
  const nn::GgufFile quants(dir.file("quants.gguf"));
  CHECK(quants.get<std::vector<std::string>>("texts") == std::vector<std::string>{"a", "", "é"});
  CHECK(quants.entries().size() == gguf_values.tensors.size());
  for (const nn::WeightsFile::Entry& entry : quants.entries()) {
    INFO(entry.name);
    Tensor x;  // BF16 as f32, as the package returns it
    quants.visit([&](const std::string& name) { return name == entry.name; },
                 [&](nn::NamedTensor n) { x = std::move(n.tensor); },
                 [](const std::string&) { return f32; });
    CHECK(equal_bits(x, gguf_values[entry.name]));
  }
}
