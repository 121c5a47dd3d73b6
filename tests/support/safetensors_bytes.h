// Weight files as other programs write them: in F16, or in shards with an index.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "nn/files/safetensors.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {

/// Returns the bytes of a safetensors file with the given header and data.
inline std::string safetensors_bytes(const std::string& header, const std::string& data = "") {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), 8) + header + data;
}

/// Rounds to the nearest IEEE half; |value| must be below 65504, and below 2^-14 gives 0.
inline uint16_t to_half(float value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  int exponent = 0;
  const auto fraction = int(std::nearbyint(std::frexp(std::abs(value), &exponent) * 2048));
  if (value == 0 || exponent < -13) return sign;
  return uint16_t(sign + ((exponent + 14) << 10) + fraction - 1024);
}

/// Writes floating-point tensors in F16. Their names must not contain quotes.
inline void save_f16(const std::string& path, const std::vector<nn::NamedTensor>& tensors) {
  std::string header = "{", data;
  for (const nn::NamedTensor& n : tensors) {
    const size_t begin = data.size();
    for (const float v : n.tensor.to_vector<float>()) {
      const uint16_t half = to_half(v);
      data.append(reinterpret_cast<const char*>(&half), 2);
    }
    std::string shape;
    for (const int64_t size : n.tensor.shape()) shape += str(shape.empty() ? "" : ",", size);
    header += str(begin > 0 || header.size() > 1 ? "," : "", "\"", n.name,
                  "\":{\"dtype\":\"F16\",\"shape\":[", shape, "],\"data_offsets\":[", begin, ",",
                  data.size(), "]}");
  }
  write_file(path, safetensors_bytes(header + "}", data));
}

/// Writes the first half of the tensors to one shard, the rest to another, in F16 if requested, and
/// their index. Returns the path of the index.
inline std::string save_two_shards(const TempDir& dir, const std::vector<nn::NamedTensor>& tensors,
                                   bool f16 = false) {
  const size_t half = tensors.size() / 2;
  std::string map;
  for (size_t shard = 0; shard < 2; ++shard) {
    const std::string name = str("model-0000", shard + 1, "-of-00002.safetensors");
    const std::vector<nn::NamedTensor> part(
        tensors.begin() + int64_t(shard == 0 ? 0 : half),
        shard == 0 ? tensors.begin() + int64_t(half) : tensors.end());
    f16 ? save_f16(dir.file(name), part)
        : nn::save_safetensors(dir.file(name), part, {{"format", "pt"}});
    for (const nn::NamedTensor& n : part)
      map += str(map.empty() ? "" : ",", "\"", n.name, "\":\"", name, "\"");
  }
  std::string index = dir.file("model.safetensors.index.json");
  write_file(index, "{\"metadata\":{\"total_size\":0},\"weight_map\":{" + map + "}}");
  return index;
}

}  // namespace stretto::testing
