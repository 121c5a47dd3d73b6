// Reads the header of a GGUF file; for pretrained/files/gguf/gguf.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../../../core/input_file.h"
#include "../../../nn/files/value_format.h"
#include "gguf.h"

namespace stretto::nn::files {

/// A tensor of a GGUF file.
struct GgufTensor {
  std::string name, type;  // type as in WeightsFile::Entry::dtype
  Shape shape;             // row-major
  int64_t offset = 0;      // of its data in the file
  int64_t bytes = 0;       // of its data; 0 if the type is unknown
};

struct GgufHeader {
  std::map<std::string, GgufValue> values;
  std::vector<GgufTensor> tensors;  // in the order of their data
};

/// Reads and checks the header. Throws Error, one line with the path, if anything is invalid.
GgufHeader read_gguf_header(const InputFile& file, const std::string& path);

}  // namespace stretto::nn::files
