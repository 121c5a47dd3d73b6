// The safetensors format: named tensors and metadata strings in one file.
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"__metadata__": {key: value}, name: {"dtype", "shape", "data_offsets"}, …},
//             padded with spaces
//   data      raw little-endian values, row-major, without gaps
//
// dtypes F32, F64, BF16, I64, I32, U8, BOOL; F16 can be read, as f32. A model may be in several
// files ("shards") with an index {"weight_map": {name: file}} in the same directory.
// https://github.com/huggingface/safetensors
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "weights_file.h"

namespace stretto::nn {

/// Metadata key of the digest. If it is present, saving writes "HEADER:DATA" there: the digests
/// (core/digest.h) of all bytes before the data, with zeros in place of these digits, and of the
/// data. Reading verifies both and so detects any changed bit.
inline constexpr const char* digest_key = "stretto.digest";

/// The content of a file.
struct Safetensors {
  std::vector<NamedTensor> tensors;  ///< On the CPU, in the order of their data.
  Metadata metadata;                 ///< The metadata strings.

  /// Returns a tensor. Throws Error if there is none of that name.
  const Tensor& operator[](const std::string& name) const;
};

/// Writes a file, replacing the one at `path` atomically (core/atomic_file.h). The bytes depend
/// only on the content: tensors are sorted by decreasing item size, then by name. Names must be
/// unique and UTF-8. If `metadata` has digest_key, its value is computed.
void save_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const Metadata& metadata = {});

/// An open safetensors file, or several with an index. At most 100,000 tensors and 100,000 metadata
/// strings. If several shards have the same metadata key, the first shard's value is used. Reading
/// verifies the digest if there is one.
class SafetensorsFile : public WeightsFile {
 public:
  /// Opens a file; an index (JSON, with any name), whose shards are in the same directory; or a
  /// directory with "model.safetensors" or "model.safetensors.index.json". The index determines
  /// which tensor is read from which shard; other tensors of the shards are ignored. A tensor that
  /// its shard lacks is not among the entries and throws Error when it is read.
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile() override;

  void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as = {}) const override;

 private:
  class Shard;
  void open_index(const std::string& path);

  std::vector<std::unique_ptr<Shard>> shards_;
};

/// Reads all tensors and the metadata of a SafetensorsFile.
Safetensors load_safetensors(const std::string& path);

/// Reads only the metadata. Checks the header, with its digest if there is one.
Metadata load_safetensors_metadata(const std::string& path);

}  // namespace stretto::nn
