// The header of a safetensors file, as it is read: for nn/files/safetensors.cpp.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "../../core/dtype.h"
#include "../../core/one_line.h"
#include "../../core/shape.h"
#include "safetensors.h"

namespace stretto::nn::files {

inline constexpr const char* metadata_key = "__metadata__";
inline constexpr uint64_t max_header = 100'000'000;  // as in the format's own package
/// Tensors, and texts: a header of tiny ones is refused.
inline constexpr size_t max_names = 100'000;

/// A tensor in a file, at bytes begin to end of the data.
struct Entry {
  std::string name, dtype;  // dtype in the format's words
  Shape shape;
  int64_t begin = 0, end = 0;
};

struct Header {
  std::vector<Entry> entries;  // in the order of their data
  Metadata metadata;
};

/// What values of a dtype of the format become here, and their size in the file; F16 becomes f32.
struct FormatDType {
  const char* name;
  DType dtype;
  int64_t size;
};
/// Nothing for those that cannot be read.
std::optional<FormatDType> find_dtype(const std::string& name);
/// All names, for messages: "F32, F64, …".
std::string dtype_names();
/// As it is written.
const char* format_name(DType dtype);

/// Error, in one line with the path, for whatever is wrong.
Header parse_header(const std::string& path, const std::string& text);
/// Whether the entries cover `bytes` of data without holes, each with the bytes that its shape
/// takes; sorts them.
void check_layout(const std::string& path, std::vector<Entry>& entries, int64_t bytes);

}  // namespace stretto::nn::files
