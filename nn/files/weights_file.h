// The interface of all files of weights: named tensors and metadata strings.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "../module.h"

namespace stretto::nn {

/// Metadata of a file: strings by key, UTF-8.
using Metadata = std::map<std::string, std::string>;

/// An open file of named tensors. Names, shapes and dtypes are read at once, values on demand;
/// tensors that are not read may have any dtype. An invalid file throws Error, one line with the
/// path. Memory is proportional to the size of the file, whatever its header claims.
class WeightsFile {
 public:
  virtual ~WeightsFile();
  WeightsFile(const WeightsFile&) = delete;
  WeightsFile& operator=(const WeightsFile&) = delete;

  /// A tensor of the file.
  struct Entry {
    std::string name;   ///< Name of the tensor.
    std::string dtype;  ///< In capital letters: "F32", "BF16", "I64", "F8_E4M3", "Q4_K", …
    Shape shape;        ///< Shape of the tensor, row-major.
  };
  /// Returns the tensors, in the order in which they are read.
  const std::vector<Entry>& entries() const { return entries_; }
  /// Returns the metadata.
  const Metadata& metadata() const { return metadata_; }
  /// Returns the path of the file or index.
  const std::string& path() const { return path_; }

  /// Decides by its name whether a tensor is read.
  using Wanted = std::function<bool(const std::string& name)>;
  /// Returns the floating dtype in which a floating tensor is read; unset: its own, or f32 if the
  /// library does not have it (F16, quantized values).
  using ReadAs = std::function<std::optional<DType>(const std::string& name)>;
  /// Accepts a tensor that was read.
  using Use = std::function<void(NamedTensor)>;

  /// Reads the tensors for which wanted(name) is true one by one, on the CPU, and calls `use` with
  /// each. Values are converted while they are read, so that memory holds a tensor only in the
  /// dtype that `read_as` returns. Throws Error for a dtype that is not supported.
  virtual void visit(const Wanted& wanted, const Use& use, const ReadAs& read_as = {}) const = 0;

  /// Reads the tensors for which wanted(name) is true, in the order of entries(), on the CPU. F16
  /// and quantized values become f32, exactly. Throws Error for a dtype that is not supported.
  std::vector<NamedTensor> read(const Wanted& wanted) const;
  /// Reads one tensor. Throws Error if there is none of that name.
  Tensor operator[](const std::string& name) const;

 protected:
  /// For a file of the format `op`, which begins the error texts.
  WeightsFile(const char* op, std::string path) : op_(op), path_(std::move(path)) {}

  const char* op_;              ///< The format, for errors.
  std::string path_;            ///< As path() returns it.
  std::vector<Entry> entries_;  ///< As entries() returns them.
  Metadata metadata_;           ///< As metadata() returns it.
};

}  // namespace stretto::nn
