// An exponential moving average of a model's weights, which often evaluates better than the
// weights.
//
//     nn::WeightAverage average(model, {.decay = 0.999});
//     nn::Trainer trainer(model, optimizer, {.steps = 1000, .average = &average});
//     trainer.run(loss, [&] {
//       const nn::WeightAverage::Use averaged(average);  // the model has the averages here
//       return nn::mean_loss(model, held_out);
//     });
#pragma once

#include <vector>

#include "../module.h"

namespace stretto::nn {

struct WeightAverageOptions {
  double decay = 0.999;  ///< weight of the average so far, at least 0 and below 1
};

/// The average of the weights w₁ … wₜ after each of t updates, of which wᵢ weighs decayᵗ⁻ⁱ: the
/// weights before the first update do not count (the bias correction of Kingma & Ba, "Adam", 2015,
/// section 3, for an average as in Polyak & Juditsky, "Acceleration of stochastic approximation by
/// averaging", 1992). It is kept in f32 (f64 for f64), on the device of the weights. Parameters are
/// averaged, frozen ones too; buffers are not.
class WeightAverage {
 public:
  using Options = WeightAverageOptions;
  /// The model must outlive it. Before the first update the average is a copy of the weights.
  explicit WeightAverage(const Module& model, Options options = {});

  /// Takes in the weights as they are, after a step. nn::Trainer does this by itself where
  /// TrainerOptions::average is set, and saves the average with its checkpoints.
  void update();
  int64_t updates() const { return updates_; }

  /// While one lives, the model has the averages, rounded to its dtypes, and then its own weights
  /// again, to the bit. For evaluations, and for saving the averages by save_weights. One at a
  /// time; update() is refused meanwhile.
  class Use {
   public:
    explicit Use(WeightAverage& average);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    WeightAverage& average_;
    Tensors weights_;
  };

  /// The averages, under the names of the parameters: handles, not copies.
  std::vector<NamedTensor> tensors() const;
  /// Continues from copies of such averages after this number of updates. Throws Error, and changes
  /// nothing, unless names, shapes and dtypes are those of tensors(), in any order.
  void load(const std::vector<NamedTensor>& tensors, int64_t updates);

  const Options options;

 private:
  std::vector<NamedTensor> parameters_;
  Tensors averages_;
  int64_t updates_ = 0;
  bool used_ = false;
};

}  // namespace stretto::nn
