// A training run of a few milliseconds for fault injection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "nn/models/language_model.h"
#include "nn/optim/optim.h"
#include "nn/training/checkpoint.h"

namespace stretto::testing {

struct TinyTraining {
  /// `wide`: large enough for several threads to share the work.
  explicit TinyTraining(bool wide);

  void step();
  void save(const std::string& path) const;
  void load(const std::string& path);

  nn::LanguageModel model;
  nn::AdamW optimizer;
  Tensor tokens, targets;
};

/// Everything that its checkpoint stores, compared bit by bit, and the random state.
struct Snapshot {
  explicit Snapshot(const TinyTraining& training);
  void restore(TinyTraining& training) const;
  bool operator==(const Snapshot& other) const;
  RandomState random() const { return random_; }

 private:
  std::vector<std::vector<float>> values() const;

  Tensors weights_;
  std::vector<nn::ParameterState> optimizer_;
  RandomState random_;
};

}  // namespace stretto::testing
