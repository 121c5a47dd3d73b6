// An exponential moving average (EMA) of the weights of a model, which often evaluates better than
// the weights themselves.
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

/// Options of WeightAverage.
struct WeightAverageOptions {
  double decay = 0.999;  ///< Weight of the previous average, at least 0 and below 1.
};

/// The average of the weights w₁ … wₜ after each of t updates, where wᵢ has a weight proportional
/// to decayᵗ⁻ⁱ. The weights before the first update do not count (the bias correction of Kingma &
/// Ba, "Adam", 2015, section 3, for an average as in Polyak & Juditsky, "Acceleration of stochastic
/// approximation by averaging", 1992). Averages are f32 (f64 for f64 weights), on the device of the
/// weights. All parameters are averaged, also frozen ones; buffers are not.
class WeightAverage {
 public:
  using Options = WeightAverageOptions;  ///< Options of the constructor.
  /// `model` must outlive the average, which is a copy of the weights before the first update.
  explicit WeightAverage(const Module& model, Options options = {});
  WeightAverage(const WeightAverage&) = delete;
  WeightAverage& operator=(const WeightAverage&) = delete;

  /// Adds the current weights to the average, after a step. nn::Trainer calls this if
  /// TrainerOptions::average is set, and stores the average in its checkpoints.
  void update();
  /// Returns the number of updates.
  int64_t updates() const { return updates_; }

  /// Sets the model's weights to the averages, rounded to its dtypes, for a scope; for evaluations
  /// and for save_weights(). At its end the weights are restored exactly. Only one may exist at a
  /// time, and update() throws Error in its scope.
  class Use {
   public:
    /// Sets the weights to the averages.
    explicit Use(WeightAverage& average);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    WeightAverage& average_;
    Tensors weights_;
  };

  /// Returns the averages under the names of the parameters: handles, not copies.
  std::vector<NamedTensor> tensors() const;
  /// Restores averages, by copying them, and the number of updates. Throws Error and changes
  /// nothing unless names, shapes and dtypes are those of tensors(), in any order.
  void load(const std::vector<NamedTensor>& tensors, int64_t updates);

  const Options options;  ///< The options of the constructor.

 private:
  std::vector<NamedTensor> parameters_;
  Tensors averages_;
  int64_t updates_ = 0;
  bool used_ = false;
};

}  // namespace stretto::nn
