// Reads pickles of PyTorch without executing anything. The opcodes and the names of classes and
// functions are a closed list; anything else is an error with its name. "Calls" of listed functions
// only build the values below.
//
// https://github.com/python/cpython/blob/main/Lib/pickletools.py
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "../../../core/shape.h"
#include "../../../nn/files/value_format.h"
#include "../byte_reader.h"

namespace stretto::nn::files {

/// A value of a pickle; text, containers and tensors are in Pickle, at `index`.
struct PickleValue {
  enum class Kind : uint8_t {
    none,
    boolean,
    integer,
    real,
    big_integer,  // of more than 64 bits; the text has its bytes
    text,
    bytes,
    tuple,   // torch.Size too
    list,    // a set too
    dict,    // an OrderedDict too; keys and values alternate
    object,  // a device, dtype or class; the text has its name
    storage,
    tensor,
    mark
  };
  Kind kind = Kind::none;
  union {
    int64_t integer = 0;
    double real;
    size_t index;
  };
};

/// The memory of tensors.
struct PickleStorage {
  std::string key;
  const ValueFormat* format = nullptr;  // U8 for an untyped storage
  int64_t numel = 0;                    // of all values with this key
  int64_t begin = 0, end = 0;           // of the part that tensors view, in values
};

/// A view of a storage. All elements are in it.
struct PickleTensor {
  size_t storage = 0;
  const ValueFormat* format = nullptr;
  Shape shape, strides;
  int64_t offset = 0;  // in values of this format
  std::string flag;    // "conj" or "neg": the values are not those in the storage
};

/// The content of a pickle.
struct Pickle {
  PickleValue root;
  std::vector<std::string> texts;
  std::vector<std::vector<PickleValue>> containers;
  std::vector<PickleStorage> storages;
  std::vector<PickleTensor> tensors;

  const std::vector<PickleValue>& items(PickleValue v) const { return containers[v.index]; }
  const std::string& text(PickleValue v) const { return texts[v.index]; }
};

/// Reads one pickle, at most 100 MB and 5,000,000 values, and leaves the reader after it. Throws
/// Error with the path.
Pickle read_pickle(ByteReader& in);

}  // namespace stretto::nn::files
