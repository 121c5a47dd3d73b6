// Checkpoints in the formats of their authors, with random weights.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "nn/files/safetensors.h"
#include "ops/create.h"
#include "tests/support/gradcheck.h"
#include "tests/support/safetensors_bytes.h"
#include "tests/support/temp_dir.h"

namespace stretto::testing {

/// f32 tensors under published names. All values are multiples of 2⁻¹⁰ below 2, which F16
/// represents exactly: the loaded values are the saved ones.
class Checkpoint {
 public:
  /// Adds a tensor with values within ±½ of `around`.
  void add(const std::string& name, const Shape& shape, double around = 0) {
    const Tensor x = fixed_noise(shape, 1000 + tensors_.size()).to(cpu);
    double* values = x.data<double>();
    for (int64_t i = 0; i < x.numel(); ++i) values[i] = around + std::round(values[i] * 512) / 1024;
    tensors_[name] = x.to(f32);
  }
  /// Adds NAME.weight [out, in] and NAME.bias [out].
  void add_linear(const std::string& name, int64_t in, int64_t out, bool bias = true) {
    add(name + ".weight", {out, in});
    if (bias) add(name + ".bias", {out});
  }
  /// Adds NAME.weight around 1 and NAME.bias.
  void add_norm(const std::string& name, int64_t dim, bool bias = true) {
    add(name + ".weight", {dim}, 1);
    if (bias) add(name + ".bias", {dim});
  }

  const std::map<std::string, Tensor>& tensors() const { return tensors_; }
  const Tensor& operator[](const std::string& name) const { return tensors_.at(name); }
  std::vector<nn::NamedTensor> named() const {
    std::vector<nn::NamedTensor> list;
    for (const auto& [name, tensor] : tensors_) list.push_back({name, tensor});
    return list;
  }

 private:
  std::map<std::string, Tensor> tensors_;
};

inline const std::vector<int64_t> some_tokens{3, 1, 4, 1, 5, 9, 2, 6, 5, 3};
inline Tensor as_batch(const std::vector<int64_t>& tokens) {
  return tensor(tokens, {1, int64_t(tokens.size())});
}

}  // namespace stretto::testing
