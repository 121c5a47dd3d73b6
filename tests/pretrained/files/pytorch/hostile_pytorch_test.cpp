// Damaged and hostile files of torch.save() are rejected with one line; nothing is executed.
#include "core/storage.h"
#include "pretrained/files/pytorch/pytorch.h"
#include "tests/support/catch.h"
#include "tests/support/error_of.h"
#include "tests/support/pytorch_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using namespace stretto::testing;
using stretto::nn::PyTorchFile;

namespace {

const PickledTensor one{.numel = 1, .shape = {1}, .strides = {1}};
const std::string four(4, '\0');

// The error of reading all tensors of a file.
std::string error(const std::string& bytes) {
  const TempDir dir;
  const std::string path = dir.file("a");
  write_file(path, bytes);
  const std::string message =
      error_of<Error>([&] { PyTorchFile(path).read([](const std::string&) { return true; }); });
  CHECK(message.starts_with("[PyTorch] " + path + ": "));
  CHECK(message.find('\n') == std::string::npos);
  return message;
}

std::string error_of_pickle(const std::string& value) { return error(torch_zip(value, four)); }

}  // namespace

TEST_CASE("PyTorch: a pickle that would call anything is rejected by its name") {
  const std::string argument = pickled("echo") + "\x85R";
  CHECK_THAT(error_of_pickle(pickled_global("posix", "system") + argument),
             Containing("the pickle refers to \"posix.system\"; only tensors, dicts, lists and "
                        "simple values are supported, and nothing was executed"));
  CHECK_THAT(error(torch_pickles(pickled_global("builtins", "eval") + argument, 0, "")),
             Containing("refers to \"builtins.eval\""));
  CHECK_THAT(error_of_pickle(pickled("os") + pickled("system") + "\x93" + argument),
             Containing("refers to \"os.system\""));
  CHECK_THAT(error_of_pickle(pickled_global("torch._utils", "_rebuild_sparse_tensor")),
             Containing("refers to \"torch._utils._rebuild_sparse_tensor\""));
  CHECK_THAT(error_of_pickle(pickled_global("torch", "float32") + argument),
             Containing("calls \"torch.float32\", which is not supported; nothing was executed"));
  CHECK_THAT(error_of_pickle(pickled_global("torch", "device") + pickled(1) + "\x85R"),
             Containing("calls \"torch.device\" with other arguments than PyTorch does"));
  CHECK_THAT(error_of_pickle(pickled("f") + argument), Containing("something that is not a func"));
  CHECK_THAT(error_of_pickle(pickled_global("collections", "OrderedDict") + ")\x81"),
             Containing("has the opcode NEWOBJ, which is not supported; nothing was executed"));
  CHECK_THAT(error_of_pickle("(iposix\nsystem\n"), Containing("has the opcode INST"));
  CHECK_THAT(error_of_pickle(pickled_global("torch", "device") + "}b"),
             Containing("sets attributes of something that is not a dict"));
}

TEST_CASE("PyTorch: malformed pickles are rejected") {
  struct Case {
    std::string pickle;
    const char* text;
  };
  using namespace std::string_literals;
  const std::string rebuild = pickled_global("torch._utils", "_rebuild_tensor_v2");
  const std::vector<Case> cases = {
      {"", "takes a value from the empty stack"},
      {"(", "takes a value below a mark"},
      {"\x86", "takes a value from the empty stack"},
      {"t", "has no mark"},
      {"h\5", "recalls value 5, which it did not store"},
      {"j\xff\xff\xff\xff", "recalls value 4294967295, which"},
      {"q\5", "needs a value below an opcode"},
      {"X\xff\xff\xff\xff", "truncated: 4294967295 bytes"},
      {"\x8d\xff\xff\xff\xff\xff\xff\xff\xff", "truncated: 18446744073709551615 bytes"},
      {"\x8b\xff\xff\xff\x7f", "truncated: 2147483647 bytes"},
      {"\xff", "has the unknown opcode 255"},
      {"I1\n", "has the opcode INT, which is not supported"},
      {"NNNs", "adds items to something that is not a list or dict"},
      {"}(Nu", "has a key without value"},
      {"NQ", "has a persistent id that is not a storage"},
      {pickled_global("torch", "Foo"), "refers to \"torch.Foo\""},
      {"c" + std::string(2000, 'a'), "a line of more than 1000 bytes"},
      {rebuild + ")R", "with other arguments than PyTorch does"},
      {pickled_dict("N" + pickled(one)), "a key that is neither a string nor an integer"},
      {pickled_dict(pickled("a") + pickled(one) + pickled("a") + pickled(one)),
       "the name \"a\" occurs twice"},
      {pickled_dict(pickled("a.b") + pickled(one) + pickled("a") +
                    pickled_dict(pickled("b") + pickled(one))),
       "the name \"a.b\" occurs twice"}};
  for (const Case& c : cases) {
    INFO(c.text);
    CHECK_THAT(error_of_pickle(c.pickle), Containing(c.text));
  }
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", "x"}})), Containing("does not begin with a protocol"));
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", "\x80\x63N."}})), Containing("has protocol 99"));
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", "\x80\2N"}})), Containing("truncated"));
}

TEST_CASE("PyTorch: tensors outside of their storage are rejected") {
  const auto with = [](int64_t numel, int64_t offset, std::vector<int64_t> shape,
                       std::vector<int64_t> strides) {
    return error_of_pickle(pickled(PickledTensor{.numel = numel,
                                                 .offset = offset,
                                                 .shape = std::move(shape),
                                                 .strides = std::move(strides)}));
  };
  constexpr int64_t huge = int64_t(1) << 40;
  CHECK_THAT(
      with(1, 0, {2}, {1}),
      Containing("a tensor of shape [2] with strides [1] from element 0 on of a storage of 1"));
  CHECK_THAT(with(1, 1, {1}, {1}), Containing("from element 1 on of a storage of 1"));
  CHECK_THAT(with(2, 0, {2}, {1}), Containing("the storage \"0\" has 4 bytes; needs 2 values"));
  CHECK_THAT(with(huge, 0, {huge}, {1}), Containing("truncated: the storage \"0\" has 4 bytes"));
  CHECK_THAT(with(INT64_MAX, 0, {1}, {1}), Containing("which is too large"));
  CHECK_THAT(with(1, 0, {huge, huge}, {0, 0}), Containing("which is too large"));
  CHECK_THAT(with(1, 0, {2, 2}, {INT64_MAX, INT64_MAX}), Containing("which is too large"));
  CHECK_THAT(with(1, -1, {1}, {1}), Containing("other arguments"));
  CHECK_THAT(with(-1, 0, {1}, {1}), Containing("not a storage"));
  CHECK_THAT(with(1, 0, {-1}, {1}), Containing("invalid sizes"));
  CHECK_THAT(with(1, 0, {1}, {-1}), Containing("invalid sizes"));
  CHECK_THAT(with(1, 0, {1}, {1, 1}), Containing("shape [1] with strides [1, 1]"));
  CHECK_THAT(with(1, 0, std::vector<int64_t>(9, 1), std::vector<int64_t>(9, 1)),
             Containing("a tensor of 9 dimensions"));
  PickledTensor other = one;
  other.key = "../0";
  CHECK_THAT(error_of_pickle(pickled(other)), Containing("the storage \"../0\" is missing"));
  // An expanded tensor needs no memory for its elements.
  const TempDir dir;
  write_file(dir.file("a"),
             torch_zip(pickled(PickledTensor{.numel = 1, .shape = {huge, 1000}, .strides = {0, 0}}),
                       four));
  const Tensor x = PyTorchFile(dir.file("a"))["tensor"];
  CHECK(x.shape() == Shape{huge, 1000});
  CHECK(x.storage().bytes == 4);
}

TEST_CASE("PyTorch: cyclic, deep and repeating containers are rejected") {
  CHECK_THAT(error_of_pickle("]q\1h\1a"), Containing("a dict or list that contains itself"));
  CHECK_THAT(error_of_pickle("}q\1(" + pickled("a") + "h\1u"), Containing("contains itself"));
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "]";
  deep += std::string(99'999, 'a');
  CHECK_THAT(error_of_pickle(deep), Containing("nested more than 64 deep"));
  // 2³⁰ tensors, in lists of the same list twice.
  std::string many = pickled(one) + "q" + std::string(1, '\0');
  for (int i = 0; i < 30; ++i)
    many += "](h" + std::string(1, char(i)) + "h" + char(i) + "eq" + char(i + 1);
  CHECK_THAT(error_of_pickle(many), Containing("repeats its dicts and lists too often"));
  CHECK_THAT(error_of_pickle(std::string(5'000'001, ']')),
             Containing("has more than 5000000 values"));
  // Many tensors of one storage need the memory of the storage.
  std::string views = "](" +
                      pickled(PickledTensor{.numel = 1000, .shape = {1000}, .strides = {1}}) + "q" +
                      std::string(1, '\0');
  for (int i = 0; i < 5000; ++i) views += std::string("h\0", 2);
  const TempDir dir;
  write_file(dir.file("a"), torch_zip(views + "e", std::string(4000, '\0')));
  const int64_t before = memory_stats(cpu).live;
  const auto all = PyTorchFile(dir.file("a")).read([](const std::string&) { return true; });
  CHECK(all.size() == 5001);
  CHECK(memory_stats(cpu).live - before == 4000);
}

TEST_CASE("PyTorch: damaged archives are rejected") {
  const std::string value = pickled(one), good = pickle(value);
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", good, 8}, {"a/data/0", four}})),
             Containing("\"a/data.pkl\" is compressed (method 8); only stored entries"));
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", good}, {"a/data/0", four, 8}})),
             Containing("\"a/data/0\" is compressed (method 8)"));
  CHECK_THAT(error(zip_bytes({{"a/data", good}})), Containing("a zip archive without data.pkl"));
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", good}, {"b/data.pkl", good}})),
             Containing("has \"a/data.pkl\" and \"b/data.pkl\""));
  CHECK_THAT(error(torch_zip(value, four, {{"a/data/0", four}})),
             Containing("has two entries \"a/data/0\""));
  CHECK_THAT(error(torch_zip(value, four, {{"a/byteorder", "big"}})), Containing("is big-endian"));
  CHECK_THAT(error(zip_bytes({{"a/data.pkl", good}})), Containing("the storage \"0\" is missing"));
  CHECK_THAT(error("PK\3\4" + std::string(100, ' ')), Containing("no directory at its end"));
  const std::string whole = torch_zip(value, four);
  for (size_t n = 2; n < whole.size(); ++n) error(whole.substr(0, n));
  // Overlapping entries: the second header is inside of the first entry's data.
  std::string overlapping = whole;
  const size_t second = whole.rfind("PK\1\2");
  overlapping.replace(second + 42, 4, bytes_of_value(uint32_t(10)));
  CHECK_THAT(error(overlapping), Containing("\"a/data.pkl\" overlaps the next entry") ||
                                     Containing("\"a/data/0\" overlaps the next entry"));
  std::string renamed = whole;
  renamed.replace(whole.find("a/data/0"), 8, "a/data/1");
  CHECK_THAT(error(renamed), Containing("\"a/data/0\" has two names"));
}

TEST_CASE("PyTorch: damaged files of the older format are rejected") {
  const std::string value = pickled(one);
  CHECK_THAT(error("\x80\2N."), Containing("is a pickle, but not a file of torch.save()"));
  CHECK_THAT(error(torch_pickles(value, 1, four, false)), Containing("is big-endian"));
  CHECK_THAT(error(torch_pickles(value, 2, four)), Containing("truncated: 8 bytes"));
  CHECK_THAT(error(torch_pickles(value, int64_t(1) << 62, four)), Containing("truncated"));
  CHECK_THAT(error(torch_pickles(value, 0, "")), Containing("has 0 bytes; needs 1 values of F32"));
  CHECK_THAT(error(torch_pickles("}", 1, four)), Containing("no tensor has the storage \"0\""));
  const std::string whole = torch_pickles(value, 1, four);
  for (size_t n = 2; n < whole.size(); ++n) error(whole.substr(0, n));
  CHECK_THAT(error("text of another kind"), Containing("is not a file of torch.save(); it looks"));
}
