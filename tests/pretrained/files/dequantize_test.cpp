// Quantized blocks become the same f32 values, bit for bit, as in the gguf package of Python.
#include "pretrained/files/dequantize.h"

#include <cmath>
#include <cstring>
#include <vector>

#include "core/error.h"
#include "nn/files/value_format.h"
#include "ops/view.h"
#include "tests/support/catch.h"
#include "tests/support/temp_dir.h"

using namespace stretto;
using namespace stretto::nn;
using stretto::testing::TempDir;
using stretto::testing::write_file;

namespace {

constexpr int n_blocks = 24;

// Random blocks with finite halves at the given bytes. The same as numpy code computed:
//   s = (s * 6364136223846793005 + 1442695040888963407) mod 2⁶⁴; byte = s >> 56
std::string blocks(const files::ValueFormat& format, const std::vector<size_t>& halves) {
  uint64_t state = 1;
  std::string all;
  for (unsigned block = 0; block < n_blocks; ++block) {
    std::string bytes;
    for (int64_t i = 0; i < format.bytes; ++i) {
      state = state * 6364136223846793005u + 1442695040888963407u;
      bytes += char(state >> 56);
    }
    for (unsigned k = 0; k < halves.size(); ++k) {
      const unsigned sign = block % 3 == 1 ? 0x8000 : 0;
      const unsigned half = (0x2000 + 977 * (block + 1) * (k + 1)) % 0x7800 | sign;
      bytes[halves[k]] = char(half & 255);
      bytes[halves[k] + 1] = char(half >> 8);
    }
    all += bytes;
  }
  return all;
}

// FNV-1a of the bytes of floats.
uint64_t hash_of(const std::vector<float>& values) {
  uint64_t hash = 14695981039346656037u;
  const auto* bytes = reinterpret_cast<const unsigned char*>(values.data());
  for (size_t i = 0; i < values.size() * sizeof(float); ++i)
    hash = (hash ^ bytes[i]) * 1099511628211u;
  return hash;
}

struct Case {
  const char* format;
  std::vector<size_t> halves;
  uint64_t hash;  // of the values that gguf.quants.dequantize 0.18 returns
  float value;    // value 5 of block 3
};

const std::vector<Case> cases = {{"Q8_0", {0}, 0x360994b71446e41b, 8.40087890625f},
                                 {"Q4_0", {0}, 0x5653d97d7e875597, -0.68115234375f},
                                 {"Q4_1", {0, 2}, 0xc5252b7af07e6b87, 3.335693359375f},
                                 {"Q5_0", {0}, 0xd05134204ea1a358, 1.475830078125f},
                                 {"Q5_1", {0, 2}, 0x0a27c0f148ca6316, 1.85986328125f},
                                 {"Q4_K", {0, 2}, 0x6e6012d6c755c341, -21.198974609375f},
                                 {"Q5_K", {0, 2}, 0x087f812745a3b8e5, 45.46875f},
                                 {"Q6_K", {208}, 0x82b363815bd450e0, 93.658447265625f}};

}  // namespace

TEST_CASE("quantized blocks have the values of the gguf package") {
  for (const Case& c : cases) {
    INFO(c.format);
    const files::ValueFormat* format = files::find_gguf_format(c.format);
    REQUIRE(format);
    const std::string bytes = blocks(*format, c.halves);
    std::vector<float> values(size_t(n_blocks * format->elements));
    format->to_f32(reinterpret_cast<const uint8_t*>(bytes.data()), n_blocks, values.data());
    CHECK(values[size_t(3 * format->elements + 5)] == c.value);
    CHECK(hash_of(values) == c.hash);
  }
}

TEST_CASE("values are read in the dtype that is asked for, rounded once") {
  const TempDir dir;
  for (const Case& c : cases) {
    INFO(c.format);
    const files::ValueFormat& format = *files::find_gguf_format(c.format);
    write_file(dir.file("a"), "1234567" + blocks(format, c.halves));
    const InputFile file("test", dir.file("a"));
    const Shape shape{2, 3, 4 * format.elements};
    const Tensor x = files::read_values(file, 7, format, shape);
    CHECK(hash_of(x.to_vector<float>()) == c.hash);
    for (const DType dtype : {f64, bf16}) {
      const Tensor y = files::read_values(file, 7, format, shape, dtype);
      CHECK(y.dtype() == dtype);
      CHECK(y.shape() == shape);
      CHECK(y.to_vector<double>() == x.to(dtype).to_vector<double>());
    }
  }
}

TEST_CASE("plain values of all dtypes are read, also in another floating dtype") {
  const TempDir dir;
  const std::vector<double> numbers = {1.0000001, -2.5, 0, 1e30, -1e-30, 7};
  std::string bytes(reinterpret_cast<const char*>(numbers.data()), 48);
  for (const double number : numbers) {
    const auto single = float(number);
    bytes.append(reinterpret_cast<const char*>(&single), 4);
  }
  write_file(dir.file("a"), bytes + std::string("\x80\x7f\xff\xff", 4));
  const InputFile file("test", dir.file("a"));
  const auto read = [&](int64_t at, const char* format, int64_t n, std::optional<DType> dtype) {
    return files::read_values(file, at, *files::find_gguf_format(format), {n}, dtype);
  };
  CHECK(read(0, "F64", 6, {}).to_vector<double>() == numbers);
  CHECK(read(0, "F64", 6, f32).to_vector<float>() ==
        std::vector<float>(numbers.begin(), numbers.end()));
  CHECK(read(48, "F32", 6, f64).to_vector<float>() ==
        std::vector<float>(numbers.begin(), numbers.end()));
  CHECK(read(48, "F32", 6, bf16).to_vector<float>()[1] == -2.5f);
  CHECK(read(72, "I8", 4, {}).dtype() == i32);
  CHECK(read(72, "I8", 4, bf16).to_vector<int>() == std::vector<int>{-128, 127, -1, -1});
  CHECK(read(72, "I16", 2, {}).to_vector<int>() == std::vector<int>{0x7f80, -1});
  CHECK(read(72, "U8", 4, {}).to_vector<int>() == std::vector<int>{128, 127, 255, 255});
  CHECK(read(0, "F64", 0, f32).numel() == 0);
  CHECK_THROWS_WITH(read(72, "F8_E4M3", 4, {}), Containing("F8_E4M3 cannot be read"));
  CHECK_THROWS_WITH(read(72, "U8", 5, {}), Containing("the file ends before byte 77"));
}

TEST_CASE("the bytes of a tensor are computed without overflow") {
  const auto bytes = [](const char* format, const Shape& shape) {
    return files::bytes_of(*files::find_gguf_format(format), shape);
  };
  CHECK(bytes("F32", {}) == 4);
  CHECK(bytes("Q4_K", {3, 512}) == 3 * 2 * 144);
  CHECK(bytes("Q4_0", {0, 32}) == 0);
  CHECK_FALSE(bytes("Q4_0", {32, 3}));
  CHECK_FALSE(bytes("F32", {int64_t(1) << 40, int64_t(1) << 40}));
  CHECK_FALSE(bytes("C128", {int64_t(1) << 57}));
  CHECK_FALSE(bytes("F32", {0, int64_t(1) << 40, int64_t(1) << 40}));
  CHECK(files::find_gguf_format("F33") == nullptr);
}
