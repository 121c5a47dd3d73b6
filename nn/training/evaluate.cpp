#include "nn/training/evaluate.h"

#include "nn/distributed/process_group.h"
#include "ops/loss.h"

namespace stretto::nn {

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

namespace {

// The sums of all batches, which are distributed over the processes.
class MeanLoss {
 public:
  // Adds the sum of a batch, compute(), unless another process computes it.
  template <class F>
  void add(F&& compute) {
    if (!sums_.next()) return;
    const LossSum sum = compute();
    sums_.add({sum.loss, double(sum.tokens)});
  }
  double value() {
    const std::vector<double> total = sums_.total();
    return total[0] / total[1];
  }

 private:
  EvaluationReducer sums_{2};
};

}  // namespace

double mean_loss(Module& model, const std::function<Tensor(const Batch&)>& logits,
                 const EachBatch& batches) {
  const EvalMode guard(model);
  const Device device = model.device();
  MeanLoss mean;
  batches([&](const Batch& host) {
    mean.add([&] {
      const Batch batch = host.to(device);
      LossSum sum;
      sum.add(cross_entropy(logits(batch), batch.targets,
                            {.ignore_index = ignore_index, .reduction = Reduction::none}),
              batch.targets);
      return sum;
    });
  });
  return mean.value();
}

double mean_loss(Module& model, const std::function<Tensor(const Tensor&)>& logits,
                 const EachBatch& batches) {
  const auto of_batch = [&](const Batch& batch) {
    check(!batch.padding.defined() && !batch.segments.defined(), "mean_loss", "a batch has ",
          batch.padding.defined() ? "padding" : "segments",
          "; pass a function of the batch that computes the logits");
    return logits(batch.inputs);
  };
  return mean_loss(model, std::function<Tensor(const Batch&)>(of_batch), batches);
}

double mean_loss(Module& model, int64_t batches, const std::function<LossSum(int64_t)>& loss) {
  const EvalMode guard(model);
  MeanLoss mean;
  for (int64_t i = 0; i < batches; ++i) mean.add([&] { return loss(i); });
  return mean.value();
}

double mean_loss(Module& model, const std::vector<Batch>& batches,
                 const std::function<Tensor(const Batch&)>& loss) {
  const Device device = model.device();
  return mean_loss(model, int64_t(batches.size()), [&](int64_t i) {
    const Batch batch = batches[size_t(i)].to(device);
    LossSum sum;
    for (const int64_t target : batch.targets.to_vector<int64_t>())
      sum.tokens += target != ignore_index;
    sum.loss = double(sum.tokens) * loss(batch).item();
    return sum;
  });
}

}  // namespace stretto::nn
