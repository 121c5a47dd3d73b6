// Reads the header of a safetensors file; for nn/files/safetensors.cpp.
#pragma once

#include <string>
#include <vector>

#include "../../core/one_line.h"
#include "../../core/shape.h"
#include "safetensors.h"

namespace stretto::nn::files {

inline constexpr const char* metadata_key = "__metadata__";
inline constexpr uint64_t max_header = 100'000'000;  // bytes, as in the reference implementation
/// Limit on tensors and on metadata strings, against headers with huge numbers of tiny entries.
inline constexpr size_t max_names = 100'000;

/// A tensor in a file: bytes begin … end − 1 of the data.
struct Entry {
  std::string name, dtype;  // dtype as in the format
  Shape shape;
  int64_t begin = 0, end = 0;
};

struct Header {
  std::vector<Entry> entries;  // in the order of their data
  Metadata metadata;
};

/// Parses a header. Throws Error, one line with the path, if anything is invalid.
Header parse_header(const std::string& path, const std::string& text);
/// Sorts the entries by their data. Throws Error unless they cover `bytes` bytes without gaps, and
/// each has the number of bytes of its shape and dtype.
void check_layout(const std::string& path, std::vector<Entry>& entries, int64_t bytes);

}  // namespace stretto::nn::files
