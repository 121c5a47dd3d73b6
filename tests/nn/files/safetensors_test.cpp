#include "nn/files/safetensors.h"

#include <cmath>
#include <cstdlib>
#include <cstring>

#include "core/random.h"
#include "ops/create.h"
#include "tests/support/catch.h"
#include "tests/support/file_size_limit.h"
#include "tests/support/gradcheck.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using nn::load_safetensors;
using nn::NamedTensor;
using nn::Safetensors;
using nn::save_safetensors;
using stretto::testing::read_file;
using stretto::testing::safetensors_bytes;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

std::string bytes_of(const Tensor& x) {
  const Tensor c = x.to(cpu).contiguous();
  return x.numel() == 0 ? ""
                        : std::string(static_cast<const char*>(c.raw_data()),
                                      size_t(x.numel() * item_size(x.dtype())));
}

std::vector<NamedTensor> samples() {
  return {
      {"f32", tensor({1.5f, -0.0f, NAN, INFINITY, 1e-45f})},
      {"f64", tensor(std::vector<double>{M_PI, -1e300, 0, 1, 2, 3}, {1, 2, 3})},
      {"bf16", tensor({1.0f, 3.14159f, -2.0f}).to(bf16)},
      {"i64", tensor(std::vector<int64_t>{INT64_MIN, INT64_MAX}, {2, 1})},
      {"i32", tensor(std::vector<int32_t>{-7, 1 << 30}, {2})},
      {"u8", tensor(std::vector<uint8_t>{0, 255, 3}, {3})},
      {"bool", tensor(std::vector<bool>{true, false, true}, {3})},
      {"a scalar", scalar(4.25)},
      {"empty", zeros({0, 3})},
      {"empty too", zeros({2, 0}, {.dtype = u8})},
      {"8 dimensions", zeros({1, 1, 2, 1, 1, 1, 1, 2}, {.dtype = i32})},
      {"Ω λ \"quoted\" \\ \n 音楽", tensor({1.0f})},
      {"", tensor({2.0f})},
  };
}

std::string error_of(const std::string& path) {
  try {
    load_safetensors(path);
  } catch (const Error& e) {
    return e.what();
  }
  return "(loaded)";
}

std::string error_of_save(const std::string& path, const std::vector<NamedTensor>& tensors,
                          const nn::Metadata& metadata = {}) {
  try {
    save_safetensors(path, tensors, metadata);
  } catch (const Error& e) {
    return e.what();
  }
  return "(saved)";
}

}  // namespace

TEST_CASE("every dtype is restored as it was saved") {
  const TempDir dir;
  const std::string path = dir.file("a.safetensors");
  save_safetensors(path, samples(), {{"format", "pt"}, {"schlüssel", "wert \"\n\t"}, {"", ""}});
  const Safetensors file = load_safetensors(path);
  REQUIRE(file.tensors.size() == samples().size());
  for (const NamedTensor& n : samples()) {
    INFO(n.name);
    const Tensor& x = file[n.name];
    CHECK(x.dtype() == n.tensor.dtype());
    CHECK(x.shape() == n.tensor.shape());
    CHECK(bytes_of(x) == bytes_of(n.tensor));
  }
  CHECK(file.metadata == nn::Metadata{{"format", "pt"}, {"schlüssel", "wert \"\n\t"}, {"", ""}});
  CHECK(nn::load_safetensors_metadata(path) == file.metadata);
  CHECK_THROWS_WITH(file["no"], Containing("[safetensors] no tensor \"no\""));

  // The same bytes, whatever the order of the tensors.
  const std::string bytes = read_file(path);
  save_safetensors(dir.file("b"), file.tensors, file.metadata);
  CHECK(read_file(dir.file("b")) == bytes);
  std::vector<NamedTensor> reversed = file.tensors;
  std::reverse(reversed.begin(), reversed.end());
  save_safetensors(dir.file("c"), reversed, file.metadata);
  CHECK(read_file(dir.file("c")) == bytes);
  CHECK(dir.entries() == 3);

  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  CHECK(length % 8 == 0);
}

TEST_CASE("views and parameters are saved with their visible elements") {
  const TempDir dir;
  const Tensor x = tensor(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  const Tensor p = ones({2}).set_requires_grad();
  save_safetensors(dir.file("a"), {{"t", x.transpose(0, 1)}, {"s", x.slice(1, 1, 2)}, {"p", p}});
  const Safetensors file = load_safetensors(dir.file("a"));
  CHECK(file["t"].shape() == Shape{3, 2});
  CHECK(file["t"].to_vector<float>() == std::vector<float>{1, 4, 2, 5, 3, 6});
  CHECK(file["s"].to_vector<float>() == std::vector<float>{2, 5});
  CHECK_FALSE(file["p"].requires_grad());
}

TEST_CASE("a file may have no tensors") {
  const TempDir dir;
  save_safetensors(dir.file("a"), {});
  CHECK(read_file(dir.file("a")) == safetensors_bytes("{}      "));
  CHECK(load_safetensors(dir.file("a")).tensors.empty());
}

TEST_CASE("tensors that cannot be saved are an error") {
  const TempDir dir;
  const std::string path = dir.file("a");
  const Tensor x = ones({1});
  CHECK(error_of_save(path, {{"x", x}, {"x", x}}) ==
        "[save] " + path + ": two tensors are called \"x\"");
  CHECK_THAT(error_of_save(path, {{"x", {}}}), Containing("\"x\" is an undefined tensor"));
  CHECK_THAT(error_of_save(path, {{"__metadata__", x}}), Containing("can be called __metadata__"));
  CHECK_THAT(error_of_save(path, {{"\xff", x}}), Containing("is not UTF-8"));
  CHECK_THAT(error_of_save(path, {{"x", x}}, {{"k", "\xc3\x28"}}), Containing("is not UTF-8"));
  CHECK(dir.entries() == 0);
}

TEST_CASE("a header that declares large tensors allocates nothing") {
  const TempDir dir;
  const std::string path = dir.file("a");
  write_file(path, safetensors_bytes(R"({"a":{"dtype":"F64","shape":[1000000000000],)"
                                     R"("data_offsets":[0,8000000000000]}})"));
  reset_peak_memory();
  const int64_t before = memory_stats().peak;
  CHECK_THAT(error_of(path), Containing("its data end at byte 8000000000000"));
  CHECK(memory_stats().peak == before);
}

TEST_CASE("a header with too many names is rejected early") {
  const TempDir dir;
  const std::string path = dir.file("a");
  std::string tensors = "{", texts = "{\"__metadata__\":{";
  for (int i = 0; i <= 100'000; ++i) {
    const std::string key = (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":";
    tensors += key + R"({"dtype":"U8","shape":[0],"data_offsets":[0,0]})";
    texts += key + "\"\"";
  }
  write_file(path, safetensors_bytes(tensors + "}"));
  CHECK(error_of(path) == "[safetensors] " + path + ": more than 100000 tensors");
  write_file(path, safetensors_bytes(texts + "}}"));
  CHECK(error_of(path) == "[safetensors] " + path + ": metadata: more than 100000 strings");
  nn::Metadata many;
  for (int i = 0; i <= 100'000; ++i) many[std::to_string(i)] = "";
  CHECK_THAT(error_of_save(path, {}, many), Containing("at most 100000 of each can be read"));
}

TEST_CASE("a file has a digest on request, which is then verified") {
  const TempDir dir;
  const std::string path = dir.file("a");
  const nn::Metadata sealed{{nn::digest_key, "whatever"}, {"stretto.digest\":\"", "0"}};
  save_safetensors(path, samples(), sealed);
  const std::string bytes = read_file(path);
  const Safetensors file = load_safetensors(path);
  CHECK(file.metadata.at(nn::digest_key).size() == 33);
  CHECK(nn::load_safetensors_metadata(path) == file.metadata);
  // Saved again it is the same file; changed, it has another digest.
  save_safetensors(path, file.tensors, file.metadata);
  CHECK(read_file(path) == bytes);
  save_safetensors(path, {{"x", ones({1})}}, file.metadata);
  CHECK(load_safetensors(path).metadata.at(nn::digest_key) != file.metadata.at(nn::digest_key));
  save_safetensors(path, {}, sealed);
  CHECK(load_safetensors(path).tensors.empty());

  std::string wrong = bytes;
  wrong[wrong.find(file.metadata.at(nn::digest_key)) + 32] ^= 1;
  write_file(path, wrong);
  CHECK_THAT(error_of(path), Containing("is damaged: the tensors' data are not those"));
  write_file(path, safetensors_bytes(R"({"__metadata__":{"stretto.digest":"12"}})"));
  CHECK_THAT(error_of(path), Containing("its digest is malformed"));
  write_file(path,
             safetensors_bytes(
                 R"({"__metadata__":{ "stretto.digest" : "0000000000000000:0000000000000000"}})"));
  CHECK_THAT(error_of(path), Containing("its digest is malformed"));
}

TEST_CASE("1000 random mutations of a file are loaded or rejected") {
  const TempDir dir;
  const std::string path = dir.file("a");
  save_safetensors(path, samples(), {{"key", "value"}});
  const std::string original = read_file(path);
  uint64_t header = 0;
  std::memcpy(&header, original.data(), 8);

  uint64_t draw = 0;
  const auto below = [&](size_t n) {
    return size_t(random_bits({.seed = 99}, draw++)) % std::max<size_t>(n, 1);
  };
  int loaded = 0, refused = 0;
  reset_peak_memory();
  const int64_t live = memory_stats().live;
  for (int i = 0; i < 1000; ++i) {
    std::string bytes = original;
    const size_t edits = 1 + below(3);
    for (size_t e = 0; e < edits && !bytes.empty(); ++e) {
      // Mostly in the header, where changes matter.
      const size_t at = below(below(4) == 0 ? bytes.size() : std::min(bytes.size(), 8 + header));
      switch (below(6)) {
        case 0:
          bytes[at] = char(bytes[at] ^ (1 << below(8)));
          break;
        case 1:
          bytes[at] = char(below(256));
          break;
        case 2:
          bytes[at] = "0123456789-.,:[]{}\"e "[below(21)];
          break;
        case 3:
          bytes.erase(at, 1 + below(16));
          break;
        case 4:
          bytes.insert(at, bytes.substr(below(bytes.size()), 1 + below(32)));
          break;
        default:
          bytes.resize(at);
          break;
      }
    }
    write_file(path, bytes);
    try {
      load_safetensors(path);
      ++loaded;
    } catch (const Error& e) {
      ++refused;
      CHECK(std::string(e.what()).find('\n') == std::string::npos);
    }
  }
  CHECK(loaded + refused == 1000);
  CHECK(refused > 500);
  CHECK(loaded > 10);
  CHECK(memory_stats().peak - live < 10000);
}

TEST_CASE("a full disk leaves the old file") {
  const TempDir dir;
  const std::string path = dir.file("a");
  save_safetensors(path, {{"x", ones({3})}});
  const std::string before = read_file(path);
  std::string message;
  {
    const stretto::testing::FileSizeLimit limit(5000);
    message = error_of_save(path, {{"x", ones({3000})}});
  }
  CHECK(message == "[save] " + path + ": write failed: File too large");
  CHECK(read_file(path) == before);
  CHECK(dir.entries() == 1);
}

TEST_CASE("Python's safetensors reads our files, and we read its files") {
  const char* variable = std::getenv("STRETTO_PYTHON");
  const std::string python = variable ? variable : "python3";
  if (std::system((python + " -c 'import safetensors, numpy' >/dev/null 2>&1").c_str()) != 0)
    STRETTO_SKIP(python + " cannot import safetensors and numpy; set STRETTO_PYTHON");

  const TempDir dir;
  const Tensor noise = stretto::testing::fixed_noise({3, 4}, 1);
  save_safetensors(dir.file("ours"),
                   {{"f32", noise.to(f32)},
                    {"f64", noise},
                    {"bf16", noise.to(bf16)},
                    {"i64", arange(5)},
                    {"i32", arange(5, {.dtype = i32})},
                    {"u8", arange(3, {.dtype = u8})},
                    {"bool", tensor(std::vector<bool>{true, false, true}, {3})},
                    {"scalar", scalar(2.5)},
                    {"empty", zeros({0, 2})},
                    {"ünï", ones({1})}},
                   {{"key", "wert ü"}});
  write_file(dir.file("check.py"), R"(
import sys
import numpy as np
from safetensors import safe_open, deserialize
from safetensors.numpy import save_file
ours, theirs = sys.argv[1:]
raw = dict(deserialize(open(ours, "rb").read()))
assert set(raw) == {"f32", "f64", "bf16", "i64", "i32", "u8", "bool", "scalar", "empty", "ünï"}, raw
assert raw["bf16"]["dtype"] == "BF16" and raw["bf16"]["shape"] == [3, 4], raw["bf16"]
f = safe_open(ours, framework="numpy")
assert f.metadata() == {"key": "wert ü"}, f.metadata()
f64 = f.get_tensor("f64")
assert f64.dtype == np.float64 and f64.shape == (3, 4)
assert (f.get_tensor("f32") == f64.astype(np.float32)).all()
bits = np.frombuffer(raw["bf16"]["data"], np.uint16).astype(np.uint32) << 16
assert np.abs(bits.view(np.float32).reshape(3, 4) - f64).max() <= 2.0**-9
assert f.get_tensor("i64").tolist() == [0, 1, 2, 3, 4] and f.get_tensor("i64").dtype == np.int64
assert f.get_tensor("i32").tolist() == [0, 1, 2, 3, 4] and f.get_tensor("i32").dtype == np.int32
assert f.get_tensor("u8").tolist() == [0, 1, 2]
assert f.get_tensor("bool").tolist() == [True, False, True]
assert f.get_tensor("scalar").shape == () and f.get_tensor("scalar") == 2.5
assert f.get_tensor("empty").shape == (0, 2)
save_file({
    "f32": np.arange(6, dtype=np.float32).reshape(2, 3) / 4,
    "f64": np.array(np.pi),
    "i64": np.array([-1, 2**62]),
    "i32": np.array([[7]], np.int32),
    "u8": np.array([1, 255], np.uint8),
    "bool": np.array([False, True]),
    "empty": np.zeros((3, 0), np.float32),
    "ünï": np.ones(1, np.float32),
}, theirs, metadata={"from": "Python ü"})
)");
  const std::string command = python + " " + dir.file("check.py") + " " + dir.file("ours") + " " +
                              dir.file("theirs") + " >" + dir.file("log") + " 2>&1";
  const int status = std::system(command.c_str());
  INFO(read_file(dir.file("log")));
  REQUIRE(status == 0);

  const Safetensors file = load_safetensors(dir.file("theirs"));
  CHECK(file.metadata == nn::Metadata{{"from", "Python ü"}});
  CHECK(file.tensors.size() == 8);
  CHECK(file["f32"].shape() == Shape{2, 3});
  CHECK(file["f32"].to_vector<float>() == std::vector<float>{0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
  CHECK(file["f64"].dim() == 0);
  CHECK(file["f64"].item() == M_PI);
  CHECK(file["i64"].to_vector<int64_t>() == std::vector<int64_t>{-1, int64_t(1) << 62});
  CHECK(file["i32"].dtype() == i32);
  CHECK(file["i32"].item() == 7);
  CHECK(file["u8"].to_vector<uint8_t>() == std::vector<uint8_t>{1, 255});
  CHECK(file["bool"].to_vector<uint8_t>() == std::vector<uint8_t>{0, 1});
  CHECK(file["empty"].shape() == Shape{3, 0});
  CHECK(file["ünï"].item() == 1);
}
