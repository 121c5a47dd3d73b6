#include "pretrained/files/pytorch/pytorch.h"

#include "nn/files/weights.h"
#include "nn/linear.h"
#include "ops/create.h"
#include "pretrained/files/open_weights.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/pytorch_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using namespace stretto::testing;
using stretto::nn::PyTorchFile;

namespace {

using Floats = std::vector<float>;

std::string floats(const Floats& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// The opcodes of {"w": 2 × 3 values, "columns": their transpose, "row": the last row,
// "all": [1, 2] expanded to [3, 2]}.
std::string views() {
  const auto view = [](int64_t offset, std::vector<int64_t> shape, std::vector<int64_t> strides) {
    return pickled(PickledTensor{
        .numel = 6, .offset = offset, .shape = std::move(shape), .strides = std::move(strides)});
  };
  return pickled_dict(pickled("w") + view(0, {2, 3}, {3, 1}) + pickled("columns") +
                      view(0, {3, 2}, {1, 3}) + pickled("row") + view(3, {3}, {1}) +
                      pickled("all") + view(0, {3, 2}, {0, 1}));
}

void check_views(const std::string& path) {
  const PyTorchFile file(path);
  REQUIRE(file.entries().size() == 4);
  CHECK(file.entries()[1].name == "columns");
  CHECK(file.entries()[1].shape == Shape{3, 2});
  CHECK(file.entries()[1].dtype == "F32");
  const auto check_all = [](const std::vector<Tensor>& x) {
    CHECK(x[0].to_vector<float>() == Floats{1, 2, 3, 4, 5, 6});
    CHECK(x[1].to_vector<float>() == Floats{1, 4, 2, 5, 3, 6});
    CHECK(x[2].to_vector<float>() == Floats{4, 5, 6});
    CHECK(x[3].to_vector<float>() == Floats{1, 2, 1, 2, 1, 2});
  };
  check_all({file["w"], file["columns"], file["row"], file["all"]});
  CHECK(file["row"].storage().bytes == 12);  // not the whole storage
  // Read together, they share memory.
  const std::vector<nn::NamedTensor> all = file.read([](const std::string&) { return true; });
  check_all({all[0].tensor, all[1].tensor, all[2].tensor, all[3].tensor});
  for (const nn::NamedTensor& n : all)
    CHECK(n.tensor.shared_storage() == all[0].tensor.shared_storage());
}

}  // namespace

TEST_CASE("PyTorch: views in a zip archive, in zip64, and in the older format") {
  const TempDir dir;
  const std::string path = dir.file("a"), data = floats({1, 2, 3, 4, 5, 6});
  write_file(path, torch_zip(views(), data));
  check_views(path);
  write_file(path, zip_bytes({{"x/y/data.pkl", pickle(views())},
                              {"x/y/byteorder", "little"},
                              {"x/y/data/0", data},
                              {"x/y/other", "not read", 8}},
                             true));
  check_views(path);
  write_file(path, torch_zip(views(), data) + "a comment");  // its length is wrong, but harmless
  check_views(path);
  write_file(path, torch_pickles(views(), 6, data));
  check_views(path);
}

TEST_CASE("PyTorch: a view of a storage in the older format") {
  const TempDir dir;
  const std::string view = "(" + pickled("7") + pickled(2) + pickled(3) + "t";
  const std::string value = pickled_dict(
      pickled("w") +
      pickled(PickledTensor{.numel = 6, .offset = 1, .shape = {2}, .strides = {1}}, view));
  write_file(dir.file("a"), torch_pickles(value, 6, floats({1, 2, 3, 4, 5, 6})));
  CHECK(PyTorchFile(dir.file("a"))["w"].to_vector<float>() == Floats{4, 5});
}

TEST_CASE("PyTorch: dicts, lists and tuples are flattened; simple values are metadata") {
  const TempDir dir;
  const std::string one = pickled(PickledTensor{.numel = 1, .shape = {1}, .strides = {1}});
  const std::string list = "](" + one + "\x85" + one + "e";  // [(one,), one]
  const std::string value = pickled_dict(
      pickled("model") + pickled_dict(pickled("a.b") + one + pickled(7) + one) + pickled("list") +
      list + pickled("step") + pickled(12) + pickled("text") + pickled("x") + pickled("rate") +
      "G\x3f\xb9\x99\x99\x99\x99\x99\x9a" + pickled("on") + "\x88" + pickled("none") + "N" +
      pickled("type") + pickled_global("torch", "float16") + pickled("device") +
      pickled_global("torch", "device") + pickled("cpu") + "\x85R" + pickled("big") +
      "\x8a\x09\1\1\1\1\1\1\1\1\1" + pickled("numbers") + "](" + pickled(1) + pickled(2) + "e");
  write_file(dir.file("a"), torch_zip(value, floats({0.5})));
  const PyTorchFile file(dir.file("a"));
  std::vector<std::string> names;
  for (const auto& entry : file.entries()) names.push_back(entry.name);
  CHECK(names == std::vector<std::string>{"model.a.b", "model.7", "list.0.0", "list.1"});
  CHECK(file["list.1"].item() == 0.5);
  CHECK(file.metadata() == nn::Metadata{{"step", "12"},
                                        {"text", "x"},
                                        {"rate", "0.1"},
                                        {"on", "true"},
                                        {"type", "torch.float16"},
                                        {"device", "cpu"}});
  write_file(dir.file("a"), torch_zip(one, floats({0.5})));
  CHECK(PyTorchFile(dir.file("a"))["tensor"].item() == 0.5);
}

TEST_CASE("PyTorch: all dtypes are recognized") {
  const TempDir dir;
  struct Case {
    const char *storage, *dtype;
    std::string data;
    DType read_as;
    double value;
  };
  const std::string zero(1, '\0');
  const std::vector<Case> cases = {
      {"FloatStorage", "F32", "\1\1\x80\x3f", f32, double(std::bit_cast<float>(0x3f800101))},
      {"DoubleStorage", "F64", bytes_of_value(0.1), f64, 0.1},
      {"HalfStorage", "F16", zero + "\xc1", f32, -2.5},
      {"BFloat16Storage", "BF16", "\x80\x3f", bf16, 1},
      {"LongStorage", "I64", bytes_of_value(int64_t(-3)), i64, -3},
      {"IntStorage", "I32", bytes_of_value(-4), i32, -4},
      {"ShortStorage", "I16", "\xff\xff", i32, -1},
      {"CharStorage", "I8", "\x80", i32, -128},
      {"ByteStorage", "U8", "\x80", u8, 128},
      {"BoolStorage", "BOOL", "\1", boolean, 1}};
  for (const Case& c : cases) {
    INFO(c.storage);
    write_file(dir.file("a"),
               torch_zip(pickled(PickledTensor{.storage = c.storage, .numel = 1}), c.data));
    const PyTorchFile file(dir.file("a"));
    CHECK(file.entries()[0].dtype == c.dtype);
    CHECK(file["tensor"].dtype() == c.read_as);
    CHECK(file["tensor"].shape() == Shape{});
    CHECK(file["tensor"].item() == c.value);
  }
  write_file(dir.file("a"),
             torch_zip(pickled(PickledTensor{.storage = "ComplexFloatStorage", .numel = 1}),
                       bytes_of_value(0.1)));
  CHECK_THROWS_WITH(PyTorchFile(dir.file("a"))["tensor"],
                    Containing("\"tensor\" has C64, which is not supported; accepted: F32, "));
  write_file(dir.file("a"),
             torch_zip(pickled(PickledTensor{.storage = "BoolStorage", .numel = 1}), "\2"));
  CHECK_THROWS_WITH(PyTorchFile(dir.file("a"))["tensor"], Containing("a BOOL holds 2"));
}

TEST_CASE("PyTorch: weights are loaded, with a prefix removed and tied tensors shared") {
  const TempDir dir;
  const PickledTensor w{.numel = 4, .shape = {2, 2}, .strides = {1, 2}};
  const std::string value =
      pickled_dict(pickled("state_dict") +
                   pickled_dict(pickled("weight") + pickled(w) + pickled("tied") + pickled(w)) +
                   pickled("epoch") + pickled(3));
  write_file(dir.file("a.pt"), torch_zip(value, floats({1, 2, 3, 4})));
  nn::Linear layer({.in = 2, .out = 2, .bias = false});
  nn::NameMap names{{"tied", "weight"}};
  names.strip("state_dict.");
  CHECK(nn::load_weights(*nn::open_weights(dir.file("a.pt")), layer, names).loaded.size() == 1);
  CHECK(layer.weight.to_vector<float>() == Floats{1, 3, 2, 4});
  CHECK(layer.weight.is_contiguous());
}
