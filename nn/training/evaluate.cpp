#include "nn/training/evaluate.h"

#include "nn/distributed/process_group.h"
#include "ops/loss.h"

namespace stretto::nn {

EvalMode::EvalMode(Module& model) {
  before_.push_back({&model, model.training()});
  for (size_t i = 0; i < before_.size(); ++i)
    for (const auto& [name, child] : before_[i].module->children())
      before_.push_back({child, child->training()});
  model.eval();
}

EvalMode::~EvalMode() {
  for (const Mode& mode : before_) mode.module->train(mode.training);
}

void LossSum::add(const Tensor& losses, const Tensor& targets) {
  check(losses.shape() == targets.shape(), "LossSum", "losses ", losses, ", targets ", targets,
        "; shapes must be equal");
  const std::vector<double> values = losses.to_vector<double>();
  const std::vector<int64_t> target_ids = targets.to_vector<int64_t>();
  for (size_t i = 0; i < values.size(); ++i) {
    if (target_ids[i] == ignore_index) continue;
    loss += values[i];
    ++tokens;
  }
}

double mean_loss(Module& model, const std::function<Tensor(const Tensor&)>& logits,
                 const EachBatch& batches) {
  const EvalMode guard(model);
  const Device device = model.device();
  EvaluationReducer sums(2);
  batches([&](const Batch& batch) {
    if (!sums.next()) return;
    const auto [inputs, targets] = batch.to(device);
    LossSum sum;
    sum.add(cross_entropy(logits(inputs), targets,
                          {.ignore_index = ignore_index, .reduction = Reduction::none}),
            targets);
    sums.add({sum.loss, double(sum.tokens)});
  });
  const std::vector<double> total = sums.total();
  return total[0] / total[1];
}

}  // namespace stretto::nn
