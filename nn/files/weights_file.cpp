#include "nn/files/weights_file.h"

#include "core/one_line.h"

namespace stretto::nn {

WeightsFile::~WeightsFile() = default;

std::vector<NamedTensor> WeightsFile::read(const Wanted& wanted) const {
  std::vector<NamedTensor> all;
  visit(wanted, [&](NamedTensor n) { all.push_back(std::move(n)); });
  return all;
}

Tensor WeightsFile::operator[](const std::string& name) const {
  const std::vector<NamedTensor> found = read([&](const std::string& n) { return n == name; });
  check(!found.empty(), op_, path_, ": no tensor ", in_quotes(name));
  return found[0].tensor;
}

}  // namespace stretto::nn
