// The safetensors format: named tensors and a map of texts in one file.
//
//   8 bytes   length of the header, little-endian
//   header    JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, …},
//             padded with spaces
//   the rest  raw little-endian values, row-major, without holes
//
// dtypes F32, F64, BF16, I64, I32, U8, BOOL; F16 is read, as f32. Several files, "shards", may have
// an index beside them, {"weight_map": {name: file}}. https://github.com/huggingface/safetensors
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "../module.h"

namespace stretto::nn {

using Metadata = std::map<std::string, std::string>;

/// A file whose metadata have this key is sealed: saving puts "HEADER:DATA" there, the digests
/// (core/digest.h) of all bytes before the tensors' data, with zeros for these digits, and of
/// the data. Reading verifies them, so that no bit can change unnoticed.
inline const std::string digest_key = "stretto.digest";

/// A file's content. Tensors are on the CPU, in the order of their data.
struct Safetensors {
  std::vector<NamedTensor> tensors;
  Metadata metadata;

  /// Throws when there is none of that name.
  const Tensor& operator[](const std::string& name) const;
};

/// Replaces the file at `path` in one step (core/atomic_file.h). The bytes depend on the
/// content only: tensors are sorted by falling item size, then by name. Names are unique UTF-8
/// texts. Whatever value `metadata` has for digest_key, it is made anew.
void save_safetensors(const std::string& path, const std::vector<NamedTensor>& tensors,
                      const Metadata& metadata = {});

/// An open file: names, shapes and dtypes at once, values when they are asked for. What is not read
/// may have any dtype. Error, in one line with the path, for whatever is no valid file. Takes
/// memory in proportion to the size of the file, whatever its header says: at most 100,000 tensors
/// and as many texts.
class SafetensorsFile {
 public:
  /// A file; an index (a JSON text, of any name), whose shards lie beside it; or a folder with
  /// "model.safetensors" or "model.safetensors.index.json". An index says what is read, and from
  /// where: shards may hold other tensors too, which are left; one that its shard lacks is an error
  /// where it is read, and is not among the entries.
  explicit SafetensorsFile(std::string path);
  ~SafetensorsFile();
  SafetensorsFile(const SafetensorsFile&) = delete;
  SafetensorsFile& operator=(const SafetensorsFile&) = delete;

  struct Entry {
    std::string name, dtype;  // dtype in the format's words: "F32", "F8_E4M3", …
    Shape shape;
  };
  /// In the order of their data.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Of several shards with a text of one name, that of the first.
  const Metadata& metadata() const { return metadata_; }
  const std::string& path() const { return path_; }

  /// The tensors whose names are wanted, in the order of their data; F16 becomes f32, exactly. A
  /// sealed file is verified. Throws for other dtypes than those above.
  std::vector<NamedTensor> read(const std::function<bool(const std::string& name)>& wanted) const;
  /// One of them. Throws when there is none of that name.
  Tensor operator[](const std::string& name) const;

 private:
  class Shard;
  void open_index(const std::string& path);

  std::string path_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<Entry> entries_;
  Metadata metadata_;
};

/// All of a SafetensorsFile.
Safetensors load_safetensors(const std::string& path);

/// The texts alone: checks the header, with its digest if there is one, and reads no values.
Metadata load_safetensors_metadata(const std::string& path);

}  // namespace stretto::nn
