// The optimizer and the learning-rate schedule of a training program, by its settings.
#pragma once

#include <memory>

#include "examples/training/model_settings.h"
#include "nn/optim/optim.h"
#include "nn/optim/schedule.h"

namespace stretto::examples {

/// Returns the schedule of --schedule: linear warm-up, then cosine or wsd, down to a hundredth of
/// the peak, over the steps, or, if `steps` is 0, over the elapsed fraction of the run's time.
nn::Schedule schedule_of(const TrainingSettings& settings);

/// Returns the optimizer of --optimizer for the parameters of a model that are not frozen, with
/// these options of AdamW, in which `lr` is not set: the schedule has the rates.
std::unique_ptr<nn::Optimizer> make_optimizer(const nn::Module& model,
                                              const TrainingSettings& settings,
                                              nn::AdamW::Options options);

}  // namespace stretto::examples
