#include "examples/training/optimizer.h"

#include <utility>
#include <vector>

#include "nn/optim/muon.h"
#include "nn/training/parameter_groups.h"

namespace stretto::examples {

nn::Schedule schedule_of(const TrainingSettings& s) {
  const double floor = s.learning_rate / 100;
  if (s.schedule == "wsd")
    return nn::WarmupStableDecay{
        .peak = s.learning_rate, .warmup = s.warmup, .steps = s.steps, .floor = floor};
  return nn::WarmupCosine{
      .peak = s.learning_rate, .warmup = s.warmup, .steps = s.steps, .floor = floor};
}

std::unique_ptr<nn::Optimizer> make_optimizer(const nn::Module& model,
                                              const TrainingSettings& settings,
                                              nn::AdamW::Options o) {
  const bool muon = settings.optimizer == "muon";
  std::vector<nn::GroupRule> rules;
  if (muon) rules = {{"*layers.*.weight", {}}, {"*", {.use_muon = false}}};
  std::vector<nn::ParameterGroup> groups = nn::parameter_groups(model, rules);
  for (nn::ParameterGroup& group : groups)
    std::erase_if(group.parameters, [](const Tensor& p) { return !p.requires_grad(); });
  if (!muon) return std::make_unique<nn::AdamW>(std::move(groups), o);
  return std::make_unique<nn::Muon>(
      std::move(groups),
      nn::Muon::Options{
          .weight_decay = o.weight_decay, .beta1 = o.beta1, .beta2 = o.beta2, .eps = o.eps});
}

}  // namespace stretto::examples
