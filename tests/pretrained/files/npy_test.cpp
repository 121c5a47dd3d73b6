// NumPy's files [pretrained/files/npy.h].
#include "pretrained/files/npy.h"

#include <cmath>
#include <string>
#include <vector>

#include "ops/create.h"
#include "ops/elementwise.h"
#include "tests/support/catch.h"
#include "tests/support/compare.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::NamedTensor;
using stretto::testing::read_file;
using stretto::testing::same_bits;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

std::string npy(const std::string& header, const std::string& data, int version = 1) {
  std::string file = "\x93NUMPY";
  file += char(version);
  file += '\0';
  file += char(header.size() & 0xff);
  file += char(header.size() >> 8);
  if (version > 1) file += std::string(2, '\0');
  return file + header + data;
}

std::string header(const std::string& type, const std::string& shape, bool fortran = false) {
  return "{'descr': '" + type + "', 'fortran_order': " + (fortran ? "True" : "False") +
         ", 'shape': " + shape + ", }\n";
}

// The bytes of values of type T.
template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Tensor loaded(const std::string& bytes) {
  const TempDir dir;
  write_file(dir.file("x.npy"), bytes);
  return nn::load_npy(dir.file("x.npy"));
}

std::string error_of(const std::string& bytes, bool archive = false) {
  const TempDir dir;
  const std::string path = dir.file("x.npy");
  write_file(path, bytes);
  try {
    archive ? void(nn::load_npz(path)) : void(nn::load_npy(path));
  } catch (const Error& e) {
    const std::string text = e.what();
    CHECK(text.find('\n') == std::string::npos);
    const std::string start = std::string(archive ? "[npz] " : "[npy] ") + path + ": ";
    return text.rfind(start, 0) == 0 ? text.substr(start.size()) : text;
  }
  return "(loaded)";
}

}  // namespace

TEST_CASE("npy: a file has the bytes that numpy.save() writes", "[npy]") {
  const TempDir dir;
  nn::save_npy(dir.file("x.npy"), tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3}));
  const std::string text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const std::string padded = text + std::string(128 - 10 - text.size() - 1, ' ') + '\n';
  CHECK(read_file(dir.file("x.npy")) == npy(padded, bytes_of<float>({1, 2, 3, 4, 5, 6})));
  nn::save_npy(dir.file("x.npy"), tensor<int64_t>({7}));
  CHECK_THAT(read_file(dir.file("x.npy")),
             Containing("{'descr': '<i8', 'fortran_order': False, 'shape': (1,), }"));
}

TEST_CASE("npy: tensors of every dtype and shape return bit-identical", "[npy]") {
  const TempDir dir;
  std::vector<NamedTensor> all;
  for (DType dtype : {f32, f64, i64, i32, u8, boolean})
    for (const Shape& shape : {Shape{}, Shape{0}, Shape{5}, Shape{2, 0, 3}, Shape{3, 4},
                               Shape{1, 2, 1, 2, 1, 2, 1, 2}}) {
      const Tensor x = arange(0, double(shape.numel()), 1, {.dtype = f64}).to(dtype).view(shape);
      INFO(str(x));
      nn::save_npy(dir.file("x.npy"), x);
      CHECK(same_bits(nn::load_npy(dir.file("x.npy")), x));
      all.push_back({str(x, " λ/"), x});
    }
  nn::save_npz(dir.file("all.npz"), all);
  const std::vector<NamedTensor> got = nn::load_npz(dir.file("all.npz"));
  REQUIRE(got.size() == all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    CHECK(got[i].name == all[i].name);
    CHECK(same_bits(got[i].tensor, all[i].tensor));
  }
  nn::save_npz(dir.file("none.npz"), {});
  CHECK(nn::load_npz(dir.file("none.npz")).empty());

  const Tensor transposed = arange(6, {.dtype = f32}).view({2, 3}).transpose(0, 1);
  nn::save_npy(dir.file("x.npy"), transposed);
  CHECK(same_bits(nn::load_npy(dir.file("x.npy")), transposed));
  const Tensor narrow = tensor({1.0f, 3.14159f}).to(bf16);
  nn::save_npy(dir.file("x.npy"), narrow);
  CHECK(same_bits(nn::load_npy(dir.file("x.npy")), narrow.to(f32)));
}

TEST_CASE("npy: other types, versions and orders are read", "[npy]") {
  const auto values = [](const Tensor& x) { return x.to_vector<double>(); };
  const Tensor half = loaded(npy(header("<f2", "(2,)"), bytes_of<uint16_t>({0x3c00, 0xc100})));
  CHECK(half.dtype() == f32);
  CHECK(values(half) == std::vector<double>{1, -2.5});
  const Tensor small = loaded(npy(header("|i1", "(2,)"), "\xff\x7f"));
  CHECK(small.dtype() == i32);
  CHECK(values(small) == std::vector<double>{-1, 127});
  CHECK(values(loaded(npy(header("<i2", "()"), "\xfe\xff"))) == std::vector<double>{-2});
  for (int version : {2, 3})
    CHECK(values(loaded(npy(header("<f8", "(1,)"), bytes_of<double>({0.1}), version))) ==
          std::vector<double>{0.1});
  const Tensor columns =
      loaded(npy(header("<f4", "(2, 3)", true), bytes_of<float>({1, 4, 2, 5, 3, 6})));
  CHECK(columns.shape() == Shape{2, 3});
  CHECK(values(columns) == std::vector<double>{1, 2, 3, 4, 5, 6});
  // Keys in any order, double quotes, and no commas at the ends.
  CHECK(loaded(npy("{\"shape\":(1,2),'fortran_order':False,\"descr\":'|u1'}", "ab")).numel() == 2);
}

TEST_CASE("npy: invalid files are refused", "[npy]") {
  const std::string four = bytes_of<float>({1});
  CHECK_THAT(error_of(""), Containing("is not an array of NumPy"));
  CHECK_THAT(error_of("PK\3\4 and more bytes"),
             Containing("is not an array of NumPy; it looks like"));
  CHECK_THAT(error_of(npy(header("<f4", "(1,)"), four, 4)),
             Containing("version 4.0; accepted: 1.0, 2.0 and 3.0"));
  CHECK_THAT(error_of(npy(header(">f4", "(1,)"), four)),
             Containing("type \">f4\"; accepted: <f8, <f4, <f2, <i8, <i4, <i2, |i1, |u1, |b1"));
  CHECK_THAT(error_of(npy(header("|O", "(1,)"), four)), Containing("type \"|O\"; accepted"));
  CHECK_THAT(error_of(npy(header("<f4", "(2,)"), four)),
             Containing("shape [2] of \"<f4\" needs 8 bytes; the data have 4"));
  CHECK_THAT(error_of(npy(header("<f4", "(1,)"), four + "x")),
             Containing("needs 4 bytes; the data have 5"));
  CHECK_THAT(error_of(npy(header("<f4", "(4611686018427387904, 4)"), four)),
             Containing("needs too many bytes"));
  CHECK_THAT(error_of(npy(header("<f4", "(1,1,1,1,1,1,1,1,1)"), four)),
             Containing("has more than 8 dimensions"));
  CHECK_THAT(error_of(npy(header("|b1", "(1,)"), "\2")),
             Containing("has the value 2 in an array of bool"));
  for (const std::string& broken :
       {header("<f4", "(-1,)"), header("<f4", "(1"), header("<f4", "1"),
        header("<f4", "(99999999999999999999,)"), std::string("{}"), std::string("{'descr': '<f4'"),
        std::string("{'descr': '<f4', 'fortran_order': False}"),
        std::string("{'descr': '<f4', 'fortran_order': None, 'shape': ()}"),
        header("<f4", "(1,)") + "x", "{'descr': '<f4', " + header("<f4", "(1,)").substr(1)})
    CHECK_THAT(error_of(npy(broken, four)),
               Containing("is not an array of NumPy that can be read: its header is \"{"));
  std::string long_header = npy(header("<f4", "(1,)"), four, 2);
  long_header[10] = '\1';  // bits 16 to 23 of the length
  CHECK_THAT(error_of(long_header), Containing("header of 65"));
  CHECK_THAT(error_of(npy(header("<f4", "(1,)"), "").substr(0, 30)), Containing("truncated: "));
}

TEST_CASE("npz: invalid archives and names are refused", "[npy]") {
  const TempDir dir;
  const std::string path = dir.file("x.npz");
  CHECK_THAT(error_of("text", true), Containing("is not a zip archive; it looks like text"));
  nn::save_npz(path, {{"a", ones({3})}});
  const std::string good = read_file(path);
  CHECK_THAT(error_of(good.substr(0, good.size() - 1), true), Containing("zip archive"));
  std::string other = good;
  for (size_t at; (at = other.find("a.npy")) != std::string::npos;) other.replace(at, 5, "a.txt");
  CHECK_THAT(error_of(other, true), Containing("\"a.txt\" is not an array: its name has no .npy"));
  std::string compressed = good;
  compressed[compressed.find("PK\1\2") + 10] = 8;
  CHECK_THAT(error_of(compressed, true),
             Containing("\"a.npy\" is compressed (method 8); only stored entries are supported"));
  std::string damaged = good;
  damaged[damaged.find("NUMPY")] = 'n';
  CHECK_THAT(error_of(damaged, true), Containing("\"a.npy\": is not an array of NumPy"));
  CHECK_THROWS_WITH(nn::save_npz(path, {{"a", ones({1})}, {"a", ones({1})}}),
                    Containing("two tensors are called \"a\""));
  CHECK_THROWS_WITH(nn::save_npz(path, {{"", ones({1})}}), Containing("a tensor is called \"\""));
  CHECK(read_file(path) == good);
}
