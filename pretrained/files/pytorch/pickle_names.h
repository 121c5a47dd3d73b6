// The names of the tensors in a pickle; for pretrained/files/pytorch/pytorch.cpp.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "pickle.h"

namespace stretto::nn::files {

/// A tensor of a pickle: its index in Pickle::tensors.
struct NamedPickleTensor {
  std::string name;
  size_t tensor = 0;
};

struct PickleNames {
  std::vector<NamedPickleTensor> tensors;       // in the order of the pickle
  std::map<std::string, std::string> metadata;  // strings, numbers and dtypes in dicts
};

/// Flattens the content of a pickle: keys of dicts and indices of lists are joined by dots. Throws
/// Error, "[PyTorch] path: …", for duplicate names, keys that are neither strings nor integers, and
/// for containers that contain themselves, are nested too deep or repeat others too often.
PickleNames flatten(const Pickle& pickle, const std::string& path);

}  // namespace stretto::nn::files
