// The safetensors format: named tensors and a map of texts in one file.
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, …},
//             padded with spaces
//   the rest  raw little-endian values, row-major, without holes
//
// dtypes F32, F64, BF16, I64, I32, U8, BOOL. https://github.com/huggingface/safetensors
#pragma once

#include <map>
#include <string>
#include <vector>

#include "nn/module.h"

namespace stretto::nn {

using Metadata = std::map<std::string, std::string>;

/// A file whose metadata have this key is sealed: saving puts "HEADER:DATA" there, the digests
/// (nn/files/digest.h) of all bytes before the tensors' data, with zeros for these digits, and of
/// the data. Reading verifies them, so that no bit can change unnoticed.
inline const std::string digest_key = "stretto.digest";

/// A file's content. Tensors are on the CPU, in the order of their data.
struct Safetensors {
  std::vector<NamedTensor> tensors;
  Metadata metadata;

  /// Throws when there is none of that name.
  const Tensor& operator[](const std::string& name) const;
};

/// Replaces the file at `path` in one step (nn/files/atomic_file.h). The bytes depend on the
/// content only: tensors are sorted by falling item size, then by name. Names are unique UTF-8
/// texts. Whatever value `metadata` has for digest_key, it is made anew.
void save_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const Metadata& metadata = {});

/// Reads a file; Error, in one line with the path, for whatever is no valid one. Takes memory in
/// proportion to the size of the file, whatever its header says: at most 100,000 tensors and as
/// many texts.
Safetensors load_safetensors(const std::string& path);

/// The texts alone: checks the header, with its digest if there is one, and reads no values.
Metadata load_safetensors_metadata(const std::string& path);

}  // namespace stretto::nn
